"""Random Fourier features with orthogonal frequencies (Rahimi & Recht 2007; Yu et al. 2016).

A stationary kernel of variance 1 is the mean of cos ωᵀ(x − z) over its spectral density (Bochner). With frequencies
ω₁ … ω_k drawn from it,

    a(x) = k^−½ (cos ω₁ᵀx, …, cos ω_kᵀx, sin ω₁ᵀx, …, sin ω_kᵀx),        E[a(x)ᵀ a(z)] = k(x, z),    |a(x)| = 1.

For length scales ℓ a frequency is w/ℓ with w that of ℓ = 1: normal for the Gaussian kernel, Student's t with 2ν degrees
of freedom for Matérn's. So w is drawn once, and theta may move afterwards. Directions come in orthogonal blocks, of as
many as X has columns, with lengths as independent draws have them: the mean stays, the scatter falls.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.kernels.base import Constant, Kernel, Product, Sum
from cavity.kernels.basis import Basis, Spanned
from cavity.kernels.covariances import RBF, Linear, Matern, Stationary
from cavity.kernels.parameters import kernel


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
        parts = [part for part in kernel.parts if isinstance(part, Stationary)] if isinstance(kernel, Kernel) else []
        pairs = count // (2 * max(len(parts), 1))
        if pairs < 1:
            raise ValueError(
                f"count must be at least {2 * max(len(parts), 1)}, two a stationary kernel; found {count}."
            )
        keys = jax.random.split(key, max(len(parts), 1))
        drawn = (np.asarray(frequencies(part, columns, pairs, own)) for part, own in zip(parts, keys, strict=False))
        made = cls(tuple(drawn))
        made.check(kernel, columns)
        return made

    @property
    def width(self) -> int:
        return 2 * sum(own.shape[0] for own in self.frequencies)

    def check(self, kernel: Kernel, columns: int) -> None:
        found = stationary_parts(kernel)
        if [np.shape(own)[1] for own in self.frequencies] != [columns] * len(found):
            shapes = [np.shape(own) for own in self.frequencies]
            raise ValueError(
                f"frequencies must be one array of {columns} columns for each of the {len(found)} stationary parts of "
                f"the kernel; found shapes {shapes}."
            )

    def spanned(self, kernel: Kernel, X: jax.Array) -> Spanned:
        rows = features(kernel, X, iter(self.frequencies))
        return Spanned(rows, jnp.zeros(X.shape[0]))

    @float64
    def covariance(self, kernel: Kernel, X: Any) -> jax.Array:
        rows = self(kernel, X).rows
        return rows @ rows.T

    def arrays(self) -> dict[str, np.ndarray]:
        return {f"frequencies{number}": np.asarray(own) for number, own in enumerate(self.frequencies)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "RandomFeatures":
        return cls(tuple(arrays[f"frequencies{number}"] for number in range(len(arrays))))


def stationary_parts(kernel: Any) -> list[Stationary]:
    """Parts that need frequencies, in the order of `kernel.parts`; refuses a kernel that has no features here."""
    if isinstance(kernel, RBF | Matern):
        return [kernel]
    if isinstance(kernel, Constant | Linear):
        return []
    scaled = isinstance(kernel, Product) and (isinstance(kernel.left, Constant) or isinstance(kernel.right, Constant))
    if isinstance(kernel, Sum) or scaled:
        return stationary_parts(kernel.left) + stationary_parts(kernel.right)
    raise ValueError(
        "random features need a kernel made of RBF, Matern, Constant and Linear by sums and by products with numbers; "
        f"found {type(kernel).__name__}."
    )


def features(kernel: Any, X: jax.Array, drawn: Iterator[Any]) -> jax.Array:
    """a(x) of a kernel, (n, m): side by side for a sum, scaled for a product with a number."""
    if isinstance(kernel, Sum):
        return jnp.concatenate([features(kernel.left, X, drawn), features(kernel.right, X, drawn)], axis=1)
    if isinstance(kernel, Product):
        number, other = kernel.left, kernel.right
        if not isinstance(number, Constant):
            number, other = other, number
        return jnp.sqrt(number.value) * features(other, X, drawn)  # type: ignore[attr-defined]
    if isinstance(kernel, Constant):
        return jnp.sqrt(jnp.full((X.shape[0], 1), kernel.value, dtype=float))
    if isinstance(kernel, Linear):
        return jnp.sqrt(kernel.variance) * X
    own = jnp.asarray(next(drawn))
    angles = (X / jnp.asarray(kernel.length_scale, float)) @ own.T
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=1) / jnp.sqrt(own.shape[0])


def frequencies(kernel: Stationary, columns: int, count: int, key: jax.Array) -> jax.Array:
    """w for length scale 1, (count, columns): orthogonal directions in blocks, lengths of independent draws."""
    turns, lengths, tails = jax.random.split(key, 3)
    blocks = -(-count // columns)
    matrices = jax.random.normal(turns, (blocks, columns, columns), dtype=float)
    orthogonal, triangular = jnp.linalg.qr(matrices)
    # With the signs of the diagonal the directions are uniform, which those of a factorisation alone are not.
    signs = jnp.sign(jnp.diagonal(triangular, axis1=1, axis2=2))
    directions = jnp.swapaxes(orthogonal * signs[:, None, :], 1, 2).reshape(-1, columns)[:count]
    radius = jnp.linalg.norm(jax.random.normal(lengths, (count, columns), dtype=float), axis=1)
    if isinstance(kernel, Matern):
        radius = radius * jnp.sqrt(kernel.nu / jax.random.gamma(tails, kernel.nu, (count,), dtype=float))
    return directions * radius[:, None]
