"""Kernels that do not look at the features: a constant, and independent noise."""

from typing import Any

import jax
import jax.numpy as jnp

from cavity.kernels.base import VARIANCES, Kernel
from cavity.kernels.structure import Bounds, kernel, limits


@kernel
class Constant(Kernel):
    """The same covariance for every pair: the amplitude of a product, a bias in a sum.

    Args:
        value: the covariance.
        value_bounds: where a search may move it, or "fixed".

    Raises:
        ValueError: if the value is not positive.

    Examples:
        >>> from cavity import kernels
        >>> kernels.Constant(2.0)([[0.0], [5.0]]).tolist()
        [[2.0, 2.0], [2.0, 2.0]]
    """

    value: Any = 1.0
    value_bounds: Bounds = limits(default=VARIANCES)

    def matrix(self, X: jax.Array, Z: jax.Array | None) -> jax.Array:
        return jnp.full((X.shape[0], (X if Z is None else Z).shape[0]), self.value, dtype=float)

    def diagonal_of(self, X: jax.Array) -> jax.Array:
        return jnp.full(X.shape[0], self.value, dtype=float)


@kernel
class White(Kernel):
    """Independent noise: `noise` times the identity without Z, zero between two sets of points.

    Args:
        noise: the variance.
        noise_bounds: where a search may move it, or "fixed".

    Raises:
        ValueError: if the variance is not positive.

    Examples:
        >>> from cavity import kernels
        >>> kernels.White(0.5)([[0.0], [5.0]]).tolist()
        [[0.5, 0.0], [0.0, 0.5]]
    """

    noise: Any = 1.0
    noise_bounds: Bounds = limits(default=VARIANCES)

    def matrix(self, X: jax.Array, Z: jax.Array | None) -> jax.Array:
        if Z is not None:
            return jnp.zeros((X.shape[0], Z.shape[0]))
        return self.noise * jnp.eye(X.shape[0])

    def diagonal_of(self, X: jax.Array) -> jax.Array:
        return jnp.full(X.shape[0], self.noise, dtype=float)
