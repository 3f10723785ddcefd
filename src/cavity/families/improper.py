"""Families that admit an improper uniform density: those of variables without a prior in a graph."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from cavity._core.precision import float64
from cavity.families.full_gaussian import FullGaussian
from cavity.families.gamma import Gamma
from cavity.families.gaussian import Gaussian

if TYPE_CHECKING:
    from cavity.families.base import Family as Base
else:
    Base = object


class OrFlat(Base):
    """Adds the function 1, of eta = `flat`, which is not normalised: its `log_partition` is 0 by convention.

    With it log ∫ t × cavity counts a flat cavity as 1, and the evidence is that of the model in which the variable has
    no prior density.
    """

    def is_flat(self, eta: jax.Array) -> jax.Array:
        """Whether eta is that of the constant function, so that the variable has no distribution yet."""
        return jnp.all(jnp.asarray(eta) == self.flat(), axis=-1)

    @float64
    def is_allowed(self, eta: jax.Array) -> jax.Array:
        return self.is_proper(eta) | self.is_flat(eta)

    @float64
    def log_partition(self, eta: jax.Array) -> jax.Array:
        flat = self.is_flat(eta)
        safe = jnp.where(flat[..., None], self.stand_in(), jnp.asarray(eta))
        return jnp.where(flat, 0.0, super().log_partition(safe))

    def stand_in(self) -> jax.Array:
        """Some proper member, for branches that are not taken."""
        return self.flat() + jnp.array([0.0, 1.0])

    @float64
    def distance(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """0 between two that are flat."""
        both = self.is_flat(eta) & self.is_flat(other)
        return jnp.where(both, 0.0, super().distance(eta, other))


@dataclass(frozen=True)
class GaussianWithUniform(OrFlat, Gaussian):
    """A Gaussian, or the function 1 of eta = (0, 0).

    Examples:
        >>> import cavity as cv
        >>> family = cv.families.GaussianWithUniform()
        >>> bool(family.is_proper(family.flat())), bool(family.is_allowed(family.flat()))
        (False, True)
    """


@dataclass(frozen=True)
class GammaWithUniform(OrFlat, Gamma):
    """A Gamma, or the function 1 of eta = (1, 0).

    Examples:
        >>> import cavity as cv
        >>> family = cv.families.GammaWithUniform()
        >>> family.flat().tolist(), bool(family.is_allowed(family.flat()))
        ([1.0, 0.0], True)
    """


@dataclass(frozen=True)
class FullGaussianWithUniform(OrFlat, FullGaussian):
    """A Gaussian of a vector, or the function 1 of eta = 0.

    Args:
        dimension: length of x.

    Examples:
        >>> import cavity as cv
        >>> family = cv.families.FullGaussianWithUniform(2)
        >>> float(family.log_partition(family.flat()))
        0.0
    """

    def stand_in(self) -> jax.Array:
        return self.pack(jnp.zeros(self.dimension), jnp.eye(self.dimension))
