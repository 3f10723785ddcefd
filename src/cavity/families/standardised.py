"""Cavities in standard units, in which tilted distributions are integrated numerically.

Gaussian cavities: z = L⁻¹(x − m), so that the cavity is N(0, I). In these units a tilted distribution has mean μ and
covariance S, and with S − I called `change`

    d1 = L⁻ᵀ μ,    d2 = L⁻ᵀ (S − I) L⁻¹,    site precision = −L⁻ᵀ S⁻¹ (S − I) L⁻¹,

for the full Gaussian, and per coordinate (or averaged over coordinates that share a variance) for the others. A weak
site has S ≈ I: the caller may know `change` to more digits than the difference S − I has.

Beta, Gamma and two-component Dirichlet cavities are put on the whole line, in standard units.

    Beta, Dirichlet   t = log x/(1 − x)   density in t: x^a (1 − x)^b / B(a, b)
    Gamma             t = log x           density in t: (b x)^a e^(−b x) / Γ(a)

and t = E[t] + sd[t] u. The exponents are the shapes themselves (the Jacobian supplies the missing one), log x and
log(1 − x) come from t and not from x, so a shape of 1e-6, most of whose mass lies below the smallest double, loses
nothing. Densities are written relative to their mode at t₀ with Stirling's series for the constants: shapes of 1e8 do
not cancel either.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as linalg
from jax.nn import sigmoid, softplus

from cavity._numerics.gamma_functions import HALF_LOG_2PI, binet, log_minus_digamma, trigamma
from cavity._numerics.inverses import dirichlet_shape_step, gamma_shape, gamma_shape_step
from cavity._numerics.quadrature import Integral
from cavity._numerics.sums import log_excess
from cavity.families.base import Family, Tilted
from cavity.families.dirichlet import Beta, Dirichlet
from cavity.families.full_gaussian import FullGaussian, symmetrise
from cavity.families.gamma import Gamma
from cavity.families.gaussian import AxisAligned, Gaussian

#: smallest tilted variance in units of the cavity's; a sharper tilted distribution is a point to double precision
SHARPEST = 1e-30

EPS = 2.0**-52
#: exp of this is still a double
LARGEST_LOG = 709.0


class Frame(NamedTuple):
    """x = mean + root z; `root` is a lower triangular d×d matrix. `proper`: whether the cavity was one."""

    mean: jax.Array
    root: jax.Array
    proper: jax.Array

    def value(self, z: jax.Array) -> jax.Array:
        """x for z of length d."""
        return self.mean + self.root @ z


def is_gaussian(family: Family) -> bool:
    """Whether `whiten` and `tilted` are defined for the family."""
    return isinstance(family, Gaussian | AxisAligned | FullGaussian)


def dimension(family: Family) -> int:
    """Length of x, 1 for a scalar."""
    return family.event_shape[0] if family.event_shape else 1


def whiten(family: Any, cavity: jax.Array) -> Frame:
    """The frame of a cavity; an improper cavity gets a unit one, flagged, so that later results are not NaN."""
    size = dimension(family)
    proper = family.is_proper(cavity)
    if isinstance(family, FullGaussian):
        precision = jnp.where(proper, family.precision(cavity), jnp.eye(size))
        mean, covariance = family.coordinates(family.pack(jnp.where(proper, family.nu(cavity), 0.0), precision))
        return Frame(mean, jnp.linalg.cholesky(covariance), proper)
    nu, tau = (cavity[:1], cavity[1:]) if isinstance(family, Gaussian) else (family.nu(cavity), family.tau(cavity))
    tau = jnp.broadcast_to(jnp.where(proper, tau, 1.0), (size,))
    mean = jnp.where(proper, nu, 0.0) / tau
    return Frame(mean, jnp.diag(1.0 / jnp.sqrt(tau)), proper)


def whitened_moments(rule: Integral, slopes: jax.Array, frame: Frame) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(mean μ, covariance S, S − I) in the cavity's units; μ and S − I by whichever of two routes keeps more digits.

    From moments: μ = E[z], S = E[(z − μ)(z − μ)ᵀ]; S − I cancels for a site weak against its cavity. From slopes
    g = ∇ log t^power, by parts: μ = E[g], S − I = Cov(z, g), which does not cancel but is wrong where t jumps. The
    slopes are used where both agree within the error of the first route, so a wrong one does no harm.
    """
    weights = jnp.exp(rule.log_weights)
    found = rule.log_z > -jnp.inf
    mean = weights @ rule.nodes
    deviation = rule.nodes - mean
    eye = jnp.eye(mean.size)
    spread = jnp.where(found, (weights[:, None] * deviation).T @ deviation, eye)
    slopes = jnp.where(weights[:, None] > 0, slopes, 0.0)
    mean_slope = weights @ slopes
    product = (weights[:, None] * deviation).T @ (slopes - mean_slope)

    # What x = mean + root z loses to rounding moves log t by its slope.
    position = EPS * jnp.sum((weights @ jnp.abs(slopes)) * jnp.abs(frame.mean) / jnp.diagonal(frame.root))
    sd = jnp.sqrt(jnp.diagonal(spread))
    bar = 4.0 * (rule.error * sd + EPS * jnp.abs(mean)) + position
    bars = 4.0 * (jnp.outer(sd, sd) * rule.error + EPS * (eye + jnp.outer(jnp.abs(mean), sd))) + position * jnp.max(sd)
    agreed = jnp.abs(mean_slope - mean) <= bar
    change = jnp.where(jnp.abs(product - (spread - eye)) <= bars, product, spread - eye)
    return jnp.where(agreed, mean_slope, mean), spread, jnp.where(found, 0.5 * (change + change.T), 0.0)


