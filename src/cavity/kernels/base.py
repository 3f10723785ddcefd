"""The contract of a kernel: a covariance function k(x, z) with positive parameters.

A kernel is a frozen dataclass registered as a JAX pytree (`@kernel`): its parameters are leaves, traced and
differentiable, everything else is structure. A compiled function of (kernel, X) is therefore reused when only the value
of a parameter changes. A parameter is a field `p` beside a static field `p_bounds`, which is a pair of positive numbers
or "fixed". The free ones, as natural logarithms in one flat vector, are `theta`, the convention of scikit-learn.
"""

import dataclasses
from collections import Counter
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, is_traced
from cavity.kernels.structure import Bounds, check_bounds, kernel, without_bounds

#: where a search may move a length scale, in the units of the features.
LENGTH_SCALES = (1e-3, 1e3)
#: where a search may move a variance: between latent functions of size 0.01 and 100.
VARIANCES = (1e-4, 1e4)


@kernel
class Kernel:
    """Base of all kernels: a subclass gives `matrix` and `diagonal_of`, and names its parameters by their bounds.

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

    #: NumPy leaves `number * kernel` to the kernel.
    __array_ufunc__ = None

    #: parameters that may be a vector, one number per feature.
    per_feature: ClassVar[tuple[str, ...]] = ()
    #: parameters that may be 0, when fixed.
    may_vanish: ClassVar[tuple[str, ...]] = ()

    # ------------------------------------------------------------ what a subclass gives

    def matrix(self, X: jax.Array, Z: jax.Array | None) -> jax.Array:
        """k(x_i, z_j), shape (n, m). Without Z: k(x_i, x_j), exactly symmetric."""
        raise NotImplementedError

    def diagonal_of(self, X: jax.Array) -> jax.Array:
        """k(x_i, x_i), shape (n,)."""
        raise NotImplementedError

    # ------------------------------------------------------------ values

    @float64
    def __call__(self, X: Any, Z: Any = None) -> jax.Array:
        """The matrix k(x_i, z_j) of two sets of points, or of X with itself.

        Args:
            X: points, one per row.
            Z: other points, one per row. Noise (`White`) is shared by a point with itself only: Z = X is not the same
                as no Z.
        """
        X = self.check_points("X", X)
        if Z is not None:
            Z = self.check_points("Z", Z)
            if X.shape[1] != Z.shape[1]:
                raise ValueError(f"X and Z must have as many columns; found {X.shape[1]} and {Z.shape[1]}.")
        return compiled_matrix(without_bounds(self), X, Z)

    @float64
    def diagonal(self, X: Any) -> jax.Array:
        """k(x_i, x_i) without the matrix."""
        return compiled_diagonal(without_bounds(self), self.check_points("X", X))

    @float64
    def pullback(self, X: Any, G: Any) -> jax.Array:
        """Σ_ij G_ij ∂k(x_i, x_j)/∂theta, the gradient in theta of a function of the matrix whose own gradient is G.

        Args:
            X: points, one per row.
            G: a symmetric matrix, one row and one column per point.
        """
        X = self.check_points("X", X)
        # values of a JAX array are not looked at: it may lie on another device
        G = jnp.asarray(G, float) if isinstance(G, jax.Array) else checks.array("G", G, (2,))
        if G.shape != (X.shape[0], X.shape[0]):
            raise ValueError(f"G must have a row and a column for each of the {X.shape[0]} points; found {G.shape}.")
        return compiled_pullback(without_bounds(self), X, G)

    def check_points(self, name: str, points: Any) -> Any:
        """Points as a float64 matrix with as many columns as the vectors among the parameters have numbers."""
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

    # ------------------------------------------------------------ parameters

    def __post_init__(self) -> None:
        for name in self.parameters:
            bounds = check_bounds(f"{name}_bounds", getattr(self, f"{name}_bounds"))
            object.__setattr__(self, f"{name}_bounds", bounds)
            object.__setattr__(self, name, self.check_parameter(name, bounds))

    def check_parameter(self, name: str, bounds: Bounds) -> Any:
        """A positive number, or a vector of them where allowed; Python numbers, so that they trace alike."""
        value = getattr(self, name)
        if np.ndim(value) == 1 and name in self.per_feature:
            value = checks.array(name, value, (1,))
            if not is_traced(value) and not (value > 0).all():
                raise ValueError(f"{name} must be positive; found {value.min()} at index {int(value.argmin())}.")
            return value
        value = checks.number(name, value)
        if name in self.may_vanish and not is_traced(value) and value == 0:
            if bounds != "fixed":
                raise ValueError(f'{name} may be 0 only where it is fixed: give {name}_bounds="fixed".')
            return value
        return checks.positive(name, value)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the fields that are parameters, free or fixed."""
        names = {f.name for f in dataclasses.fields(self)}
        return tuple(f.name for f in dataclasses.fields(self) if f"{f.name}_bounds" in names)

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the fields a search may change."""
        return tuple(name for name in self.parameters if getattr(self, f"{name}_bounds") != "fixed")

    @property
    def parts(self) -> tuple["Kernel", ...]:
        """The kernels this one is composed of, in the order of theta."""
        return (self,)

    @property
    def theta(self) -> Any:
        """Natural logarithms of the free parameters, one flat vector."""
        values = [getattr(part, name) for part in self.parts for name in part.free]
        if is_traced(values):
            return jnp.log(jnp.concatenate([jnp.atleast_1d(value) for value in values]))
        return np.log(np.concatenate([np.zeros(0), *[np.atleast_1d(value) for value in values]]))

    @float64
    def with_theta(self, theta: Any) -> Self:
        """The kernel with other values of the free parameters, which may be traced."""
        theta = theta if is_traced(theta) else np.asarray(theta, np.float64)
        if theta.shape != (len(self.names),):
            raise ValueError(f"theta must have {len(self.names)} numbers; found shape {tuple(theta.shape)}.")
        return self.rebuild(jnp.exp(theta) if is_traced(theta) else np.exp(theta))

    def rebuild(self, values: Any) -> Self:
        """The kernel with its free parameters read from a flat vector."""
        changes, start = {}, 0
        for name in self.free:
            if np.ndim(getattr(self, name)) == 0:
                changes[name], start = values[start], start + 1
            else:
                size = np.shape(getattr(self, name))[0]
                changes[name], start = values[start : start + size], start + size
        return dataclasses.replace(self, **changes)

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each number of theta, such as `rbf.length_scale[0]`; equal kernels of a sum are numbered."""
        labels = [type(part).__name__.lower() for part in self.parts]
        often, met, names = Counter(labels), Counter(), []
        for part, label in zip(self.parts, labels, strict=True):
            met[label] += 1
            prefix = f"{label}{met[label]}" if often[label] > 1 else label
            for name in part.free:
                shape = np.shape(getattr(part, name))
                names += [f"{prefix}.{name}[{i}]" for i in range(shape[0])] if shape else [f"{prefix}.{name}"]
        return tuple(names)

    @property
    def bounds(self) -> np.ndarray:
        """Logarithms of the bounds of the free parameters, a row (low, high) for each number of theta."""
        rows = [
            getattr(part, f"{name}_bounds")
            for part in self.parts
            for name in part.free
            for _ in range(np.size(getattr(part, name)))
        ]
        return np.log(np.asarray(rows, np.float64).reshape(-1, 2))

    def fix(self, *names: str) -> Self:
        """The kernel with these parameters left out of theta; without names, with all of them."""
        for name in names:
            checks.choice("the parameter to fix", name, self.parameters)
        fixed = {f"{name}_bounds": "fixed" for name in names or self.parameters}
        return dataclasses.replace(self, **fixed)

    # ------------------------------------------------------------ composition and storage

    def __add__(self, other: Any) -> "Kernel":
        return combine("Sum", self, other)

    def __radd__(self, other: Any) -> "Kernel":
        return combine("Sum", other, self)

    def __mul__(self, other: Any) -> "Kernel":
        return combine("Product", self, other)

    def __rmul__(self, other: Any) -> "Kernel":
        return combine("Product", other, self)

    def spec(self) -> dict[str, Any]:
        """What `from_spec` rebuilds the kernel from: the name of the class and its fields, ready for JSON."""
        result: dict[str, Any] = {"class": type(self).__name__}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Kernel):
                value = value.spec()
            elif isinstance(value, (np.ndarray, tuple)):
                value = np.asarray(value).tolist()
            result[field.name] = value
        return result


