"""What a worker does with its shard: sweeps of EP against the cavity it is told, and a measurement.

Sites stay on the worker. What a shard says of the weights is linear in its sites (ν, τ):

    shift = Xᵀν,    precision = Xᵀ diag(τ) X,

so a client that takes a share s of a step moves the contribution as the worker, told s, moves the sites.
"""

import dataclasses
import uuid
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity._core.threads import one_blas_thread
from cavity.distributed.naturals import pack, unpack
from cavity.inference import stepping
from cavity.inference.methods import EP, Method
from cavity.inference.problem import Problem
from cavity.models.latent_gaussian.fit_result import at_zero
from cavity.models.latent_gaussian.linear_model import Rows
from cavity.models.latent_gaussian.padding import padded_with_zeros
from cavity.posteriors.weight_gaussian import WeightGaussian, WeightPrior, weights

#: a visit ends when the mismatch it meets is no larger
SETTLED = 0.1
#: sweeps of one visit at most, and of one that must find lost sites again
MAX_SWEEPS, MAX_SWEEPS_ANEW = 30, 200


class Said(NamedTuple):
    """Sites of a shard, one row (ν, τ) each, with what they say together: shift and precision, linear in them."""

    sites: Any
    shift: Any
    precision: Any


class Held(NamedTuple):
    """What the last visit began with, what it proposed, and the proposal's own name."""

    base: Said
    proposed: Said
    token: str


@dataclasses.dataclass
class Shard:
    """Rows with the sites the last visit left: both lie in the worker's memory, and go when the shard is let go.

    Dask may copy a shard or read it back from disk as it once was; a token tells whether its sites are those meant.
    """

    rows: Rows
    held: Held | None = None


class Request(NamedTuple):
    """What a client tells a shard.

    cavity: packed natural parameters of everything else. token, step: the proposal the client has taken and the share
    of it; token None where the shard has said nothing yet, and its sites are flat.
    """

    cavity: np.ndarray
    token: str | None
    step: float
    tol: float


class Answer(NamedTuple):
    """What a visit found.

    naturals: the proposed contribution. residual: largest mismatch the first sweep met, between the global
    distribution as told and the shard's tilted ones. linked: whether the sites behind the present contribution were
    there. negative: proposed sites of negative precision.
    """

    naturals: np.ndarray
    token: str
    linked: bool
    residual: float
    negative: int
    sweeps: int


class Measurement(NamedTuple):
    """A shard at the state the client has: its largest mismatch, Σ log sᵢ over its rows, sites without an update.

    naturals: its contribution, worked out again from its sites.
    """

    mismatch: float
    log_scales: float
    improper: int
    nonfinite: int
    naturals: np.ndarray


def shape_of(shard: Shard) -> tuple[int, int]:
    """Rows and columns of a shard."""
    return len(shard.rows.held), shard.rows.d


def said_before(shard: Shard, request: Request) -> tuple[Said, bool]:
    """What is behind the shard's present contribution, and whether it is; flat sites where it was lost."""
    held, step = shard.held, request.step
    if request.token is not None and held is not None and held.token == request.token:
        # A whole step is the proposal itself: the difference would round.
        if step == 1.0:
            return held.proposed, True
        return jax.tree.map(lambda old, new: old + step * (new - old), held.base, held.proposed), True
    n, d = shard.rows.X.shape
    return Said(np.zeros((n, 2)), np.zeros(d), np.zeros((d, d))), request.token is None


class NaturalWeights(NamedTuple):
    """`Weights` with the natural parameters they were made from."""

    mean: jax.Array
    covariance: jax.Array
    log_partition: jax.Array
    proper: jax.Array
    shift: jax.Array
    precision: jax.Array


def natural_weights(shift: jax.Array, precision: jax.Array) -> NaturalWeights:
    """The Gaussian with these natural parameters."""
    return NaturalWeights(*weights(shift, precision), shift, precision)


@dataclasses.dataclass(frozen=True)
class KeepsNaturals(WeightGaussian):
    """The weight form whose q keeps what it was rebuilt from: what a shard says, without another pass over its rows."""

    def refresh(self, prior: WeightPrior, groups: tuple[tuple[Any, jax.Array], ...]) -> Any:
        (_, sites), rows = *groups, prior.rows
        nu, tau = sites.T
        return natural_weights(prior.shift + rows.T @ nu, prior.precision + rows.T @ (tau[:, None] * rows))


