"""Shards of rows: from what a user has (arrays, dataframes, delayed objects, loaders), and what a worker does with one.

A visit makes sweeps of EP against a requested cavity. Sites stay on the worker. The contribution of a shard is linear
in its sites (ν, τ),

    shift = Xᵀν,    precision = Xᵀ diag(τ) X,

so a client that takes a share s of a step moves the contribution as the worker, told s, moves the sites.
"""

import bisect
import dataclasses
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import dask
import dask.array as da
import jax
import jax.numpy as jnp
import numpy as np
from dask.delayed import Delayed
from distributed import Future

from cavity._core.checks import LARGEST, number_array
from cavity._core.precision import float64
from cavity._core.system import one_blas_thread
from cavity._core.tiers import tiered_jit
from cavity.distributed._rounds import Measurement, Request, Response
from cavity.distributed._worker_pool import Loader, loader_of
from cavity.distributed.gaussian import pack_naturals, unpack_naturals
from cavity.factors.base import Factor
from cavity.inference.methods import EP
from cavity.inference.problem import Problem
from cavity.inference.update_rule import UpdateRule
from cavity.models._latent_gaussian.linear_model import LinearRows, weight_schedule
from cavity.models.streaming._shard import (
    NaturalSums,
    ShardSites,
    constant_log_likelihood,
    log_mean_of_rows,
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


@tiered_jit
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
    negative = int(np.sum(now.sites[: len(rows.multiplicity), 1] < 0))
    return Response(contribution_of(now.own, rows.d), shard.last.token, linked, met[0], negative)


@float64
@one_blas_thread()
def measure_rows(shard: Shard, request: Request) -> Measurement:
    """The shard at the client's state; changes nothing. Without its sites there is nothing to measure: ∞."""
    rows, (now, linked) = shard.rows, accepted_sites(shard, request)
    report, own = measure_shard(*shard_arguments(rows, request), now.sites, jax.random.key(0))
    return Measurement(
        mismatch=float(np.max(report.mismatch[0])) if linked else np.inf,
        log_evidence=float(log_mean_of_rows(shard_problem(rows), report)) + constant_log_likelihood(rows),
        contribution=contribution_of(own, rows.d),
        improper=int(np.sum(report.improper[0])),
        nonfinite=int(np.sum(report.nonfinite[0])),
    )


def shard_loaders(X: Any, y: Any, factor: Factor, client: Any) -> list[Loader]:
    """How to load and check every shard.

    Args:
        X: a Dask array or dataframe; or a list of shards, each a pair (rows, observations), a function without
            arguments that returns one, a `dask.delayed` object or a future of one.
        y: a Dask array in the same chunks; for a dataframe the name of its column; None for a list.
        factor: the likelihood, which checks the observations.
        client: a Dask collection becomes as many shards as it has workers, neighbouring partitions together.
    """
    if isinstance(X, list | tuple):
        if y is not None:
            raise ValueError("y must be None where X is a list of shards: each holds its own observations.")
        if not X:
            raise ValueError("X must hold at least one shard; found an empty list.")
        return [shard_loader([piece], number, factor) for number, piece in enumerate(X)]
    pieces = partitions(X, y)
    count = min(len(pieces), max(1, len(client.nthreads())))
    groups = np.array_split(np.arange(len(pieces)), count)
    return [shard_loader([pieces[int(i)] for i in own], number, factor) for number, own in enumerate(groups)]


def partitions(X: Any, y: Any) -> list[Delayed]:
    """A Dask collection as pairs (rows, observations), one per partition."""
    if isinstance(X, da.Array):
        rows: Any = X
        if not isinstance(y, da.Array) or X.ndim != 2 or len(X) != len(y) or X.numblocks[1] != 1 or y.numblocks[1:]:
            raise ValueError(
                "X must be a Dask array with all columns in one chunk, and y a Dask vector of the same length; "
                f"found X {getattr(X, 'chunks', None)} and y {getattr(y, 'chunks', type(y).__name__)}."
            )
        observations: Any = y.rechunk(chunks=(rows.chunks[0],))  # type: ignore[arg-type]
        parts = zip(rows.to_delayed()[:, 0], observations.to_delayed(), strict=True)
        return [dask.delayed(tuple)(list(pair)) for pair in parts]
    if hasattr(X, "to_delayed") and hasattr(X, "columns"):
        if not isinstance(y, str) or y not in X.columns:
            raise ValueError(f"y must name a column of the dataframe, one of {list(X.columns)}; found {y!r}.")
        return [dask.delayed(split_frame)(piece, y) for piece in X.to_delayed()]
    raise TypeError(f"X must be a Dask array, a Dask dataframe or a list of shards; found {type(X).__name__}.")


def split_frame(frame: Any, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and observations of one partition of a dataframe."""
    return frame.drop(columns=[label]).to_numpy(), frame[label].to_numpy()


def shard_loader(pieces: Sequence[Any], number: int, factor: Factor) -> Loader:
    """How one shard is loaded: its pieces one after another, checked."""
    for piece in pieces:
        if not (
            isinstance(piece, Delayed | Future) or callable(piece) or (isinstance(piece, tuple) and len(piece) == 2)
        ):
            raise TypeError(
                f"Shard {number} must be a pair (rows, observations), a function that returns one, or a delayed object "
                f"or future of one; found {type(piece).__name__}."
            )
    return loader_of(load_shard, pieces, number, factor)


def load_shard(pieces: Sequence[Any], number: int, factor: Factor) -> Shard:
    """A shard with its rows ready for the linear model; errors name the shard and the row."""
    parts = [check_piece(piece, number) for piece in pieces]
    widths = {X.shape[1] for X, _ in parts}
    if len(widths) > 1:
        raise ValueError(f"Shard {number} has pieces of {sorted(widths)} columns.")
    X, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    if not len(X):
        raise ValueError(f"Shard {number} is empty: it has no rows.")
    if (bad := ~(np.abs(X) <= LARGEST)).any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        found = f"column {column} must hold finite numbers between ±{LARGEST:g}; found {X[row, column]}"
        raise ValueError(f"Shard {number}, row {row}: {found}.")
    if (bad := ~np.isfinite(y)).any():
        row = int(bad.argmax())
        raise ValueError(f"Shard {number}, row {row}: the observation must be finite; found {y[row]}.")
    check_observations(y, number, factor)
    return Shard(LinearRows.of(X, y, factor))


def check_piece(piece: Any, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and observations as arrays of numbers that belong together."""
    if not (isinstance(piece, tuple | list) and len(piece) == 2):
        raise ValueError(f"Shard {number} must be a pair (rows, observations); found {type(piece).__name__}.")
    X, y = (number_array(f"Shard {number}", part).astype(float, copy=False) for part in piece)
    if X.ndim != 2 or y.shape != X.shape[:1]:
        found = f"found {X.shape} and {y.shape}"
        raise ValueError(f"Shard {number} must have rows of shape (n, d) and n observations; {found}.")
    return X, y


def check_observations(y: np.ndarray, number: int, factor: Factor) -> None:
    """Refuse observations the likelihood is not defined for, naming the first row of them."""

    def refusal(rows: int) -> str | None:
        try:
            factor.validate(y[:rows])
        except ValueError as error:
            return str(error)
        return None

    if refusal(len(y)) is not None:
        rows = 1 + bisect.bisect_left(range(1, len(y)), True, key=lambda rows: refusal(rows) is not None)
        raise ValueError(f"Shard {number}, row {rows - 1}: {refusal(rows)}")
