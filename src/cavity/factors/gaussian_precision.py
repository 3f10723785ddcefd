"""A Gaussian whose precision is a variable."""

from functools import reduce
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from cavity.factors.base import Factor, factor, is_one
from cavity.families.base import Family, Tilted
from cavity.families.gamma import Gamma
from cavity.families.gaussian import LOG_2PI, Gaussian
from cavity.families.line_coordinates import gamma_line, match_line_moments
from cavity.families.product import Product
from cavity.numerics.gamma_increments import log_gamma_step
from cavity.numerics.quadrature import integrate, log_abs

#: log of the largest ratio of 1/τ to what is expected of it
FARTHEST = 600.0

#: signs of (x, mean) in x − mean
SIGNS = (1.0, -1.0)


@factor
class GaussianPrecision(Factor):
    """t(x, mean, τ) = N(x − mean; known, 1/τ); slots (x, mean, τ), (x, τ) or (τ,), what is left out counts as 0.

    `known`, one number per site, is the data: the mean where x is a variable, or x where the mean is (the two may
    change places), or x − mean where both are known.

    Given τ all is Gaussian, so τ alone is integrated. With cavities N(m_i, v_i), Gamma(τ; a, b), the gap
    g = m_x − m_mean − known and V(τ) = Σ v_i + 1/τ:

        Z = ∫ Gamma(τ; a, b) N(g; 0, V(τ)) dτ,
        d1 = ∓ g E[1/V],        d2 = −E[1/V] + g² Var[1/V]         for x, mean,

    expectations under Gamma(τ) N(g; 0, V(τ)). The site's precision is −d2/(1 + d2 v_i), with

        1 + d2 v_i = E[(V − v_i)/V] + v_i g² Var[1/V],

    a sum of positive terms. τ is matched in E[log τ] and E[τ]. Where the cavity of x (or of the mean) is uniform,
    log Z = 0, the message to τ is uniform, and that to x matches a mixture of Gaussians: the other's mean, variance
    v + E[1/τ]. For a ≤ 1 that is infinite and the message uniform.

    Examples:
        >>> import cavity as cv
        >>> round(float(cv.factors.GaussianPrecision().log_density((1.0, 0.0, 4.0), 0.0)), 4)
        -2.2258
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Gamma, or a Product of one or two Gaussians and a Gamma, power 1",)

    def log_density(self, x: Any, data: Any) -> jax.Array:
        *ends, tau = x if isinstance(x, tuple) else (x,)
        gap = reduce(jnp.add, [sign * end for sign, end in zip(SIGNS, ends, strict=False)], -data)
        return 0.5 * (jnp.log(tau) - tau * gap**2 - LOG_2PI)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        *ends, last = family.families if isinstance(family, Product) else (family,)
        gaussians = len(ends) <= 2 and all(isinstance(own, Gaussian) for own in ends)
        if not is_one(power) or not gaussians or not isinstance(last, Gamma):
            return NotImplemented
        precision = cavity[-2:]
        if not ends:
            return conjugate(last, precision, data)
        pieces = cavity[:-2].reshape(-1, 2)
        flat = pieces[:, 1] == 0
        variance = jnp.where(flat, 0.0, 1.0 / jnp.where(flat, 1.0, pieces[:, 1]))
        mean, signs = pieces[:, 0] * variance, jnp.array(SIGNS[: len(ends)])
        return jax.tree.map(
            lambda known, unknown: jnp.where(jnp.any(flat), unknown, known),
            integrate_log_precision(last, precision, mean, variance, signs, data),
            from_one_side(last, precision, mean, variance, signs, data, flat),
        )


def conjugate(family: Gamma, precision: jax.Array, gap: jax.Array) -> Tilted:
    """Of τ alone: the message is the factor itself, Gamma increments (½, g²/2), and Z a Student-t density."""
    site = jnp.stack([jnp.full_like(gap, 0.5), 0.5 * gap**2])
    a, b = precision[0], precision[1]
    log_z = log_gamma_step(a, site[0]) - 0.5 * (jnp.log(b) + LOG_2PI) - (a + 0.5) * jnp.log1p(site[1] / b)
    return Tilted(log_z, family.moments(precision + site), site)


def integrate_log_precision(
    family: Gamma, precision: jax.Array, mean: jax.Array, variance: jax.Array, signs: jax.Array, known: jax.Array
) -> Tilted:
    """The messages where all cavities are proper, by quadrature in log τ."""
    proper = family.is_proper(precision)
    safe = jnp.where(proper, precision, 1.0)
    line = gamma_line(safe)
    gap, spread = signs @ mean - known, jnp.sum(variance)
    noise = jnp.exp(-line.centre)
    total = spread + noise

    def excess(u: jax.Array) -> jax.Array:
        """V(τ)/V₀ − 1, V₀ that of τ₀ = exp E[log τ]."""
        return noise / total * jnp.expm1(jnp.minimum(-line.scale * u, FARTHEST))

    def log_ratio(u: jax.Array) -> jax.Array:
        """log N(g; 0, V(τ)) − log N(g; 0, V₀)."""
        own = excess(u)
        return -0.5 * jnp.log1p(own) + 0.5 * gap**2 / total * own / (1.0 + own)

    rule = integrate(lambda u: log_ratio(u) + line.log_density(u), lambda u: log_abs(line.statistics(u)))
    log_z = rule.log_z - 0.5 * (gap**2 / total + jnp.log(total) + LOG_2PI)
    stats, message = match_line_moments(
        family, safe, line, rule.nodes, rule.log_weights, log_ratio(rule.nodes) - rule.log_z
    )

    weights = jnp.exp(rule.log_weights)
    own = excess(rule.nodes)
    inverse = weights @ (1.0 / (1.0 + own)) / total
    scatter = weights @ (1.0 / (1.0 + own) / total - inverse) ** 2 * gap**2
    others = (1.0 - jnp.eye(len(signs))) @ variance
    noisy = weights @ (jnp.exp(jnp.minimum(-line.scale * rule.nodes, FARTHEST)) / (1.0 + own)) * noise / total
    # 1 + d2 v: what the others' variances and 1/τ have of V, and what the doubt of τ adds.
    share = noisy + others * inverse + variance * scatter
    tau = (inverse - scatter) / share
    nu = tau * (mean - signs * gap) - signs * gap * scatter / share
    slopes = jnp.stack([-signs * gap * inverse, jnp.full_like(signs, scatter - inverse)], axis=-1)
    return Tilted(
        jnp.where(proper, log_z, -jnp.inf),
        jnp.concatenate([slopes.ravel(), stats]),
        jnp.concatenate([jnp.stack([nu, tau], axis=-1).ravel(), message]),
    )


def from_one_side(
    family: Gamma,
    precision: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
    signs: jax.Array,
    known: jax.Array,
    flat: jax.Array,
) -> Tilted:
    """Messages where the cavity of x or of the mean is uniform; of both, all messages are uniform, and Z infinite."""
    a, b = precision[0], precision[1]
    alone = jnp.sum(flat) == 1
    heard = flat & alone & (a > 1.0)
    tau = jnp.where(heard, 1.0 / (jnp.sum(variance) + b / jnp.where(a > 1.0, a - 1.0, 1.0)), 0.0)
    # The mean of what is flat is 0 here, so that the gap is that of the other.
    nu = -tau * signs * (signs @ mean - known)
    site = jnp.concatenate([jnp.stack([nu, tau], axis=-1).ravel(), jnp.zeros(2)])
    stats = jnp.concatenate([jnp.zeros(2 * len(signs)), family.moments(precision)])
    return Tilted(jnp.where(alone, 0.0, jnp.inf), stats, site)
