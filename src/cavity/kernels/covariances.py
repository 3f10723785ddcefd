"""Covariance functions: of the distance of two points, of their inner product, noise; and any of them from a file."""

import dataclasses
import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.pytrees import static
from cavity.kernels.base import VARIANCES, Composite, Constant, Kernel, Product, Sum
from cavity.kernels.parameters import Bounds, kernel, limits

#: features whose differences are summed in one pass over the matrix.
FEATURES_A_PASS = 8
#: where a search may move a length scale, in the units of the features.
LENGTH_SCALES = (1e-3, 1e3)
#: length scales below which Matérn's kernel with ν = ½, which has a kink at 0, takes two points for one when it is
#: differentiated. What it neglects is at most this; a slope of 1/s would magnify rounding errors by its inverse.
COINCIDENT = 1e-8


@kernel
class Stationary(Kernel):
    """k(x, z) = profile(Σ_f (x_f − z_f)²/ℓ_f²), 1 where x = z.

    Args:
        length_scale: ℓ, one number, or one for each feature (automatic relevance determination).
        length_scale_bounds: where a search may move ℓ, or "fixed".
    """

    length_scale: Any = 1.0
    length_scale_bounds: Bounds = limits(default=LENGTH_SCALES)

    per_feature = ("length_scale",)

    def profile(self, squared: jax.Array) -> jax.Array:
        """The kernel as a function of the squared distance in length scales."""
        raise NotImplementedError

    def matrix(self, X: jax.Array, Z: jax.Array | None) -> jax.Array:
        precision = 1.0 / jnp.square(jnp.asarray(self.length_scale, float))
        if precision.ndim == 0:
            # ℓ enters elementwise: its gradient needs no second look at the features
            return self.profile(precision * squared_distances(X, Z, jnp.ones(X.shape[1])))
        return self.profile(squared_distances(X, Z, precision))

    def diagonal_of(self, X: jax.Array) -> jax.Array:
        return jnp.ones(X.shape[0])

    def features(self, X: jax.Array, frequencies: Iterator[Any]) -> jax.Array:
        """Of draws w of the spectral density of length scale 1: k^−½ (cos xᵀw/ℓ, …, sin xᵀw/ℓ, …)."""
        own = jnp.asarray(next(frequencies))
        angles = (X / jnp.asarray(self.length_scale, float)) @ own.T
        return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=1) / jnp.sqrt(own.shape[0])


@kernel
class RBF(Stationary):
    """The Gaussian kernel exp(−½ Σ_f (x_f − z_f)²/ℓ_f²).

    Args:
        length_scale: ℓ, one number, or one for each feature (automatic relevance determination).
        length_scale_bounds: where a search may move ℓ, or "fixed".

    Raises:
        ValueError: if a length scale is not positive.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity import kernels
        >>> np.round(kernels.RBF(length_scale=2.0)([[0.0], [2.0]]), 4).tolist()
        [[1.0, 0.6065], [0.6065, 1.0]]
    """

    spectral = True

    def profile(self, squared: jax.Array) -> jax.Array:
        return jnp.exp(-0.5 * squared)

    def frequency_scale(self, key: jax.Array, count: int) -> Any:
        """What normal frequencies are multiplied with to be draws of the spectral density."""
        return 1.0


@kernel
class Matern(Stationary):
    """Matérn's kernel with smoothness ν, in s = √(2ν) r, r² = Σ_f (x_f − z_f)²/ℓ_f².

    ν = ½: exp(−s). ν = 3/2: (1 + s) exp(−s). ν = 5/2: (1 + s + s²/3) exp(−s).

    Args:
        length_scale: ℓ, one number, or one for each feature (automatic relevance determination).
        nu: ν, one of 0.5, 1.5, 2.5.
        length_scale_bounds: where a search may move ℓ, or "fixed".

    Raises:
        ValueError: if a length scale is not positive, or ν is another number.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity import kernels
        >>> np.round(kernels.Matern(nu=0.5)([[0.0], [1.0]]), 4).tolist()
        [[1.0, 0.3679], [0.3679, 1.0]]
    """

    nu: float = static(default=1.5)

    spectral = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.nu, bool) or self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu must be 0.5, 1.5 or 2.5; found {self.nu!r}.")
        object.__setattr__(self, "nu", float(self.nu))

    def profile(self, squared: jax.Array) -> jax.Array:
        return matern(self.nu, squared)

    def frequency_scale(self, key: jax.Array, count: int) -> Any:
        """What makes Student's t with 2ν degrees of freedom of normal frequencies."""
        return jnp.sqrt(self.nu / jax.random.gamma(key, self.nu, (count,), dtype=float))


