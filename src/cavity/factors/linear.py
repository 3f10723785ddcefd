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
from cavity.families.base import Family, OrFlat, Tilted
from cavity.families.full_gaussian import FullGaussian, half_log_det, is_positive_definite, symmetric_inverse
from cavity.families.gaussian import LOG_2PI, Gaussian
from cavity.families.product import Product


def slots_of(family: Family) -> tuple[Family, ...]:
    """The families of the variables a factor sees."""
    return family.families if isinstance(family, Product) else (family,)


def takes_improper(family: Family) -> bool:
    """Whether log Z has a meaning for improper cavities, in all families of the variables."""
    return all(isinstance(own, OrFlat) for own in slots_of(family))


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
    then log Z = −log |a_i|, the integral of the relation over x_i. One of the others may have a negative precision,
    1/v_j < 0, and the message too: see `accepts`.

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
        slots = slots_of(family)
        if not is_one(power) or not all(isinstance(own, Gaussian) for own in slots):
            return NotImplemented
        pieces, weights = cavity.reshape(-1, 2), data.weights
        proper = pieces[:, 1] > 0
        precision = jnp.where(proper, pieces[:, 1], 1.0)
        mean = jnp.where(proper, pieces[:, 0] / precision, 0.0)
        spread = jnp.where(proper, weights**2 / precision, 0.0)
        others = 1.0 - jnp.eye(len(slots))
        gap, rest = data.offset + others @ (weights * mean), data.variance + others @ spread
        # One of the others may be improper, (nu, tau): its mean nu/tau and variance 1/tau are multiplied by tau.
        open_end = ~proper & (weights != 0)
        eta, weight = jnp.sum(jnp.where(open_end[:, None], pieces, 0.0), axis=0), jnp.sum(weights * open_end)
        scale = jnp.where(jnp.any(open_end) & ~open_end, eta[1], 1.0)
        seen = jnp.where(open_end, 0.0, weight)
        share = weights / (scale * rest + seen * weight)
        site = jnp.stack([-share * (scale * gap + seen * eta[0]), share * scale * weights], axis=-1)
        # All proper, or all but one, over which the relation is integrated.
        off, total = data.offset + jnp.sum(weights * mean), data.variance + jnp.sum(spread)
        density = -0.5 * (off**2 / total + jnp.log(total) + LOG_2PI)
        weight = jnp.where(weight == 0, 1.0, weight)
        measure = log_expectation(-off / weight, total / weight**2, eta) - jnp.log(jnp.abs(weight))
        log_z = jnp.where(jnp.any(open_end), measure, density)
        return Tilted(log_z, log_z_slopes(pieces, site).ravel(), site.ravel())

    def accepts(self, family: Family, cavity: jax.Array, data: Relation, power: float) -> jax.Array:
        """Where Λ + a aᵀ/s² is positive definite, Λ the cavity's precisions: at most one variable may be improper.

        For that one Λ_k + a_k²/r > 0, r = s² + Σ_{j ≠ k} a_j²/Λ_j: with it all messages exist, and what they make of
        q is proper. Of a variable that has no weight nothing is asked but what q is asked.
        """
        if not takes_improper(family):
            return family.is_allowed(cavity)
        eta, weights = cavity.reshape(-1, 2), data.weights
        proper = eta[:, 1] > 0
        rest = data.variance + jnp.sum(jnp.where(proper, weights**2 / jnp.where(proper, eta[:, 1], 1.0), 0.0))
        flat = jnp.all(eta == 0, axis=1)
        held = jnp.where(weights == 0, proper | flat, proper | flat | (eta[:, 1] * rest + weights**2 > 0))
        return jnp.all(held & jnp.isfinite(eta).all(axis=1)) & (jnp.sum(~proper & (weights != 0)) <= 1)


