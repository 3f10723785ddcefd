"""The product of a vector with a known matrix, and noise: the step of a linear dynamic system."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity.factors.base import Factor, factor, is_one
from cavity.families.base import Family, Tilted
from cavity.families.full_gaussian import FullGaussian, half_log_det, symmetric_inverse
from cavity.families.gaussian import LOG_2PI
from cavity.families.product import Product


class Map(NamedTuple):
    """Data of `MatrixProduct`, of one site: A (m, d), b (m,), S (m, m)."""

    matrix: Any
    offset: Any
    covariance: Any


@factor
class MatrixProduct(Factor):
    """t(x, y) = N(y; A x + b, S) between vectors; of x alone, with y = 0.

    The message to y is N(A m + b, A V Aᵀ + S), that to x is N(A x + b; m_y, V_y + S) with precision (I + Λ_y S)⁻¹ Λ_y,
    which is 0 where the cavity of y is uniform. Where that of x is, the message to y is uniform, and log Z is the
    integral over x.

    Raises:
        ValueError: in a run, if a covariance is not positive definite.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity.factors.matrix_product import Map
        >>> step = Map(matrix=np.eye(2), offset=np.zeros(2), covariance=np.eye(2))
        >>> round(float(cv.factors.MatrixProduct().log_density((np.zeros(2), np.ones(2)), step)), 4)
        -2.8379
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("FullGaussian, or a Product of two, power 1",)

    def check(self, data: Any) -> None:
        checks.array("matrix", data.matrix, (3,))
        checks.array("offset", data.offset, (2,))
        checks.array("covariance", data.covariance, (3,))
        if not is_traced(data) and not (np.linalg.eigvalsh(np.asarray(data.covariance)) > 0).all():
            raise ValueError("covariance of MatrixProduct must be positive definite.")

    def log_density(self, x: Any, data: Any) -> jax.Array:
        before, after = x if isinstance(x, tuple) else (x, 0.0)
        return log_normal(after - data.matrix @ before - data.offset, data.covariance)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        slots = family.families if isinstance(family, Product) else (family,)
        if not is_one(power) or len(slots) not in (1, 2):
            return NotImplemented
        before, after = slots[0], slots[-1]
        if not isinstance(before, FullGaussian) or not isinstance(after, FullGaussian):
            return NotImplemented
        pieces = family.parts(cavity) if isinstance(family, Product) else [cavity]
        a, b, noise = data
        size = a.shape[0]
        known_x = before.is_proper(pieces[0])
        mean, covariance = before.coordinates(jnp.where(known_x, pieces[0], stand_in(before)))
        centre, spread = a @ mean + b, a @ covariance @ a.T + noise
        if len(slots) == 2:
            known_y = after.is_proper(pieces[1])
            end, width = after.coordinates(jnp.where(known_y, pieces[1], stand_in(after)))
            # The precision with which A x + b is seen through y and the noise; 0 where y is not known.
            gain = jnp.linalg.inv(jnp.eye(size) + after.precision(pieces[1]) @ noise)
            seen, shift = gain @ after.precision(pieces[1]), gain @ after.nu(pieces[1])
        else:
            known_y, end, width = jnp.ones((), bool), jnp.zeros(size), jnp.zeros((size, size))
            seen, shift = symmetric_inverse(noise), jnp.zeros(size)
        inward = before.pack(a.T @ (shift - seen @ b), a.T @ seen @ a)
        gap, total = end - centre, spread + width
        weight = symmetric_inverse(total)
        log_z = jnp.where(known_y, log_normal(gap, total), 0.0)
        # Without a density of x, the integral over it: infinite where neither is known, or A leaves a direction open.
        alone = jnp.where(known_x, stand_in(before), inward)
        log_z = jnp.where(known_x, log_z, log_normal(end - b, width + noise) + before.log_partition(alone))
        both = known_x & known_y
        pull = jnp.where(both, a.T @ weight @ gap, 0.0), jnp.where(both, -a.T @ weight @ a, 0.0)
        sites, stats = [inward], [before.pack(*pull)]
        if len(slots) == 2:
            outward = after.from_mean(centre, spread)
            sites.append(jnp.where(known_x, outward, 0.0))
            stats.append(after.pack(jnp.where(both, -weight @ gap, 0.0), jnp.where(both, -weight, 0.0)))
        return Tilted(log_z, jnp.concatenate(stats), jnp.concatenate(sites))


def stand_in(family: FullGaussian) -> jax.Array:
    """Some proper member, for branches that are not taken."""
    return family.pack(jnp.zeros(family.dimension), jnp.eye(family.dimension))


def log_normal(gap: jax.Array, covariance: jax.Array) -> jax.Array:
    """log N(gap; 0, covariance)."""
    root = jnp.linalg.cholesky(covariance)
    white = jax.scipy.linalg.solve_triangular(root, gap, lower=True)
    return -0.5 * (jnp.sum(white**2) + len(gap) * LOG_2PI) - half_log_det(root)