@jax.custom_jvp
def squared_distances(X: jax.Array, Z: jax.Array | None, weights: jax.Array) -> jax.Array:
    """Σ_f w_f (x_if − z_jf)², shape (n, m), from the differences themselves; without Z, of X with itself.

    Expanding the square into x² + z² − 2xz would cancel for points close together and far from 0. Differences are
    exactly symmetric, exactly 0 for equal points and never negative.
    Points are weighted after they are subtracted: a compiler may fuse earlier scaling into the subtraction, and then
    equal points are a rounding error apart.
    """

    tables = []
    for columns in (X.T, weights[:, None], *(() if Z is None else (Z.T,))):
        filled = jnp.pad(columns, [(0, -columns.shape[0] % FEATURES_A_PASS), (0, 0)])
        tables.append(filled.reshape(-1, FEATURES_A_PASS, columns.shape[1]))

    def add(total: jax.Array, features: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        x, w = features[:2]
        z = features[-1] if len(features) == 3 else x  # scanned once: XLA makes a faster loop of it than of x twice
        change = w[0] * jnp.square(x[0, :, None] - z[0, None, :])
        for f in range(1, FEATURES_A_PASS):
            change = change + w[f] * jnp.square(x[f, :, None] - z[f, None, :])
        return total + change, None

    return jax.lax.scan(add, jnp.zeros((X.shape[0], (X if Z is None else Z).shape[0])), tuple(tables))[0]


@squared_distances.defjvp
def squared_distances_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
    """Σ_f ẇ_f (x_if − z_jf)² + 2 w_f (x_if − z_jf)(ẋ_if − ż_jf), expanded into matrix products around the mean.

    A reverse pass through the differences would hold or recompute an array of n × m × features; this one needs a few
    products with the matrix it is given. Half of the change is linear in each factor of w (x − z) · (x − z).
    """
    (X, Z, w), (X_dot, Z_dot, w_dot) = primals, tangents
    centre = jnp.mean(X, axis=0)
    A = X - centre
    A_half = A * (0.5 * w_dot) + X_dot * w
    own = jnp.sum(A * A_half, axis=1)
    if Z is None:
        cross = A @ A_half.T
        return squared_distances(X, Z, w), 2.0 * (own[:, None] + own[None, :] - cross - cross.T)
    B = Z - centre
    B_half = B * (0.5 * w_dot) + Z_dot * w
    other = jnp.sum(B * B_half, axis=1)
    change = own[:, None] + other[None, :] - A @ B_half.T - A_half @ B.T
    return squared_distances(X, Z, w), 2.0 * change


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def matern(nu: float, squared: jax.Array) -> jax.Array:
    """Matérn's kernel as a function of the squared distance r²."""
    s = smooth_sqrt(2.0 * nu * squared)
    polynomial = {0.5: 1.0, 1.5: 1.0 + s, 2.5: 1.0 + s + s**2 / 3.0}[nu]
    return polynomial * jnp.exp(-s)


@matern.defjvp
def matern_jvp(nu: float, primals: tuple[Any], tangents: tuple[Any]) -> tuple[jax.Array, jax.Array]:
    """∂k/∂r² = −ν exp(−s)/s, −ν exp(−s), −ν (1 + s) exp(−s)/3: the root, singular at 0, is gone from two of three.

    For ν = ½ the slope is set to 0 below s = COINCIDENT.
    """
    (squared,), (change,) = primals, tangents
    s = smooth_sqrt(2.0 * nu * squared)
    apart = s > COINCIDENT
    factor = {0.5: jnp.where(apart, 1.0 / jnp.where(apart, s, 1.0), 0.0), 1.5: 1.0, 2.5: (1.0 + s) / 3.0}[nu]
    slope = -nu * factor * jnp.exp(-s)  # one array for the reverse pass to keep
    return matern(nu, squared), slope * change


def smooth_sqrt(squared: jax.Array) -> jax.Array:
    """√ of a squared distance, with derivative 0 instead of ∞ where the points are equal."""
    apart = squared > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, squared, 1.0)), 0.0)


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

    spectral = False

    def matrix(self, X: jax.Array, Z: jax.Array | None) -> jax.Array:
        return self.variance * inner_products(X, Z)

    def diagonal_of(self, X: jax.Array) -> jax.Array:
        return self.variance * jnp.sum(jnp.square(X), axis=1)

    def features(self, X: jax.Array, frequencies: Iterator[Any]) -> jax.Array:
        return jnp.sqrt(self.variance) * X

    def feature_count(self, columns: int) -> int | None:
        return columns


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

    def features(self, X: jax.Array, frequencies: Iterator[Any]) -> jax.Array:
        """√(degree!/∏ αᵢ!) ∏ zᵢ^αᵢ for all α of that sum, z = (√offset, √scale x)."""
        n, columns = X.shape
        z = jnp.concatenate([jnp.full((n, 1), jnp.sqrt(self.offset)), jnp.sqrt(self.scale) * X], axis=1)
        places = np.array(list(itertools.combinations_with_replacement(range(columns + 1), self.degree)))
        repeated = [math.prod(map(math.factorial, Counter(place).values())) for place in places.tolist()]
        orders = math.factorial(self.degree) / np.array(repeated, float)
        return jnp.sqrt(orders) * jnp.prod(z[:, places], axis=-1)

    def feature_count(self, columns: int) -> int | None:
        return math.comb(columns + self.degree, self.degree)


