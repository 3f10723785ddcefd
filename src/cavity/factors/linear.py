"""Linear relations between Gaussian variables: sums, differences, noise of known variance, known matrices.

`MatrixProduct`, the product of a vector with a known matrix, and noise, is the step of a linear dynamic system. By
`Equality` several variables of one family are one and the same.
"""

from functools import reduce
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity.factors.base import AnyArray, Factor, Numbers, Value, factor, is_one
from cavity.families.base import Family, Tilted
from cavity.families.full_gaussian import FullGaussian, half_log_det, symmetric_inverse
from cavity.families.gaussian import LOG_2PI, Gaussian
from cavity.families.product import Product


class Relation(NamedTuple):
    """Data of `Linear`, of one site: a (slots,), c and s² (numbers)."""

    weights: AnyArray
    offset: Numbers
    variance: Numbers


@factor
class Linear(Factor):
    """t(x₁, …, x_m) = N(Σ a_i x_i + c; 0, s²); with s² = 0 the relation Σ a_i x_i + c = 0 itself.

    The message to x_i depends on the others alone: with their means and variances

        x_i ~ N(−(c + Σ_{j ≠ i} a_j m_j)/a_i, (s² + Σ_{j ≠ i} a_j² v_j)/a_i²),

    uniform where the cavity of one of them is, or a_i = 0. It holds also where the cavity of x_i itself is uniform;
    then log Z = −log |a_i|, the integral of the relation over x_i.

    Raises:
        ValueError: in a run, if a variance is negative, or 0 where fewer than two variables have a weight: they
            would be known exactly, which no Gaussian is.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity.factors.linear import Relation
        >>> difference = Relation(weights=np.array([1.0, -1.0]), offset=0.0, variance=1.0)
        >>> round(float(cv.factors.Linear().log_density((1.0, 2.0), difference)), 4)
        -1.4189
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Gaussian, or a Product of them, power 1",)

    def validate(self, data: Relation) -> None:
        checks.array("weights", data.weights, (2,))
        checks.array("offset", data.offset, (1,))
        checks.array("variance", data.variance, (1,))
        if is_traced(data):
            return
        if not (np.asarray(data.variance) >= 0).all():
            raise ValueError("variance of Linear must not be negative.")
        if ((np.asarray(data.variance) == 0) & (np.count_nonzero(data.weights, axis=1) < 2)).any():
            raise ValueError(
                "variance of Linear must be positive where a single variable has a weight: it would be known exactly."
            )

    def has_density(self, data: Relation) -> bool:
        return bool((np.asarray(data.variance) > 0).all())

    def log_density(self, x: Value, data: Relation) -> jax.Array:
        parts = x if isinstance(x, tuple) else (x,)
        total = reduce(jnp.add, [data.weights[k] * part for k, part in enumerate(parts)]) + data.offset
        return -0.5 * (total**2 / data.variance + jnp.log(data.variance) + LOG_2PI)

    def tilted(self, family: Family, cavity: jax.Array, data: Relation, power: float) -> Tilted:
        slots = family.families if isinstance(family, Product) else (family,)
        if not is_one(power) or not all(isinstance(own, Gaussian) for own in slots):
            return NotImplemented
        pieces = cavity.reshape(-1, 2)
        flat = pieces[:, 1] == 0
        precision = jnp.where(flat, 1.0, pieces[:, 1])
        mean = jnp.where(flat, 0.0, pieces[:, 0] / precision)
        spread = jnp.where(flat, 0.0, data.weights**2 / precision)
        others = 1.0 - jnp.eye(len(slots))
        unknown = flat & (data.weights != 0)
        known = ~jnp.any(unknown & (others > 0), axis=1)
        gap, rest = data.offset + others @ (data.weights * mean), data.variance + others @ spread
        share = jnp.where(known, data.weights / jnp.where(known, rest, 1.0), 0.0)
        site = jnp.stack([-share * gap, share * data.weights], axis=-1)
        # All known, or all but one, whose integral is that of the relation.
        off, total = data.offset + jnp.sum(data.weights * mean), data.variance + jnp.sum(spread)
        density = -0.5 * (off**2 / total + jnp.log(total) + LOG_2PI)
        measure = -jnp.sum(jnp.where(unknown, jnp.log(jnp.abs(data.weights)), 0.0))
        count = jnp.sum(unknown)
        log_z = jnp.where(count == 0, density, jnp.where(count == 1, measure, jnp.inf))
        return Tilted(log_z, log_z_slopes(pieces, site).ravel(), site.ravel())


def log_z_slopes(cavity: jax.Array, site: jax.Array) -> jax.Array:
    """(d1, d2) of log Z in the mean of a Gaussian cavity, rows (…, 2), from the message; 0 for a uniform one."""
    flat = cavity[..., 1] == 0
    variance = 1.0 / jnp.where(flat, 1.0, cavity[..., 1])
    share = 1.0 / (1.0 + variance * site[..., 1])
    d1 = (site[..., 0] - site[..., 1] * cavity[..., 0] * variance) * share
    return jnp.where(flat[..., None], 0.0, jnp.stack([d1, -site[..., 1] * share], axis=-1))


@factor
class InnerProduct(Factor):
    """The relation z = x·w + c between a vector w and a number z; data: (x, c).

    The message to z is N(x·m + c, xᵀ V x), that to w is N(x·w; m_z − c, v_z), uniform where the cavity of z is.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> vector, number = cv.families.FullGaussian(2), cv.families.Gaussian()
        >>> cavity = np.concatenate([vector.from_mean([1.0, 2.0], np.eye(2)), number.uniform()])
        >>> relation = cv.factors.InnerProduct()
        >>> site = relation.tilted(cv.families.Product((vector, number)), cavity, (np.ones(2), 0.0), 1).site
        >>> site[-2:].tolist()
        [1.5, 0.5]
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Product of FullGaussian and Gaussian, power 1",)

    def tilted(self, family: Family, cavity: jax.Array, data: tuple[jax.Array, jax.Array], power: float) -> Tilted:
        if not is_one(power) or not isinstance(family, Product) or len(family.families) != 2:
            return NotImplemented
        whole, number = family.families
        if not isinstance(whole, FullGaussian) or not isinstance(number, Gaussian):
            return NotImplemented
        x, offset = data
        weights, z = family.parts(cavity)
        mean, covariance = whole.coordinates(weights)
        centre, spread = x @ mean + offset, x @ covariance @ x
        flat = z[1] == 0
        precision = jnp.where(flat, 1.0, z[1])
        known, variance = z[0] / precision, 1.0 / precision
        total = spread + variance
        gap = known - centre
        log_z = jnp.where(flat, 0.0, -0.5 * (gap**2 / total + jnp.log(total) + LOG_2PI))
        outward = jnp.stack([centre, jnp.ones(())]) / spread
        inward = jnp.where(flat, 0.0, whole.pack(x * (z[0] - precision * offset), precision * jnp.outer(x, x)))
        first = jnp.where(flat, 0.0, whole.pack(x * gap / total, -jnp.outer(x, x) / total))
        stats = jnp.concatenate([first, log_z_slopes(z, outward)])
        return Tilted(log_z, stats, jnp.concatenate([inward, outward]))


