"""The Gamma of a variable that may not be known at all: what variables without a prior hold in a graph."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from cavity.families.gamma import Gamma
from cavity.numerics.precision import float64


@dataclass(frozen=True)
class GammaOrFlat(Gamma):
    """A Gamma, or the function 1 of eta = (1, 0), which is not normalised: its `log_partition` is 0 by convention."""

    def is_flat(self, eta: jax.Array) -> jax.Array:
        """Whether nothing is known."""
        return jnp.all(jnp.asarray(eta) == self.flat(), axis=-1)

    @float64
    def is_allowed(self, eta: jax.Array) -> jax.Array:
        return self.is_proper(eta) | self.is_flat(eta)

    @float64
    def log_partition(self, eta: jax.Array) -> jax.Array:
        flat = self.is_flat(eta)
        safe = jnp.where(flat[..., None], jnp.array([1.0, 1.0]), jnp.asarray(eta))
        return jnp.where(flat, 0.0, super().log_partition(safe))

    @float64
    def distance(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """0 between two that are flat."""
        both = self.is_flat(eta) & self.is_flat(other)
        return jnp.where(both, 0.0, super().distance(eta, other))
