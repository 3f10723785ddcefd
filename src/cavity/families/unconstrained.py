"""Beta, Gamma and two-component Dirichlet cavities on the whole line, in standard units.

    Beta, Dirichlet   t = log x/(1 − x)   density in t: x^a (1 − x)^b / B(a, b)
    Gamma             t = log x           density in t: (b x)^a e^(−b x) / Γ(a)

and t = E[t] + sd[t] u. The exponents are the shapes themselves (the Jacobian supplies the missing one), log x and
log(1 − x) come from t and not from x, so a shape of 1e-6, most of whose mass lies below the smallest double, loses
nothing. Densities are written relative to their mode at t₀ with Stirling's series for the constants: shapes of 1e8 do
not cancel either.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.nn import sigmoid, softplus

from cavity.families.base import Family
from cavity.families.beta import Beta
from cavity.families.dirichlet import Dirichlet
from cavity.families.gamma import Gamma
from cavity.numerics.gamma_functions import HALF_LOG_2PI, binet, log_minus_digamma, trigamma
from cavity.numerics.inverses import gamma_shape

Function = Callable[[jax.Array], jax.Array]


class Line(NamedTuple):
    """A cavity as a density of u on the line.

    coordinate: t. value: x as the factor sees it. log_density: of u. statistics: whose expectations are matched.
    position: u of a value x. natural: the member matched to weighted points u and their statistics, where the
    points know more than the rounded statistics.
    """

    coordinate: Function
    value: Function
    log_density: Function
    statistics: Function
    position: Function
    natural: Callable[[jax.Array, jax.Array, jax.Array], jax.Array] | None = None


def is_unconstrained(family: Family) -> bool:
    """Whether `line` knows the family."""
    return isinstance(family, Beta | Gamma) or (isinstance(family, Dirichlet) and family.size == 2)


def line(family: Family, cavity: jax.Array) -> Line:
    """The cavity on the line; shapes that are not positive give NaN densities, which integrate to nothing."""
    if isinstance(family, Gamma):
        return gamma_line(cavity)
    if isinstance(family, Beta):
        return beta_line(cavity)
    log_odds = beta_line(cavity)
    tiny = jnp.finfo(float).tiny

    def value(u: jax.Array) -> jax.Array:
        t = log_odds.coordinate(u)
        return jnp.maximum(jnp.stack([sigmoid(t), sigmoid(-t)]), tiny)

    def squares(u: jax.Array) -> jax.Array:
        x = value(u)
        return jnp.concatenate([x, x**2])

    return log_odds._replace(
        value=value,
        statistics=squares if isinstance(family, Dirichlet) and family.match == "mean_square" else log_odds.statistics,
        position=lambda x: log_odds.position(x[..., 0] / (x[..., 0] + x[..., 1])),
    )


def beta_line(cavity: jax.Array) -> Line:
    """Beta(a, b) in the log odds t, with mode log a/b, mean ψ(a) − ψ(b) and variance ψ'(a) + ψ'(b)."""
    a, b = cavity[0], cavity[1]
    # Mean minus mode, from log a − ψ(a): small for large shapes and exact there.
    shift = log_minus_digamma(b) - log_minus_digamma(a)
    centre = jnp.log(a) - jnp.log(b) + shift
    scale = jnp.sqrt(trigamma(a) + trigamma(b))
    x0, y0 = a / (a + b), b / (a + b)
    constant = 0.5 * (jnp.log(a) + jnp.log(y0)) - HALF_LOG_2PI - binet(a) - binet(b) + binet(a + b)

    def coordinate(u: jax.Array) -> jax.Array:
        return centre + scale * u

    def value(u: jax.Array) -> jax.Array:
        return jnp.clip(sigmoid(coordinate(u)), jnp.finfo(float).tiny, 1.0 - 0.5 * jnp.finfo(float).eps)

    def log_density(u: jax.Array) -> jax.Array:
        t, gap = coordinate(u), shift + scale * u
        # Near the mode as a difference without cancellation, elsewhere where exp may overflow as it stands.
        near = jnp.clip(gap, -1.0, 1.0)
        close = -a * jnp.log1p(y0 * jnp.expm1(-near)) - b * jnp.log1p(x0 * jnp.expm1(near))
        far = -a * (softplus(-t) + jnp.log(x0)) - b * (softplus(t) + jnp.log(y0))
        return jnp.where(jnp.abs(gap) <= 1.0, close, far) + constant + jnp.log(scale)

    def statistics(u: jax.Array) -> jax.Array:
        t = coordinate(u)
        return -jnp.stack([softplus(-t), softplus(t)])

    def position(x: jax.Array) -> jax.Array:
        return (jnp.log(x) - jnp.log1p(-x) - centre) / scale

    return Line(coordinate, value, log_density, statistics, position)


def gamma_line(cavity: jax.Array) -> Line:
    """Gamma(shape a, rate b) in t = log x, with mode log a/b, mean ψ(a) − log b and variance ψ'(a)."""
    a, b = cavity[0], cavity[1]
    shift = -log_minus_digamma(a)
    centre = jnp.log(a) - jnp.log(b) + shift
    scale = jnp.sqrt(trigamma(a))
    constant = 0.5 * jnp.log(a) - HALF_LOG_2PI - binet(a) + jnp.log(scale)
    tiny, largest = jnp.finfo(float).tiny, jnp.finfo(float).max

    def coordinate(u: jax.Array) -> jax.Array:
        return centre + scale * u

    def value(u: jax.Array) -> jax.Array:
        return jnp.clip(jnp.exp(coordinate(u)), tiny, largest)

    def log_density(u: jax.Array) -> jax.Array:
        gap = shift + scale * u
        return a * (gap - jnp.expm1(gap)) + constant

    def statistics(u: jax.Array) -> jax.Array:
        # exp overflows only where the density is zero.
        return jnp.stack([coordinate(u), -jnp.minimum(jnp.exp(coordinate(u)), largest)])

    def natural(u: jax.Array, weights: jax.Array, stats: jax.Array) -> jax.Array:
        # log E[x] − E[log x] agree to all digits for large a; it is log(1 + E[e^τ − 1 − τ]) with τ = t − E[t].
        gap = coordinate(u) - stats[0]
        excess = weights @ jnp.where(weights > 0, jnp.expm1(gap) - gap, 0.0)
        close = excess < 1.0
        spread = jnp.where(close, jnp.log1p(jnp.where(close, excess, 0.0)), jnp.log(-stats[1]) - stats[0])
        shape = gamma_shape(spread)
        return jnp.stack([shape, -shape / stats[1]])

    return Line(coordinate, value, log_density, statistics, lambda x: (jnp.log(x) - centre) / scale, natural)
