"""The Gamma distribution: eta = (shape, rate); T(x) = (log x, −x); flat = (1, 0)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma

from cavity._core.precision import library_of
from cavity._numerics.gamma_functions import HALF_LOG_2PI, binet, log_minus_digamma, stirling_divergence, trigamma
from cavity._numerics.inverses import gamma_shape, inverse_digamma
from cavity._numerics.sums import cross_difference, log_excess
from cavity.families.base import Family, OrFlat


@dataclass(frozen=True)
class Gamma(Family):
    """Gamma(x; shape, rate) ∝ x^(shape − 1) exp(−rate·x) on x > 0.

    Examples:
        >>> import cavity as cv
        >>> gamma = cv.families.Gamma()
        >>> eta = gamma.from_shape_rate(3.0, 2.0)
        >>> float(gamma.mean(eta)), float(gamma.covariance(eta))
        (1.5, 0.75)
    """

    size: ClassVar[int] = 2  # type: ignore[override]

    def flat(self) -> jax.Array:
        return jnp.array([1.0, 0.0])

    def from_shape_rate(self, shape: Any, rate: Any) -> jax.Array:
        """Natural parameters of Gamma(shape, rate)."""
        library = library_of(shape, rate)
        pair = library.broadcast_arrays(library.asarray(shape, float), library.asarray(rate, float))
        return library.stack(pair, axis=-1)

    def coordinates(self, eta: jax.Array) -> tuple[jax.Array, ...]:
        """(shape, rate)."""
        return eta[..., 0], eta[..., 1]

    def statistics(self, x: jax.Array) -> jax.Array:
        x = jnp.asarray(x, float)
        return jnp.stack([jnp.log(x), -x], axis=-1)

    def log_partition(self, eta: jax.Array) -> jax.Array:
        """lnΓ(a) − a log β, by Stirling's decomposition so that a log(a/β) is formed once."""
        a, rate = self.coordinates(jnp.asarray(eta))
        return a * (jnp.log(a / rate) - 1.0) - 0.5 * jnp.log(a) + HALF_LOG_2PI + binet(a)

    def moments(self, eta: jax.Array) -> jax.Array:
        """(E[log x], −E[x]) = (ψ(a) − log β, −a/β)."""
        a, rate = self.coordinates(jnp.asarray(eta))
        return jnp.stack([jnp.log(a / rate) - log_minus_digamma(a), -a / rate], axis=-1)

    def natural(self, mu: jax.Array) -> jax.Array:
        """log a − ψ(a) = log E[x] − E[log x], then rate = a/E[x]; NaN where no Gamma has these moments."""
        mu = jnp.asarray(mu)
        a = gamma_shape(jnp.log(-mu[..., 1]) - mu[..., 0])
        return jnp.stack([a, -a / mu[..., 1]], axis=-1)

    def is_proper(self, eta: jax.Array) -> jax.Array:
        eta = jnp.asarray(eta)
        return jnp.all((eta > 0) & jnp.isfinite(eta), axis=-1)

    def log_density(self, eta: jax.Array, x: jax.Array) -> jax.Array:
        """−a (r − 1 − log r) − log x + ½ log a − ½ log 2π − ω(a), r = β x/a; −inf for x < 0.

        That is (a − 1) log x − β x − A with the terms of order a cancelled on paper.
        """
        a, rate = self.coordinates(jnp.asarray(eta))
        x = jnp.asarray(x, float)
        inside = jnp.where(x > 0, x, 1.0)
        ratio = rate * inside / a
        excess = log_excess((rate * inside - a) / a, ratio)
        density = -a * excess - jnp.log(inside) + 0.5 * jnp.log(a) - HALF_LOG_2PI - binet(a)
        at_zero = jnp.where(a == 1.0, jnp.log(rate), jnp.where(a < 1.0, jnp.inf, -jnp.inf))
        return jnp.where(x > 0, density, jnp.where(x == 0, at_zero, -jnp.inf))

    def mean(self, eta: jax.Array) -> jax.Array:
        """a/β."""
        a, rate = self.coordinates(jnp.asarray(eta))
        return a / rate

    def covariance(self, eta: jax.Array) -> jax.Array:
        """a/β²."""
        a, rate = self.coordinates(jnp.asarray(eta))
        return a / rate / rate

    def sample(self, key: jax.Array, eta: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        a, rate = self.coordinates(jnp.asarray(eta))
        return jax.random.gamma(key, a, shape + a.shape, dtype=float) / rate

    def entropy(self, eta: jax.Array) -> jax.Array:
        """½ log 2πa − log β + ω(a) + (a − 1)(log a − ψ(a)): A − (eta − flat)·mu with the terms of order a cancelled."""
        a, rate = self.coordinates(jnp.asarray(eta))
        return HALF_LOG_2PI + 0.5 * jnp.log(a) - jnp.log(rate) + binet(a) + (a - 1.0) * log_minus_digamma(a)

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """a' (r − 1 − log r) + D(a, a'), r = (β'/a')/(β/a) the ratio of means, D the divergence Stirling leaves."""
        (a, rate), (a_new, rate_new) = self.coordinates(jnp.asarray(eta)), self.coordinates(jnp.asarray(other))
        step = cross_difference(a, rate, a_new, rate_new) / (rate * a_new)
        return a_new * log_excess(step, (rate_new / rate) * (a / a_new)) + stirling_divergence(a, a_new, a_new - a)

    def distance(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """Larger of |E log x − E' log x| / sd(log x) and |E x − E' x| / sd(x) under `eta`."""
        eta, other = jnp.asarray(eta), jnp.asarray(other)
        a, rate = self.coordinates(eta)
        spread = jnp.stack([jnp.sqrt(trigamma(a)), jnp.sqrt(a) / rate], axis=-1)
        gap = jnp.max(jnp.abs(self.moments(eta) - self.moments(other)) / spread, axis=-1)
        return jnp.where(self.is_proper(eta) & self.is_proper(other), gap, jnp.inf)

    def keep_proper(self, cavity: jax.Array, stats: jax.Array, site: jax.Array, floor: float) -> jax.Array:
        """The site s ≥ floor (in both components) that minimises A(cavity + s) − s·stats.

        When the matched site is out of bounds the minimum lies on an edge of the quadrant. On the edge of smallest
        shape, rate = shape/E[x]; it is the minimum if the slope ψ(a) − log β − E[log x] points inwards there. Else the
        minimum is on the edge of smallest rate, where ψ(a) = E[log x] + log β.
        """
        least, least_rate = self.coordinates(cavity + floor)
        log_mean, mean = stats[..., 0], -stats[..., 1]
        rate = jnp.maximum(least_rate, least / mean)
        slope = digamma(jnp.where(least > 0, least, 1.0)) - jnp.log(jnp.where(least > 0, rate, 1.0)) - log_mean
        on_shape = ((least > 0) & (slope >= 0)) | (least_rate <= 0)
        shape = jnp.maximum(least, inverse_digamma(log_mean + jnp.log(jnp.where(on_shape, 1.0, least_rate))))
        edge = jnp.stack([jnp.where(on_shape, least, shape), jnp.where(on_shape, rate, least_rate)], axis=-1)
        clipped = jnp.where(edge <= cavity + floor, floor, edge - cavity)
        return jnp.where(jnp.all(site >= floor, axis=-1, keepdims=True), site, clipped)


@dataclass(frozen=True)
class GammaWithUniform(OrFlat, Gamma):
    """A Gamma, or the function 1 of eta = (1, 0).

    Examples:
        >>> import cavity as cv
        >>> family = cv.families.GammaWithUniform()
        >>> family.flat().tolist(), bool(family.is_allowed(family.flat()))
        ([1.0, 0.0], True)
    """