class Map(NamedTuple):
    """Data of `MatrixProduct`, of one site: A (m, d), b (m,), S (m, m)."""

    matrix: AnyArray
    offset: AnyArray
    covariance: AnyArray


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
        >>> from cavity.factors.linear import Map
        >>> step = Map(matrix=np.eye(2), offset=np.zeros(2), covariance=np.eye(2))
        >>> round(float(cv.factors.MatrixProduct().log_density((np.zeros(2), np.ones(2)), step)), 4)
        -2.8379
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("FullGaussian, or a Product of two, power 1",)

    def validate(self, data: Map) -> None:
        checks.array("matrix", data.matrix, (3,))
        checks.array("offset", data.offset, (2,))
        checks.array("covariance", data.covariance, (3,))
        if not is_traced(data):
            checks.symmetric("covariance", np.asarray(data.covariance))
            if not (np.linalg.eigvalsh(np.asarray(data.covariance)) > 0).all():
                raise ValueError("covariance of MatrixProduct must be positive definite.")

    def log_density(self, x: Value, data: Map) -> jax.Array:
        before, after = x if isinstance(x, tuple) else (x, 0.0)
        return log_normal(after - data.matrix @ before - data.offset, data.covariance)

    def tilted(self, family: Family, cavity: jax.Array, data: Map, power: float) -> Tilted:
        slots = family.families if isinstance(family, Product) else (family,)
        if not is_one(power) or len(slots) not in (1, 2):
            return NotImplemented
        before, after = slots[0], slots[-1]
        if not isinstance(before, FullGaussian) or not isinstance(after, FullGaussian):
            return NotImplemented
        pieces = family.parts(cavity) if isinstance(family, Product) else [cavity]
        a, b, noise = map(jnp.asarray, data)
        size = a.shape[0]
        known_x = before.is_proper(pieces[0])
        mean, covariance = before.coordinates(jnp.where(known_x, pieces[0], before.standard()))
        centre, spread = a @ mean + b, a @ covariance @ a.T + noise
        if len(slots) == 2:
            known_y = after.is_proper(pieces[1])
            end, width = after.coordinates(jnp.where(known_y, pieces[1], after.standard()))
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
        alone = jnp.where(known_x, before.standard(), inward)
        log_z = jnp.where(known_x, log_z, log_normal(end - b, width + noise) + before.log_partition(alone))
        both = known_x & known_y
        pull = jnp.where(both, a.T @ weight @ gap, 0.0), jnp.where(both, -a.T @ weight @ a, 0.0)
        sites, stats = [inward], [before.pack(*pull)]
        if len(slots) == 2:
            outward = after.from_mean(centre, spread)
            sites.append(jnp.where(known_x, outward, 0.0))
            stats.append(after.pack(jnp.where(both, -weight @ gap, 0.0), jnp.where(both, -weight, 0.0)))
        return Tilted(log_z, jnp.concatenate(stats), jnp.concatenate(sites))


def log_normal(gap: AnyArray, covariance: AnyArray) -> jax.Array:
    """log N(gap; 0, covariance)."""
    root = jnp.linalg.cholesky(covariance)
    white = jax.scipy.linalg.solve_triangular(root, gap, lower=True)
    return -0.5 * (jnp.sum(white**2) + len(gap) * LOG_2PI) - half_log_det(root)


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

    def tilted(self, family: Family, cavity: jax.Array, data: object, power: float) -> Tilted:
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
        mean, covariance = family.coordinates(jnp.where(known, cavity, family.standard()))
        precision = family.precision(site)
        share = jnp.linalg.inv(jnp.eye(family.dimension) + precision @ covariance)
        found = family.pack(share @ (family.nu(site) - precision @ mean), -share @ precision)
        return jnp.where(known, found, 0.0)
    return family.moments(cavity + site)
