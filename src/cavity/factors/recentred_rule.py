"""A fixed rule for likelihood × Gaussian that follows the mass: log space, one set of nodes, no adaptive loop.

For ℓ = log t, smooth but with a scale of its own, a power p and a cavity N(m, v), the mass of t(f)^p N(f; m, v) may sit
around m, in a narrow peak of the likelihood, at an edge between the two, or in several of these places. The caller
names the places that matter (`centres`) with the smallest scale of the integrand there; around each the line is cut
at distances that grow geometrically from that scale to nine standard deviations, and Gauss–Legendre nodes are laid
between neighbouring cuts. A geometric ladder resolves every exponential and every Gaussian fall from its centre,
whatever its length.

Distances are kept relative to the first centre c, near the largest mass, and the exponent there is written

    p [ℓ(c + t) − ℓ(c)] − t (t + 2 (c − m)) / (2 v),

so that a cavity mean 1e8 standard deviations away takes no digits. Derivatives of log Z in m come in two forms,

    d1 = p E ℓ' = (E f − m) / v,        −d2 = −p E ℓ'' − p² Var ℓ' = (1 − Var f / v) / v,

the first accurate for a site that is weak against the cavity, the second for a strong one. Of two forms the one with
the smaller terms is taken.

`expected_log_of_step` is E[log t] for a likelihood with edges of width 1: one at 0, or two at −c and c, flat or falling
smoothly between them.

Under t(f) N(f; m, v)/Z the mass sits around the cavity, at an edge, or in between, falling off on any scale from 1 to
√v. Equal steps in u of f = a + w sinh u have all these scales at once: steps of w near a, and of h times the distance
away from it. With a at the edge that is fine enough for a Gaussian as far as nine of its standard deviations away.
Where the edge is farther, or the mass no wider than it, a is the tilted mean. The integrand is analytic: a plain sum
is enough.

Two edges share the nodes. Those of either lie where arcsinh(f − c) and arcsinh(f + c) make equal steps; their sum is 2u
at f = tanh u √(cosh²u + c²), which is sinh u for c = 0 and has steps of about 2 h at the edges, c h between them:
for the same steps it takes twice the nodes.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from cavity.families.gaussian import Tilt

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_RUNGS = 10
_REACH = 9.0


class LogLikelihoodDerivatives(NamedTuple):
    """A log likelihood and its first two derivatives in f, elementwise."""

    value: jax.Array
    first: jax.Array
    second: jax.Array


def follow(
    likelihood: Callable[[jax.Array], LogLikelihoodDerivatives],
    power: float,
    mean: jax.Array,
    variance: jax.Array,
    centres: jax.Array,
    scales: jax.Array,
    change: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
) -> Tilt:
    """log Z and what the site is made of, for exp(power · likelihood(f)) under N(mean, variance).

    `change(c, t)` is ℓ(c + t) − ℓ(c) where that is known to more digits than the difference has. Derivatives of log Z
    in parameters of the likelihood are those of the rule on fixed nodes: the nodes themselves do not depend on them.
    """
    anchor, half, middle = _panels(*jax.lax.stop_gradient((mean, variance, centres, scales)))
    t = (middle[:, None] + half[:, None] * _NODES).ravel()
    log_width = jnp.log(half[:, None] * _WEIGHTS).ravel()
    f = anchor + t
    at = likelihood(f)
    top = likelihood(anchor).value
    # The sum f is rounded; where it is large and t small, the likelihood still has to move by what t lost.
    lost = at.first * (t - (f - anchor))
    log_t = at.value - top + lost if change is None else change(anchor, t)
    offset = anchor - mean

    fall = t * (t + 2 * offset) / (2 * variance)
    log_mass = log_width + power * log_t - fall
    total = logsumexp(log_mass)
    share = jnp.exp(log_mass - total)
    log_scale = -_HALF_LOG_2PI - 0.5 * jnp.log(variance)
    height = offset * offset / (2 * variance)
    log_z = power * top - height + log_scale + total
    log_z = _near_one(log_z, power * at.value, log_width - fall - height + log_scale)

    def expect(values: jax.Array) -> jax.Array:
        return jnp.sum(share * values)

    shift, stretch = expect(t), expect(jnp.abs(t))
    slope = expect(at.first)
    ratio = expect((t - shift) ** 2) / variance
    spread = ratio + (offset + shift) ** 2 / variance  # E (f − m)² / v
    varying = power**2 * expect((at.first - slope) ** 2)
    squared = power**2 * expect(at.first**2)
    curving = power * expect(jnp.abs(at.second))
    d1, d1_size = _steadier(
        (power * slope, power * expect(jnp.abs(at.first))),
        ((offset + shift) / variance, (jnp.abs(offset) + stretch) / variance),
    )
    position, far = anchor + shift, jnp.abs(anchor) + stretch

    def curvature(gained: jax.Array, ratio: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A second derivative, from what ℓ'² adds to E ℓ'' or from a variance over v, and d1 + m times it."""
        second, size = _steadier(
            (-power * expect(at.second) - gained, curving + gained), ((1 - ratio) / variance, (1 + ratio) / variance)
        )
        total, _ = _steadier(
            (d1 + mean * second, d1_size + jnp.abs(mean) * size),
            ((position - ratio * mean) / variance, (far + ratio * jnp.abs(mean)) / variance),
        )
        return second, total

    (bend, pull), (rise, lift) = curvature(varying, ratio), curvature(squared, spread)
    return Tilt(log_z, d1, bend, rise, pull, lift, ratio)


