"""EP over partitions whose tilted inference is the user's own: expectation propagation as a way of life.

Every partition k has a Gaussian site, its contribution. A round tells each partition its cavity

    N(m, V) ∝ prior × ∏_{j≠k} siteⱼ,

the user's function draws from (or integrates) likelihoodₖ(w) N(w; m, V), and the moments it finds, less the cavity, are
the partition's new site.

From S independent draws of a Gaussian the inverse of the sample covariance Ŝ is too large, E[Ŝ⁻¹] = (S − 1)/(S − d − 2)
Σ⁻¹, so the precision is taken as (S − d − 2)/(S − 1) Ŝ⁻¹.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from distributed import Client

from cavity._core import checks
from cavity._core.precision import float64
from cavity.distributed import gaussian
from cavity.distributed._rounds import Request, Response, RoundOptions, Rounds
from cavity.distributed._worker_pool import WorkerPool, loader_of
from cavity.distributed.clients import client_or_local
from cavity.distributed.gaussian import Contributions, GaussianResult
from cavity.inference.status import Status

#: what a user gives: tilted(shard, cavity mean, cavity covariance, key) → draws (S, d), or (mean, covariance)
Tilted = Callable[[Any, np.ndarray, np.ndarray, jax.Array], Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partitioned(GaussianResult):
    """q(w) from partitions, with the account of the run. Made by `infer_partitions`.

    Attributes:
        status: why it ended.
        log_evidence: always None.
        mismatch: the largest moment mismatch of all partitions when they were last asked.
        residuals: the largest mismatch met in every round.
        seconds: the run took.
        prior: packed natural parameters of the prior.
        contributions: of every partition, packed, one row each.
        shortened: rounds whose step was halved to keep q or a cavity proper.
        noise: the standard error of a mismatch that comes from draws; 0 where moments were handed over. The same random
            numbers are used in every round, so a run can settle below it, but the answer is no better than that.

    Examples:
        >>> import numpy as np
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> def tilted(shard, mean, covariance, key):
        ...     # observations of w with noise of variance 1, in closed form
        ...     inverse = np.linalg.inv(covariance)
        ...     posterior = np.linalg.inv(inverse + len(shard) * np.eye(1))
        ...     return posterior @ (inverse @ mean + np.sum(shard)), posterior
        >>> prior = np.zeros(1), np.eye(1)
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     found = distributed.infer_partitions(prior, [[1.0, 2.0], [3.0]], tilted=tilted, client=client)
        >>> found.mean.round(3), found.covariance.round(3), found.noise
        (array([1.5]), array([[0.25]]), 0.0)
    """

    noise: float

    def __str__(self) -> str:
        return f"{super().__str__()} Standard error of the draws {self.noise:.1e}." if self.noise else super().__str__()


class Partition(NamedTuple):
    """A partition on its worker: the user's data and function, and its own random key as plain numbers."""

    data: Any
    tilted: Tilted
    key: np.ndarray


def load_partition(pieces: list[Any], tilted: Tilted, key: np.ndarray) -> Partition:
    """A partition made ready on its worker."""
    (data,) = pieces
    return Partition(data, tilted, key)


@float64
def visit_partition(partition: Partition, request: Request) -> Response:
    """The user's moments of the tilted distribution, as a site: what they are beyond the cavity."""
    cavity, d = gaussian.to_moments(request.cavity), gaussian.packed_dimension(request.cavity)
    key = jax.random.wrap_key_data(jnp.asarray(partition.key))
    answer = partition.tilted(partition.data, cavity.mean, cavity.covariance, key)
    if isinstance(answer, tuple | list):
        naturals, noise = gaussian.from_moments(*check_moments(answer, d)), 0.0
    else:
        naturals, noise = naturals_from_draws(answer, d)
    q, found = gaussian.to_moments(request.cavity + request.contribution), gaussian.to_moments(naturals)
    variance = np.diagonal(q.covariance)
    away = np.abs(q.mean - found.mean) / np.sqrt(variance)
    mismatch = float(np.maximum(away, np.abs(np.log(variance / np.diagonal(found.covariance)))).max())
    site = naturals - request.cavity
    negative = int(np.linalg.eigvalsh(gaussian.unpack_naturals(site)[1])[0] < 0)
    return Response(site, mismatch=mismatch, negative=negative, noise=noise)


def check_moments(found: Any, d: int) -> tuple[np.ndarray, np.ndarray]:
    """(mean, covariance) as handed over."""
    if len(found) != 2:
        raise ValueError(f"tilted must return draws or a pair (mean, covariance); found {len(found)} things.")
    mean, covariance = (checks.real_numbers("what tilted returns", part) for part in found)
    if mean.shape != (d,) or covariance.shape != (d, d) or not gaussian.is_covariance(covariance):
        raise ValueError(
            f"tilted must return a mean of shape ({d},) and a symmetric, positive definite covariance of shape "
            f"({d}, {d}); found shapes {mean.shape} and {covariance.shape}."
        )
    return mean, covariance


