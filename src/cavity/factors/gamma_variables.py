"""Densities with a parameter that is a Gamma variable: a Gamma of unknown rate, a Gaussian of unknown precision."""

from collections.abc import Callable
from functools import reduce
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity._numerics.gamma_functions import log_gamma_step, log_minus_digamma
from cavity._numerics.inverses import gamma_shape, gamma_shape_step
from cavity._numerics.quadrature import Integral, integrate, log_abs
from cavity._numerics.sums import log_excess
from cavity.factors.base import Factor, Numbers, Value, factor, is_one
from cavity.families.base import Family, Tilted
from cavity.families.gamma import Gamma
from cavity.families.gaussian import LOG_2PI, Gaussian
from cavity.families.product import Product
from cavity.families.standardised import Line, gamma_line, match_line_moments


class Draw(NamedTuple):
    """Data of `GammaRate`, of one site: the shape s, and x where it was observed (else anything above 0)."""

    shape: Numbers
    value: Numbers


@factor
class GammaRate(Factor):
    """t(x, r) = Gamma(x; s, r) = r^s x^(s − 1) e^(−r x)/Γ(s), s known. Slots (x, r), or (r,) where x was observed.

    An observed x adds (s, x) to the shape and rate of r. Else, with cavities Gamma(a, b) of x and of r, x is
    integrated given r: it is Gamma(A, B) with A = a + s − 1 and B = b + r, so that r sees the factor

        h(r) = r^s Γ(A) b^a / (Γ(s) Γ(a) (b + r)^A),

    in one integral over log r. x is a mixture: with B̄ = E[B], ρ = B/B̄ − 1 and κ = E[ρ²/(1 + ρ)],

        E[x] = (A/B̄) (1 + κ),    log E[x] − E[log x] = log A − ψ(A) + log(1 + κ) − E[ρ − log(1 + ρ)].

    Where the cavity of x is uniform, log Z = 0, the message to r is uniform, and that to x has E[x] = s E[1/r] and
    E[log x] = ψ(s) − E[log r], uniform where E[1/r] is infinite. Where A ≤ 0 the integral is infinite and both messages
    are uniform.

    Raises:
        ValueError: in a run, if a shape or an observed x is not positive.

    Examples:
        >>> import cavity as cv
        >>> from cavity.factors.gamma_variables import Draw
        >>> round(float(cv.factors.GammaRate().log_density(2.0, Draw(shape=1.0, value=0.5))), 4)
        -0.3069
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Gamma, or Product of two Gammas, power 1",)

    def validate(self, data: Draw) -> None:
        for name, own in zip(("shape", "x"), data, strict=True):
            checks.array(name, own, (1,))
            if not is_traced(own) and not (np.asarray(own) > 0).all():
                raise ValueError(f"{name} of GammaRate must be positive.")

    def log_density(self, x: Value, data: Draw) -> jax.Array:
        value, rate = x if isinstance(x, tuple) else (data.value, x)
        s = jnp.asarray(data.shape)
        return s * jnp.log(rate) + (s - 1.0) * jnp.log(value) - rate * value - gammaln(s)

    def tilted(self, family: Family, cavity: jax.Array, data: Draw, power: float) -> Tilted:
        slots = family.families if isinstance(family, Product) else (family,)
        if not is_one(power) or len(slots) > 2 or not all(isinstance(own, Gamma) for own in slots):
            return NotImplemented
        own = Gamma()
        if len(slots) == 1:
            return tilt_rate_alone(own, cavity, data)
        value, rate = cavity[:2], cavity[2:]
        flat = jnp.all(value == own.flat())
        return jax.tree.map(
            lambda known, unknown: jnp.where(flat, unknown, known),
            integrate_log_rate(own, value, rate, jnp.asarray(data.shape)),
            to_unknown(own, rate, jnp.asarray(data.shape)),
        )


def integrate_line(
    family: Gamma, cavity: jax.Array, line: Line, log_factor: Callable[[jax.Array], jax.Array]
) -> tuple[Integral, jax.Array, jax.Array]:
    """A factor of the line times the cavity: the integral, expected statistics and message."""
    rule = integrate(log_factor, line.log_density, lambda u: log_abs(line.statistics(u)))
    surprise = log_factor(rule.nodes) - rule.log_z
    return rule, *match_line_moments(family, cavity, line, rule.nodes, rule.log_weights, surprise)


def tilt_rate_alone(family: Gamma, rate: jax.Array, data: Draw) -> Tilted:
    """Of r alone: the message is the factor itself."""
    site = jnp.stack([data.shape, data.value])
    (a, b), (s, x) = rate, site
    log_z = log_gamma_step(a, s) - a * jnp.log1p(x / b) - s * jnp.log(b + x) + (s - 1.0) * jnp.log(x) - gammaln(s)
    return Tilted(log_z, family.moments(rate + site), site)


def integrate_log_rate(family: Gamma, value: jax.Array, rate: jax.Array, s: jax.Array) -> Tilted:
    """The messages where the cavity of x is proper, by quadrature in log r."""
    a, b = value[0], value[1]
    usable = (a + s > 1.0) & family.is_proper(value) & family.is_proper(rate)
    a, b = jnp.where(usable, a, 1.0), jnp.where(usable, b, 1.0)
    safe = jnp.where(usable, rate, 1.0)
    shape = jnp.where(usable, a + s - 1.0, 1.0)
    line = gamma_line(safe)
    centre = jnp.exp(line.centre)

    def log_ratio(u: jax.Array) -> jax.Array:
        """log h(r) − log h(r₀), r₀ = exp E[log r]."""
        gap = line.scale * u
        return s * gap - shape * jnp.log1p(centre / (b + centre) * jnp.expm1(gap))

    rule, stats, message = integrate_line(family, safe, line, log_ratio)
    log_z = rule.log_z + log_gamma_step(a, s - 1.0) - gammaln(s)
    log_z = log_z - a * jnp.log1p(centre / b) + s * line.centre - (s - 1.0) * jnp.log(b + centre)

    weights, rates = jnp.exp(rule.log_weights), line.value(rule.nodes)
    mean = -stats[1]
    middle = b + mean
    ratio = (b + rates) / middle
    off = (rates - mean) / middle
    gain = weights @ jnp.where(weights > 0, off**2 / ratio, 0.0)
    apart = jnp.log1p(gain) - weights @ jnp.where(weights > 0, log_excess(off, ratio), 0.0)
    step = gamma_shape_step(shape, apart, gamma_shape(log_minus_digamma(shape) + apart) - shape)
    heard = jnp.stack([s - 1.0 + step, mean + middle * (step / shape - gain) / (1.0 + gain)])
    site = jnp.where(usable, jnp.concatenate([heard, message]), 0.0)
    found = jnp.concatenate([family.moments(jnp.where(usable, value + heard, 1.0)), stats])
    return Tilted(jnp.where(usable, log_z, jnp.inf), found, site)


def to_unknown(family: Gamma, rate: jax.Array, s: jax.Array) -> Tilted:
    """The messages where the cavity of x is uniform."""
    heard = rate[0] > 1.0
    less = jnp.where(heard, rate[0] - 1.0, 1.0)
    # log E[1/r] + E[log r] = ψ(a) − log(a − 1)
    shape = gamma_shape(log_minus_digamma(s) + 1.0 / less - log_minus_digamma(less))
    known = jnp.where(heard, jnp.stack([shape, shape * less / (s * rate[1])]), 1.0)
    site = jnp.where(heard, known - family.flat(), 0.0)
    stats = jnp.concatenate([family.moments(known), family.moments(rate)])
    return Tilted(jnp.zeros(()), stats, jnp.concatenate([site, jnp.zeros(2)]))


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

    def log_density(self, x: Value, data: jax.Array) -> jax.Array:
        *ends, tau = x if isinstance(x, tuple) else (x,)
        gap = reduce(jnp.add, [sign * end for sign, end in zip(SIGNS, ends, strict=False)], -data)
        return 0.5 * (jnp.log(tau) - tau * gap**2 - LOG_2PI)

    def tilted(self, family: Family, cavity: jax.Array, data: jax.Array, power: float) -> Tilted:
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
        pull = -signs * (signs @ mean - data)
        return jax.tree.map(
            lambda known, unknown: jnp.where(jnp.any(flat), unknown, known),
            integrate_log_precision(last, precision, mean, variance, pull),
            from_one_side(last, precision, variance, pull, flat),
        )


def conjugate(family: Gamma, precision: jax.Array, gap: jax.Array) -> Tilted:
    """Of τ alone: the message is the factor itself, Gamma increments (½, g²/2), and Z a Student-t density."""
    site = jnp.stack([jnp.full_like(gap, 0.5), 0.5 * gap**2])
    a, b = precision[0], precision[1]
    log_z = log_gamma_step(a, site[0]) - 0.5 * (jnp.log(b) + LOG_2PI) - (a + 0.5) * jnp.log1p(site[1] / b)
    return Tilted(log_z, family.moments(precision + site), site)


def integrate_log_precision(
    family: Gamma, precision: jax.Array, mean: jax.Array, variance: jax.Array, pull: jax.Array
) -> Tilted:
    """The messages where all cavities are proper, by quadrature in log τ; pull: ∓ g, g of x and of the mean."""
    proper = family.is_proper(precision)
    safe = jnp.where(proper, precision, 1.0)
    line = gamma_line(safe)
    square, spread = pull[0] ** 2, jnp.sum(variance)
    noise = jnp.exp(-line.centre)
    total = spread + noise

    def excess(u: jax.Array) -> jax.Array:
        """V(τ)/V₀ − 1, V₀ that of τ₀ = exp E[log τ]."""
        return noise / total * jnp.expm1(jnp.minimum(-line.scale * u, FARTHEST))

    def log_ratio(u: jax.Array) -> jax.Array:
        """log N(g; 0, V(τ)) − log N(g; 0, V₀)."""
        own = excess(u)
        return -0.5 * jnp.log1p(own) + 0.5 * square / total * own / (1.0 + own)

    rule, stats, message = integrate_line(family, safe, line, log_ratio)
    log_z = rule.log_z - 0.5 * (square / total + jnp.log(total) + LOG_2PI)

    weights = jnp.exp(rule.log_weights)
    own = excess(rule.nodes)
    inverse = weights @ (1.0 / (1.0 + own)) / total
    scatter = weights @ (1.0 / (1.0 + own) / total - inverse) ** 2 * square
    others = (1.0 - jnp.eye(len(pull))) @ variance
    noisy = weights @ (jnp.exp(jnp.minimum(-line.scale * rule.nodes, FARTHEST)) / (1.0 + own)) * noise / total
    # 1 + d2 v: what the others' variances and 1/τ have of V, and what the doubt of τ adds.
    share = noisy + others * inverse + variance * scatter
    tau = (inverse - scatter) / share
    nu = tau * (mean + pull) + pull * scatter / share
    slopes = jnp.stack([pull * inverse, jnp.full_like(pull, scatter - inverse)], axis=-1)
    return Tilted(
        jnp.where(proper, log_z, -jnp.inf),
        jnp.concatenate([slopes.ravel(), stats]),
        jnp.concatenate([jnp.stack([nu, tau], axis=-1).ravel(), message]),
    )


def from_one_side(family: Gamma, precision: jax.Array, variance: jax.Array, pull: jax.Array, flat: jax.Array) -> Tilted:
    """Messages where the cavity of x or of the mean is uniform; of both, all messages are uniform, and Z infinite."""
    a, b = precision[0], precision[1]
    alone = jnp.sum(flat) == 1
    heard = flat & alone & (a > 1.0)
    tau = jnp.where(heard, 1.0 / (jnp.sum(variance) + b / jnp.where(a > 1.0, a - 1.0, 1.0)), 0.0)
    # The mean of what is flat is 0 here, so that the gap is that of the other.
    site = jnp.concatenate([jnp.stack([tau * pull, tau], axis=-1).ravel(), jnp.zeros(2)])
    stats = jnp.concatenate([jnp.zeros(2 * len(pull)), family.moments(precision)])
    return Tilted(jnp.where(alone, 0.0, jnp.inf), stats, site)
