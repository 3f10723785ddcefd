"""Likelihoods of a real observation y of the latent f, with Gaussian or Student-t noise.

The Gaussian is conjugate, so EP is exact on it. With Student-t noise y = f + scale · t with df degrees of freedom.
Times a Gaussian it is integrated as a mixture over its scale: one smooth integrand on the line. A power of the
likelihood is a mixture of Gaussians, with α = power (df + 1)/2 and c = df · scale²,

    (1 + x²/c)^(−α) = 1/Γ(α) ∫ w^(α−1) exp(−w − w x²/c) dw,        w = α e^s,

and a Gaussian N(x; m, v) is integrated against each in closed form. With κ = 2 α v/c and G = α m²/c,

    Z ∝ ∫ exp L(s) ds,        L(s) = −α (e^s − 1 − s) − ½ log(1 + κ e^s) − G e^s/(1 + κ e^s).

Under these weights b = κ e^s/(1 + κ e^s), the share of the way from m to 0 that a component moves the mean, gives

    (log Z)' = −(m/v) E b,    −(log Z)'' = (E b − (m²/v) Var b)/v,    variance/v = E (1 − b) + (m²/v) Var b,

sums of terms of one sign but for the middle one, where a negative site comes from. The integrand is analytic and falls
at least exponentially, so equally spaced nodes are enough once the long left tail e^(αs) is folded up by
s = y − exp(y₀ − y), y₀ to the left of all else. Two narrow modes far apart are not resolved: at df = 1000 an
observation 80 standard deviations away may cost the variance all but three or four digits.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._numerics.gamma_functions import HALF_LOG_2PI, binet, log_minus_digamma
from cavity.factors.base import Factor, Numbers, factor
from cavity.factors.linear import log_expectation, log_z_slopes
from cavity.families.base import Family, OrFlat, Tilted
from cavity.families.gaussian import LOG_2PI, Tilt, as_tilted
from cavity.families.gaussian import Gaussian as GaussianFamily


@factor
class Gaussian(Factor):
    """A Gaussian observation, t(θ) = N(y; θ, variance): conjugate, so that EP is exact. data: y.

    Args:
        variance: of the noise.

    Raises:
        ValueError: in a run, if the variance is not positive.

    Examples:
        >>> import cavity as cv
        >>> cv.factors.Gaussian(variance=0.25).predict(mean=1.0, variance=0.5)
        {'mean': 1.0, 'variance': 0.75}
    """

    variance: Numbers

    closed_forms = ("Gaussian with any power",)

    def validate(self, data: jax.Array) -> None:
        checks.positive("variance", self.variance)
        super().validate(data)

    def is_log_concave(self) -> bool:
        return True

    def log_density(self, x: jax.Array, data: jax.Array) -> jax.Array:
        return -0.5 * ((data - x) ** 2 / self.variance + jnp.log(self.variance) + LOG_2PI)

    def tilted(self, family: Family, cavity: jax.Array, data: jax.Array, power: float) -> Tilted:
        """t**power is N(y; θ, variance/power) up to a constant; its site is (y, 1)·power/variance for any cavity."""
        if not isinstance(family, GaussianFamily):
            return NotImplemented
        mean, spread = family.coordinates(cavity)
        variance = self.variance / power
        total = spread + variance
        gap = data - mean
        # The power of the density and the density of the power differ by a constant.
        constant = -0.5 * power * (jnp.log(self.variance) + LOG_2PI) + 0.5 * (jnp.log(variance) + LOG_2PI)
        log_z = constant - 0.5 * (gap**2 / total + jnp.log(total) + LOG_2PI)
        site = jnp.stack([data / variance, 1.0 / variance])
        found = Tilted(log_z, jnp.stack([gap / total, -1.0 / total]), site)
        if not isinstance(family, OrFlat):
            return found
        improper = Tilted(constant + log_expectation(data, variance, cavity), log_z_slopes(cavity, site), site)
        return jax.tree.map(partial(jnp.where, cavity[1] > 0), found, improper)

    def accepts(self, family: Family, cavity: jax.Array, data: Any, power: float) -> jax.Array:
        """Where the product is a distribution, of a family in which log Z has a meaning for a cavity that is none."""
        if not isinstance(family, OrFlat):
            return family.is_allowed(cavity)
        return jnp.isfinite(cavity).all() & (cavity[1] + power / self.variance > 0)

    def predict(self, mean: Numbers, variance: Numbers) -> dict[str, jax.Array]:
        """Mean and variance of a new observation y."""
        return {"mean": mean, "variance": variance + self.variance}  # type: ignore[dict-item]


@factor
class StudentT(Factor):
    """The Student-t likelihood t(f) ∝ (1 + (y − f)²/(df · scale²))^(−(df + 1)/2). data: y.

    The likelihood is not log-concave: between a cavity and an observation far from it the tilted density may have two
    modes. It is integrated as a mixture over its scale (`factors.regression`), where neither shows.

    Args:
        scale: of the noise.
        df: degrees of freedom.

    Raises:
        ValueError: in a run, if the scale or the degrees of freedom are not positive.

    Examples:
        >>> import cavity as cv
        >>> robust = cv.factors.StudentT(scale=1.0, df=4.0)
        >>> round(float(robust.log_density(0.0, 3.0)), 4)
        -3.9275
    """

    scale: Numbers
    df: Numbers

    closed_forms: ClassVar[tuple[str, ...]] = ("Gaussian sites, any power (by a fixed rule)",)

    def validate(self, data: jax.Array) -> None:
        checks.positive("scale", self.scale)
        checks.positive("df", self.df)
        super().validate(data)

    def log_density(self, x: jax.Array, data: jax.Array) -> jax.Array:
        df, scaled = jnp.asarray(self.df, float), (x - data) / jnp.asarray(self.scale, float)
        return self.log_peak() - 0.5 * (df + 1) * jnp.log1p(scaled**2 / df)

    def tilted(self, family: Family, cavity: jax.Array, data: jax.Array, power: float) -> Tilted:
        if not isinstance(family, GaussianFamily):
            return NotImplemented
        alpha, tilt, _ = self.mixture(cavity, data, power)
        log_z = tilt.log_z + power * self.log_peak() + 0.5 * jnp.log(alpha) - HALF_LOG_2PI - binet(alpha)
        pull, lift = tilt.pull + data * tilt.bend, tilt.lift + data * tilt.rise
        return as_tilted(tilt._replace(log_z=log_z, pull=pull, lift=lift))

    def expected_log(self, family: Family, cavity: jax.Array, data: jax.Array, tilted: Tilted) -> jax.Array:
        """log t(y) − α E[log(1 + x²/c)]: the mixture's E[log w] − ψ(α) in place of the last expectation."""
        if not isinstance(family, GaussianFamily):
            return NotImplemented
        alpha, _, log_growth = self.mixture(cavity, data, 1.0)
        return self.log_peak() + alpha * (log_growth + log_minus_digamma(alpha))

    def mixture(self, cavity: jax.Array, data: jax.Array, power: float) -> tuple[jax.Array, Tilt, jax.Array]:
        """α, and what the mixture over scales makes of the cavity, about y so that a large y takes no digits."""
        df, scale = jnp.asarray(self.df, float), jnp.asarray(self.scale, float)
        alpha = 0.5 * power * (df + 1)
        mean, variance = GaussianFamily().coordinates(cavity)
        return alpha, *tilt_of(alpha, df * scale**2, mean - data, variance)

    def predict(self, mean: Numbers, variance: Numbers) -> dict[str, jax.Array]:
        """Mean and variance of y for a latent N(mean, variance); the variance is infinite for df ≤ 2."""
        mean, variance = jnp.broadcast_arrays(jnp.asarray(mean, float), jnp.asarray(variance, float))
        df = jnp.asarray(self.df, float)
        finite = df > 2
        noise = jnp.where(finite, jnp.asarray(self.scale, float) ** 2 * df / jnp.where(finite, df - 2, 1.0), jnp.inf)
        return {"mean": mean, "variance": variance + noise}

    def log_peak(self) -> jax.Array:
        """log t at f = y.

        log Γ(a + ½) − log Γ(a), a = df/2, is written with Stirling's remainders, which do not cancel for large df.
        """
        a, scale = 0.5 * jnp.asarray(self.df, float), jnp.asarray(self.scale, float)
        return a * jnp.log1p(0.5 / a) - 0.5 + binet(a + 0.5) - binet(a) - HALF_LOG_2PI - jnp.log(scale)