def combine(operation: str, left: Any, right: Any) -> Any:
    """A sum or product of kernels; a number stands for a constant kernel."""
    from cavity.kernels import composite, constant  # they are kernels themselves

    terms = []
    for term in (left, right):
        if not isinstance(term, Kernel):
            if not is_number(term):
                return NotImplemented
            term = constant.Constant(term)
        terms.append(term)
    return getattr(composite, operation)(*terms)


def is_number(value: Any) -> bool:
    """Whether the value can stand for a constant kernel."""
    return isinstance(value, (int, float, np.number, np.ndarray, jax.Array)) and np.ndim(value) == 0


# Compiled once for a structure and shapes, whatever the values of the parameters.


@jax.jit
def compiled_matrix(kernel: Kernel, X: jax.Array, Z: jax.Array | None) -> jax.Array:
    return kernel.matrix(X, Z)


@jax.jit
def compiled_diagonal(kernel: Kernel, X: jax.Array) -> jax.Array:
    return kernel.diagonal_of(X)


@jax.jit
def compiled_pullback(kernel: Kernel, X: jax.Array, G: jax.Array) -> jax.Array:
    """One reverse pass theta → K; the elementwise parts fuse, so that few n × n arrays are alive at a time."""
    theta = kernel.theta
    if theta.shape == (0,):
        return jnp.zeros(0)
    _, back = jax.vjp(lambda values: kernel.with_theta(values).matrix(X, None), theta)
    return back(G)[0]
