"""A scalar Gaussian tilted by a likelihood, in the quantities that mix without cancelling.

A likelihood observed through noise is often lower + weight · t₀: a floor plus a multiple of a likelihood that is known.
With Z₀ = ∫ t₀ N(m, v) the mixture has

    Z = lower + weight Z₀,        r = weight Z₀ / Z,        1 − r = lower / Z,

and its tilted distribution is (1 − r) · cavity + r · tilted₀. In terms of derivatives in the cavity mean m,

    d1 = r d1₀,        −d2 = r [r b₀ + (1 − r) c₀],        b₀ = −(log Z₀)'',    c₀ = −Z₀''/Z₀,

and the tilted variance in units of v is a sum of terms that are not negative,

    V = 1 + v d2 = (1 − r) + r V₀ + r (1 − r) v d1₀².

The site is tau = −d2/V and nu = (d1 − m d2)/V = r [r (d1₀ + m b₀) + (1 − r)(d1₀ + m c₀)] / V. So a tilted distribution
that hands over b₀, c₀, V₀ and the two sums d1₀ + m b₀ and d1₀ + m c₀, each with its own relative accuracy, leaves
nothing to cancel but what changes sign by itself: tau, where a label is wrong and the site turns negative.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

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


def mirror_tilted(tilt: Tilt, sign: jax.Array) -> Tilt:
    """The tilted distribution of t(sign · f) under the mirrored cavity; sign is ±1."""
    return tilt._replace(d1=sign * tilt.d1, pull=sign * tilt.pull, lift=sign * tilt.lift)
