"""A Gamma whose rate is a variable: the compound gamma."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity.factors.base import Factor, factor, is_one
from cavity.families.base import Family, Tilted
from cavity.families.gamma import Gamma
from cavity.families.line_coordinates import gamma_line, match_line_moments
from cavity.families.product import Product
from cavity.numerics.gamma_functions import log_minus_digamma
from cavity.numerics.gamma_increments import gamma_shape_step, log_gamma_step
from cavity.numerics.inverses import gamma_shape
from cavity.numerics.quadrature import integrate, log_abs
from cavity.numerics.stable_differences import log_excess


class Draw(NamedTuple):
    """Data of `GammaRate`, of one site: the shape s, and x where it was observed (else anything above 0)."""

    shape: Any
    value: Any


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
        >>> from cavity.factors.gamma_rate import Draw
        >>> round(float(cv.factors.GammaRate().log_density(2.0, Draw(shape=1.0, value=0.5))), 4)
        -0.3069
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Gamma, or Product of two Gammas, power 1",)

    def check(self, data: Any) -> None:
        for name, own in zip(("shape", "x"), data, strict=True):
            checks.array(name, own, (1,))
            if not is_traced(own) and not (np.asarray(own) > 0).all():
                raise ValueError(f"{name} of GammaRate must be positive.")

    def log_density(self, x: Any, data: Any) -> jax.Array:
        value, rate = x if isinstance(x, tuple) else (data.value, x)
        s = data.shape
        return s * jnp.log(rate) + (s - 1.0) * jnp.log(value) - rate * value - gammaln(s)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
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
            integrate_log_rate(own, value, rate, data.shape),
            to_unknown(own, rate, data.shape),
        )


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

    rule = integrate(lambda u: log_ratio(u) + line.log_density(u), lambda u: log_abs(line.statistics(u)))
    log_z = rule.log_z + log_gamma_step(a, s - 1.0) - gammaln(s)
    log_z = log_z - a * jnp.log1p(centre / b) + s * line.centre - (s - 1.0) * jnp.log(b + centre)
    stats, message = match_line_moments(
        family, safe, line, rule.nodes, rule.log_weights, log_ratio(rule.nodes) - rule.log_z
    )

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
