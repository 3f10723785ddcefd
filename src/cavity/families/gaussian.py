"""The Gaussian of one variable: eta = (nu, tau) = (precision × mean, precision), T(x) = (x, −x²/2)."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from cavity.families.base import Family, OrFlat
from cavity.numerics.sums import cross_difference, log_excess

LOG_2PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Gaussian(Family):
    """N(x; mean, variance) with eta = (mean/variance, 1/variance).

    Examples:
        >>> import cavity as cv
        >>> gaussian = cv.families.Gaussian()
        >>> gaussian.from_mean(3.0, 0.5).tolist()
        [6.0, 2.0]
    """

    @property
    def size(self) -> int:
        return 2

    def from_mean(self, mean: Any, variance: Any) -> jax.Array:
        """Natural parameters of N(mean, variance)."""
        tau = 1.0 / jnp.asarray(variance, float)
        return jnp.stack(jnp.broadcast_arrays(jnp.asarray(mean, float) * tau, tau), axis=-1)

    def coordinates(self, eta: jax.Array) -> tuple[jax.Array, ...]:
        """(mean, variance)."""
        variance = 1.0 / eta[..., 1]
        return eta[..., 0] * variance, variance

    def statistics(self, x: jax.Array) -> jax.Array:
        x = jnp.asarray(x)
        return jnp.stack([x, -0.5 * x**2], axis=-1)

    def log_partition(self, eta: jax.Array) -> jax.Array:
        """½ nu²/tau − ½ log tau + ½ log 2π."""
        nu, tau = jnp.asarray(eta)[..., 0], jnp.asarray(eta)[..., 1]
        return 0.5 * (nu * (nu / tau) - jnp.log(tau) + LOG_2PI)

    def moments(self, eta: jax.Array) -> jax.Array:
        """(E[x], −E[x²]/2)."""
        mean, variance = self.coordinates(jnp.asarray(eta))
        return jnp.stack([mean, -0.5 * (variance + mean**2)], axis=-1)

    def natural(self, mu: jax.Array) -> jax.Array:
        mu = jnp.asarray(mu)
        mean = mu[..., 0]
        return self.from_mean(mean, -2.0 * mu[..., 1] - mean**2)

    def is_proper(self, eta: jax.Array) -> jax.Array:
        eta = jnp.asarray(eta)
        return (eta[..., 1] > 0) & jnp.all(jnp.isfinite(eta), axis=-1)

    def mean(self, eta: jax.Array) -> jax.Array:
        return jnp.asarray(eta)[..., 0] / jnp.asarray(eta)[..., 1]

    def covariance(self, eta: jax.Array) -> jax.Array:
        return 1.0 / jnp.asarray(eta)[..., 1]

    def sample(self, key: jax.Array, eta: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        mean, variance = self.coordinates(jnp.asarray(eta))
        return mean + jnp.sqrt(variance) * jax.random.normal(key, shape + mean.shape, dtype=float)

    def distance(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        eta, other = jnp.asarray(eta), jnp.asarray(other)
        # |mean − mean'|/sd from the step between the parameters: no difference of two large rounded means.
        gap = jnp.abs(cross_difference(eta[..., 0], eta[..., 1], other[..., 0], other[..., 1]))
        shift = gap / (jnp.sqrt(jnp.abs(eta[..., 1])) * jnp.abs(other[..., 1]))
        spread = jnp.abs(jnp.log(jnp.abs(other[..., 1] / eta[..., 1])))
        proper = self.is_proper(eta) & self.is_proper(other)
        return jnp.where(proper, jnp.maximum(shift, spread), jnp.inf)

    def is_negative(self, eta: jax.Array) -> jax.Array:
        return eta[..., 1] < 0

    def entropy(self, eta: jax.Array) -> jax.Array:
        """½ log(2πe/tau)."""
        return 0.5 * (1.0 + LOG_2PI - jnp.log(jnp.asarray(eta)[..., 1]))

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """½ (r − 1 − log r) + ½ tau' (m − m')², r = tau'/tau: a sum of two terms ≥ 0."""
        return gaussian_kl(*jnp.moveaxis(jnp.asarray(eta), -1, 0), *jnp.moveaxis(jnp.asarray(other), -1, 0))

    def message(self, cavity: jax.Array, stats: jax.Array) -> jax.Array:
        """tau = −d2 / (1 + v d2), nu = d1 + tau (m + v d1), with (m, v) the cavity's mean and variance."""
        mean, variance = self.coordinates(cavity)
        d1, d2 = stats[..., 0], stats[..., 1]
        tau = -d2 / (1.0 + variance * d2)
        return jnp.stack([d1 + tau * (mean + variance * d1), tau], axis=-1)

    def keep_proper(self, cavity: jax.Array, stats: jax.Array, site: jax.Array, floor: float) -> jax.Array:
        """The site nearest in KL among those with precision ≥ floor: only the precision is clipped, the mean is kept.

        With tau = floor the natural mean that leaves the tilted mean m + v d1 in place is d1 + floor (m + v d1).
        """
        mean, variance = self.coordinates(cavity)
        d1 = stats[..., 0]
        clipped = jnp.stack([d1 + floor * (mean + variance * d1), jnp.full_like(d1, floor)], axis=-1)
        return jnp.where(site[..., 1:] < floor, clipped, site)

    def from_local(self, reference: jax.Array, x: jax.Array) -> jax.Array:
        """Statistics (u, −u²/2) of u = (x − m)/s, with (m, s) the reference's mean and deviation."""
        nu, tau = reference[..., 0], reference[..., 1]
        root = jnp.sqrt(tau)
        change = tau * x[..., 1]
        return jnp.stack([root * x[..., 0] + nu * x[..., 1], change], axis=-1)

    def to_local(self, reference: jax.Array, change: jax.Array) -> jax.Array:
        nu, tau = reference[..., 0], reference[..., 1]
        x = change[..., 1] / tau
        return jnp.stack([(change[..., 0] - nu * x) / jnp.sqrt(tau), x], axis=-1)

    def local_moments(self, reference: jax.Array, eta: jax.Array) -> jax.Array:
        """(E[u], −E[u²]/2)."""
        nu, tau = reference[..., 0], reference[..., 1]
        shift = cross_difference(eta[..., 0], eta[..., 1], nu, tau) / (eta[..., 1] * jnp.sqrt(tau))
        return jnp.stack([shift, -0.5 * (tau / eta[..., 1] + shift**2)], axis=-1)

    def tilted_stats(self, log_z: Any, cavity: jax.Array) -> tuple[jax.Array, jax.Array]:
        """d1 = ∂ log Z/∂m and d2 = ∂² log Z/∂m² by automatic differentiation."""
        mean, variance = self.coordinates(cavity)

        def slope(m: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            value, d1 = jax.value_and_grad(log_z)(m, variance)
            return d1, (value, d1)

        d2, (value, d1) = jax.grad(slope, has_aux=True)(mean)
        return value, jnp.stack([d1, d2])


@dataclass(frozen=True)
class GaussianWithUniform(OrFlat, Gaussian):
    """A Gaussian, or the function 1 of eta = (0, 0).

    Examples:
        >>> import cavity as cv
        >>> family = cv.families.GaussianWithUniform()
        >>> bool(family.is_proper(family.flat())), bool(family.is_allowed(family.flat()))
        (False, True)
    """


def gaussian_kl(nu: jax.Array, tau: jax.Array, nu_new: jax.Array, tau_new: jax.Array) -> jax.Array:
    """KL of one-dimensional Gaussians, elementwise, from their natural parameters."""
    shift = cross_difference(nu, tau, nu_new, tau_new) / tau
    return 0.5 * (log_excess((tau_new - tau) / tau, tau_new / tau) + shift * (shift / tau_new))
