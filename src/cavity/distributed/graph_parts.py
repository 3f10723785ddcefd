"""A discrete graph cut into parts, and what a worker does with its part: sweeps of belief propagation.

Every factor is in one part, and parts share the variables at their borders. A part needs of the others only the product
of their messages to each shared variable: natural parameters of a categorical (log weights and counts of zeros).
"""

import dataclasses
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64, to_numpy
from cavity._core.system import one_blas_thread
from cavity.discrete import DiscreteGraph
from cavity.discrete.approx.approximate import disconnected, stored_by_cardinality
from cavity.distributed.rounds import Measurement, Request, Response
from cavity.inference import stepping
from cavity.inference.infer import infer
from cavity.inference.methods import EP
from cavity.inference.problem import Problem
from cavity.inference.update_rule import UpdateRule

#: sweeps a part makes in a round at most
SWEEPS = 10


class Plan(NamedTuple):
    """One part, as it is sent to a worker.

    variables: their numbers in the whole graph. tables: (scopes, log values) of factors of one shape, in the part's own
    numbers. unary: log weights of every variable alone, zero for shared ones, which come with the messages to them.
    shared: which these are; the part counts the evidence of the others.
    """

    variables: np.ndarray
    tables: list[tuple[np.ndarray, np.ndarray]]
    unary: list[np.ndarray]
    shared: np.ndarray


class Cut(NamedTuple):
    """plans: the parts. shared: numbers of the variables in several. log_constant: of factors without variables."""

    plans: list[Plan]
    shared: np.ndarray
    log_constant: float


def cut_graph(graph: DiscreteGraph, parts: int | Sequence[Sequence[int]]) -> Cut:
    """The graph with its factors of two or more variables divided among parts.

    parts: so many of about equal work, neighbours together; or the factors of every part, by number.
    """
    tables = [own for own in graph.factors.by_shape if len(own.shape) > 1]
    member = membership(graph, parts)
    count = int(member.max()) + 1 if member.size else 1
    holders = np.zeros((count, len(graph.variables)), bool)
    for own in tables:
        for column in own.scopes.T:
            holders[member[own.numbers], column] = True
    shared = np.flatnonzero(holders.sum(axis=0) > 1)
    # Variables without such factors count in the first part.
    holders[0] |= ~holders.any(axis=0)
    unary, plans = unary_weights(graph), []
    for number in range(count):
        variables = np.flatnonzero(holders[number])
        place = np.full(len(graph.variables), -1)
        place[variables] = np.arange(len(variables))
        held = [(own, member[own.numbers] == number) for own in tables]
        values = [(place[own.scopes[mine]], own.log_values[mine]) for own, mine in held if mine.any()]
        is_shared = np.isin(variables, shared)
        weights = [np.zeros_like(unary[v]) if s else unary[v] for v, s in zip(variables, is_shared, strict=True)]
        plans.append(Plan(variables, values, weights, is_shared))
    constant = sum(float(own.log_values.sum()) for own in graph.factors.by_shape if not own.shape)
    return Cut(plans, shared, constant)


def unary_weights(graph: DiscreteGraph) -> list[np.ndarray]:
    """Log weights of every variable alone."""
    return np.split(graph.flat_unary(), np.cumsum(graph.cardinalities)[:-1])


def membership(graph: DiscreteGraph, parts: Any) -> np.ndarray:
    """The part of every factor, by number; 0 for those of fewer than two variables, which are in no part's sites."""
    wide = [number for own in graph.factors.by_shape if len(own.shape) > 1 for number in own.numbers.tolist()]
    found = np.zeros(len(graph.factors), np.int64)
    if isinstance(parts, int | np.integer):
        if parts < 1:
            raise ValueError(f"parts must be a whole number of at least 1, or lists of factors; found {parts}.")
        for number, own in enumerate(np.array_split(near_each_other(graph, wide), min(int(parts), max(len(wide), 1)))):
            found[own] = number
        return found
    flat = [int(number) for own in parts for number in own]
    if len(set(flat)) < len(flat) or not set(wide) <= set(flat) or any(n >= len(graph.factors) or n < 0 for n in flat):
        raise ValueError("parts must name every factor of two or more variables once, by number.")
    for number, own in enumerate(parts):
        found[list(own)] = number
    return found


def near_each_other(graph: DiscreteGraph, wide: list[int]) -> np.ndarray:
    """Factors in the order of a walk through the graph, breadth first, so that neighbours stay together."""
    scopes = {
        n: scope
        for own in graph.factors.by_shape
        for n, scope in zip(own.numbers.tolist(), own.scopes.tolist(), strict=True)
    }
    touching: dict[int, list[int]] = {}
    for number in wide:
        for variable in scopes[number]:
            touching.setdefault(variable, []).append(number)
    order: dict[int, None] = {}
    for first in wide:
        queue = [first]
        for number in queue:  # it grows at its end
            if number not in order:
                order[number] = None
                for variable in scopes[number]:
                    queue += touching.pop(variable, [])
    return np.array(list(order), np.int64)


