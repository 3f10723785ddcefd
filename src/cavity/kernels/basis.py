"""The contract of a basis: a few functions that carry a Gaussian process, and what of it they leave out.

    f(x) = a(x)ᵀ v + e(x),    v ~ N(0, I),    e(x) independent of v, of variance r(x).

With n rows and m functions everything that EP does then costs O(n m²) instead of O(n³). A basis is a JAX pytree: its
arrays are leaves, so that the evidence can be differentiated in them.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.kernels.base import Kernel
from cavity.kernels.structure import without_bounds


class Spanned(NamedTuple):
    """A basis at some points: f(x) = a(x)ᵀ v + e(x).

    Attributes:
        rows: a(x), (n, m), one row per point.
        residual: r(x), the variance of e(x), (n,), not negative.

    Examples:
        >>> from cavity import kernels
        >>> found = kernels.InducingInputs([[0.0], [1.0]])(kernels.RBF(), [[0.5]])
        >>> found.rows.shape, found.residual.shape
        ((1, 2), (1,))
    """

    rows: jax.Array
    residual: jax.Array


class Basis(ABC):
    """A few functions that carry a Gaussian process, f(x) = a(x)ᵀ v + e(x), v ~ N(0, I).

    `cavity.models.latent_gaussian` takes one as its basis.

    Examples:
        >>> from cavity import kernels
        >>> kernels.InducingInputs([[0.0], [1.0]]).width
        2
    """

    @property
    @abstractmethod
    def width(self) -> int:
        """How many points or features were chosen."""

    @abstractmethod
    def check(self, kernel: Kernel, columns: int) -> None:
        """Refuse, in one sentence, a kernel this is no basis for, or points of that many columns."""

    @abstractmethod
    def spanned(self, kernel: Kernel, X: jax.Array) -> Spanned:
        """a and r at points, for a kernel whose parameters may be traced."""

    @abstractmethod
    def covariance(self, kernel: Kernel, X: jax.Array) -> jax.Array:
        """Prior covariance of new latents at points, all of it: (n, n)."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """What `from_arrays` rebuilds the basis from."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "Basis":
        """The basis these arrays are of."""

    @float64
    def __call__(self, kernel: Kernel, X: Any) -> Spanned:
        """a and r at the rows of X."""
        X = kernel.check_points("X", X)
        self.check(kernel, X.shape[1])
        return compiled_spanned(self, without_bounds(kernel), X)

    @float64
    def pullback(self, kernel: Kernel, X: Any, pull: Spanned) -> tuple[jax.Array, "Basis"]:
        """Gradient in the kernel's theta and in the basis of a function of a and r whose own gradient is `pull`."""
        return compiled_spanned_pullback(self, without_bounds(kernel), jnp.asarray(X, float), pull)


@jax.jit
def compiled_spanned(basis: Basis, kernel: Kernel, X: jax.Array) -> Spanned:
    return basis.spanned(kernel, X)


@jax.jit
def compiled_spanned_pullback(basis: Basis, kernel: Kernel, X: jax.Array, pull: Spanned) -> tuple[jax.Array, Basis]:
    """One reverse pass (theta, basis) → (a, r)."""
    _, back = jax.vjp(lambda theta, basis: basis.spanned(kernel.with_theta(theta), X), kernel.theta, basis)
    return back(pull)
