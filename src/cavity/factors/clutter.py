"""The clutter term: an observation that is either θ plus unit noise or unrelated clutter (thesis 3.1).

t(θ) = (1 − w) N(x; θ, I) + w N(x; 0, c I). The clutter part does not depend on θ, so against a Gaussian cavity the
tilted distribution is a mixture of two Gaussians and its moments are known.

The term raised to a power, against a spherical Gaussian cavity in any dimension, is integrated numerically. It depends
on θ only through the distance r = |θ − x|, so every integral is one-dimensional. With D = |x − m| and the cavity N(m, v
I) the distance has the density

    p(r) = r^(d−1) v^(−d/2) exp(−(r − D)²/2v) Ĩ_ν(κ),    ν = d/2 − 1,  κ = r D/v,  Ĩ_ν(κ) = I_ν(κ) κ^(−ν) e^(−κ),

and given r the direction from x leans towards m with mean cosine I_{ν+1}(κ)/I_ν(κ). In one dimension this is the
plain integral over x ± r.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity.factors.base import Factor, Numbers, factor, is_one
from cavity.families.base import Family, Tilted
from cavity.families.full_gaussian import FullGaussian, half_log_det
from cavity.families.gaussian import LOG_2PI, AxisAligned, Gaussian, SphericalGaussian


@factor
class Clutter(Factor):
    """The clutter term t(θ) = (1 − w) N(x; θ, I) + w N(x; 0, c I) (thesis 3.1). data: x, a number or a vector.

    Args:
        w: share of clutter, in [0, 1].
        clutter_variance: c, variance of the clutter per coordinate.

    Raises:
        ValueError: in a run, if w is outside [0, 1] or the variance is not positive.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> clutter = cv.factors.Clutter(w=0.5, clutter_variance=10.0)
        >>> round(float(clutter.log_density(1.5, 2.0)), 4)
        -1.4798
    """

    w: Numbers
    clutter_variance: Numbers

    closed_forms = (
        "Gaussian, SphericalGaussian, DiagonalGaussian, FullGaussian with power 1",
        "Gaussian and SphericalGaussian with any power (by a one-dimensional integral)",
    )

    def validate(self, data: jax.Array) -> None:
        checks.fraction("w", self.w)
        checks.positive("clutter_variance", self.clutter_variance)
        super().validate(data)

    def log_background(self, x: jax.Array) -> jax.Array:
        """log w N(x; 0, c I)."""
        x = jnp.atleast_1d(x)
        normaliser = x.shape[-1] * (LOG_2PI + jnp.log(self.clutter_variance))
        return jnp.log(self.w) - 0.5 * (jnp.sum(x**2, axis=-1) / self.clutter_variance + normaliser)

    def log_density(self, x: jax.Array, data: jax.Array) -> jax.Array:
        gap = jnp.atleast_1d(data - x)
        signal = jnp.log1p(-self.w) - 0.5 * (jnp.sum(gap**2, axis=-1) + gap.shape[-1] * LOG_2PI)
        return jnp.logaddexp(signal, self.log_background(data))

    def tilted(self, family: Family, cavity: jax.Array, data: jax.Array, power: float) -> Tilted:
        if not is_one(power):
            if not isinstance(family, Gaussian | SphericalGaussian):
                return NotImplemented
            mean, variance = family.coordinates(cavity)
            log_z, d1, d2 = powered_stats(self, jnp.atleast_1d(mean), variance, jnp.atleast_1d(data), power)
            stats = jnp.append(d1, d2)
            return Tilted(log_z, stats, family.message(cavity, stats))
        if isinstance(family, Gaussian):
            return self.axis_aligned(cavity[:1], cavity[1:], jnp.atleast_1d(data), 1)
        if isinstance(family, AxisAligned):
            return self.axis_aligned(family.nu(cavity), family.tau(cavity), data, family.shared)
        return self.full(family, cavity, data) if isinstance(family, FullGaussian) else NotImplemented

    def expected_log(self, family: Family, cavity: jax.Array, data: jax.Array, tilted: Tilted) -> jax.Array:
        """By the same one-dimensional integral as the moments of powers."""
        if not isinstance(family, Gaussian | SphericalGaussian):
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        return radial_moments(self, jnp.atleast_1d(mean), variance, jnp.atleast_1d(data), 1.0).expected_log

    def responsibility(self, log_signal: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """(log Z, r, 1 − r) of (3.20)–(3.21); both probabilities keep their digits when tiny."""
        log_background = self.log_background(x)
        odds = log_signal - log_background
        ratio = jnp.exp(-jnp.abs(odds))  # one exponential serves all three
        large = 1.0 / (1.0 + ratio)
        small = ratio * large
        log_z = jnp.maximum(log_signal, log_background) + jnp.log1p(ratio)
        return log_z, jnp.where(odds > 0, large, small), jnp.where(odds > 0, small, large)

    def axis_aligned(self, nu: jax.Array, tau: jax.Array, x: jax.Array, shared: int) -> Tilted:
        """Moments for independent coordinates, `shared` of them with one variance (3.20–3.24, 3.56).

        d2 = −r/S + r(1−r) mean(y²), y = (x − m)/S, S = v + 1; tau = −d2/(1 + v d2), with the denominator written as a
        sum of positive terms, (1−r) + r/S + r(1−r) v mean(y²): nothing cancels however wide the cavity is.
        """
        mean, variance = nu / tau, 1.0 / tau
        total = variance + 1.0
        scaled = (x - mean) / total
        wide = jnp.broadcast_to(total, x.shape)
        log_signal = jnp.log1p(-self.w) - 0.5 * jnp.sum((x - mean) * scaled + jnp.log(wide) + LOG_2PI)
        log_z, r, rest = self.responsibility(log_signal, x)
        square = jnp.mean(scaled.reshape(-1, shared) ** 2, axis=-1)
        curvature = r * rest * square
        d1, d2 = r * scaled, curvature - r / total
        own = -d2 / (rest + r / total + variance * curvature)
        site = jnp.concatenate([d1 + own * ((nu + d1) / tau), own])
        return Tilted(log_z, jnp.concatenate([d1, d2]), site)

    def full(self, family: FullGaussian, cavity: jax.Array, x: jax.Array) -> Tilted:
        """The same with matrices: S = V + I, y = S⁻¹(x − m), H = −r S⁻¹ + r(1−r) y yᵀ.

        Lambda = −(I + H V)⁻¹ H with I + H V = (1−r) I + r S⁻¹ + r(1−r) y (V y)ᵀ.
        """
        mean, covariance = family.coordinates(cavity)
        eye = jnp.eye(family.dimension)
        chol = jnp.linalg.cholesky(covariance + eye)
        scaled = jax.scipy.linalg.cho_solve((chol, True), x - mean)
        inverse = jax.scipy.linalg.cho_solve((chol, True), eye)
        quadratic = jnp.dot(x - mean, scaled)
        log_signal = jnp.log1p(-self.w) - 0.5 * (quadratic + family.dimension * LOG_2PI) - half_log_det(chol)
        log_z, r, rest = self.responsibility(log_signal, x)
        hessian = r * rest * jnp.outer(scaled, scaled) - r * inverse
        denominator = rest * eye + r * inverse + r * rest * jnp.outer(scaled, covariance @ scaled)
        precision = -jnp.linalg.solve(denominator, hessian)
        slope = r * scaled
        site = family.with_mean(slope, precision, mean + covariance @ slope)
        return Tilted(log_z, family.pack(slope, hessian), site)


#: the downward recurrence starts at least this many orders up, and serves arguments below that order.
MIN_ORDERS = 40

#: panels per window and nodes per panel of the composite Gauss–Legendre rule.
PANELS, NODES = 40, 10

#: half-width of a window in standard deviations, and of the zone where signal and clutter swap roles, in noise sds.
REACH, SWAP_ZONE = 13.0, 16.0


class Radial(NamedTuple):
    """Moments of a powered term: log Z, the shift of the mean towards x, E|θ − m|², and E[log t]."""

    log_z: jax.Array
    shift: jax.Array
    square: jax.Array
    expected_log: jax.Array


def bessel_ratio(order: float, kappa: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(log Ĩ_order(κ), I_{order+1}(κ)/I_order(κ)) for order = d/2 − 1, from the ratios σ_k = I_{k+1}/(κ I_k).

    κ² σ_k σ_{k−1} + 2k σ_{k−1} = 1. Downwards from a high order the recurrence forgets its start (Amos's bound) while
    the orders exceed κ; upwards from order 0 or −1/2 it is stable while κ exceeds the orders. Each is used on its side.
    """
    steps = int(np.ceil(order))
    lowest = order - steps
    if lowest == 0.0:
        base, first = jnp.log(jax.scipy.special.i0e(kappa)), jax.scipy.special.i1e(kappa) / jax.scipy.special.i0e(kappa)
    else:
        base, first = jnp.log1p(jnp.exp(-2.0 * kappa)) - 0.5 * np.log(2.0 * np.pi), jnp.tanh(kappa)

    high = order + MIN_ORDERS + 2 * steps
    sigma = 1.0 / (high + 0.5 + jnp.sqrt((high + 1.5) ** 2 + kappa**2))
    down = []
    for k in np.arange(high, lowest, -1.0):
        sigma = 1.0 / (2.0 * k + kappa**2 * sigma)
        if k - 1.0 <= order:
            down.append(sigma)

    large = kappa > high
    safe = jnp.where(large, kappa, high)
    up = [first / safe]
    for k in np.arange(lowest + 1.0, order + 1.0):
        up.append((1.0 / up[-1] - 2.0 * k) / safe**2)
    ratios = [jnp.where(large, rise, fall) for rise, fall in zip(up, reversed(down), strict=True)]
    log_product = sum((jnp.log(ratio) for ratio in ratios[:-1]), start=jnp.zeros_like(kappa))
    return base + log_product, kappa * ratios[-1]


