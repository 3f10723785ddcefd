"""The Beta distribution: eta = (a, b), the shapes themselves; T(x) = (log x, log(1 − x)); flat = (1, 1)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from cavity._core.precision import float64
from cavity.families.dirichlet import ShapeFamily


@dataclass(frozen=True)
class Beta(ShapeFamily):
    """Beta(x; a, b) on 0 < x < 1, the Dirichlet of (x, 1 − x).

    Examples:
        >>> import cavity as cv
        >>> beta = cv.families.Beta()
        >>> float(beta.mean(beta.from_shapes(2.0, 6.0)))
        0.25
    """

    @property
    def size(self) -> int:
        return 2

    @float64
    def from_shapes(self, a: Any, b: Any) -> jax.Array:
        """Natural parameters of Beta(a, b)."""
        return jnp.stack(jnp.broadcast_arrays(jnp.asarray(a, float), jnp.asarray(b, float)), axis=-1)

    def coordinates(self, eta: jax.Array) -> tuple[jax.Array, ...]:
        """(a, b)."""
        return eta[..., 0], eta[..., 1]

    @float64
    def statistics(self, x: jax.Array) -> jax.Array:
        x = jnp.asarray(x, float)
        return jnp.stack([jnp.log(x), jnp.log1p(-x)], axis=-1)

    @float64
    def mean(self, eta: jax.Array) -> jax.Array:
        """a/(a + b)."""
        a, b = self.coordinates(jnp.asarray(eta))
        return a / (a + b)

    @float64
    def covariance(self, eta: jax.Array) -> jax.Array:
        """ab/((a + b)² (a + b + 1))."""
        a, b = self.coordinates(jnp.asarray(eta))
        total = a + b
        return (a / total) * (b / total) / (total + 1.0)

    @float64
    def sample(self, key: jax.Array, eta: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        a, b = self.coordinates(jnp.asarray(eta))
        return jax.random.beta(key, a, b, shape + a.shape, dtype=float)
