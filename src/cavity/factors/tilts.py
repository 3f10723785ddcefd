"""A scalar Gaussian tilted by a likelihood.

`Tilt` holds quantities that mix without cancelling. A likelihood observed through noise is often lower + weight · t₀: a
floor plus a multiple of a likelihood that is known. With Z₀ = ∫ t₀ N(m, v) the mixture has

    Z = lower + weight Z₀,        r = weight Z₀ / Z,        1 − r = lower / Z,

and its tilted distribution is (1 − r) · cavity + r · tilted₀. In terms of derivatives in the cavity mean m,

    d1 = r d1₀,        −d2 = r [r b₀ + (1 − r) c₀],        b₀ = −(log Z₀)'',    c₀ = −Z₀''/Z₀,

and the tilted variance in units of v is a sum of terms that are not negative,

    V = 1 + v d2 = (1 − r) + r V₀ + r (1 − r) v d1₀².

The site is tau = −d2/V and nu = (d1 − m d2)/V = r [r (d1₀ + m b₀) + (1 − r)(d1₀ + m c₀)] / V. So a tilted distribution
that hands over b₀, c₀, V₀ and the two sums d1₀ + m b₀ and d1₀ + m c₀, each with its own relative accuracy, leaves
nothing to cancel but what changes sign by itself: tau, where a label is wrong and the site turns negative.

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

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.families.base import Tilted
from cavity.numerics.normal import one_sided

# exp of this is still a normal double; what it would multiply beyond is smaller than every normal one.
_LARGEST_EXPONENT = 700.0


class Tilt(NamedTuple):
    """A tilted scalar Gaussian; Z is a function of the mean m of the cavity N(m, v).

    log_z: log Z.
    d1: (log Z)'.
    bend: −(log Z)''.
    rise: −Z''/Z = bend − d1².
    pull: d1 + m · bend, the site's nu times `ratio`.
    lift: d1 + m · rise.
    ratio: the tilted variance over v, 1 − v · bend.
    """

    log_z: jax.Array
    d1: jax.Array
    bend: jax.Array
    rise: jax.Array
    pull: jax.Array
    lift: jax.Array
    ratio: jax.Array


class LogLikelihoodDerivatives(NamedTuple):
    """A log likelihood and its first two derivatives in f, elementwise."""

    value: jax.Array
    first: jax.Array
    second: jax.Array


class Levels(NamedTuple):
    """lower + weight · t₀ for t₀ in [0, 1]. short: 1 − (lower + weight), tiny where the upper level is near 1."""

    lower: jax.Array
    weight: jax.Array
    short: jax.Array


class Shares(NamedTuple):
    """log Z of a mixture, the share r of its second part and the share 1 − r of its floor."""

    log_z: jax.Array
    part: jax.Array
    floor: jax.Array


def shares(log_z0: jax.Array, levels: Levels) -> Shares:
    """log Z, r and 1 − r, each with its relative accuracy: also log Z near 0, and r or 1 − r where they are tiny.

    The smaller part is divided by the larger. A form that is not taken sees harmless arguments, so that derivatives in
    the levels exist, at lower = 0 too.
    """
    lower, weight, short = levels
    mass = weight * jnp.exp(log_z0)
    on_floor = lower > mass
    floor, gain = jnp.where(on_floor, lower, 1.0), jnp.where(on_floor, 1.0, weight)
    inverse = jnp.exp(jnp.minimum(-log_z0, _LARGEST_EXPONENT))
    odds = jnp.where(on_floor, mass / floor, lower * inverse / gain)
    large = 1 / (1 + odds)
    small = odds * large
    log_z = jnp.where(on_floor, jnp.log(floor), jnp.log(gain) + log_z0) + jnp.log1p(odds)
    # Where Z is near 1 what it lacks is known to more digits than Z.
    lacking = short - weight * jnp.expm1(log_z0)
    near_one = lacking < 0.5
    log_z = jnp.where(near_one, jnp.log1p(-jnp.where(near_one, lacking, 0.0)), log_z)
    return Shares(log_z, jnp.where(on_floor, small, large), jnp.where(on_floor, large, small))


def mixed(tilt: Tilt, variance: jax.Array, levels: Levels) -> Tilt:
    """The tilted distribution of lower + weight · t₀ from that of t₀, by the formulas above."""
    log_z, r, rest = shares(tilt.log_z, levels)
    return Tilt(
        log_z=log_z,
        d1=r * tilt.d1,
        bend=r * (r * tilt.bend + rest * tilt.rise),
        rise=r * tilt.rise,
        pull=r * (r * tilt.pull + rest * tilt.lift),
        lift=r * tilt.lift,
        ratio=rest + r * tilt.ratio + r * rest * variance * tilt.d1**2,
    )


def threshold(mean: jax.Array, variance: jax.Array, width: float) -> Tilt:
    """The likelihood Φ(f/√width) for a cavity N(m, v); width 0 is the step. With s² = v + width and z = m/s:

        d1 = a/s,    −(log Z)'' = a (a + z)/s²,    −Z''/Z = a z/s²,    variance ratio (width + v (1 − b))/s²,

    and the two sums d1 + m (…) are (a/s) [(1 − b) + (a + z)²] and (a/s) (1 + z²).
    """
    total = variance + width
    scale = jnp.sqrt(total)
    z = mean / scale
    t = one_sided(z)
    return Tilt(
        log_z=t.log_z,
        d1=t.d1 / scale,
        bend=t.b / total,
        rise=t.d1 * z / total,
        pull=t.d1 * (t.shrink + t.excess**2) / scale,
        lift=t.d1 * (1 + z * z) / scale,
        ratio=(width + variance * t.shrink) / total,
    )


#: nodes on either side of an edge, standard deviations of the cavity or the tilted distribution covered, and those of
#: an exponential tail
NODES, REACH, LONG_REACH = 44, 9.0, 40.0


def expected_log_of_step(
    log_likelihood: Callable[[jax.Array], jax.Array],
    mean: jax.Array,
    variance: jax.Array,
    tilted_mean: jax.Array,
    tilted_variance: jax.Array,
    edges: Any = None,
) -> jax.Array:
    """E[log t] under t × N(mean, variance), whose own mean and variance are known; nine digits or more.

    edges: the distance c of both edges from 0, where there are two; None: one edge at 0.
    """
    nodes, edges = (NODES, 0.0) if edges is None else (2 * NODES, edges)
    spread, deviation = jnp.sqrt(variance), jnp.sqrt(tilted_variance)
    narrow, far = deviation < 1.5, jnp.abs(jnp.abs(tilted_mean) - edges) > REACH * deviation
    anchor = jnp.where(narrow | far, tilted_mean, 0.0)
    wide_reach = jnp.maximum(jnp.abs(tilted_mean), jnp.abs(mean)) + REACH * spread
    reach = jnp.where(far, REACH * spread, wide_reach)
    reach = jnp.where(narrow, jnp.minimum(LONG_REACH * deviation, REACH * spread + jnp.abs(mean - tilted_mean)), reach)
    width = jnp.where(far & ~narrow, deviation, spread / jnp.sqrt(1.0 + variance))
    apart = jnp.where(narrow | far, 0.0, edges / width)
    u = jnp.arcsinh(reach / width) / nodes * np.arange(-nodes, nodes + 1)
    root = jnp.sqrt(jnp.cosh(u) ** 2 + apart**2)
    f = anchor + width * jnp.tanh(u) * root
    step = (jnp.cosh(u) ** 2 + (apart / jnp.cosh(u)) ** 2) / root
    log_t = log_likelihood(f)
    log_mass = log_t - 0.5 * ((f - mean) / spread) ** 2
    mass = jnp.exp(log_mass - jnp.max(log_mass)) * step
    return jnp.sum(mass * jnp.where(mass > 0, log_t, 0.0)) / jnp.sum(mass)


def as_tilted(tilt: Tilt, sign: Any = 1.0) -> Tilted:
    """log Z, (d1, d2) and the site of a scalar Gaussian; of t(sign · f) under the mirrored cavity, sign is ±1."""
    stats = jnp.stack([sign * tilt.d1, -tilt.bend], axis=-1)
    return Tilted(tilt.log_z, stats, jnp.stack([sign * tilt.pull, tilt.bend], axis=-1) / tilt.ratio[..., None])
