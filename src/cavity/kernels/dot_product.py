"""Kernels of the inner product of two points: linear and polynomial functions."""

import operator
from typing import Any

import jax
import jax.numpy as jnp

from cavity._core.pytrees import static
from cavity.kernels.base import VARIANCES, Kernel
from cavity.kernels.structure import Bounds, kernel, limits


@kernel
class Linear(Kernel):
    """variance · xᵀz: linear functions with weights of that variance, through the origin. Add a constant for a bias.

    Args:
        variance: of a weight.
        variance_bounds: where a search may move it, or "fixed".

    Raises:
        ValueError: if the variance is not positive.

    Examples:
        >>> from cavity import kernels
        >>> kernels.Linear(2.0)([[1.0], [3.0]]).tolist()
        [[2.0, 6.0], [6.0, 18.0]]
    """

    variance: Any = 1.0
    variance_bounds: Bounds = limits(default=VARIANCES)

    def matrix(self, X: jax.Array, Z: jax.Array | None) -> jax.Array:
        return self.variance * inner_products(X, Z)

    def diagonal_of(self, X: jax.Array) -> jax.Array:
        return self.variance * jnp.sum(jnp.square(X), axis=1)


@kernel
class Polynomial(Kernel):
    """The polynomial kernel (scale · xᵀz + offset)^degree.

    Args:
        degree: a whole number from 1.
        offset: 1 gives all monomials up to the degree; 0, which must be fixed, those of exactly that degree.
        scale: of the inner product.
        offset_bounds: where a search may move the offset, or "fixed".
        scale_bounds: where a search may move the scale, or "fixed".

    Raises:
        ValueError: if the degree is not a whole number from 1, or a parameter is not positive.

    Examples:
        >>> from cavity import kernels
        >>> kernels.Polynomial(degree=2)([[1.0], [2.0]]).tolist()
        [[4.0, 9.0], [9.0, 25.0]]
    """

    degree: int = static(default=3)
    offset: Any = 1.0
    scale: Any = 1.0
    offset_bounds: Bounds = limits(default=VARIANCES)
    scale_bounds: Bounds = limits(default=VARIANCES)

    may_vanish = ("offset",)

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            degree = 0 if isinstance(self.degree, bool) else operator.index(self.degree)
        except TypeError:
            degree = 0
        if degree < 1:
            raise ValueError(f"degree must be a whole number from 1; found {self.degree!r}.")
        object.__setattr__(self, "degree", degree)

    def matrix(self, X: jax.Array, Z: jax.Array | None) -> jax.Array:
        return (self.scale * inner_products(X, Z) + self.offset) ** self.degree

    def diagonal_of(self, X: jax.Array) -> jax.Array:
        return (self.scale * jnp.sum(jnp.square(X), axis=1) + self.offset) ** self.degree


def inner_products(X: jax.Array, Z: jax.Array | None) -> jax.Array:
    """x_iᵀ z_j; without Z the mean of the product and its transpose, because blocked products round unevenly."""
    if Z is not None:
        return X @ Z.T
    products = X @ X.T
    return 0.5 * (products + products.T)
