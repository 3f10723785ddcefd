"""Where to draw: mixtures of Gaussian and Student-t components, and tempered particles.

A mixture is drawn by strata, and its draws are weighed by its whole density.

A draw x from component j gets the weight target(x) / Σ_j share_j density_j(x), whichever component it came from, and
component j gets the fixed number share_j S of the S draws. Both only lower the variance (Owen & Zhou 2000).

Particles are led from a standard normal prior to the posterior: where its mass is, whatever q says (Del Moral 2006).
Along N(z; 0, I) L(z)^β, β from 0 to 1, weights L^(Δβ) are followed by resampling and a few Metropolis moves. Hills of
L^β are wide for small β, so that narrow modes far apart in a wide prior are found, which draws from it would miss.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln, logsumexp

from cavity._diagnostics.psis import effective_sample_size

#: a step in β leaves this share of the particles effective
KEPT = 0.5
#: steps at most: a likelihood that needs more is not worth it
MAX_STEPS = 100
#: Metropolis moves of every particle after a step
MOVES = 5


@dataclasses.dataclass(frozen=True)
class Component:
    """N(mean, root rootᵀ), or for finite `freedom` the multivariate t with this location and scale; root is lower."""

    mean: np.ndarray
    root: np.ndarray
    freedom: float = math.inf

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """`count` independent draws, one per row."""
        noise = rng.standard_normal((count, self.mean.size))
        if math.isfinite(self.freedom):
            noise /= np.sqrt(rng.chisquare(self.freedom, (count, 1)) / self.freedom)
        return self.mean + noise @ self.root.T

    def log_density(self, z: np.ndarray) -> np.ndarray:
        """At the rows of z."""
        d, nu = self.mean.size, self.freedom
        square = np.sum(solve_triangular(self.root, (z - self.mean).T, lower=True) ** 2, axis=0)
        scale = np.sum(np.log(np.diagonal(self.root)))
        if not math.isfinite(nu):
            return -0.5 * (square + d * math.log(2 * math.pi)) - scale
        constant = gammaln(0.5 * (nu + d)) - gammaln(0.5 * nu) - 0.5 * d * math.log(nu * math.pi) - scale
        return constant - 0.5 * (nu + d) * np.log1p(square / nu)


class MixtureDraws(NamedTuple):
    """Rows z, the stratum each came from, and the log density of the whole mixture there."""

    z: np.ndarray
    stratum: np.ndarray
    log_density: np.ndarray


@dataclasses.dataclass(frozen=True)
class ProposalMixture:
    """Components with shares that sum to one."""

    components: tuple[Component, ...]
    shares: np.ndarray

    def log_density(self, z: np.ndarray) -> np.ndarray:
        """At the rows of z."""
        parts = [math.log(share) + own.log_density(z) for own, share in zip(self.components, self.shares, strict=True)]
        return np.asarray(logsumexp(parts, axis=0))

    def draw(self, rng: np.random.Generator, count: int) -> MixtureDraws:
        """`count` draws, from each component in proportion to its share, and at least two."""
        counts = np.maximum(np.rint(self.shares * count).astype(int), 2)
        counts[np.argmax(counts)] += count - counts.sum()
        z = np.concatenate([own.draw(rng, size) for own, size in zip(self.components, counts, strict=True)])
        # What was drawn is a mixture with the rounded shares.
        drawn = dataclasses.replace(self, shares=counts / counts.sum())
        return MixtureDraws(z, np.repeat(np.arange(len(counts)), counts), drawn.log_density(z))


def widen_gaussian(mean: np.ndarray, covariance: np.ndarray, freedom: float, width: float) -> Component | None:
    """The t component around a Gaussian, `width` times as wide; None where it is no Gaussian."""
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        return None
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None
    return Component(mean, width * root, freedom)


def fit_mixture(
    z: np.ndarray, rng: np.random.Generator, count: int, steps: int = 30
) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """(share, mean, covariance) of `count` Gaussians fitted to the rows of z by expectation maximisation.

    Every covariance is drawn towards the average one by d + 1 points, so that a small cluster has one too.
    """
    n, d = z.shape
    means = spread_out(z, rng, count)
    pooled = np.atleast_2d(np.cov(z.T)) / count ** (2 / d) + 1e-12 * np.eye(d)
    covariances, shares = np.repeat(pooled[None], count, axis=0), np.full(count, 1 / count)
    for _ in range(steps):
        components = [Component(m, np.linalg.cholesky(c)) for m, c in zip(means, covariances, strict=True)]
        parts = np.stack([own.log_density(z) for own in components]) + np.log(shares)[:, None]
        held = np.exp(parts - logsumexp(parts, axis=0))
        sizes = held.sum(axis=1) + 1e-12
        means = held @ z / sizes[:, None]
        gaps = z - means[:, None]
        scatter = np.swapaxes(gaps * held[:, :, None], 1, 2) @ gaps
        pooled = scatter.sum(axis=0) / n + 1e-12 * np.eye(d)
        covariances = (scatter + (d + 1) * pooled) / (sizes + d + 1)[:, None, None]
        shares = (sizes + 1) / (n + count)
    return list(zip(shares, means, covariances, strict=True))


def spread_out(z: np.ndarray, rng: np.random.Generator, count: int) -> np.ndarray:
    """`count` rows far from each other: each next one drawn in proportion to its squared distance from the chosen."""
    chosen = z[rng.integers(len(z))][None]
    while len(chosen) < count:
        distance = np.min(np.sum((z[:, None] - chosen) ** 2, axis=2), axis=1) + 1e-300
        chosen = np.vstack([chosen, z[rng.choice(len(z), p=distance / distance.sum())]])
    return chosen


def mixture(weighted: Sequence[tuple[float, Any]]) -> ProposalMixture:
    """A mixture of the components that exist, their shares made to sum to one."""
    held = [(share, own) for share, own in weighted if own is not None]
    shares = np.array([share for share, _ in held])
    return ProposalMixture(tuple(own for _, own in held), shares / shares.sum())


class Particles(NamedTuple):
    """Rows z, nearly from the posterior; log_evidence is an estimate from the weights on the way."""

    z: np.ndarray
    log_evidence: float


def temper(
    log_likelihood: Callable[[np.ndarray], np.ndarray], dimension: int, rng: np.random.Generator, count: int
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
        z, value = move_particles(z[kept], value[kept], beta, log_likelihood, rng)
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
) -> tuple[np.ndarray, np.ndarray]:
    """The particles after random-walk Metropolis moves along their common covariance.

    Every move has a width of its own, between that of the whole and a twentieth of it: the modes are narrower.
    """
    count, d = z.shape
    covariance = np.atleast_2d(np.cov(z.T)) + 1e-12 * np.eye(d)
    root = np.linalg.cholesky(covariance)
    for _ in range(MOVES):
        width = 2.38 / math.sqrt(d) * 0.05 ** rng.random((count, 1))
        proposed = z + width * (rng.standard_normal((count, d)) @ root.T)
        found = log_likelihood(proposed)
        with np.errstate(invalid="ignore"):
            gain = beta * (found - value) - 0.5 * np.sum(proposed**2 - z**2, axis=1)
        accepted = np.log1p(-rng.random(count)) < gain
        z, value = np.where(accepted[:, None], proposed, z), np.where(accepted, found, value)
    return z, value
