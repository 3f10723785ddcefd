"""Particles led from a standard normal prior to the posterior: where its mass is, whatever q says (Del Moral 2006).

Along N(z; 0, I) L(z)^β, β from 0 to 1, weights L^(Δβ) are followed by resampling and a few Metropolis moves. Hills of
L^β are wide for small β, so that narrow modes far apart in a wide prior are found, which draws from it would miss.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cavity.diagnostics.psis import effective_sample_size

#: a step in β leaves this share of the particles effective
KEPT = 0.5
#: steps at most: a likelihood that needs more is not worth it
MAX_STEPS = 100


class Particles(NamedTuple):
    """Rows z, nearly from the posterior; log_evidence is an estimate from the weights on the way."""

    z: np.ndarray
    log_evidence: float


def temper(
    log_likelihood: Callable[[np.ndarray], np.ndarray],
    dimension: int,
    rng: np.random.Generator,
    count: int,
    moves: int = 5,
) -> Particles | None:
    """Particles at β = 1, or None where β did not get there; values that are not numbers count as zero likelihood."""
    z = rng.standard_normal((count, dimension))
    value = log_likelihood(z)
    beta, log_evidence = 0.0, 0.0
    for _ in range(MAX_STEPS):
        if not np.isfinite(value).any():
            return None
        step = next_step(value, 1.0 - beta)
        with np.errstate(invalid="ignore"):
            log_weights = np.where(np.isfinite(value), step * value, -math.inf)
        top = log_weights.max()
        weights = np.exp(log_weights - top)
        log_evidence += top + math.log(weights.mean())
        beta = 1.0 if step == 1.0 - beta else beta + step
        kept = systematic(weights / weights.sum(), rng)
        z, value = move_particles(z[kept], value[kept], beta, log_likelihood, rng, moves)
        if beta == 1.0:
            return Particles(z, log_evidence)
    return None


def next_step(value: np.ndarray, rest: float) -> float:
    """The Δβ ≤ rest that leaves a share KEPT of the particles effective, by bisection."""
    finite = value[np.isfinite(value)]
    wanted = KEPT * finite.size
    if effective_sample_size(rest * finite) >= wanted:
        return rest
    low, high = 0.0, rest
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective_sample_size(middle * finite) >= wanted else (low, middle)
    return high


def systematic(shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Systematic resampling: indices of survivors, each as often as its share of the weights, rounded up or down."""
    ladder = (np.arange(shares.size) + rng.random()) / shares.size
    return np.minimum(np.searchsorted(np.cumsum(shares), ladder), shares.size - 1)


def move_particles(
    z: np.ndarray,
    value: np.ndarray,
    beta: float,
    log_likelihood: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
    moves: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The particles after random-walk Metropolis moves along their common covariance.

    Every move has a width of its own, between that of the whole and a twentieth of it: the modes are narrower.
    """
    count, d = z.shape
    covariance = np.atleast_2d(np.cov(z.T)) + 1e-12 * np.eye(d)
    root = np.linalg.cholesky(covariance)
    for _ in range(moves):
        width = 2.38 / math.sqrt(d) * 0.05 ** rng.random((count, 1))
        proposed = z + width * (rng.standard_normal((count, d)) @ root.T)
        found = log_likelihood(proposed)
        with np.errstate(invalid="ignore"):
            gain = beta * (found - value) - 0.5 * np.sum(proposed**2 - z**2, axis=1)
        accepted = np.log1p(-rng.random(count)) < gain
        z, value = np.where(accepted[:, None], proposed, z), np.where(accepted, found, value)
    return z, value