def naturals_from_draws(found: Any, d: int) -> tuple[np.ndarray, float]:
    """Packed natural parameters from draws, the precision unbiased for draws of a Gaussian; and the larger of the
    standard errors, that of a log variance: √(2/(S − 1)).
    """
    draws = checks.real_numbers("what tilted returns", found)
    if draws.ndim != 2 or draws.shape[1] != d or not np.isfinite(draws).all():
        raise ValueError(f"tilted must return finite draws of shape (S, {d}); found shape {draws.shape}.")
    count = len(draws)
    if count <= d + 2:
        raise ValueError(f"tilted must return more than d + 2 = {d + 2} draws; found {count}.")
    covariance = np.cov(draws, rowvar=False).reshape(d, d)
    _, precision = gaussian.unpack_naturals(gaussian.from_moments(np.zeros(d), covariance))
    precision *= (count - d - 2) / (count - 1)
    return gaussian.pack_naturals(precision @ draws.mean(axis=0), precision), float(np.sqrt(2 / (count - 1)))


@float64
def infer_partitions(
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
        shards: anything `tilted` understands, one per partition: values, functions that load them on the worker,
            `dask.delayed` objects or futures.
        tilted: `tilted(shard, mean, covariance, key)` returns independent draws, one per row, of likelihood × N(mean,
            covariance); or their exact (mean, covariance). Draws must outnumber d + 2.
        key: random key; every partition has its own, the same in every round. A fixed one is used when None.
        client: of a Dask cluster; without one, processes on this machine do the work.
        asynchronous: take in answers as they come.
        damping: the share of a step taken. Below 1 where draws are few or partitions pull apart.
        tol: bound on the moment mismatch between q and every tilted distribution.
        max_rounds: rounds at most.
        max_seconds: stop after the round that passes this time, or half a minute later without its answers.
        callback: called with the state after every round.

    Returns:
        A `Partitioned`: q, status and the account of the run. There is no log evidence.

    Raises:
        TypeError, ValueError: options that cannot be run, or moments and draws that cannot be used, named by the shard.
        ClusterError: a shard could not be loaded or lost its worker again and again, or the scheduler or all workers
            are gone; the error's `reached` is the result so far.

    Examples:
        >>> import numpy as np
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> def tilted(shard, mean, covariance, key):
        ...     # observations of w with noise of variance 1, in closed form
        ...     inverse = np.linalg.inv(covariance)
        ...     posterior = np.linalg.inv(inverse + len(shard) * np.eye(1))
        ...     return posterior @ (inverse @ mean + np.sum(shard)), posterior
        >>> prior = np.zeros(1), np.eye(1)
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     found = distributed.infer_partitions(prior, [[1.0, 2.0], [3.0]], tilted=tilted, client=client)
        >>> str(found.status), found.mean.round(3)
        ('converged', array([1.5]))
    """
    options = RoundOptions(asynchronous, damping, tol, max_rounds, max_seconds)
    if not callable(tilted):
        raise TypeError(f"tilted must be a function of (shard, mean, covariance, key); found {type(tilted).__name__}.")
    if not len(shards):
        raise ValueError("shards must hold at least one partition; found none.")
    vector = pack_prior(prior)
    keys = [np.asarray(jax.random.key_data(own)) for own in jax.random.split(key_or_fixed(key), len(shards))]
    loaders = [loader_of(load_partition, [shard], tilted, own) for shard, own in zip(shards, keys, strict=True)]
    with client_or_local(client) as own, WorkerPool(own, loaders, options.deadline) as pool:
        pool.load()
        state, noises = Contributions.flat(vector, len(shards)), np.zeros(len(shards))
        return PartitionRounds(pool, state, options, callback, noises).run()


@dataclasses.dataclass
class PartitionRounds(Rounds):
    """Rounds over partitions: a visit is a measurement too, so nothing is measured at the end."""

    state: Contributions
    noises: np.ndarray

    visit = staticmethod(visit_partition)

    def request(self, number: int) -> Request:
        return super().request(number)._replace(contribution=self.state.values[number])

    def take(self, responses: dict[int, Response]) -> None:
        super().take(responses)
        for number, response in responses.items():
            self.noises[number] = response.noise

    def result(self, status: Status) -> Partitioned:
        noise = float(self.noises.max())
        return Partitioned(noise=noise, log_evidence=None, **self.state.fields(), **self.account(status))


def pack_prior(prior: Any) -> np.ndarray:
    """The prior as a packed vector."""
    if not (isinstance(prior, tuple | list) and len(prior) == 2):
        raise TypeError(f"prior must be a pair (mean, covariance); found {type(prior).__name__}.")
    mean, covariance = checks.array("prior mean", prior[0], (1,)), checks.array("prior covariance", prior[1], (2,))
    if covariance.shape != (mean.size, mean.size) or not gaussian.is_covariance(covariance):
        raise ValueError(f"prior covariance must be a symmetric positive definite ({mean.size}, {mean.size}) matrix.")
    return gaussian.from_moments(mean, covariance)


def key_or_fixed(key: jax.Array | None) -> jax.Array:
    """The key, or a fixed one for None."""
    if key is None:
        return jax.random.key(0)
    if not jax.dtypes.issubdtype(getattr(key, "dtype", None), jax.dtypes.prng_key):
        raise TypeError(f"key must be made by jax.random.key(...); found {type(key).__name__}.")
    return key