def falling_root(slope: Callable[[jax.Array], jax.Array], low: jax.Array, high: jax.Array) -> jax.Array:
    """Where a falling function changes sign between `low` and `high`, elementwise, by sixty halvings."""
    low, high = jax.lax.stop_gradient((low, high))

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        rising = slope(middle) > 0
        return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

    low, high = jax.lax.fori_loop(0, 60, halve, (low, high))
    return 0.5 * (low + high)


def _panels(
    mean: jax.Array, variance: jax.Array, centres: jax.Array, scales: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The first centre, and half widths and middles of the panels relative to it."""
    spread = jnp.sqrt(variance)
    scales = jnp.minimum(scales, spread)
    growth = jnp.log(_REACH * spread / scales) / (_RUNGS - 1)
    ladder = scales[:, None] * jnp.exp(growth[:, None] * np.arange(_RUNGS))
    rungs = jnp.concatenate([-ladder, jnp.zeros_like(ladder[:, :1]), ladder], axis=1)
    cuts = jnp.sort(((centres - centres[0])[:, None] + rungs).ravel())
    return centres[0], 0.5 * jnp.diff(cuts), 0.5 * (cuts[1:] + cuts[:-1])


def _steadier(first: tuple[jax.Array, jax.Array], second: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Of two (value, sum of the sizes of its terms) the one whose terms are smaller."""
    better = first[1] <= second[1]
    return jnp.where(better, first[0], second[0]), jnp.where(better, first[1], second[1])


def _near_one(log_z: jax.Array, log_t: jax.Array, log_cavity: jax.Array) -> jax.Array:
    """log Z with relative accuracy where it is close to 0: Z − 1 = ∫ (t − 1) N, summed over the same nodes."""
    close = (jnp.abs(log_z) < 0.5) & (jnp.max(log_t) < 1.0)
    change = jnp.sum(jnp.exp(jnp.minimum(log_cavity, 1.0)) * jnp.expm1(jnp.minimum(log_t, 1.0)))
    return jnp.where(close, jnp.log1p(jnp.where(close, change, 0.0)), log_z)


# Nodes on either side of an edge, and standard deviations of an exponential tail covered.
_EDGE_NODES, _FAR_REACH = 44, 40.0


def expected_log_of_step(
    log_likelihood: Callable[[jax.Array], jax.Array],
    mean: jax.Array,
    variance: jax.Array,
    tilted_mean: jax.Array,
    tilted_variance: jax.Array,
    edges: jax.Array | None = None,
) -> jax.Array:
    """E[log t] under t × N(mean, variance), whose own mean and variance are known; nine digits or more.

    edges: the distance c of both edges from 0, where there are two; None: one edge at 0.
    """
    nodes, distance = (_EDGE_NODES, 0.0) if edges is None else (2 * _EDGE_NODES, edges)
    spread, deviation = jnp.sqrt(variance), jnp.sqrt(tilted_variance)
    narrow, far = deviation < 1.5, jnp.abs(jnp.abs(tilted_mean) - distance) > _REACH * deviation
    anchor = jnp.where(narrow | far, tilted_mean, 0.0)
    wide_reach = jnp.maximum(jnp.abs(tilted_mean), jnp.abs(mean)) + _REACH * spread
    reach = jnp.where(far, _REACH * spread, wide_reach)
    reach = jnp.where(narrow, jnp.minimum(_FAR_REACH * deviation, _REACH * spread + jnp.abs(mean - tilted_mean)), reach)
    width = jnp.where(far & ~narrow, deviation, spread / jnp.sqrt(1.0 + variance))
    apart = jnp.where(narrow | far, 0.0, distance / width)
    u = jnp.arcsinh(reach / width) / nodes * np.arange(-nodes, nodes + 1)
    root = jnp.sqrt(jnp.cosh(u) ** 2 + apart**2)
    f = anchor + width * jnp.tanh(u) * root
    step = (jnp.cosh(u) ** 2 + (apart / jnp.cosh(u)) ** 2) / root
    log_t = log_likelihood(f)
    log_mass = log_t - 0.5 * ((f - mean) / spread) ** 2
    mass = jnp.exp(log_mass - jnp.max(log_mass)) * step
    return jnp.sum(mass * jnp.where(mass > 0, log_t, 0.0)) / jnp.sum(mass)