def log_expectation(mean: Numbers, variance: Numbers, eta: jax.Array) -> jax.Array:
    """log E[exp(nu x − ½ tau x²)] for x ~ N(mean, variance), where 1 + variance · tau > 0."""
    nu, tau = eta
    lift = 2.0 * mean * nu + variance * nu**2 - tau * mean**2
    return 0.5 * (lift / (1.0 + variance * tau) - jnp.log1p(variance * tau))


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

    The message to z is N(x·m + c, xᵀ V x), that to w is N(x·w; m_z − c, v_z), uniform where the cavity of z is. One of
    the cavities may be improper where their product under the relation is not.

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
        slots = slots_of(family)
        if not is_one(power) or len(slots) != 2:
            return NotImplemented
        whole, number = slots
        if not isinstance(whole, FullGaussian) or not isinstance(number, Gaussian):
            return NotImplemented
        x, offset = data
        weights, z = cavity[: whole.size], cavity[whole.size :]
        inward = whole.pack(x * (z[0] - z[1] * offset), z[1] * jnp.outer(x, x))
        proper, known = whole.is_proper(weights), z[1] > 0
        mean, covariance = whole.coordinates(jnp.where(proper, weights, weights + inward))
        centre, spread = x @ mean + offset, x @ covariance @ x
        precision = jnp.where(known, z[1], 1.0)
        gap, total = z[0] / precision - centre, spread + 1.0 / precision
        normal = -0.5 * (gap**2 / total + jnp.log(total) + LOG_2PI)
        of_weights = jnp.where(known, normal, log_expectation(centre, spread, z))
        # Where w is improper alone, mean and covariance are those of both: the message is what z does not say itself.
        both = whole.log_partition(weights + inward) + offset * (z[0] - 0.5 * z[1] * offset) - number.log_partition(z)
        log_z = jnp.where(proper, of_weights, both)
        outward = jnp.stack([centre, jnp.ones(())]) / spread - jnp.where(proper, 0.0, z)
        first = jnp.where(known, whole.pack(x * gap / total, -jnp.outer(x, x) / total), 0.0)
        stats = jnp.concatenate([first, log_z_slopes(z, outward)])
        return Tilted(log_z, stats, jnp.concatenate([inward, outward]))

    def accepts(self, family: Family, cavity: jax.Array, data: tuple[jax.Array, jax.Array], power: float) -> jax.Array:
        """Where Λ_w + τ_z x xᵀ is positive definite, and Λ_w too unless z is proper."""
        whole = slots_of(family)[0]
        if not takes_improper(family) or not isinstance(whole, FullGaussian):
            return family.is_allowed(cavity)
        weights, z = cavity[: whole.size], cavity[whole.size :]
        together = whole.pack(whole.nu(weights), whole.precision(weights) + z[1] * jnp.outer(data[0], data[0]))
        held = whole.is_proper(weights) | (z[1] > 0)
        return held & whole.is_proper(together) & jnp.isfinite(z).all()


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
    integral over x. Either may be improper where their product under the relation is not; then the message to y is
    S⁻¹ − S⁻¹ A (Λ_x + Aᵀ S⁻¹ A)⁻¹ Aᵀ S⁻¹ in precision.

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
        slots = slots_of(family)
        before, after = slots[0], slots[-1]
        if not is_one(power) or len(slots) not in (1, 2):
            return NotImplemented
        if not isinstance(before, FullGaussian) or not isinstance(after, FullGaussian):
            return NotImplemented
        x, y = cavity[: before.size], cavity[before.size :]
        a, b, noise = map(jnp.asarray, data)
        size = a.shape[0]
        known_x = before.is_proper(x)
        mean, covariance = before.coordinates(jnp.where(known_x, x, before.standard()))
        centre, spread = a @ mean + b, a @ covariance @ a.T + noise
        if len(slots) == 2:
            known_y = after.is_proper(y)
            end, width = after.coordinates(jnp.where(known_y, y, after.standard()))
            gain, seen = seen_through_noise(after.precision(y), noise)
            shift = gain @ after.nu(y)
            # log E exp(nu·y − ½ yᵀ Λ y) for y ~ N(b, S): the integral over y where x is 0.
            level = b @ shift + 0.5 * (after.nu(y) @ noise @ shift - b @ seen @ b + jnp.linalg.slogdet(gain)[1])
            level = level - after.log_partition(y)
        else:
            known_y, end, width = jnp.ones((), bool), jnp.zeros(size), jnp.zeros((size, size))
            seen, shift = symmetric_inverse(noise), jnp.zeros(size)
            level = log_normal(b, noise)
        inward = before.pack(a.T @ (shift - seen @ b), a.T @ seen @ a)
        gap, total = end - centre, spread + width
        weight = symmetric_inverse(total)
        both = known_x & known_y
        log_z = level + before.log_partition(x + inward) - before.log_partition(x)
        log_z = jnp.where(both, log_normal(gap, total), log_z)
        pull = jnp.where(both, a.T @ weight @ gap, 0.0), jnp.where(both, -a.T @ weight @ a, 0.0)
        sites, stats = [inward], [before.pack(*pull)]
        if len(slots) == 2:
            inverse = symmetric_inverse(noise)
            across = a.T @ inverse
            right = jnp.column_stack([across, before.nu(x) - across @ b])
            back = across.T @ jnp.linalg.solve(before.precision(x) + across @ a, right)
            outward = after.pack(inverse @ b + back[:, -1], inverse - back[:, :-1])
            if size <= before.dimension:
                outward = jnp.where(jnp.all(x == 0), 0.0, outward)
            sites.append(jnp.where(known_x, after.from_mean(centre, spread), outward))
            stats.append(after.pack(jnp.where(both, -weight @ gap, 0.0), jnp.where(both, -weight, 0.0)))
        return Tilted(log_z, jnp.concatenate(stats), jnp.concatenate(sites))

    def accepts(self, family: Family, cavity: jax.Array, data: Map, power: float) -> jax.Array:
        """Where the joint precision of x and y is positive definite: S⁻¹ + Λ_y, and Λ_x with the message to x."""
        before = slots_of(family)[0]
        if not takes_improper(family) or not isinstance(before, FullGaussian):
            return family.is_allowed(cavity)
        x, y, noise = cavity[: before.size], cavity[before.size :], jnp.asarray(data.covariance)
        seen, held = symmetric_inverse(noise), jnp.isfinite(cavity).all()
        if y.size:
            precision, root = slots_of(family)[-1].precision(y), jnp.linalg.cholesky(noise)  # type: ignore[attr-defined]
            held = held & is_positive_definite(jnp.eye(len(root)) + root.T @ precision @ root)
            seen = seen_through_noise(precision, noise)[1]
        return held & is_positive_definite(before.precision(x) + data.matrix.T @ seen @ data.matrix)


