"""What a worker does with a partition: the user's own inference of the tilted distribution, turned into a site.

From S independent draws of a Gaussian the inverse of the sample covariance Ŝ is too large, E[Ŝ⁻¹] = (S − 1)/(S − d − 2)
Σ⁻¹, so the precision is taken as (S − d − 2)/(S − 1) Ŝ⁻¹.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.distributed.naturals import factor_of, from_moments, moments, pack, unpack

#: what a user gives: tilted(shard, cavity mean, cavity covariance, key) → draws (S, d), or (mean, covariance)
Tilted = Callable[[Any, np.ndarray, np.ndarray, jax.Array], Any]


class Told(NamedTuple):
    """What a partition is told: its cavity, its contribution, its own random key as plain numbers."""

    cavity: np.ndarray
    own: np.ndarray
    d: int
    key: np.ndarray
    tilted: Tilted


class Found(NamedTuple):
    """What a partition found. noise: standard error of the mismatch, 0 where the moments were exact."""

    naturals: np.ndarray
    token: str
    linked: bool
    residual: float
    negative: int
    noise: float


@float64
def ask_tilted(shard: Any, told: Told) -> Found:
    """The user's moments of the tilted distribution, as a site: what they are beyond the cavity."""
    cavity, d = moments(told.cavity, told.d), told.d
    answer = told.tilted(shard, cavity.mean, cavity.covariance, jax.random.wrap_key_data(jnp.asarray(told.key)))
    if isinstance(answer, tuple | list):
        naturals, noise = from_moments(*checked_moments(answer, d)), 0.0
    else:
        naturals, noise = from_draws(answer, d)
    q, found = moments(told.cavity + told.own, d), moments(naturals, d)
    variance = np.diagonal(q.covariance)
    away = np.abs(q.mean - found.mean) / np.sqrt(variance)
    residual = float(np.maximum(away, np.abs(np.log(variance / np.diagonal(found.covariance)))).max())
    site = naturals - told.cavity
    negative = int(np.linalg.eigvalsh(unpack(site, d)[1])[0] < 0)
    return Found(site, "", True, residual, negative, noise)


def checked_moments(answer: Any, d: int) -> tuple[np.ndarray, np.ndarray]:
    """(mean, covariance) as handed over."""
    if len(answer) != 2:
        raise ValueError(f"tilted must return draws or a pair (mean, covariance); found {len(answer)} things.")
    mean, covariance = (np.asarray(part, float) for part in answer)
    if mean.shape != (d,) or covariance.shape != (d, d) or factor_of(covariance) is None:
        raise ValueError(
            f"tilted must return a mean of shape ({d},) and a positive definite covariance of shape ({d}, {d}); "
            f"found shapes {mean.shape} and {covariance.shape}."
        )
    return mean, covariance


def from_draws(answer: Any, d: int) -> tuple[np.ndarray, float]:
    """Packed natural parameters from draws, the precision unbiased for draws of a Gaussian; and the larger of the
    standard errors, that of a log variance: √(2/(S − 1)).
    """
    draws = np.asarray(answer, float)
    if draws.ndim != 2 or draws.shape[1] != d or not np.isfinite(draws).all():
        raise ValueError(f"tilted must return finite draws of shape (S, {d}); found shape {draws.shape}.")
    count = len(draws)
    if count <= d + 2:
        raise ValueError(f"tilted must return more than d + 2 = {d + 2} draws; found {count}.")
    _, precision = unpack(from_moments(np.zeros(d), np.cov(draws, rowvar=False).reshape(d, d)), d)
    precision *= (count - d - 2) / (count - 1)
    return pack(precision @ draws.mean(axis=0), precision), float(np.sqrt(2 / (count - 1)))
