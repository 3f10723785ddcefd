"""The Gaussian of a vector with full covariance: eta = (nu (d), Lambda (d·d, row by row)), T(x) = (x, −½xxᵀ)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as linalg

from cavity._numerics.sums import log_excess
from cavity.families.base import OrFlat
from cavity.families.gaussian import LOG_2PI, VectorGaussian


def symmetrise(matrix: jax.Array) -> jax.Array:
    """The symmetric part, which rounding would otherwise let drift."""
    return 0.5 * (matrix + jnp.swapaxes(matrix, -1, -2))


def half_log_det(factor: jax.Array) -> jax.Array:
    """½ log |L Lᵀ|."""
    return jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


def is_positive_definite(matrix: jax.Array) -> jax.Array:
    """Whether a symmetric matrix has a Cholesky factor."""
    return jnp.all(jnp.diagonal(jnp.linalg.cholesky(matrix), axis1=-2, axis2=-1) > 0, axis=-1)


def floored(z: jax.Array) -> jax.Array:
    """1 + z, at least the rounding unit: an eigenvalue at −1 or below is a rounding error."""
    return jnp.maximum(1.0 + z, jnp.finfo(float).eps)


def whiten_matrix(factor: jax.Array, matrix: jax.Array) -> jax.Array:
    """factor⁻¹ matrix factor⁻ᵀ for a lower triangular factor."""
    half = linalg.solve_triangular(factor, matrix, lower=True)
    return symmetrise(linalg.solve_triangular(factor, jnp.swapaxes(half, -1, -2), lower=True))


@dataclass(frozen=True)
class FullGaussian(VectorGaussian):
    """N(x; mean, covariance) for a vector x, with eta = (precision × mean, precision row by row).

    Args:
        dimension: length of x.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> family = cv.families.FullGaussian(2)
        >>> eta = family.from_mean([1.0, 2.0], [[2.0, 1.0], [1.0, 2.0]])
        >>> np.round(family.covariance(eta), 6).tolist()
        [[2.0, 1.0], [1.0, 2.0]]
    """

    @property
    def size(self) -> int:
        return self.dimension * (self.dimension + 1)

    def precision(self, eta: jax.Array) -> jax.Array:
        """Lambda as a matrix."""
        eta = jnp.asarray(eta)
        return eta[..., self.dimension :].reshape(*eta.shape[:-1], self.dimension, self.dimension)

    def pack(self, nu: jax.Array, precision: jax.Array) -> jax.Array:
        """(nu, Lambda) in one vector."""
        flat = symmetrise(precision).reshape(*precision.shape[:-2], self.dimension**2)
        return jnp.concatenate([jnp.broadcast_to(nu, (*flat.shape[:-1], self.dimension)), flat], axis=-1)

    def standard(self) -> jax.Array:
        """N(0, I): some proper member, for branches that are not taken."""
        return self.pack(jnp.zeros(self.dimension), jnp.eye(self.dimension))

    def spread(self, eta: jax.Array) -> jax.Array:
        return symmetric_inverse(self.precision(eta))

    def from_mean(self, mean: Any, spread: Any) -> jax.Array:
        precision = symmetric_inverse(jnp.asarray(spread, float))
        return self.pack(jnp.einsum("...ij,...j->...i", precision, jnp.asarray(mean, float)), precision)

    def statistics(self, x: jax.Array) -> jax.Array:
        x = jnp.asarray(x)
        return self.pack(x, -0.5 * x[..., :, None] * x[..., None, :])

    def log_partition(self, eta: jax.Array) -> jax.Array:
        """½ nuᵀ Lambda⁻¹ nu − ½ log |Lambda| + ½ d log 2π; NaN where Lambda is not positive definite."""
        factor = jnp.linalg.cholesky(self.precision(eta))
        white = linalg.solve_triangular(factor, self.nu(eta)[..., None], lower=True)[..., 0]
        return 0.5 * jnp.sum(white**2, axis=-1) - half_log_det(factor) + 0.5 * self.dimension * LOG_2PI

    def log_density(self, eta: jax.Array, x: jax.Array) -> jax.Array:
        """−½ (x − m)ᵀ Lambda (x − m) + ½ log |Lambda| − ½ d log 2π."""
        factor = jnp.linalg.cholesky(self.precision(eta))
        white = jnp.einsum("...ji,...j->...i", factor, x - self.mean(eta))
        return half_log_det(factor) - 0.5 * (jnp.sum(white**2, axis=-1) + self.dimension * LOG_2PI)

    def moments(self, eta: jax.Array) -> jax.Array:
        mean, covariance = self.coordinates(eta)
        return self.pack(mean, -0.5 * (covariance + mean[..., :, None] * mean[..., None, :]))

    def natural(self, mu: jax.Array) -> jax.Array:
        mean, second = self.nu(mu), -2.0 * self.precision(mu)
        return self.from_mean(mean, second - mean[..., :, None] * mean[..., None, :])

    def is_proper(self, eta: jax.Array) -> jax.Array:
        return is_positive_definite(self.precision(eta)) & jnp.all(jnp.isfinite(jnp.asarray(eta)), axis=-1)

    def mean(self, eta: jax.Array) -> jax.Array:
        return jnp.einsum("...ij,...j->...i", symmetric_inverse(self.precision(eta)), self.nu(eta))

    def covariance(self, eta: jax.Array) -> jax.Array:
        return self.spread(eta)

    def sample(self, key: jax.Array, eta: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        mean, covariance = self.coordinates(eta)
        noise = jax.random.normal(key, shape + mean.shape, dtype=float)
        return mean + jnp.einsum("...ij,...j->...i", jnp.linalg.cholesky(covariance), noise)

    def distance(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """Norm of the mean difference and largest |log eigenvalue| of the covariance ratio, in `eta`'s own metric."""
        proper = self.is_proper(eta) & self.is_proper(other)
        eta, other = (jnp.where(proper[..., None], own, self.standard()) for own in (eta, other))
        z, shift = self.change(eta, other)
        white = jnp.einsum("...ji,...j->...i", jnp.linalg.cholesky(self.precision(eta)), shift)
        spread = jnp.max(jnp.abs(jnp.where(jnp.abs(z) < 0.5, jnp.log1p(z), jnp.log(floored(z)))), axis=-1)
        return jnp.where(proper, jnp.maximum(jnp.linalg.norm(white, axis=-1), spread), jnp.inf)

    def is_negative(self, eta: jax.Array) -> jax.Array:
        return jnp.linalg.eigvalsh(self.precision(eta))[..., 0] < 0

    def entropy(self, eta: jax.Array) -> jax.Array:
        """½ d log 2πe − ½ log |Lambda|."""
        factor = jnp.linalg.cholesky(self.precision(eta))
        return 0.5 * self.dimension * (1.0 + LOG_2PI) - half_log_det(factor)

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """½ Σ (z_i − log(1 + z_i)) + ½ (m' − m)ᵀ Lambda' (m' − m), two terms ≥ 0; z as in `change`."""
        z, shift = self.change(eta, other)
        pull = jnp.einsum("...i,...ij,...j->...", shift, self.precision(other), shift)
        return 0.5 * (jnp.sum(log_excess(z, floored(z)), axis=-1) + pull)

    def change(self, eta: jax.Array, other: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(eigenvalues of Lambda' − Lambda where `eta` is white, m' − m).

        m' − m = Lambda'⁻¹ (nu' − Lambda' m), for close members through the steps nu' − nu and Lambda' − Lambda.
        """
        old, new = self.precision(eta), self.precision(other)
        step, mean = new - old, self.mean(eta)
        z = jnp.linalg.eigvalsh(whiten_matrix(jnp.linalg.cholesky(old), step))
        direct = self.nu(other) - jnp.einsum("...ij,...j->...i", new, mean)
        by_step = self.nu(other) - self.nu(eta) - jnp.einsum("...ij,...j->...i", step, mean)
        close = jnp.max(jnp.abs(z), axis=-1, keepdims=True) <= 0.5
        return z, jnp.einsum("...ij,...j->...i", symmetric_inverse(new), jnp.where(close, by_step, direct))

    def message(self, cavity: jax.Array, stats: jax.Array) -> jax.Array:
        """Lambda = −(I + H V)⁻¹ H, nu = g + Lambda (m + V g), with g, H the derivatives of log Z, (m, V) the cavity."""
        mean, covariance = self.coordinates(cavity)
        slope, hessian = self.nu(stats), self.precision(stats)
        precision = symmetrise(-jnp.linalg.solve(jnp.eye(self.dimension) + hessian @ covariance, hessian))
        return self.with_mean(slope, precision, mean + jnp.einsum("...ij,...j->...i", covariance, slope))

    def with_mean(self, slope: jax.Array, precision: jax.Array, tilted_mean: jax.Array) -> jax.Array:
        """The site with this precision that puts the posterior mean at the tilted mean."""
        return self.pack(slope + jnp.einsum("...ij,...j->...i", precision, tilted_mean), precision)

    def keep_proper(self, cavity: jax.Array, stats: jax.Array, site: jax.Array, floor: float) -> jax.Array:
        """The KL-nearest site with Lambda ⪰ floor·I.

        Lambda = floor·I + P with P ⪰ 0: eigenvalues of P clipped at 0 where cavity + floor·I is white.
        """
        mean, covariance = self.coordinates(cavity)
        least = floor * jnp.eye(self.dimension)
        factor = jnp.linalg.cholesky(self.precision(cavity) + least)
        values, vectors = jnp.linalg.eigh(whiten_matrix(factor, self.precision(site) - least))
        back = factor @ vectors
        precision = least + (back * jnp.maximum(values, 0.0)[..., None, :]) @ jnp.swapaxes(back, -1, -2)
        slope = self.nu(stats)
        clipped = self.with_mean(slope, precision, mean + jnp.einsum("...ij,...j->...i", covariance, slope))
        return jnp.where(values[..., :1] < 0, clipped, site)

    def tilted_stats(self, log_z: Any, cavity: jax.Array) -> tuple[jax.Array, jax.Array]:
        """g = ∇_m log Z and H = 2 ∂ log Z/∂V − g gᵀ, the gradient in V taken as of a symmetric matrix."""
        value, (slope, dv) = jax.value_and_grad(log_z, argnums=(0, 1))(*self.coordinates(cavity))
        return value, self.pack(slope, 2.0 * symmetrise(dv) - slope[:, None] * slope[None, :])


@dataclass(frozen=True)
class FullGaussianWithUniform(OrFlat, FullGaussian):
    """A Gaussian of a vector, or the function 1 of eta = 0.

    Args:
        dimension: length of x.

    Examples:
        >>> import cavity as cv
        >>> family = cv.families.FullGaussianWithUniform(2)
        >>> float(family.log_partition(family.flat()))
        0.0
    """

    def stand_in(self) -> jax.Array:
        return self.standard()


def symmetric_inverse(matrix: jax.Array) -> jax.Array:
    """Symmetric inverse by Cholesky; NaN where the matrix is not positive definite."""
    factor = jnp.linalg.cholesky(matrix)
    eye = jnp.broadcast_to(jnp.eye(matrix.shape[-1]), matrix.shape)
    half = linalg.solve_triangular(factor, eye, lower=True)
    return jnp.swapaxes(half, -1, -2) @ half
