"""Loopy belief propagation on one large graph cut into parts, each on a worker; only messages across cuts travel.

Every factor is in one part, and parts share the variables at their borders. A part needs of the others only the product
of their messages to each shared variable: natural parameters of a categorical (log weights and counts of zeros).
"""

import dataclasses
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from distributed import Client

from cavity._core.precision import float64, to_numpy
from cavity._core.system import one_blas_thread
from cavity._core.tiers import tiered_jit
from cavity.discrete import DiscreteGraph
from cavity.discrete.approx.approximate import disconnected, stored_by_cardinality
from cavity.discrete.graph import check_possible
from cavity.distributed._rounds import Measurement, Request, Response, RoundOptions, Rounds, RoundsResult
from cavity.distributed._worker_pool import WorkerPool, loader_of
from cavity.distributed.clients import client_or_local
from cavity.families.categorical import Categorical
from cavity.inference import stepping
from cavity.inference.infer import infer
from cavity.inference.methods import EP
from cavity.inference.problem import Problem
from cavity.inference.status import Status
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
    unary, plans = graph.unary_weights(), []
    for number in range(count):
        variables = np.flatnonzero(holders[number])
        place = np.full(len(graph.variables), -1)
        place[variables] = np.arange(len(variables))
        held = [(own, member[own.numbers] == number) for own in tables]
        values = [(place[own.scopes[mine]], own.log_values[mine]) for own, mine in held if mine.any()]
        is_shared = np.isin(variables, shared)
        weights = [np.zeros_like(unary[v]) if s else unary[v] for v, s in zip(variables, is_shared, strict=True)]
        plans.append(Plan(variables, values, weights, is_shared))
    return Cut(plans, shared, graph.log_constant)


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
    scopes: dict[int, list[int]] = {}
    for own in graph.factors.by_shape:
        scopes.update(zip(own.numbers.tolist(), own.scopes.tolist(), strict=True))
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