def composite_nodes(edges: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gauss–Legendre nodes and log weights on the panels between sorted edges; empty panels weigh nothing."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    edges = jnp.sort(edges)
    half = 0.5 * (edges[1:] - edges[:-1])
    middle = 0.5 * (edges[1:] + edges[:-1])
    nodes = middle[:, None] + half[:, None] * points
    return nodes.ravel(), (jnp.log(half)[:, None] + np.log(weights)).ravel()


def radial_moments(term: Clutter, mean: jax.Array, variance: jax.Array, x: jax.Array, power: float) -> Radial:
    """Moments of t**power × N(m, v I) by the radial integral, nodes on the union of windows where its mass can be."""
    dimension = x.shape[0]
    distance = jnp.sqrt(jnp.sum((x - mean) ** 2))
    sd = jnp.sqrt(variance)
    # Signal only: t**power is a Gaussian of variance 1/power; times the cavity it is centred at D/(1 + v·power).
    near, near_sd = distance / (1.0 + variance * power), 1.0 / jnp.sqrt(1.0 / variance + power)
    windows = [
        (jnp.maximum(0.0, centre - REACH * scale), centre + (REACH + dimension**0.5) * scale)
        for centre, scale in ((distance, sd), (near, near_sd))
    ]
    windows.append((jnp.zeros(()), jnp.full((), SWAP_ZONE)))
    grid = jnp.linspace(0.0, 1.0, PANELS + 1)
    edges = jnp.concatenate([low + (high - low) * grid for low, high in windows])
    radius, log_weight = composite_nodes(edges)

    log_bessel, cosine = bessel_ratio(0.5 * dimension - 1.0, radius * distance / variance)
    log_prior = jax.scipy.special.xlogy(dimension - 1.0, radius) - 0.5 * dimension * jnp.log(variance)
    log_prior = log_prior - 0.5 * (radius - distance) ** 2 / variance + log_bessel
    log_term = jax.vmap(lambda r: term.log_density(x + r * jnp.eye(dimension)[0], x))(radius)
    log_mass = log_weight + log_prior + power * log_term
    log_z = jax.scipy.special.logsumexp(log_mass)
    mass = jnp.exp(log_mass - log_z)
    # |θ − m|² and the step towards x, written with D − r first: the rest is small when the cosine is near one.
    lag = radius * (1.0 - cosine)
    shift = jnp.sum(mass * (distance - radius + lag))
    square = jnp.sum(mass * ((distance - radius) ** 2 + 2.0 * distance * lag))
    return Radial(log_z, shift, square, jnp.sum(mass * log_term))


def powered_stats(
    term: Clutter, mean: jax.Array, variance: jax.Array, x: jax.Array, power: float
) -> tuple[jax.Array, ...]:
    """(log Z, d1, d2) for a spherical cavity: d1 = shift·(x − m)/(D v), d2 = (tilted variance/v − 1)/v."""
    radial = radial_moments(term, mean, variance, x, power)
    gap = x - mean
    distance = jnp.sqrt(jnp.sum(gap**2))
    direction = jnp.where(distance > 0, gap / jnp.where(distance > 0, distance, 1.0), 0.0)
    shift = jnp.where(distance > 0, radial.shift, 0.0)
    tilted_variance = (radial.square - shift**2) / x.shape[0]
    return radial.log_z, shift * direction / variance, (tilted_variance / variance - 1.0) / variance