def tilted(
    family: Any, frame: Frame, log_z: jax.Array, mean: jax.Array, spread: jax.Array, change: jax.Array
) -> Tilted:
    """(log Z, (d1, d2), site) from the tilted mean (d,), covariance (d, d) and covariance − I, in the frame's units."""
    # An improper cavity has no tilted distribution: no mass, and a site that says nothing.
    log_z, mean, change = (
        jnp.where(frame.proper, known, silent) for known, silent in ((log_z, -jnp.inf), (mean, 0.0), (change, 0.0))
    )
    if isinstance(family, FullGaussian):
        return _full(family, frame, log_z, mean, spread, change)
    shared = family.shared if isinstance(family, AxisAligned) else 1
    scale = jnp.diagonal(frame.root)
    pooled = jnp.mean(jnp.diagonal(change).reshape(-1, shared), axis=-1)
    ratio = jnp.mean(jnp.diagonal(spread).reshape(-1, shared), axis=-1)
    variance = (scale**2)[::shared]
    d1 = mean / scale
    tau = -pooled / (variance * jnp.maximum(ratio, SHARPEST))
    nu = d1 + tau * (frame.mean + scale * mean)
    return Tilted(log_z, jnp.concatenate([d1, pooled / variance]), jnp.concatenate([nu, tau]))


def _full(
    family: FullGaussian, frame: Frame, log_z: jax.Array, mean: jax.Array, spread: jax.Array, change: jax.Array
) -> Tilted:
    def outside(matrix: jax.Array) -> jax.Array:
        """L⁻ᵀ matrix L⁻¹."""
        half = linalg.solve_triangular(frame.root, symmetrise(matrix), lower=True, trans="T")
        return linalg.solve_triangular(frame.root, half.T, lower=True, trans="T")

    slope = linalg.solve_triangular(frame.root, mean, lower=True, trans="T")
    kept = spread + SHARPEST * jnp.eye(spread.shape[-1])
    precision = symmetrise(outside(-jnp.linalg.solve(kept, change)))
    site = family.with_mean(slope, precision, frame.value(mean))
    return Tilted(log_z, family.pack(slope, outside(change)), site)


Function = Callable[[jax.Array], jax.Array]

#: error of the cavity's own integral up to which points made for the tilted distribution serve the cavity too
COVERED = 1e-9
#: largest ∫ |tilted − cavity| of a weak factor
WEAK = 0.5


