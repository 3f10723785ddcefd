"""Equality: several variables of one family that are one and the same."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from cavity.factors.base import Factor, factor, is_one
from cavity.factors.linear import log_z_slopes
from cavity.families.base import Family, Tilted
from cavity.families.full_gaussian import FullGaussian
from cavity.families.gaussian import Gaussian
from cavity.families.product import Product


@factor
class Equality(Factor):
    """t(x₁, …, x_m) = δ(x₁ = … = x_m): the message to each variable is what the others know.

    The message to x_i is the product of the other cavities, and log Z = A(Σ cavities) − Σ A(cavity), with the constant
    density of the family taken out of all but one.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> gaussian = cv.families.Gaussian()
        >>> pair = cv.families.Product((gaussian, gaussian))
        >>> cavity = np.concatenate([gaussian.from_mean(1.0, 1.0), gaussian.from_mean(4.0, 0.5)])
        >>> cv.factors.Equality().tilted(pair, cavity, None, 1).site.tolist()
        [8.0, 2.0, 1.0, 1.0]
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Product of equal families, power 1",)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        if not is_one(power) or not isinstance(family, Product):
            return NotImplemented
        own = family.families[0]
        if len(family.families) < 2 or any(other != own for other in family.families):
            return NotImplemented
        pieces = cavity.reshape(len(family.families), own.size)
        surplus = pieces - own.flat()
        together = own.flat() + jnp.sum(surplus, axis=0)
        others = 1.0 - jnp.eye(len(family.families))
        site = others @ surplus
        known = jax.vmap(own.log_partition)(pieces)
        log_z = own.log_partition(together) - jnp.sum(known)
        stats = jax.vmap(lambda cavity, site: equality_statistics(own, cavity, site))(pieces, site)
        return Tilted(log_z, stats.ravel(), site.ravel())


def equality_statistics(family: Family, cavity: jax.Array, site: jax.Array) -> jax.Array:
    """Tilted statistics of cavity × site, in the family's own coordinates."""
    if isinstance(family, Gaussian):
        return log_z_slopes(cavity, site)
    if isinstance(family, FullGaussian):
        # Nothing of a flat one, like `log_z_slopes`.
        known = family.is_proper(cavity)
        safe = family.pack(jnp.zeros(family.dimension), jnp.eye(family.dimension))
        mean, covariance = family.coordinates(jnp.where(known, cavity, safe))
        precision = family.precision(site)
        share = jnp.linalg.inv(jnp.eye(family.dimension) + precision @ covariance)
        found = family.pack(share @ (family.nu(site) - precision @ mean), -share @ precision)
        return jnp.where(known, found, 0.0)
    return family.moments(cavity + site)
