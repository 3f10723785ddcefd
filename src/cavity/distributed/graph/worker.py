"""What a worker does with its part of a graph: sweeps of belief propagation against the messages of all others."""

import dataclasses
import uuid
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64, to_numpy
from cavity._core.system import one_blas_thread
from cavity.discrete import DiscreteGraph
from cavity.discrete.approx.loopy import disconnected, stored_by_cardinality
from cavity.distributed.graph.cutting import Plan
from cavity.distributed.protocol import Measurement, Request, Response
from cavity.inference import stepping
from cavity.inference.infer import infer
from cavity.inference.methods import EP
from cavity.inference.problem import Problem
from cavity.inference.update_rule import UpdateRule

#: sweeps a part makes in a round at most
SWEEPS = 10


@dataclasses.dataclass
class Part:
    """A part on its worker: its problem without the messages of others, and its sites as the last visit left them.

    damping: of the updates inside the part. rows: where each shared variable is stored, as (family, row).
    """

    problem: Problem
    plan: Plan
    damping: float
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
    graph = DiscreteGraph(plan.cardinalities.tolist())
    for scopes, log_values in plan.tables:
        graph.add_factors(scopes, log_values, log=True)
    starts = np.concatenate([[0], np.cumsum(plan.cardinalities)])
    for variable in range(len(plan.cardinalities)):
        own = plan.unary[starts[variable] : starts[variable + 1]]
        if own.any():
            graph.add_factor([variable], own, log=True)
    stored = stored_by_cardinality(graph.cardinalities)
    rows = [(int(stored.family[v]), int(stored.row[v])) for v in plan.shared]
    return Part(to_numpy(disconnected(graph)), plan, damping, rows)


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
    stored = stored_by_cardinality(part.plan.cardinalities)
    places = list(zip(stored.family.tolist(), stored.row.tolist(), strict=True))
    mine = sum(float(partitions[f][r]) for (f, r), own in zip(places, part.plan.owned, strict=True) if own)
    scales = sum(float(np.sum(own)) for own in report.log_scales)
    mismatch = max(float(np.max(own)) for own in report.mismatch)
    marginals = tuple(moments[family][row] for family, row in places)
    return Measurement(mismatch, mine + scales, part.messages(), marginals=marginals)
