"""The contract of a kernel: a covariance function k(x, z) with positive parameters; sums and products are kernels.

In the shapes of arrays X has `n` points of `d` numbers and Z has `m`; without Z, m = n (docs/notation.md, Shapes).
"""

import dataclasses
import operator
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cavity._core import checks
from cavity._core.precision import float64
from cavity._core.tiers import tiered_jit
from cavity.kernels.parameters import Bounds, HasParameters, compiled_pullback, kernel, limits, without_bounds

#: where a search may move a variance: between latent functions of size 0.01 and 100.
VARIANCES = (1e-4, 1e4)


@kernel
class Kernel(HasParameters):
    """Base of all kernels: a subclass gives `matrix` and `diagonal_of`, and names its parameters by their bounds.

    Raises:
        ValueError: if a parameter is not positive, or its bounds are neither "fixed" nor a pair 0 < low < high.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity import kernels
        >>> kernel = 2.0 * kernels.RBF(length_scale=3.0) + kernels.Linear(0.5)
        >>> kernel.names
        ('constant.value', 'rbf.length_scale', 'linear.variance')
        >>> np.round(kernel([[0.0], [3.0]]), 4).tolist()
        [[2.0, 1.2131], [1.2131, 6.5]]
    """

    #: whether its random features need frequencies of its spectral density; None: it has no features.
    spectral: ClassVar[bool | None] = None
    #: NumPy leaves `number * kernel` to the kernel.
    __array_ufunc__ = None

    # ------------------------------------------------------------ what a subclass gives

    def matrix(self, X: Float[Array, "n d"], Z: Float[Array, "m d"] | None) -> Float[Array, "n m"]:
        """k(x_i, z_j), shape (n, m). Without Z: k(x_i, x_j), exactly symmetric.

        Args:
            X: points, one per row, checked.
            Z: other points, or None.

        Returns:
            The matrix.

        Raises:
            NotImplementedError: the subclass does not give it.
        """
        raise NotImplementedError

    def diagonal_of(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        """k(x_i, x_i), shape (n,).

        Args:
            X: points, one per row, checked.

        Returns:
            The diagonal of `matrix(X, None)`.

        Raises:
            NotImplementedError: the subclass does not give it.
        """
        raise NotImplementedError

    def features(self, X: Float[Array, "n d"], frequencies: Iterator[Any]) -> Float[Array, "n m"]:
        """Features, E[a(x)ᵀ a(z)] = k(x, z), where it has them; without frequencies exactly.

        Args:
            X: points, one per row, checked.
            frequencies: of `spectral_parts`, in order.

        Returns:
            a(x) of every point.

        Raises:
            NotImplementedError: the kernel has none.
        """
        raise NotImplementedError

    # ------------------------------------------------------------ values

    @float64
    def __call__(self, X: Any, Z: Any = None) -> Float[Array, "n m"]:
        """The matrix k(x_i, z_j) of two sets of points, or of X with itself.

        Args:
            X: points, one per row.
            Z: other points, one per row. Noise (`White`) is shared by a point with itself only: Z = X is not the same
                as no Z.

        Returns:
            One row per row of X, one column per row of Z.

        Raises:
            ValueError: the points cannot be used, or do not have as many columns.
        """
        X = self.check_points("X", X)
        if Z is not None:
            Z = self.check_points("Z", Z)
            if X.shape[1] != Z.shape[1]:
                raise ValueError(f"X and Z must have as many columns; found {X.shape[1]} and {Z.shape[1]}.")
        return compiled_matrix(without_bounds(self), X, Z)

    @float64
    def diagonal(self, X: Any) -> Float[Array, " n"]:
        """k(x_i, x_i) without the matrix.

        Args:
            X: points, one per row.

        Returns:
            One number per point.
        """
        return compiled_diagonal(without_bounds(self), self.check_points("X", X))

    @float64
    def pullback(self, X: Any, G: Any) -> Float[Array, " theta"]:
        """Σ_ij G_ij ∂k(x_i, x_j)/∂theta, the gradient in theta of a function of the matrix whose own gradient is G.

        Args:
            X: points, one per row.
            G: a symmetric matrix, one row and one column per point.

        Returns:
            One number for each of theta.

        Raises:
            ValueError: X or G cannot be used.
        """
        X = self.check_points("X", X)
        # values of a JAX array are not looked at: it may lie on another device
        G = jnp.asarray(G, float) if isinstance(G, jax.Array) else checks.array("G", G, (2,))
        if G.shape != (X.shape[0], X.shape[0]):
            raise ValueError(f"G must have a row and a column for each of the {X.shape[0]} points; found {G.shape}.")
        return compiled_pullback(without_bounds(self), X, G)

    def check_points(self, name: str, points: Any) -> Any:
        """Points as a float64 matrix with as many columns as the vectors among the parameters have numbers.

        Args:
            name: what an error calls them.
            points: one per row.

        Returns:
            The matrix.

        Raises:
            ValueError: they are no such matrix.
        """
        points = checks.array(name, points, (2,))
        for part in self.parts:
            for parameter in part.per_feature:
                length = np.shape(getattr(part, parameter))
                if length not in ((), points.shape[1:]):
                    raise ValueError(
                        f"{name} must have {length[0]} columns, one for each {parameter} of {type(part).__name__}; "
                        f"found shape {tuple(points.shape)}."
                    )
        return points

    def feature_count(self, columns: int) -> int | None:
        """How many features carry the kernel exactly, without frequencies; None where no finite number does.

        Args:
            columns: of the points.

        Returns:
            Their number, or None.
        """
        return None

    def spectral_parts(self) -> tuple[Any, ...]:
        """Those of the parts whose random features need frequencies.

        Returns:
            The parts, in the order of theta; none where the features are exact.

        Raises:
            ValueError: the kernel has no random features.
        """
        if self.spectral is None:
            raise ValueError(
                "random features need a kernel made of RBF, Matern, Constant and Linear by sums and by products with "
                f"numbers; found {type(self).__name__}."
            )
        return (self,) if self.spectral else ()

    # ------------------------------------------------------------ composition

    def __add__(self, other: Any) -> "Kernel":
        return combine(Sum, self, other)

    def __radd__(self, other: Any) -> "Kernel":
        return combine(Sum, other, self)

    def __mul__(self, other: Any) -> "Kernel":
        return combine(Product, self, other)

    def __rmul__(self, other: Any) -> "Kernel":
        return combine(Product, other, self)


def combine(operation: "type[Composite]", left: Any, right: Any) -> Any:
    """A sum or product of kernels; a number stands for a constant kernel."""
    terms = []
    for term in (left, right):
        if isinstance(term, int | float | np.number | np.ndarray | jax.Array) and np.ndim(term) == 0:
            term = Constant(term)
        if not isinstance(term, Kernel):
            return NotImplemented
        terms.append(term)
    return operation(*terms)


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

    spectral = False

    def matrix(self, X: Float[Array, "n d"], Z: Float[Array, "m d"] | None) -> Float[Array, "n m"]:
        return jnp.full((X.shape[0], (X if Z is None else Z).shape[0]), self.value, dtype=float)

    def diagonal_of(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return jnp.full(X.shape[0], self.value, dtype=float)

    def features(self, X: Float[Array, "n d"], frequencies: Iterator[Any]) -> Float[Array, "n m"]:
        return jnp.sqrt(jnp.full((X.shape[0], 1), self.value, dtype=float))

    def feature_count(self, columns: int) -> int | None:
        return 1


@kernel
class Composite(Kernel):
    """Two kernels joined; the parameters are those of the left one, then those of the right one."""

    left: Kernel
    right: Kernel

    #: of the two matrices, entry by entry.
    operation: ClassVar[Callable[[Any, Any], Any]]

    def __post_init__(self) -> None:
        for name, own in (("left", self.left), ("right", self.right)):
            if not isinstance(own, Kernel):
                raise TypeError(f"{name} must be a kernel of cavity.kernels; found {type(own).__name__}.")

    @property
    def parts(self) -> tuple[Kernel, ...]:
        return self.left.parts + self.right.parts

    def spectral_parts(self) -> tuple[Any, ...]:
        return self.left.spectral_parts() + self.right.spectral_parts()

    def rebuild(self, values: Any) -> Self:
        size = self.left.theta.size
        return type(self)(self.left.rebuild(values[:size]), self.right.rebuild(values[size:]))

    def fix(self, *names: str) -> Self:
        """The kernel with all parameters fixed; fix single ones before joining."""
        if names:
            raise ValueError(f"fix {', '.join(names)} in the kernel it belongs to, before kernels are joined.")
        return dataclasses.replace(self, left=self.left.fix(), right=self.right.fix())

    def matrix(self, X: Float[Array, "n d"], Z: Float[Array, "m d"] | None) -> Float[Array, "n m"]:
        return self.operation(self.left.matrix(X, Z), self.right.matrix(X, Z))

    def diagonal_of(self, X: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.operation(self.left.diagonal_of(X), self.right.diagonal_of(X))


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

    operation = operator.add

    def features(self, X: Float[Array, "n d"], frequencies: Iterator[Any]) -> Float[Array, "n m"]:
        return jnp.concatenate([self.left.features(X, frequencies), self.right.features(X, frequencies)], axis=1)

    def feature_count(self, columns: int) -> int | None:
        left, right = self.left.feature_count(columns), self.right.feature_count(columns)
        return None if left is None or right is None else left + right


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

    operation = operator.mul

    def spectral_parts(self) -> tuple[Any, ...]:
        scaled = isinstance(self.left, Constant) or isinstance(self.right, Constant)
        return super().spectral_parts() if scaled else Kernel.spectral_parts(self)

    def features(self, X: Float[Array, "n d"], frequencies: Iterator[Any]) -> Float[Array, "n m"]:
        number, other = (self.left, self.right) if isinstance(self.left, Constant) else (self.right, self.left)
        return jnp.sqrt(number.value) * other.features(X, frequencies)  # type: ignore[attr-defined]

    def feature_count(self, columns: int) -> int | None:
        if isinstance(self.left, Constant):
            return self.right.feature_count(columns)
        return self.left.feature_count(columns) if isinstance(self.right, Constant) else None


# Compiled once for a structure and shapes, whatever the values of the parameters.


@tiered_jit
def compiled_matrix(kernel: Kernel, X: Float[Array, "n d"], Z: Float[Array, "m d"] | None) -> Float[Array, "n m"]:
    return kernel.matrix(X, Z)


@tiered_jit
def compiled_diagonal(kernel: Kernel, X: Float[Array, "n d"]) -> Float[Array, " n"]:
    return kernel.diagonal_of(X)