def seen_through_noise(precision: jax.Array, noise: AnyArray) -> tuple[jax.Array, jax.Array]:
    """G = (I + Λ S)⁻¹ and G Λ, the precision that noise of covariance S leaves of Λ; 0 leaves 0."""
    gain = jnp.linalg.inv(jnp.eye(len(noise)) + precision @ noise)
    return gain, gain @ precision


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
        own, count = slots_of(family)[0], len(slots_of(family))
        if not is_one(power) or count < 2 or any(other != own for other in slots_of(family)):
            return NotImplemented
        pieces = cavity.reshape(count, own.size)
        surplus = pieces - own.flat()
        together = own.flat() + jnp.sum(surplus, axis=0)
        site = (1.0 - jnp.eye(count)) @ surplus
        known = jax.vmap(own.log_partition)(pieces)
        log_z = own.log_partition(together) - jnp.sum(known)
        stats = jax.vmap(lambda cavity, site: equality_statistics(own, cavity, site))(pieces, site)
        return Tilted(log_z, stats.ravel(), site.ravel())

    def accepts(self, family: Family, cavity: jax.Array, data: object, power: float) -> jax.Array:
        """Where the product is a distribution, of a family in which log Z has a meaning for what is none."""
        own, count = slots_of(family)[0], len(slots_of(family))
        if not takes_improper(family):
            return family.is_allowed(cavity)
        surplus = cavity.reshape(count, own.size) - own.flat()
        return own.is_allowed(own.flat() + jnp.sum(surplus, axis=0))


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
