"""What a worker does with its part of a graph: sweeps of belief propagation against what the other parts say."""

import dataclasses
import uuid
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64, to_numpy
from cavity._core.threads import one_blas_thread
from cavity.discrete import DiscreteGraph
from cavity.discrete.approx.loopy import disconnected, stored_by_cardinality
from cavity.distributed.graph.cutting import Plan
from cavity.distributed.linear.worker import looked_at
from cavity.inference import stepping
from cavity.inference.infer import infer
from cavity.inference.methods import EP, Method
from cavity.inference.problem import Problem

#: sweeps a part makes in a round at most
SWEEPS = 10


@dataclasses.dataclass
class Part:
    """A part on its worker: its problem without what others say, and its sites as the last visit left them.

    rows: where each shared variable is stored, as (family, row).
    """

    problem: Problem
    plan: Plan
    rows: list[tuple[int, int]]
    sites: tuple[Any, ...] | None = None
    token: str = ""

    def with_messages(self, said: np.ndarray) -> Problem:
        """The problem with what the others say of the shared variables, one after another."""
        prior, start = self.problem.prior, 0
        etas = [np.array(eta) for eta in prior.etas]
        for family, row in self.rows:
            size = etas[family].shape[1]
            etas[family][row] += said[start : start + size]
            start += size
        return dataclasses.replace(self.problem, prior=prior._replace(etas=tuple(jnp.asarray(eta) for eta in etas)))

    def messages(self) -> np.ndarray:
        """What the sites of this part say of the shared variables."""
        etas = [np.asarray(eta) for eta in said_by(self.problem, self.sites or ())]
        return np.concatenate([np.zeros(0), *(etas[family][row] for family, row in self.rows)])


@jax.jit
def said_by(problem: Problem, sites: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """The sites' messages to every variable, multiplied, one array a family."""
    nothing = problem.prior._replace(etas=tuple(jnp.zeros_like(eta) for eta in problem.prior.etas))
    return stepping.init(dataclasses.replace(problem, prior=nothing), EP(), sites).q.etas


@jax.jit
def examined(problem: Problem, method: Method, sites: tuple[jax.Array, ...]) -> tuple[stepping.Report, Any, Any]:
    """The report of all sites; log normalisers and marginals of all variables, one array a family."""
    q, families = stepping.init(problem, method, sites).q, problem.posterior.families  # type: ignore[attr-defined]
    pairs = list(zip(families, q.etas, strict=True))
    partitions, marginals = ([getattr(own, what)(eta) for own, eta in pairs] for what in ("log_partition", "moments"))
    return looked_at(problem, method, sites), partitions, marginals


@float64
def part_of(plan: Plan) -> Part:
    """A part made ready on its worker."""
    graph = DiscreteGraph(plan.cardinalities.tolist())
    for scopes, log_values in plan.tables:
        graph.add_factors(scopes, log_values, log=True)
    starts = np.concatenate([[0], np.cumsum(plan.cardinalities)])
    for variable in range(len(plan.cardinalities)):
        own = plan.unary[starts[variable] : starts[variable + 1]]
        if own.any():
            graph.add_factor([variable], own, log=True)
    stored = stored_by_cardinality(graph.cardinalities)
    return Part(to_numpy(disconnected(graph)), plan, [(int(stored.family[v]), int(stored.row[v])) for v in plan.shared])


class Asked(NamedTuple):
    """What a part is told: messages of all others, which of its own the client has, damping and tolerance."""

    said: np.ndarray
    token: str | None
    damping: float
    tol: float


class Heard(NamedTuple):
    """What a visit found: the part's messages, and the mismatch its first sweep met."""

    naturals: np.ndarray
    token: str
    linked: bool
    residual: float
    negative: int


class Read(NamedTuple):
    """A part at the client's state: mismatch, its share of the log evidence, marginals of its own variables."""

    mismatch: float
    log_evidence: float
    marginals: list[np.ndarray]


@float64
@one_blas_thread()
def visit_part(part: Part, asked: Asked) -> Heard:
    """Sweeps of belief propagation inside the part; sites that were lost start flat."""
    known = part.sites is not None and part.token == asked.token
    method = EP(damping=asked.damping, max_sweeps=SWEEPS, tol=asked.tol)
    solution = infer(part.with_messages(asked.said), method, init=part.sites if known else None)
    part.sites, part.token = solution.sites, uuid.uuid4().hex
    return Heard(part.messages(), part.token, known or asked.token is None, float(solution.residuals[0]), 0)


@float64
@one_blas_thread()
def read_part(part: Part, asked: Asked) -> Read:
    """Mismatch, log scales and marginals of a part; changes nothing."""
    if part.sites is None or part.token != asked.token:
        return Read(np.inf, np.nan, [])
    method = EP(tol=asked.tol).as_compiled()
    report, partitions, moments = to_numpy(examined(part.with_messages(asked.said), method, part.sites))
    stored = stored_by_cardinality(part.plan.cardinalities)
    places = list(zip(stored.family.tolist(), stored.row.tolist(), strict=True))
    mine = sum(float(partitions[f][r]) for (f, r), own in zip(places, part.plan.owned, strict=True) if own)
    scales = sum(float(np.sum(own)) for own in report.log_scales)
    mismatch = max(float(np.max(own)) for own in report.mismatch)
    return Read(mismatch, mine + scales, [moments[family][row] for family, row in places])
