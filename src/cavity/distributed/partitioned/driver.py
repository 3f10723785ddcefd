"""EP over partitions whose tilted inference is the user's own: expectation propagation as a way of life.

Every partition k has a Gaussian site, its contribution. A round tells each partition its cavity

    N(m, V) ∝ prior × ∏_{j≠k} siteⱼ,

the user's function draws from (or integrates) likelihoodₖ(w) N(w; m, V), and the moments it finds, less the cavity, are
the partition's new site.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import dask
import jax
import numpy as np
from distributed import Client

from cavity._core import checks
from cavity._core.precision import float64
from cavity.distributed.clients import client_or_local
from cavity.distributed.combined import Combined
from cavity.distributed.contributions import Contributions
from cavity.distributed.linear.loading import is_loader
from cavity.distributed.naturals import factor_of, from_moments
from cavity.distributed.options import check_options
from cavity.distributed.partitioned.worker import Found, Tilted, Told, ask_tilted
from cavity.distributed.rounds import Rounds, Taken
from cavity.distributed.worker_pool import Team
from cavity.inference.status import Status


@dataclasses.dataclass(frozen=True)
class Partitioned(Combined):
    """q(w) from partitions, with the account of the run.

    Attributes:
        prior, contributions: packed natural parameters, one row of contributions a partition; q is their sum.
        mismatch: largest moment mismatch of all partitions when they were last asked.
        noise: the standard error of a mismatch that comes from draws; 0 where moments were handed over. The same random
            numbers are used in every round, so a run can settle below it, but the answer is no better than that.
        residuals: the mismatch of every round. shortened: rounds whose step was halved to stay proper.
    """

    prior: np.ndarray
    contributions: np.ndarray
    status: Status
    mismatch: float
    noise: float
    residuals: np.ndarray
    shortened: int
    seconds: float

    def __str__(self) -> str:
        drawn = f", standard error of the draws {self.noise:.1e}" if self.noise else ""
        return (
            f"{self.status} after {self.rounds} rounds over {len(self.contributions)} partitions, "
            f"mismatch {self.mismatch:.1e}{drawn}. {self.status.sentence}"
        )


@float64
def partitioned(
    prior: tuple[Any, Any],
    shards: Sequence[Any],
    *,
    tilted: Tilted,
    key: jax.Array | None = None,
    client: Client | None = None,
    asynchronous: bool = False,
    damping: float = 1.0,
    tol: float = 1e-6,
    max_rounds: int = 50,
    max_seconds: float | None = None,
    callback: Callable[[Partitioned], Any] | None = None,
) -> Partitioned:
    """EP over partitions, each with a Gaussian site for what the user's `tilted` finds of it on a worker.

    Args:
        prior: (mean, covariance) of w.
        shards: anything `tilted` understands, one a partition: values, functions that load them on the worker,
            `dask.delayed` objects or futures.
        tilted: `tilted(shard, mean, covariance, key)` returns independent draws, one a row, of likelihood × N(mean,
            covariance); or their exact (mean, covariance). Draws must outnumber d + 2.
        key: random key; every partition has its own, the same in every round. A fixed one is used when None.
        client: of a Dask cluster; without one, processes on this machine do the work.
        asynchronous: take in answers as they come.
        damping: the share of a step taken. Below 1 where draws are few or partitions pull apart.
        tol: bound on the moment mismatch between q and every tilted distribution.
        max_rounds: rounds at most.
        max_seconds: stop after the round that passes this time.
        callback: called with the state after every round.
    """
    began = time.perf_counter()
    check_options(damping, tol, max_rounds, max_seconds)
    if not callable(tilted):
        raise TypeError(f"tilted must be a function of (shard, mean, covariance, key); found {type(tilted).__name__}.")
    if not len(shards):
        raise ValueError("shards must hold at least one partition; found none.")
    vector, d = prior_of(prior)
    keys = [np.asarray(jax.random.key_data(own)) for own in jax.random.split(key_or_fixed(key), len(shards))]
    state, taken = Contributions.none(vector, len(shards), d), [Taken() for _ in shards]
    noises = np.zeros(len(shards))

    def result(status: Status, rounds: Rounds) -> Partitioned:
        return Partitioned(
            vector,
            state.values.copy(),
            status,
            rounds.residual,
            float(noises.max()),
            np.array(rounds.residuals),
            state.shortened,
            time.perf_counter() - began,
        )

    with client_or_local(client) as own, Team(own, [load_of(shard) for shard in shards]) as team:
        team.load()

        def note(number: int, found: Found) -> None:
            noises[number] = found.noise

        rounds = Rounds(
            team,
            state,
            taken,
            ask_tilted,
            lambda number, cavity, _: Told(cavity, state.values[number], d, keys[number], tilted),
            settled=lambda: True,
            heard=lambda: None if callback is None else callback(result(Status.RUNNING, rounds)),
            damping=damping,
            tol=tol,
            max_rounds=max_rounds,
            deadline=None if max_seconds is None else began + max_seconds,
            note=note,
        )
        try:
            ended = rounds.as_they_come() if asynchronous else rounds.together()
        except KeyboardInterrupt:
            ended = Status.INTERRUPTED
        return result(ended, rounds)


def prior_of(prior: Any) -> tuple[np.ndarray, int]:
    """The prior as a packed vector, and its dimension."""
    if not (isinstance(prior, tuple | list) and len(prior) == 2):
        raise TypeError(f"prior must be a pair (mean, covariance); found {type(prior).__name__}.")
    mean, covariance = checks.array("prior mean", prior[0], (1,)), checks.array("prior covariance", prior[1], (2,))
    if covariance.shape != (mean.size, mean.size) or factor_of(covariance) is None:
        raise ValueError(f"prior covariance must be a positive definite ({mean.size}, {mean.size}) matrix.")
    return from_moments(mean, covariance), mean.size


def key_or_fixed(key: jax.Array | None) -> jax.Array:
    """The key, or the one that is used where nobody gives any."""
    if key is None:
        return jax.random.key(0)
    if not jax.dtypes.issubdtype(getattr(key, "dtype", None), jax.dtypes.prng_key):
        raise TypeError(f"key must be made by jax.random.key(...); found {type(key).__name__}.")
    return key


def load_of(shard: Any) -> Callable[[str], Any]:
    """How a partition is loaded."""

    def load(name: str) -> Any:
        given = dask.delayed(shard, pure=False)() if is_loader(shard) else shard
        return dask.delayed(as_it_is, pure=False)(given, dask_key_name=name)

    return load


def as_it_is(shard: Any) -> Any:
    """The partition."""
    return shard
