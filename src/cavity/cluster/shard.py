"""What a worker does with its shard: sweeps of EP against the cavity it is told, and a measurement.

Sites stay on the worker. What a shard says of the weights is linear in its sites (ν, τ):

    shift = Xᵀν,    precision = Xᵀ diag(τ) X,

so a client that takes a share s of a step moves the contribution as the worker, told s, moves the sites.
"""

import dataclasses
import uuid
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.cluster.naturals import pack, unpack
from cavity.inference.loop import Start, measured, sweep, untold
from cavity.inference.methods import EP, Method
from cavity.inference.problem import Problem
from cavity.inference.state import Report
from cavity.models.machines.linear import Rows
from cavity.models.machines.padding import padded_with_zeros
from cavity.models.machines.record import at_zero
from cavity.numerics.precision import float64
from cavity.numerics.threads import one_blas_thread
from cavity.posteriors.weight_gaussian import weights

#: a visit ends when the mismatch it meets is this share of the one it began with, or of 1 where that is larger
SHARE = 0.1
#: sweeps of one visit at most, and of one that must find lost sites again
MAX_SWEEPS, MAX_SWEEPS_ANEW = 30, 200


class Held(NamedTuple):
    """Sites of a shard: those the last visit began with, those it proposed, and the proposal's own name."""

    base: np.ndarray
    proposed: np.ndarray
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
    there. negative: proposed sites of negative precision. trouble: visits to sites that could not be updated.
    """

    naturals: np.ndarray
    token: str
    linked: bool
    residual: float
    negative: int
    sweeps: int
    trouble: int


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


def sites_of(shard: Shard, request: Request) -> tuple[np.ndarray, bool]:
    """The sites behind the shard's present contribution, and whether they are; flat ones where they were lost."""
    held = shard.held
    if request.token is not None and held is not None and held.token == request.token:
        # A whole step is the proposal itself: the difference would round.
        whole = request.step == 1.0
        return held.proposed if whole else held.base + request.step * (held.proposed - held.base), True
    return np.zeros((len(shard.rows.X), 2)), request.token is None


def problem_of(rows: Rows, request: Request) -> Problem:
    """The shard's rows with the cavity as prior."""
    return rows.problem(rows.term, *unpack(request.cavity, rows.d))


@jax.jit
def contribution(problem: Problem, sites: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(Xᵀν, Xᵀ diag(τ) X) of all copies of the sites."""
    nu, tau = (problem.groups[0].copies[:, None] * sites).T
    rows = problem.prior.rows
    return rows.T @ nu, rows.T @ (tau[:, None] * rows)


@jax.jit
def swept(
    problem: Problem, method: Method, sites: jax.Array, own: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, tuple[jax.Array, jax.Array], jax.Array, jax.Array]:
    """One sweep of the loop: sites, their contribution, the mismatch met, visits without an update.

    own: the contribution of the sites before. The client needs contributions, which the loop only has inside q; with
    the sweeps one by one they serve the next sweep as well, and no pass over the rows is made twice.
    """
    state = untold(problem, method, Start((sites,)))
    q = weights(problem.prior.shift + own[0], problem.prior.precision + own[1])
    state = sweep(problem, method, state._replace(q=q), jax.random.key(0))
    (found,), counts = state.sites, state.counts
    return found, contribution(problem, found), state.residuals[0], counts.improper_cavity + counts.nonfinite


@float64
@one_blas_thread()
def visit(shard: Shard, request: Request) -> Answer:
    """Sweeps over the shard against the cavity until it has mostly settled; the sites stay here.

    Each visit shall bring its mismatch down tenfold: less would leave early rounds without sense (a few parallel
    sweeps from flat sites are far from anything), more is wasted while the other shards still move. Sites that were
    lost are looked for to the end, so that what is replaced is replaced by the same.
    """
    rows, (sites, linked) = shard.rows, sites_of(shard, request)
    problem, method = problem_of(rows, request), EP(tol=request.tol).as_compiled()
    base = sites = jnp.asarray(sites)
    own = contribution(problem, sites)
    first = residual = np.inf
    trouble = count = 0
    share, most = (SHARE, MAX_SWEEPS) if linked else (0.0, MAX_SWEEPS_ANEW)
    while count < most and residual > max(share * min(first, 1.0), request.tol):
        sites, own, met, left = swept(problem, method, sites, own)
        residual, count, trouble = float(met), count + 1, trouble + int(left)
        first = residual if count == 1 else first
    token, d = uuid.uuid4().hex, rows.d
    shard.held = Held(np.asarray(base), np.asarray(sites), token)
    negative = int(np.sum(np.asarray(sites)[: len(rows.held), 1] < 0))
    shift, precision = (np.asarray(part) for part in own)
    return Answer(pack(shift[:d], precision[:d, :d]), token, linked, first, negative, count, trouble)


@jax.jit
def looked_at(problem: Problem, method: Method, sites: tuple[jax.Array, ...]) -> Report:
    """Mismatch and scale of every site, at the cavity given with the problem."""
    return measured(problem, method, untold(problem, method, Start(sites)), jax.random.key(0))


@float64
@one_blas_thread()
def measure_shard(shard: Shard, request: Request) -> Measurement:
    """The shard at the client's state; changes nothing. Without its sites there is nothing to measure: ∞."""
    rows, (sites, linked) = shard.rows, sites_of(shard, request)
    problem, method = problem_of(rows, request), EP(tol=request.tol).as_compiled()
    report = looked_at(problem, method, (jnp.asarray(sites),))
    left_out, constant = rows.left_out > 0, 0.0
    if left_out.any():
        known = at_zero(rows.term, rows.data)[: len(rows.held)]
        constant = float(rows.left_out[left_out] @ known[left_out])
    held = padded_with_zeros(rows.held, len(rows.X))
    shift, precision = (np.asarray(part) for part in contribution(problem, jnp.asarray(sites)))
    return Measurement(
        mismatch=float(report.largest) if linked else np.inf,
        log_scales=float(held @ np.asarray(report.log_scales[0])) + constant,
        improper=int(np.sum(report.improper[0])),
        nonfinite=int(np.sum(report.nonfinite[0])),
        naturals=pack(shift[: rows.d], precision[: rows.d, : rows.d]),
    )