@dataclasses.dataclass
class Part:
    """A part on its worker: its problem without the messages of others, and its sites as the last visit left them.

    damping: of the updates inside the part. places: where each variable is stored, as (family, row). rows: the shared
    ones among them.
    """

    problem: Problem
    plan: Plan
    damping: float
    places: list[tuple[int, int]]
    rows: list[tuple[int, int]]
    sites: tuple[Any, ...] | None = None
    token: str = ""

    def with_messages(self, cavity: np.ndarray) -> Problem:
        """The problem with the messages of all others to the shared variables, one after another."""
        prior, start = self.problem.prior, 0
        etas = [np.array(eta) for eta in prior.etas]
        for family, row in self.rows:
            size = etas[family].shape[1]
            etas[family][row] += cavity[start : start + size]
            start += size
        return dataclasses.replace(self.problem, prior=prior._replace(etas=tuple(jnp.asarray(eta) for eta in etas)))

    def messages(self) -> np.ndarray:
        """The messages of this part to the shared variables."""
        etas = [np.asarray(eta) for eta in multiply_messages(self.problem, self.sites or ())]
        return np.concatenate([np.zeros(0), *(etas[family][row] for family, row in self.rows)])


@jax.jit
def multiply_messages(problem: Problem, sites: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """The sites' messages to every variable, multiplied, one array per family."""
    nothing = problem.prior._replace(etas=tuple(jnp.zeros_like(eta) for eta in problem.prior.etas))
    return stepping.init(dataclasses.replace(problem, prior=nothing), EP(), sites).q.etas


@jax.jit
def report_part(problem: Problem, method: UpdateRule, sites: tuple[jax.Array, ...]) -> tuple[stepping.Report, Any, Any]:
    """The report of all sites; log normalisers and marginals of all variables, one array per family."""
    state, families = stepping.init(problem, method, sites), problem.posterior.families  # type: ignore[attr-defined]
    pairs = list(zip(families, state.q.etas, strict=True))
    partitions, marginals = ([getattr(own, what)(eta) for own, eta in pairs] for what in ("log_partition", "moments"))
    return stepping.measure(problem, method, state), partitions, marginals


@float64
def load_part(pieces: list[Plan], damping: float) -> Part:
    """A part made ready on its worker."""
    (plan,) = pieces
    graph = DiscreteGraph([len(own) for own in plan.unary])
    for scopes, log_values in plan.tables:
        graph.add_factors(scopes, log_values, log=True)
    for variable, own in enumerate(plan.unary):
        if own.any():
            graph.add_factor([variable], own, log=True)
    stored = stored_by_cardinality(graph.cardinalities)
    places = list(zip(stored.family.tolist(), stored.row.tolist(), strict=True))
    rows = [places[v] for v in np.flatnonzero(plan.shared)]
    return Part(to_numpy(disconnected(graph)), plan, damping, places, rows)


@float64
@one_blas_thread()
def visit_part(part: Part, request: Request) -> Response:
    """Sweeps of belief propagation inside the part; sites that were lost start flat."""
    known = part.sites is not None and part.token == request.token
    method = EP(damping=part.damping, max_sweeps=SWEEPS, tol=request.tol)
    solution = infer(part.with_messages(request.cavity), method, init=part.sites if known else None)
    part.sites, part.token = solution.sites, uuid.uuid4().hex
    return Response(part.messages(), part.token, known or request.token is None, float(solution.residuals[0]))


@float64
@one_blas_thread()
def measure_part(part: Part, request: Request) -> Measurement:
    """Mismatch, log scales and marginals of a part; changes nothing."""
    if part.sites is None or part.token != request.token:
        return Measurement(np.inf, np.nan, np.zeros(0))
    method = EP(tol=request.tol).as_compiled()
    report, partitions, moments = to_numpy(report_part(part.with_messages(request.cavity), method, part.sites))
    mine = sum(float(partitions[f][r]) for (f, r), own in zip(part.places, part.plan.shared, strict=True) if not own)
    scales = sum(float(np.sum(own)) for own in report.log_scales)
    mismatch = max(float(np.max(own)) for own in report.mismatch)
    marginals = tuple(moments[family][row] for family, row in part.places)
    return Measurement(mismatch, mine + scales, part.messages(), marginals=marginals)