#: nodes of the sum, and of each of the searches for where the mass is
NODES, SEARCH, SEARCHES = 160, 40, 2
#: log of the share of the largest mass that is left out
LEFT_OUT = 40.0


class Shape(NamedTuple):
    """α, κ and G of L."""

    alpha: jax.Array
    kappa: jax.Array
    distance: jax.Array

    def log_mass(self, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        """L(s) and log(1 − b)."""
        grown = jnp.exp(s)
        weighted = 1.0 + self.kappa * grown
        log_kept = -jnp.log(weighted)
        return -self.alpha * exp_excess(s) + 0.5 * log_kept - self.distance * grown / weighted, log_kept


def exp_excess(s: jax.Array) -> jax.Array:
    """e^s − 1 − s without cancellation."""
    series = jnp.ones_like(s)
    for n in range(14, 2, -1):
        series = 1.0 + s / n * series
    return jnp.where(jnp.abs(s) < 0.5, 0.5 * s * s * series, jnp.expm1(s) - s)


def nodes_of(shape: Shape) -> tuple[jax.Array, jax.Array]:
    """Nodes s, and ds/dy · Δy.

    They leave out less than exp(−LEFT_OUT) of the largest value on either side, of exp L and (1 − b) exp L. Both are
    at most exp(−α (e^s − 1 − s)), and a bound of that encloses them; searches on coarse nodes then narrow the interval.
    Between coarse nodes L rises by at most about α Δ²/2.
    """
    alpha, kappa, distance = shape
    fold = -jnp.log(alpha + kappa + distance) - 1.0
    found, log_kept = shape.log_mass(jnp.stack([jnp.zeros_like(alpha), -jnp.log1p(distance / alpha)]))
    drop = (LEFT_OUT - jnp.max(found + log_kept)) / alpha
    left = jnp.where(drop <= 1 / 3, -jnp.sqrt(3.0 * drop), -(drop + 1.0))
    right = jnp.minimum(jnp.sqrt(2.0 * drop), jnp.log(3.0 * drop + 4.0))
    # z + exp(z) ≥ tail holds for either form of z = y₀ − y.
    tail = fold - left
    low = fold - jnp.where(tail >= 1.0, jnp.log(jnp.maximum(tail, 1.0)), tail)
    high = right + jnp.exp(jnp.minimum(fold - right, 0.0))

    def unfold(y: jax.Array) -> tuple[jax.Array, jax.Array]:
        folded = jnp.exp(fold - y)
        return y - folded, 1.0 + folded

    def search(_round: jax.Array, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        step = (high - low) / (SEARCH - 1)
        y = low + step * np.arange(SEARCH)
        s, speed = unfold(y)
        log_mass, log_kept = shape.log_mass(s)
        first = log_mass + jnp.log(speed)
        second = first + log_kept
        limit = LEFT_OUT + alpha * (step * speed) ** 2
        needed = (first > jnp.max(first) - limit) | (second > jnp.max(second) - limit)
        return (
            jnp.maximum(jnp.min(jnp.where(needed, y, jnp.inf)) - step, low),
            jnp.minimum(jnp.max(jnp.where(needed, y, -jnp.inf)) + step, high),
        )

    low, high = jax.lax.fori_loop(0, SEARCHES, search, (low, high))
    step = (high - low) / (NODES - 1)
    s, speed = unfold(low + step * np.arange(NODES))
    return s, speed * step


def tilt_of(alpha: jax.Array, c: jax.Array, mean: jax.Array, variance: jax.Array) -> tuple[Tilt, jax.Array]:
    """What (1 + x²/c)^(−α) makes of N(mean, variance), and E s.

    log Z lacks a constant: it is log ∫ exp L(s) ds, to which ½ log(α/2π) − ω(α) is to be added, ω Binet's function.
    Derivatives in α and c are those of the sum on fixed nodes.
    """
    shape = Shape(alpha, 2.0 * alpha * variance / c, alpha * mean**2 / c)
    s, width = nodes_of(jax.lax.stop_gradient(shape))
    log_mass, _ = shape.log_mass(s)
    largest = jax.lax.stop_gradient(jnp.max(log_mass))
    mass = width * jnp.exp(log_mass - largest)
    total = jnp.sum(mass)
    share = mass / total

    grown = shape.kappa * jnp.exp(s)
    moved, kept = grown / (1.0 + grown), 1.0 / (1.0 + grown)
    all_moved, all_kept = jnp.sum(share * moved), jnp.sum(share * kept)
    # The smaller of the two has the digits of their common deviation.
    deviation = jnp.where(all_moved < 0.5, moved - all_moved, all_kept - kept)
    size = mean**2 / variance
    varying = size * jnp.sum(share * deviation**2)
    squared = size * jnp.sum(share * moved**2)
    slope = mean / variance
    tilt = Tilt(
        log_z=largest + jnp.log(total),
        d1=-slope * all_moved,
        bend=(all_moved - varying) / variance,
        rise=(all_moved - squared) / variance,
        pull=-slope * varying,
        lift=-slope * squared,
        ratio=all_kept + varying,
    )
    return tilt, jnp.sum(share * s)