class Line(NamedTuple):
    """A cavity as a density of u on the line.

    centre, scale: E[t] and sd[t], t = centre + scale u. size: what multiplies the depth of the log density below its
    mode, a for Gamma(a, b) and a + b for Beta(a, b).
    coordinate: t. value: x as the factor sees it. log_density: of u. statistics: whose expectations are matched.
    position: u of a value x. top: log density at its mode. depth: expected depth below it, divided by the size.
    """

    centre: jax.Array
    scale: jax.Array
    size: jax.Array
    coordinate: Function
    value: Function
    log_density: Function
    statistics: Function
    position: Function
    depth: jax.Array
    top: jax.Array


def is_unconstrained(family: Family) -> bool:
    """Whether `line` is defined for the family."""
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
        statistics=squares if matches_squares(family) else log_odds.statistics,
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
    top = 0.5 * (jnp.log(a) + jnp.log(y0)) - HALF_LOG_2PI - binet(a) - binet(b) + binet(a + b) + jnp.log(scale)

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
        return jnp.where(jnp.abs(gap) <= 1.0, close, far) + top

    def statistics(u: jax.Array) -> jax.Array:
        t = coordinate(u)
        return -jnp.stack([softplus(-t), softplus(t)])

    def position(x: jax.Array) -> jax.Array:
        return (jnp.log(x) - jnp.log1p(-x) - centre) / scale

    depth = x0 * log_minus_digamma(a) + y0 * log_minus_digamma(b) - log_minus_digamma(a + b)
    return Line(centre, scale, a + b, coordinate, value, log_density, statistics, position, depth, top)


def gamma_line(cavity: jax.Array) -> Line:
    """Gamma(shape a, rate b) in t = log x, with mode log a/b, mean ψ(a) − log b and variance ψ'(a)."""
    a, b = cavity[0], cavity[1]
    shift = -log_minus_digamma(a)
    centre = jnp.log(a) - jnp.log(b) + shift
    scale = jnp.sqrt(trigamma(a))
    top = 0.5 * jnp.log(a) - HALF_LOG_2PI - binet(a) + jnp.log(scale)
    tiny = jnp.finfo(float).tiny

    def coordinate(u: jax.Array) -> jax.Array:
        return centre + scale * u

    # exp overflows only where the density is zero; held below, its derivative does not overflow there either.
    def value(u: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.exp(jnp.minimum(coordinate(u), LARGEST_LOG)), tiny)

    def log_density(u: jax.Array) -> jax.Array:
        gap = shift + scale * u
        return a * (gap - jnp.expm1(jnp.minimum(gap, LARGEST_LOG))) + top

    def statistics(u: jax.Array) -> jax.Array:
        return jnp.stack([coordinate(u), -jnp.exp(jnp.minimum(coordinate(u), LARGEST_LOG))])

    def position(x: jax.Array) -> jax.Array:
        return (jnp.log(x) - centre) / scale

    return Line(centre, scale, a, coordinate, value, log_density, statistics, position, -shift, top)


