"""The logistic link: a probability and its log odds."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.nn import sigmoid, softplus

from cavity.factors.base import Factor, factor, is_one
from cavity.families.base import Family, Tilted
from cavity.families.dirichlet import Beta
from cavity.families.gaussian import LOG_2PI, Gaussian
from cavity.families.line_coordinates import beta_line, match_line_moments
from cavity.families.product import Product
from cavity.families.whitened import Frame, tilted, whitened_moments
from cavity.numerics.gamma_functions import digamma_difference, trigamma
from cavity.numerics.quadrature import integrate, log_abs


@factor
class LogisticLink(Factor):
    """t(p, z) = δ(p − σ(z)), σ(z) = 1/(1 + e^−z): z is the log odds of p. Slots (p, z); no data.

    The relation leaves one variable, and one integral: with cavities Beta(a, b) and N(m, v)

        Z = ∫ Beta(σ(z); a, b) N(z; m, v) dz.

    z sees the factor h(z) = Beta(σ(z); a, b), with d log h/dz = (a − 1) σ(−z) − (b − 1) σ(z), and is matched through
    these slopes where the factor is weak. p is matched in E[log p] and E[log(1 − p)]. The message of a
    flat Beta(1, 1) to z is uniform. Where nothing is known of z, the message to p is dz/dp = 1/(p (1 − p)), increments
    (−1, −1), that to z the log odds of Beta(a − 1, b − 1), and Z = B(a − 1, b − 1)/B(a, b) = S (S − 1)/((a − 1)(b − 1))
    with S = a + b − 1; for a ≤ 1 or b ≤ 1 that is infinite, and both messages are uniform.

    Examples:
        >>> import cavity as cv
        >>> link = cv.factors.LogisticLink()
        >>> link.closed_forms, link.has_density(None)
        (('Product of a Beta and a Gaussian, power 1',), False)
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Product of a Beta and a Gaussian, power 1",)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        if not is_one(power) or not isinstance(family, Product) or len(family.families) != 2:
            return NotImplemented
        first, second = family.families
        if not isinstance(first, Beta) or not isinstance(second, Gaussian):
            return NotImplemented
        shapes, odds = family.parts(cavity)
        return jax.tree.map(
            lambda known, unknown: jnp.where(odds[1] == 0, unknown, known),
            of_known(first, second, shapes, odds),
            of_unknown(first, shapes),
        )


def of_known(family: Beta, line_family: Gaussian, shapes: jax.Array, odds: jax.Array) -> Tilted:
    """The messages where the cavity of z is proper, by quadrature in z."""
    proper, known = family.is_proper(shapes), line_family.is_proper(odds)
    safe = jnp.where(proper, shapes, 1.0)
    precision = jnp.where(known, odds[1], 1.0)
    mean, scale = jnp.where(known, odds[0], 0.0) / precision, 1.0 / jnp.sqrt(precision)
    line = beta_line(safe)

    def inner(u: jax.Array) -> jax.Array:
        """The line of p at z = mean + scale u."""
        return (mean - line.centre + scale * u) / line.scale

    def log_stretch(u: jax.Array) -> jax.Array:
        """log dz/dp."""
        z = mean + scale * u
        return softplus(z) + softplus(-z)

    def log_normal(u: jax.Array) -> jax.Array:
        return -0.5 * (u**2 + LOG_2PI)

    def log_f(u: jax.Array) -> jax.Array:
        return line.log_density(inner(u)) - jnp.log(line.scale) + log_stretch(u) + log_normal(u)

    def slope(u: jax.Array) -> jax.Array:
        z = mean + scale * u
        return scale * ((safe[0] - 1.0) * sigmoid(-z) - (safe[1] - 1.0) * sigmoid(z))

    def tests(u: jax.Array) -> tuple[jax.Array, jax.Array]:
        return log_abs(jnp.append(line.statistics(inner(u)), slope(u)))

    rule = integrate(log_f, tests)
    column = rule._replace(nodes=rule.nodes[:, None])
    frame = Frame(mean[None], scale[None, None], proper & known)
    centre, spread, change = whitened_moments(column, slope(column.nodes), frame)
    said = tilted(line_family, frame, rule.log_z, centre, spread, change)
    surprise = log_normal(rule.nodes) - jnp.log(scale) + log_stretch(rule.nodes) - rule.log_z
    stats, message = match_line_moments(family, safe, line, inner(rule.nodes), rule.log_weights, surprise)
    return Tilted(said.log_z, jnp.concatenate([stats, said.stats]), jnp.concatenate([message, said.site]))


def of_unknown(family: Beta, shapes: jax.Array) -> Tilted:
    """The messages where the cavity of z is uniform."""
    heard = jnp.all(shapes > 1.0)
    a, b = jnp.where(heard, shapes - 1.0, 1.0)
    total = a + b
    tau = 1.0 / (trigamma(a) + trigamma(b))
    # ψ(a) − ψ(b) through the larger of the two.
    apart = digamma_difference(jnp.minimum(a, b), jnp.abs(a - b)) * jnp.sign(b - a)
    log_z = jnp.log(total / a) + jnp.log((total + 1.0) / b)
    stats = jnp.append(family.moments(jnp.where(heard, jnp.stack([a, b]), shapes)), jnp.zeros(2))
    site = jnp.where(heard, jnp.stack([-1.0 * jnp.ones(()), -jnp.ones(()), tau * apart, tau]), 0.0)
    return Tilted(jnp.where(heard, log_z, jnp.inf), stats, site)
