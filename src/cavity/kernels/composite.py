"""Sums and products of kernels, which are kernels; written `a + b`, `a * b`, `2.0 * a`."""

import dataclasses
from typing import Any, Self

import jax

from cavity.kernels.base import Kernel
from cavity.kernels.structure import kernel


@kernel
class Composite(Kernel):
    """Two kernels joined; the parameters are those of the left one, then those of the right one."""

    left: Kernel
    right: Kernel

    def __post_init__(self) -> None:
        for name in ("left", "right"):
            if not isinstance(getattr(self, name), Kernel):
                raise TypeError(
                    f"{name} must be a kernel of cavity.kernels; found {type(getattr(self, name)).__name__}."
                )

    @property
    def parts(self) -> tuple[Kernel, ...]:
        return self.left.parts + self.right.parts

    def rebuild(self, values: Any) -> Self:
        size = len(self.left.names)
        return type(self)(self.left.rebuild(values[:size]), self.right.rebuild(values[size:]))

    def fix(self, *names: str) -> Self:
        """The kernel with all parameters fixed; fix single ones before joining."""
        if names:
            raise ValueError(f"fix {', '.join(names)} in the kernel it belongs to, before kernels are joined.")
        return dataclasses.replace(self, left=self.left.fix(), right=self.right.fix())


@kernel
class Sum(Composite):
    """The sum of two kernels, also written `left + right`: k(x, z) = left(x, z) + right(x, z).

    Args:
        left: a kernel.
        right: another one.

    Raises:
        TypeError: if either is not a kernel of `cavity.kernels`.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity import kernels
        >>> kernel = kernels.Sum(kernels.Constant(1.0), kernels.Linear(2.0))
        >>> kernel([[3.0]]).tolist()
        [[19.0]]
    """

    def matrix(self, X: jax.Array, Z: jax.Array | None) -> jax.Array:
        return self.left.matrix(X, Z) + self.right.matrix(X, Z)

    def diagonal_of(self, X: jax.Array) -> jax.Array:
        return self.left.diagonal_of(X) + self.right.diagonal_of(X)


@kernel
class Product(Composite):
    """The product of two kernels, also written `left * right`: k(x, z) = left(x, z) · right(x, z).

    Args:
        left: a kernel.
        right: another one.

    Raises:
        TypeError: if either is not a kernel of `cavity.kernels`.

    Examples:
        >>> from cavity import kernels
        >>> kernel = kernels.Product(kernels.Constant(4.0), kernels.Linear(2.0))
        >>> kernel([[3.0]]).tolist()
        [[72.0]]
    """

    def matrix(self, X: jax.Array, Z: jax.Array | None) -> jax.Array:
        return self.left.matrix(X, Z) * self.right.matrix(X, Z)

    def diagonal_of(self, X: jax.Array) -> jax.Array:
        return self.left.diagonal_of(X) * self.right.diagonal_of(X)