def inner_products(X: jax.Array, Z: jax.Array | None) -> jax.Array:
    """x_iᵀ z_j; without Z the mean of the product and its transpose, because blocked products round unevenly."""
    if Z is not None:
        return X @ Z.T
    products = X @ X.T
    return 0.5 * (products + products.T)


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


#: what a spec may name
CLASSES: dict[str, type[Kernel]] = {
    cls.__name__: cls for cls in (RBF, Matern, Linear, Polynomial, Constant, White, Sum, Product)
}


def from_spec(spec: Any) -> Kernel:
    """The kernel a `spec` describes.

    Args:
        spec: a dictionary with the name of the class under "class" and the class's fields.

    Returns:
        The kernel.

    Raises:
        ValueError: if the dictionary describes no kernel of `cavity.kernels`.

    Examples:
        >>> from cavity import kernels
        >>> from cavity.kernels.covariances import from_spec
        >>> from_spec(kernels.RBF(2.0).spec()).length_scale
        2.0
    """
    if not isinstance(spec, dict):
        raise ValueError(f"a kernel's spec must be a dictionary; found {type(spec).__name__}.")
    name = spec.get("class")
    cls = CLASSES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise ValueError(f"a kernel's spec must name one of {', '.join(CLASSES)} as its class; found {name!r}.")
    expected = {field.name for field in dataclasses.fields(cls)}
    given = set(spec) - {"class"}
    if given != expected:
        wrong = ", ".join(sorted(repr(field) for field in given ^ expected))
        raise ValueError(f"the spec of {name} must have the fields {', '.join(sorted(expected))}; check {wrong}.")
    fields = {field: spec[field] for field in expected}
    if issubclass(cls, Composite):
        fields = {field: from_spec(value) for field, value in fields.items()}
    return cls(**fields)