def problem_of(rows: Rows, request: Request) -> Problem:
    """The shard's rows with the cavity as prior."""
    problem = rows.problem(rows.term, *unpack(request.cavity, rows.d))
    return dataclasses.replace(problem, posterior=KeepsNaturals())


@jax.jit
def swept(problem: Problem, method: Method, said: Said) -> tuple[Said, jax.Array]:
    """One sweep of the loop from q = cavity × what was said; what is said then, and the mismatch met.

    The sweeps are made one by one because only a rebuilt q tells what the sites say, and that serves the next sweep
    as well: a sweep here costs what it costs in one place.
    """
    prior = problem.prior
    q = natural_weights(prior.shift + said.shift, prior.precision + said.precision)
    state, info = stepping.step(problem, method, stepping.init(problem, method, (said.sites,))._replace(q=q))
    (sites,) = state.sites
    return Said(sites, state.q.shift - prior.shift, state.q.precision - prior.precision), info.mismatch


@float64
@one_blas_thread()
def visit(shard: Shard, request: Request) -> Answer:
    """Sweeps over the shard against the cavity until it has mostly settled, one if it has; the sites stay here.

    A few parallel sweeps from flat sites are far from anything and nothing to combine; near the end more than one
    would be wasted while the other shards still move. Sites that were lost are looked for to the end, so that what is
    replaced is replaced by the same.
    """
    rows, (base, linked) = shard.rows, said_before(shard, request)
    problem, method = problem_of(rows, request), EP(tol=request.tol).as_compiled()
    said, met = jax.tree.map(jnp.asarray, base), []
    enough, most = (max(SETTLED, request.tol), MAX_SWEEPS) if linked else (request.tol, MAX_SWEEPS_ANEW)
    while len(met) < most and (not met or met[-1] > enough):
        said, residual = swept(problem, method, said)
        met.append(float(residual))
    token, d = uuid.uuid4().hex, rows.d
    said = jax.tree.map(np.asarray, said)
    shard.held = Held(base, said, token)
    negative = int(np.sum(said.sites[: len(rows.held), 1] < 0))
    return Answer(pack(said.shift[:d], said.precision[:d, :d]), token, linked, met[0], negative, len(met))


@jax.jit
def looked_at(problem: Problem, method: Method, sites: tuple[jax.Array, ...]) -> stepping.Report:
    """Mismatch and scale of every site, at the cavity given with the problem."""
    return stepping.measure(problem, method, stepping.init(problem, method, sites))


@jax.jit
def examined(problem: Problem, method: Method, sites: jax.Array) -> tuple[stepping.Report, tuple[jax.Array, jax.Array]]:
    """The report of a shard's sites, and what they say, from the sites alone."""
    (group,), rows = problem.groups, problem.prior.rows
    nu, tau = (group.copies[:, None] * sites).T
    return looked_at(problem, method, (sites,)), (rows.T @ nu, rows.T @ (tau[:, None] * rows))


@float64
@one_blas_thread()
def measure_shard(shard: Shard, request: Request) -> Measurement:
    """The shard at the client's state; changes nothing. Without its sites there is nothing to measure: ∞."""
    rows, (said, linked) = shard.rows, said_before(shard, request)
    problem, method = problem_of(rows, request), EP(tol=request.tol).as_compiled()
    report, (shift, precision) = jax.tree.map(np.asarray, examined(problem, method, jnp.asarray(said.sites)))
    left_out, constant = rows.left_out > 0, 0.0
    if left_out.any():
        known = at_zero(rows.term, rows.data)[: len(rows.held)]
        constant = float(rows.left_out[left_out] @ known[left_out])
    held = padded_with_zeros(rows.held, len(rows.X))
    return Measurement(
        mismatch=float(np.max(report.mismatch[0])) if linked else np.inf,
        log_scales=float(held @ np.asarray(report.log_scales[0])) + constant,
        improper=int(np.sum(report.improper[0])),
        nonfinite=int(np.sum(report.nonfinite[0])),
        naturals=pack(shift[: rows.d], precision[: rows.d, : rows.d]),
    )