@tiered_jit
def multiply_messages(problem: Problem, sites: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """The sites' messages to every variable, multiplied, one array per family."""
    nothing = problem.prior._replace(etas=tuple(jnp.zeros_like(eta) for eta in problem.prior.etas))
    return stepping.init(dataclasses.replace(problem, prior=nothing), EP(), sites).q.etas


@tiered_jit
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphFit(RoundsResult):
    """Marginals of every variable and the Bethe estimate of the log partition function. Made by `infer_in_parts`.

    Attributes:
        status: why it ended.
        log_evidence: the Bethe estimate of the log partition function.
        mismatch: the largest moment mismatch of all parts, measured at the state returned.
        residuals: the largest mismatch met in every round.
        seconds: the run took.
        marginals: probabilities of the states of every variable.
        shared: how many variables are in several parts.

    Examples:
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> from cavity.discrete import DiscreteGraph
        >>> graph = DiscreteGraph([2, 2, 2])
        >>> _ = graph.add_factor([0, 1], [[0.9, 0.1], [0.2, 0.8]]), graph.add_factor([1, 2], [[0.7, 0.3], [0.4, 0.6]])
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     found = distributed.infer_in_parts(graph, 2, client=client)
        >>> found.shared, round(found.log_evidence, 6)  # log 2
        (1, 0.693147)
    """

    marginals: list[np.ndarray]
    shared: int


@float64
def infer_in_parts(
    graph: DiscreteGraph,
    parts: int | Sequence[Sequence[int]],
    *,
    client: Client | None = None,
    asynchronous: bool = False,
    damping: float = 1.0,
    tol: float = 1e-8,
    max_rounds: int = 200,
    max_seconds: float | None = None,
    callback: Callable[[float], Any] | None = None,
) -> GraphFit:
    """Loopy belief propagation with the graph cut into parts; the fixed points are those of the graph in one place.

    Args:
        graph: with its evidence.
        parts: so many of about equal size, or the factors of every part, by number.
        client: of a Dask cluster; without one, processes on this machine do the work.
        asynchronous: take in messages as they come.
        damping: of the updates inside the parts.
        tol: bound on the moment mismatch of every factor.
        max_rounds: rounds at most.
        max_seconds: stop after the round that passes this time, or half a minute later without its answers.
        callback: called after every round with the largest mismatch met.

    Returns:
        A `GraphFit`: marginals, log evidence and status.

    Raises:
        ValueError: options that cannot be run, parts that do not name every factor once, or impossible evidence.
        ClusterError: a shard could not be loaded or lost its worker again and again, or the scheduler or all workers
            are gone; the error's `reached` is the result so far.

    Examples:
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> from cavity.discrete import DiscreteGraph
        >>> graph = DiscreteGraph([2, 2, 2])
        >>> _ = graph.add_factor([0, 1], [[0.9, 0.1], [0.2, 0.8]]), graph.add_factor([1, 2], [[0.7, 0.3], [0.4, 0.6]])
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     found = distributed.infer_in_parts(graph, 2, client=client)
        >>> str(found.status), found.marginals[2].round(3)
        ('converged', array([0.565, 0.435]))
    """
    # Damping is done inside the parts.
    options = RoundOptions(asynchronous, damping, tol, max_rounds, max_seconds)
    check_possible(graph)
    cut = cut_graph(graph, parts)
    loaders = [loader_of(load_part, [plan], damping) for plan in cut.plans]
    with client_or_local(client) as own, WorkerPool(own, loaders, options.deadline) as pool:
        pool.load()
        messages, options = BorderMessages(graph, cut), dataclasses.replace(options, damping=1.0)
        rounds = GraphRounds(pool, messages, options, callback, graph, cut)
        return rounds.result(rounds.finish(rounds.make_rounds()))


class BorderMessages:
    """The messages of all parts to the variables they share, on the client.

    own: weights of the shared variables themselves. index: which numbers of the vector of all shared variables a part
    sees. values: the messages of every part.
    """

    def __init__(self, graph: DiscreteGraph, cut: Cut) -> None:
        unary = graph.unary_weights()
        weights = [unary[variable] for variable in cut.shared]
        pairs = [(np.where(own == -np.inf, 0.0, own), own == -np.inf) for own in weights]
        self.own = np.concatenate([np.zeros(0), *(part for pair in pairs for part in pair)])
        self.families = [Categorical(len(own)) for own in weights]
        self.ends = np.cumsum([family.size for family in self.families], dtype=int)[:-1]
        places = dict(zip(cut.shared.tolist(), np.split(np.arange(len(self.own)), self.ends), strict=False))
        seen = [[places[v] for v in plan.variables[plan.shared].tolist()] for plan in cut.plans]
        self.index = [np.concatenate([np.zeros(0, int), *own]) for own in seen]
        self.values = [np.zeros(len(own)) for own in self.index]

    @property
    def total(self) -> np.ndarray:
        """Natural parameters of the shared variables."""
        found = self.own.copy()
        for index, messages in zip(self.index, self.values, strict=True):
            found[index] += messages
        return found

    def cavity(self, number: int) -> np.ndarray:
        """The messages of all others to the variables part `number` sees."""
        return self.total[self.index[number]] - self.values[number]

    def replace(self, responses: dict[int, Response], damping: float) -> dict[int, float]:
        """Take the messages of parts, whole: damping is done inside the parts."""
        for number, response in responses.items():
            self.values[number] = response.contribution
        return dict.fromkeys(responses, 1.0)

    def log_partition(self) -> float:
        """Σ log Z of the shared variables."""
        parts = zip(self.families, np.split(self.total, self.ends), strict=False)
        return sum(float(family.log_partition(jnp.asarray(eta))) for family, eta in parts)


@dataclasses.dataclass
class GraphRounds(Rounds):
    """Rounds over the parts of a graph."""

    state: BorderMessages
    graph: DiscreteGraph
    cut: Cut
    measured: dict[int, Measurement] = dataclasses.field(default_factory=dict)

    visit = staticmethod(visit_part)
    measure = staticmethod(measure_part)

    def report(self) -> None:
        if self.callback is not None:
            self.callback(self.mismatch)

    def is_settled(self) -> bool:
        self.measured = self.measure_all()
        return self.agrees

    def finish(self, status: Status) -> Status:
        while status is not Status.CONVERGED and not (self.is_settled() or np.isfinite(self.mismatch)):
            self.pool.check_workers()  # a part was lost between its last visit and now
            for number, own in enumerate(self.accepted):
                if not np.isfinite(own.mismatch):
                    self.ask(number)
            self.take(dict(self.pool.answers()))
        return status

    def result(self, status: Status) -> GraphFit:
        marginals: list[Any] = [None] * len(self.graph.variables)
        for number, plan in enumerate(self.cut.plans):
            for variable, own in zip(plan.variables.tolist(), self.measured[number].marginals, strict=True):
                marginals[variable] = own
        parts = sum(own.log_evidence for own in self.measured.values())
        log_evidence = self.cut.log_constant + parts + self.state.log_partition()
        return GraphFit(
            marginals=marginals, log_evidence=log_evidence, shared=len(self.cut.shared), **self.account(status)
        )
