"""What a worker does with its shard of rows: sweeps of EP against a requested cavity, and a measurement.

Sites stay on the worker. The contribution of a shard is linear in its sites (ν, τ),

    shift = Xᵀν,    precision = Xᵀ diag(τ) X,

so a client that takes a share s of a step moves the contribution as the worker, told s, moves the sites.
"""

import dataclasses
import uuid
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity._core.system import one_blas_thread
from cavity.distributed.naturals import pack_naturals, unpack_naturals
from cavity.distributed.protocol import Measurement, Request, Response
from cavity.inference.methods import EP
from cavity.inference.problem import Problem
from cavity.inference.update_rule import UpdateRule
from cavity.models.latent_gaussian.assembly import LinearRows, weight_schedule
from cavity.models.streaming.shard import (
    NaturalSums,
    ShardSites,
    constant_log_likelihood,
    measure_shard,
    shard_problem,
    sweep_shard,
)

#: a visit ends when the mismatch it meets is no larger
SETTLED = 0.1
#: sweeps of one visit at most, and of one that must find lost sites again
MAX_SWEEPS, MAX_SWEEPS_ANEW = 30, 200


class LastVisit(NamedTuple):
    """What the last visit began with, what it proposed, and the name of the proposal."""

    base: ShardSites
    proposed: ShardSites
    token: str


@dataclasses.dataclass
class Shard:
    """Rows with the sites the last visit left: both lie in the worker's memory, and go when the shard is let go.

    Dask may copy a shard or read it back from disk as it once was; a token tells whether its sites are those meant.
    """

    rows: LinearRows
    last: LastVisit | None = None


def shape_of(shard: Shard) -> tuple[int, int]:
    """Rows and columns of a shard."""
    return len(shard.rows.multiplicity), shard.rows.d


def accepted_sites(shard: Shard, request: Request) -> tuple[ShardSites, bool]:
    """The sites behind the client's contribution, and whether they are there; flat ones where they were lost."""
    last, step = shard.last, request.step
    if request.token is not None and last is not None and last.token == request.token:
        # A whole step is the proposal itself: the difference would round.
        if step == 1.0:
            return last.proposed, True
        return jax.tree.map(lambda old, new: old + step * (new - old), last.base, last.proposed), True
    return ShardSites.flat(shard_problem(shard.rows)), request.token is None


def shard_arguments(rows: LinearRows, request: Request) -> tuple[Problem, UpdateRule, NaturalSums]:
    """What the programs for a shard begin with: its rows, the method, and the cavity as the rest."""
    method = dataclasses.replace(EP(tol=request.tol).as_compiled(), schedule=weight_schedule(len(rows.X), rows.d))
    return shard_problem(rows), method, NaturalSums.padded(*unpack_naturals(request.cavity))


def contribution_of(own: NaturalSums, d: int) -> np.ndarray:
    """Sums as a packed vector, without the padding."""
    return pack_naturals(np.asarray(own.shift)[:d], np.asarray(own.precision)[:d, :d])


@jax.jit
def sweep_rows(
    problem: Problem, method: UpdateRule, rest: NaturalSums, now: ShardSites
) -> tuple[ShardSites, jax.Array]:
    """The sites after a sweep, and the mismatch met; log s stay as they are, for only a measurement here needs them."""
    found = sweep_shard(problem, method, rest, now, jnp.zeros((), int), jax.random.key(0))
    sites = now.sites.at[:, :2].set(found.new.sites[:, :2])
    return ShardSites(sites, found.new.own._replace(log_scale=now.own.log_scale)), jnp.max(found.mismatch)


@float64
@one_blas_thread()
def visit_rows(shard: Shard, request: Request) -> Response:
    """Sweeps over the shard against the cavity until it has mostly settled, one if it has; the sites stay here.

    A few parallel sweeps from flat sites are far from anything and nothing to combine; near the end more than one
    would be wasted while the other shards still move. Sites that were lost are looked for to the end, so that what is
    replaced is replaced by the same.
    """
    rows, (base, linked) = shard.rows, accepted_sites(shard, request)
    # The rows are handed over to compiled programs once, not at every sweep.
    arguments = jax.device_put(shard_arguments(rows, request))
    now, met = jax.tree.map(jnp.asarray, base), []
    enough, most = (max(SETTLED, request.tol), MAX_SWEEPS) if linked else (request.tol, MAX_SWEEPS_ANEW)
    while len(met) < most and (not met or met[-1] > enough):
        now, mismatch = sweep_rows(*arguments, now)
        met.append(float(mismatch))
    now = jax.tree.map(np.asarray, now)
    shard.last = LastVisit(base, now, uuid.uuid4().hex)
    negative = int(np.sum(now.sites[: rows.count, 1] < 0))
    return Response(contribution_of(now.own, rows.d), shard.last.token, linked, met[0], negative)


@float64
@one_blas_thread()
def measure_rows(shard: Shard, request: Request) -> Measurement:
    """The shard at the client's state; changes nothing. Without its sites there is nothing to measure: ∞."""
    rows, (now, linked) = shard.rows, accepted_sites(shard, request)
    report, own = measure_shard(*shard_arguments(rows, request), now.sites, jax.random.key(0))
    return Measurement(
        mismatch=float(np.max(report.mismatch[0])) if linked else np.inf,
        log_evidence=float(own.log_scale) + constant_log_likelihood(rows),
        contribution=contribution_of(own, rows.d),
        improper=int(np.sum(report.improper[0])),
        nonfinite=int(np.sum(report.nonfinite[0])),
    )
