"""Gaussians in natural parameters, precision × mean and precision.

    one variable  eta = (nu, tau), T(x) = (x, −x²/2)

and of a vector: spherical, diagonal and (in `full_gaussian`) full covariance.

    spherical  eta = (nu (d), tau)            covariance I/tau
    diagonal   eta = (nu (d), tau (d))        covariance diag(1/tau)
    full       eta = (nu (d), Lambda (d·d))   covariance Lambda⁻¹, stored row by row

with statistics T(x) = (x, −½|x|²), (x, −½x∘x), (x, −½xxᵀ). The tilted coordinates (d1, d2) are laid out the same way:
d1 is the gradient of log Z in the cavity mean; d2 is the Hessian (full), its diagonal (diagonal), its mean diagonal
(spherical), so that the tilted covariance is V + V d2 V.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import library_of
from cavity._numerics.sums import cross_difference, log_excess
from cavity.families.base import Family, OrFlat, Tilted

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

    size: ClassVar[int] = 2  # type: ignore[override]
    local_size: ClassVar[int] = 2  # type: ignore[override]

    def from_mean(self, mean: Any, variance: Any) -> jax.Array:
        """Natural parameters of N(mean, variance)."""
        library = library_of(mean, variance)
        with np.errstate(divide="ignore", invalid="ignore"):  # as JAX does: 1/0 is infinite
            tau = 1.0 / library.asarray(variance, float)
            return library.stack(library.broadcast_arrays(library.asarray(mean, float) * tau, tau), axis=-1)

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

    def log_density(self, eta: jax.Array, x: jax.Array) -> jax.Array:
        """−½ (x − m)² tau + ½ log tau − ½ log 2π."""
        eta = jnp.asarray(eta)
        return -0.5 * ((x - self.mean(eta)) ** 2 * eta[..., 1] - jnp.log(eta[..., 1]) + LOG_2PI)

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
        shift, spread = gaussian_gaps(eta[..., 0], eta[..., 1], other[..., 0], other[..., 1])
        return jnp.where(self.is_proper(eta) & self.is_proper(other), jnp.maximum(shift, spread), jnp.inf)

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
        """Statistics (u, −u²/2) of u = (x − m)/s, with (m, s) the reference's mean and standard deviation."""
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