def match_line_moments(
    family: Family, cavity: jax.Array, own: Line, u: jax.Array, log_weights: jax.Array, surprise: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(expected statistics, message) of a tilted distribution given by weighted points u of its cavity's line.

    surprise: log of the tilted density over the cavity's at the points, log t − log Z.

    The statistics themselves give a first guess of the matched member, whose digits are lost where the tilted
    distribution is narrow, and the message's where it is weak. Then steps from a member whose moments are known are
    better: by how much are E[t] and the expected depth of that member's log density below its mode, in units of its
    size, larger than its own? With ε and s the two changes,

        Gamma(a, b)   E[x] grows by the factor 1 + ε + s, log E[x] − E[log x] by log(1 + ε + s) − ε,
        Beta(a, b)    E[log x] grows by b ε/(a + b) − s, E[log(1 − x)] by −a ε/(a + b) − s.

    The member is the first guess, or, of a weak factor, the cavity; its weights at the points are c = w exp(−surprise),
    and the changes Σ (w − c) of both functions.
    """
    weights = jnp.exp(log_weights)
    used = weights > 0
    surprise = jnp.where(used, surprise, 0.0)  # −∞ where the factor is 0
    stats = weights @ jnp.where(used[:, None], jax.vmap(own.statistics)(u), 0.0)
    guess = gamma_guess(own.scale * u, weights, stats) if isinstance(family, Gamma) else family.natural(stats)
    before = jnp.where(used, jnp.exp(log_weights - surprise), 0.0)
    near = used & (jnp.abs(surprise) < 1.0)
    change = jnp.where(near, -weights * jnp.expm1(jnp.where(near, -surprise, 0.0)), weights - before)
    marks = jnp.where(used[:, None], shape_marks(own, u), 0.0)
    weak_changes = change @ (marks - before @ marks / jnp.sum(before))

    nearby = line(family, guess)
    again = (own.centre - nearby.centre + own.scale * u) / nearby.scale
    marks = jnp.where(used[:, None], shape_marks(nearby, again), 0.0)
    near_changes = weights @ marks - jnp.stack([jnp.zeros(()), nearby.depth])

    is_weak = (jnp.abs(jnp.sum(before) - 1.0) < COVERED) & (jnp.sum(jnp.abs(change)) < WEAK)
    reference = jnp.where(is_weak, cavity, guess)
    rise, deeper = jnp.where(is_weak, weak_changes, near_changes)
    step = shape_steps(family, reference, rise, deeper, jnp.where(is_weak, guess - cavity, 0.0))
    return stats, jnp.where(is_weak, step, guess - cavity + step)


def gamma_guess(gap: jax.Array, weights: jax.Array, stats: jax.Array) -> jax.Array:
    """The Gamma with the expected statistics of weighted points, t known up to a constant."""
    # log E[x] − E[log x] agree to all digits for a large shape; it is log(1 + E[e^τ − 1 − τ]) with τ = t − E[t].
    gap = gap - weights @ jnp.where(weights > 0, gap, 0.0)
    excess = weights @ jnp.where(weights > 0, jnp.expm1(gap) - gap, 0.0)
    close = excess < 1.0
    spread = jnp.where(close, jnp.log1p(jnp.where(close, excess, 0.0)), jnp.log(-stats[1]) - stats[0])
    shape = gamma_shape(spread)
    return jnp.stack([shape, -shape / stats[1]])


def shape_marks(own: Line, u: jax.Array) -> jax.Array:
    """t − E[t] and the depth of the log density below its mode, divided by its size, at points u."""
    return jnp.stack([own.scale * u, (own.top - jax.vmap(own.log_density)(u)) / own.size], axis=-1)


def shape_steps(family: Family, eta: jax.Array, rise: jax.Array, deeper: jax.Array, start: jax.Array) -> jax.Array:
    """The change of parameters from the changes of E[t] and of the expected depth."""
    a, b = eta[0], eta[1]
    if isinstance(family, Gamma):
        gain = rise + deeper
        step = gamma_shape_step(a, deeper - log_excess(gain, 1.0 + gain), start[0])
        return jnp.stack([step, b * (step / a - gain) / (1.0 + gain)])
    share = eta / (a + b)
    return dirichlet_shape_step(eta, jnp.stack([share[1], -share[0]]) * rise - deeper, start)


def matches_squares(family: Family) -> bool:
    """Whether the family matches (E[w], E[w²]) in place of its expected statistics."""
    return isinstance(family, Dirichlet) and family.match == "mean_square"


def matched_statistics(family: Family, x: Any) -> jax.Array:
    """The functions of x whose tilted expectations `family.message` takes."""
    return jnp.concatenate([x, x**2], axis=-1) if matches_squares(family) else family.statistics(x)


def cavity_statistics(family: Family, cavity: jax.Array) -> jax.Array:
    """Their expectations under the cavity: the tilted statistics of a constant factor."""
    if not matches_squares(family):
        return family.moments(cavity)
    total = jnp.sum(cavity, axis=-1, keepdims=True)
    mean = cavity / total
    return jnp.concatenate([mean, mean * (cavity + 1.0) / (total + 1.0)], axis=-1)
