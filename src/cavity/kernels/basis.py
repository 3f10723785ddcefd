"""A basis: a few functions that carry a Gaussian process, and what of it they leave out.

    f(x) = a(x)ᵀ v + e(x),    v ~ N(0, I),    e(x) independent of v, of variance r(x).

With n rows and m functions everything that EP does then costs O(n m²) instead of O(n³). A basis is a JAX pytree: its
arrays are leaves, so that the evidence can be differentiated in them.

Inducing inputs carry it by its values u = f(Z) at m points (Snelson & Ghahramani 2006). With K_ZZ = L Lᵀ the values are
u = L v, and given v a latent is normal:

    mean a(x)ᵀ v,  a(x) = L⁻¹ k(Z, x),        variance r(x) = k(x, x) − |a(x)|².

Residuals of different rows are taken as independent. Under EP that is the FITC prior, aᵀa + diag r (Naish-Guzman &
Holden 2008); under Power EP with power p the approximation of Bui, Yan & Turner (2017), for p → 0 the variational one.

Random Fourier features have orthogonal frequencies (Rahimi & Recht 2007; Yu et al. 2016). A stationary kernel of
variance 1 is the mean of cos ωᵀ(x − z) over its spectral density (Bochner). With frequencies ω₁ … ω_k drawn from it,

    a(x) = k^−½ (cos ω₁ᵀx, …, cos ω_kᵀx, sin ω₁ᵀx, …, sin ω_kᵀx),        E[a(x)ᵀ a(z)] = k(x, z),    |a(x)| = 1.

For length scales ℓ a frequency is w/ℓ with w that of ℓ = 1: normal for the Gaussian kernel, Student's t with 2ν degrees
of freedom for Matérn's. So w is drawn once, and theta may move afterwards. Directions come in orthogonal blocks, of as
many as X has columns, with lengths as independent draws have them: the mean stays, the scatter falls.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64
from cavity._core.tiers import tiered_jit
from cavity._numerics.blocked import cholesky, solve_triangular
from cavity.kernels.base import Kernel
from cavity.kernels.covariances import RBF, Matern
from cavity.kernels.parameters import kernel, without_bounds

#: added to the diagonal of K_ZZ, as a share of its mean: rounding makes eigenvalues negative by some m · 1e-16 of it
JITTER = 1e-10
#: share of its variance that v has in a latent which no inducing input reaches, so that it has a distribution
UNREACHED = 1e-20


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
    def validate(self, kernel: Kernel, columns: int) -> None:
        """Refuse, in one sentence, a kernel this is no basis for, or points of that many columns.

        Args:
            kernel: of the process.
            columns: of the points.

        Raises:
            TypeError, ValueError: the basis is not for them.
        """

    @abstractmethod
    def span(self, kernel: Kernel, X: jax.Array) -> Spanned:
        """a and r at points, for a kernel whose parameters may be traced.

        Args:
            kernel: one that `validate` lets pass.
            X: (n, d), one row per point.

        Returns:
            Both, in a `Spanned`.
        """

    @abstractmethod
    def residual_covariance(self, kernel: Kernel, X: jax.Array) -> jax.Array:
        """Prior covariance of e at new points, all of it: (n, n).

        Args:
            kernel: one that `validate` lets pass.
            X: (n, d), one row per point.

        Returns:
            The matrix.
        """

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """What `from_arrays` rebuilds the basis from.

        Returns:
            NumPy arrays by name.
        """

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "Basis":
        """The basis these arrays are of.

        Args:
            arrays: as `arrays` gives them.

        Returns:
            A basis of this class.
        """

    @float64
    def __call__(self, kernel: Kernel, X: Any) -> Spanned:
        """a and r at the rows of X.

        Args:
            kernel: of the process.
            X: points, one per row.

        Returns:
            Both, in a `Spanned`.
        """
        X = kernel.check_points("X", X)
        self.validate(kernel, X.shape[1])
        return compiled_spanned(self, without_bounds(kernel), X)

    @float64
    def pullback(self, kernel: Kernel, X: Any, pull: Spanned) -> tuple[jax.Array, "Basis"]:
        """Gradient in the kernel's theta and in the basis of a function of a and r whose own gradient is `pull`.

        Args:
            kernel: of the process.
            X: points, one per row.
            pull: the function's derivatives in a and in r.

        Returns:
            The gradient in theta, and that in the basis as a basis.
        """
        return compiled_spanned_pullback(self, without_bounds(kernel), jnp.asarray(X, float), pull)


@tiered_jit
def compiled_spanned(basis: Basis, kernel: Kernel, X: jax.Array) -> Spanned:
    return basis.span(kernel, X)


@tiered_jit
def compiled_spanned_pullback(basis: Basis, kernel: Kernel, X: jax.Array, pull: Spanned) -> tuple[jax.Array, Basis]:
    """One reverse pass (theta, basis) → (a, r)."""
    _, back = jax.vjp(lambda theta, basis: basis.span(kernel.with_theta(theta), X), kernel.theta, basis)
    return back(pull)


def check_kernel(given: Any) -> Kernel:
    """Refuse what is no kernel of this package."""
    if not isinstance(given, Kernel):
        raise TypeError(f"a basis needs a kernel of cavity.kernels; found {type(given).__name__}.")
    return given


@kernel
class InducingInputs(Basis):
    """The process seen through its values at m points: a(x) = L⁻¹ k(Z, x), r(x) = k(x, x) − |a(x)|².

    Args:
        inputs: (m, d), one row per point; points far from all of them keep their prior.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity import kernels
        >>> basis = kernels.InducingInputs([[0.0], [1.0], [2.0]])
        >>> found = basis(kernels.RBF(), [[0.0], [1.5]])
        >>> np.round(np.sum(found.rows**2, axis=1) + found.residual, 6).tolist()
        [1.0, 1.0]
    """

    inputs: Any

    def __post_init__(self) -> None:
        if isinstance(self.inputs, list | tuple | np.ndarray):  # lists would be a pytree of numbers
            object.__setattr__(self, "inputs", checks.real_numbers("inputs", self.inputs))

    @property
    def width(self) -> int:
        return np.shape(self.inputs)[0]

    def validate(self, kernel: Kernel, columns: int) -> None:
        inputs = check_kernel(kernel).check_points("inputs", self.inputs)
        if inputs.shape[1] != columns:
            raise ValueError(f"inputs must have {columns} columns, as X has; found {inputs.shape[1]}.")

    def span(self, kernel: Kernel, X: jax.Array) -> Spanned:
        inner = kernel.matrix(jnp.asarray(self.inputs), None)
        lower = cholesky(inner + JITTER * jnp.mean(jnp.diagonal(inner)) * jnp.eye(self.width))
        rows = solve_triangular(lower, kernel.matrix(jnp.asarray(self.inputs), X)).T
        # Of a matrix that overflows LAPACK may make numbers that mean nothing.
        rows = jnp.where(jnp.all(jnp.isfinite(inner)), rows, jnp.nan)
        variance, reached = kernel.diagonal_of(X), jnp.sum(rows**2, axis=1)
        lost = reached < UNREACHED * variance
        # A root of 0 has no slope; where the variance is 0 nothing is lost.
        first = jnp.where(lost, jnp.sqrt(UNREACHED * jnp.where(lost, variance, 1.0)), rows[:, 0])
        return Spanned(rows.at[:, 0].set(first), jnp.maximum(variance - reached, 0.0))

    @float64
    def residual_covariance(self, kernel: Kernel, X: Any) -> jax.Array:
        """New latents are jointly what they are given u."""
        rows = self(kernel, X).rows
        return kernel(X) - rows @ rows.T

    def arrays(self) -> dict[str, np.ndarray]:
        return {"inputs": np.asarray(self.inputs)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "InducingInputs":
        return cls(arrays["inputs"])


@kernel
class RandomFeatures(Basis):
    """Random Fourier features of a stationary kernel; made by `RandomFeatures.draw`.

    The model with these features is itself a Gaussian process: nothing is left out of it, r = 0.

    Args:
        frequencies: w, (k, d), one array for every stationary part of the kernel.

    Examples:
        >>> import jax
        >>> from cavity import kernels
        >>> basis = kernels.RandomFeatures.draw(kernels.RBF(), columns=1, count=200, key=jax.random.key(0))
        >>> basis.width
        200
    """

    frequencies: tuple[Any, ...]

    @classmethod
    @float64
    def draw(cls, kernel: Kernel, columns: int, count: int, key: jax.Array) -> "RandomFeatures":
        """Frequencies for a kernel of points with `columns` columns.

        Args:
            kernel: made of RBF and Matern, sums of them, products with numbers, and added Constant or Linear parts.
            columns: of X.
            count: features in all, two a frequency, divided among the stationary parts.
            key: made by `jax.random.key`.
        """
        parts = check_kernel(kernel).spectral_parts()
        draws = max(len(parts), 1)
        if (pairs := count // (2 * draws)) < 1:
            raise ValueError(f"count must be at least {2 * draws}, two a stationary kernel; found {count}.")
        keys = jax.random.split(key, draws)
        drawn = (frequencies(part, columns, pairs, own) for part, own in zip(parts, keys, strict=False))
        return cls(tuple(map(np.asarray, drawn)))

    @property
    def width(self) -> int:
        return 2 * sum(own.shape[0] for own in self.frequencies)

    def validate(self, kernel: Kernel, columns: int) -> None:
        found = check_kernel(kernel).spectral_parts()
        if [np.shape(own)[1] for own in self.frequencies] != [columns] * len(found):
            shapes = [np.shape(own) for own in self.frequencies]
            raise ValueError(
                f"frequencies must be one array of {columns} columns for each of the {len(found)} stationary parts of "
                f"the kernel; found shapes {shapes}."
            )

    def span(self, kernel: Kernel, X: jax.Array) -> Spanned:
        return Spanned(kernel.features(X, iter(self.frequencies)), jnp.zeros(X.shape[0]))

    def residual_covariance(self, kernel: Kernel, X: Any) -> jax.Array:
        return jnp.zeros((len(X), len(X)))

    def arrays(self) -> dict[str, np.ndarray]:
        return {f"frequencies{number}": np.asarray(own) for number, own in enumerate(self.frequencies)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "RandomFeatures":
        return cls(tuple(arrays[f"frequencies{number}"] for number in range(len(arrays))))


def frequencies(kernel: RBF | Matern, columns: int, count: int, key: jax.Array) -> jax.Array:
    """w for length scale 1, (count, columns): orthogonal directions in blocks, lengths of independent draws."""
    turns, lengths, tails = jax.random.split(key, 3)
    blocks = -(-count // columns)
    matrices = jax.random.normal(turns, (blocks, columns, columns), dtype=float)
    orthogonal, triangular = jnp.linalg.qr(matrices)
    # With the signs of the diagonal the directions are uniform, which those of a factorisation alone are not.
    signs = jnp.sign(jnp.diagonal(triangular, axis1=1, axis2=2))
    directions = jnp.swapaxes(orthogonal * signs[:, None, :], 1, 2).reshape(-1, columns)[:count]
    radius = jnp.linalg.norm(jax.random.normal(lengths, (count, columns), dtype=float), axis=1)
    return directions * (radius * kernel.frequency_scale(tails, count))[:, None]