def gaussian_gaps(
    nu: jax.Array, tau: jax.Array, nu_other: jax.Array, tau_other: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(|mean − mean'|/sd, |log variance ratio|), elementwise: no difference of two large rounded means."""
    gap = jnp.abs(cross_difference(nu, tau, nu_other, tau_other))
    return gap / (jnp.sqrt(jnp.abs(tau)) * jnp.abs(tau_other)), jnp.abs(jnp.log(jnp.abs(tau_other / tau)))


def gaussian_kl(nu: jax.Array, tau: jax.Array, nu_new: jax.Array, tau_new: jax.Array) -> jax.Array:
    """KL of one-dimensional Gaussians, elementwise, from their natural parameters."""
    shift = cross_difference(nu, tau, nu_new, tau_new) / tau
    return 0.5 * (log_excess((tau_new - tau) / tau, tau_new / tau) + shift * (shift / tau_new))


class Tilt(NamedTuple):
    """A tilted scalar Gaussian; Z is a function of the mean m of the cavity N(m, v).

    log_z: log Z.
    d1: (log Z)'.
    bend: −(log Z)''.
    rise: −Z''/Z = bend − d1².
    pull: d1 + m · bend, the site's nu times `ratio`.
    lift: d1 + m · rise.
    ratio: the tilted variance over v, 1 − v · bend.
    """

    log_z: jax.Array
    d1: jax.Array
    bend: jax.Array
    rise: jax.Array
    pull: jax.Array
    lift: jax.Array
    ratio: jax.Array


def as_tilted(tilt: Tilt, sign: Any = 1.0) -> Tilted:
    """log Z, (d1, d2) and the site of a scalar Gaussian; of t(sign · f) under the mirrored cavity, sign is ±1."""
    stats = jnp.stack([sign * tilt.d1, -tilt.bend], axis=-1)
    return Tilted(tilt.log_z, stats, jnp.stack([sign * tilt.pull, tilt.bend], axis=-1) / tilt.ratio[..., None])


@dataclass(frozen=True)
class VectorGaussian(Family):
    """What the three shapes share. `dimension` is the length of x."""

    dimension: int

    @property
    def event_shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    @abstractmethod
    def spread(self, eta: jax.Array) -> jax.Array:
        """The covariance in the family's own compact form: a number, a vector or a matrix."""

    @abstractmethod
    def from_mean(self, mean: Any, spread: Any) -> jax.Array:
        """Natural parameters from the mean and the compact covariance."""

    def coordinates(self, eta: jax.Array) -> tuple[jax.Array, ...]:
        """(mean, covariance in compact form)."""
        return self.mean(eta), self.spread(eta)

    def nu(self, eta: jax.Array) -> jax.Array:
        """Precision × mean."""
        return jnp.asarray(eta)[..., : self.dimension]


@dataclass(frozen=True)
class AxisAligned(VectorGaussian):
    """Independent coordinates; subclasses say whether they share one variance."""

    def tau(self, eta: jax.Array) -> jax.Array:
        """Precision of every coordinate, broadcast to length d."""
        return jnp.asarray(eta)[..., self.dimension :]

    @property
    def shared(self) -> int:
        """How many coordinates share one variance: 1 or d."""
        return self.dimension // (self.size - self.dimension)

    def pool(self, per_coordinate: jax.Array) -> jax.Array:
        """Sum of a per-coordinate quantity over the coordinates that share a variance, last axis of length d/shared."""
        wide = jnp.broadcast_to(per_coordinate, (*per_coordinate.shape[:-1], self.dimension))
        return jnp.sum(wide.reshape(*wide.shape[:-1], -1, self.shared), axis=-1)

    def pack(self, mean: jax.Array, variance: jax.Array) -> jax.Array:
        """Natural parameters from the mean and the variances, the latter with a last axis of length d/shared."""
        batch = jnp.broadcast_shapes(mean.shape[:-1], variance.shape[:-1])
        tau = jnp.broadcast_to(1.0 / variance, (*batch, self.size - self.dimension))
        return jnp.concatenate([mean * tau, tau], axis=-1)

    def statistics(self, x: jax.Array) -> jax.Array:
        x = jnp.asarray(x)
        return jnp.concatenate([x, -0.5 * self.pool(x**2)], axis=-1)

    def log_partition(self, eta: jax.Array) -> jax.Array:
        nu, tau = self.nu(eta), self.tau(eta)
        tau = jnp.broadcast_to(tau, nu.shape)
        return 0.5 * jnp.sum(nu * (nu / tau) - jnp.log(tau) + LOG_2PI, axis=-1)

    def log_density(self, eta: jax.Array, x: jax.Array) -> jax.Array:
        """Sum over coordinates of the one-dimensional log density."""
        tau = self.tau(eta)
        return -0.5 * jnp.sum((x - self.mean(eta)) ** 2 * tau - jnp.log(tau) + LOG_2PI, axis=-1)

    def moments(self, eta: jax.Array) -> jax.Array:
        mean = self.mean(eta)
        return jnp.concatenate([mean, -0.5 * self.pool(1.0 / self.tau(eta) + mean**2)], axis=-1)

    def natural(self, mu: jax.Array) -> jax.Array:
        mu = jnp.asarray(mu)
        mean = mu[..., : self.dimension]
        return self.pack(mean, (-2.0 * mu[..., self.dimension :] - self.pool(mean**2)) / self.shared)

    def is_proper(self, eta: jax.Array) -> jax.Array:
        eta = jnp.asarray(eta)
        return jnp.all(self.tau(eta) > 0, axis=-1) & jnp.all(jnp.isfinite(eta), axis=-1)

    def mean(self, eta: jax.Array) -> jax.Array:
        return self.nu(eta) / self.tau(eta)

    def covariance(self, eta: jax.Array) -> jax.Array:
        variance = jnp.broadcast_to(1.0 / self.tau(eta), self.nu(eta).shape)
        return variance[..., :, None] * jnp.eye(self.dimension)

    def sample(self, key: jax.Array, eta: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        mean = self.mean(eta)
        return mean + jax.random.normal(key, shape + mean.shape, dtype=float) / jnp.sqrt(self.tau(eta))

    def distance(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        eta, other = jnp.asarray(eta), jnp.asarray(other)
        shift, spread = gaussian_gaps(self.nu(eta), self.tau(eta), self.nu(other), self.tau(other))
        gap = jnp.maximum(jnp.max(shift, axis=-1), jnp.max(spread, axis=-1))
        return jnp.where(self.is_proper(eta) & self.is_proper(other), gap, jnp.inf)

    def is_negative(self, eta: jax.Array) -> jax.Array:
        return jnp.any(self.tau(eta) < 0, axis=-1)

    def entropy(self, eta: jax.Array) -> jax.Array:
        """½ Σ log(2πe/tau)."""
        tau = jnp.broadcast_to(self.tau(eta), self.nu(eta).shape)
        return 0.5 * jnp.sum(1.0 + LOG_2PI - jnp.log(tau), axis=-1)

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """Sum over coordinates of the one-dimensional divergence."""
        return jnp.sum(gaussian_kl(self.nu(eta), self.tau(eta), self.nu(other), self.tau(other)), axis=-1)

    def message(self, cavity: jax.Array, stats: jax.Array) -> jax.Array:
        """As for one variable, coordinate by coordinate: tau = −d2/(1 + v d2), nu = d1 + tau (m + v d1)."""
        mean, variance = self.mean(cavity), 1.0 / self.tau(cavity)
        d1, d2 = stats[..., : self.dimension], stats[..., self.dimension :]
        tau = -d2 / (1.0 + variance * d2)
        return jnp.concatenate([d1 + tau * (mean + variance * d1), tau], axis=-1)

    def keep_proper(self, cavity: jax.Array, stats: jax.Array, site: jax.Array, floor: float) -> jax.Array:
        """Precisions below `floor` are set to it, with the tilted mean kept."""
        mean, variance = self.mean(cavity), 1.0 / self.tau(cavity)
        d1 = stats[..., : self.dimension]
        tau = jnp.maximum(self.tau(site), floor)
        kept = jnp.broadcast_to(self.tau(site) >= floor, d1.shape)
        nu = jnp.where(kept, self.nu(site), d1 + tau * (mean + variance * d1))
        return jnp.concatenate([nu, tau], axis=-1)

    def tilted_stats(self, log_z: Any, cavity: jax.Array) -> tuple[jax.Array, jax.Array]:
        """d1 = ∇_m log Z; d2 = 2 ∂ log Z/∂v − d1² (thesis 3.19), averaged over coordinates in the spherical family."""
        value, (d1, dv) = jax.value_and_grad(log_z, argnums=(0, 1))(*self.coordinates(cavity))
        return value, jnp.concatenate([d1, (2.0 * jnp.atleast_1d(dv) - self.pool(d1**2)) / self.shared])


@dataclass(frozen=True)
class DiagonalGaussian(AxisAligned):
    """N(x; mean, diag(variances)): independent coordinates, each with its own variance.

    Args:
        dimension: length of x.

    Examples:
        >>> import cavity as cv
        >>> family = cv.families.DiagonalGaussian(2)
        >>> family.from_mean([1.0, 2.0], [0.5, 0.25]).tolist()
        [2.0, 8.0, 2.0, 4.0]
    """

    @property
    def size(self) -> int:
        return 2 * self.dimension

    def spread(self, eta: jax.Array) -> jax.Array:
        return 1.0 / self.tau(eta)

    def from_mean(self, mean: Any, spread: Any) -> jax.Array:
        return self.pack(jnp.asarray(mean, float), jnp.asarray(spread, float))


@dataclass(frozen=True)
class SphericalGaussian(AxisAligned):
    """N(x; mean, variance · I), one variance for all coordinates, as in the thesis's clutter problem (3.8).

    Args:
        dimension: length of x.

    Examples:
        >>> import cavity as cv
        >>> family = cv.families.SphericalGaussian(2)
        >>> family.from_mean([1.0, 2.0], 0.5).tolist()
        [2.0, 4.0, 2.0]
    """

    @property
    def size(self) -> int:
        return self.dimension + 1

    def spread(self, eta: jax.Array) -> jax.Array:
        return 1.0 / jnp.asarray(eta)[..., self.dimension]

    def from_mean(self, mean: Any, spread: Any) -> jax.Array:
        return self.pack(jnp.asarray(mean, float), jnp.asarray(spread, float)[..., None])
