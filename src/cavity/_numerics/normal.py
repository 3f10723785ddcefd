"""The standard normal distribution function and the moments of its truncations, accurate in both tails.

Everything rests on the half-range moments

    I_k(x) = ∫₀^∞ uᵏ exp(−x u − u²/2) du,        x ≥ 0,

through their ratios r_k = I_{k+1} / I_k. Integration by parts gives I_{k+2} = (k+1) I_k − x I_{k+1}, hence

    r_k = (k + 1) / (x + r_{k+1}),

a continued fraction of positive terms: nothing cancels. I_0(x) = Q(x)/φ(x) is the Mills ratio, Q = 1 − Φ, and
1/I_0 = x + r_0. With X ~ N(0, 1) and U = X − x given U > 0, E U = r_0 and Var U = r_0 (r_1 − r_0). Since r_1 → 2 r_0
for x → ∞ this difference loses one bit, where the textbook 1 − a (a + z), a = φ/Φ, loses all of them (relative error
1e-4 at z = −1000, a negative variance at −1e4).

All functions are elementwise, work under `jit` and `vmap`, and need float64 (`jax.enable_x64`) for what they promise.

An interval may be narrow, wide or far away. Given a < X < b, after a reflection the bound `near` is the one closer to
0, and with w = b − a

    X = near + U,    0 < U < w,    density of U ∝ exp(−near·u − u²/2),

which falls by exp(−δ), δ = (b² − a²)/2 ≥ 0, across the interval. Three forms cover the plane:

* tail (near ≥ 0, δ ≥ 8): the one-sided moments above near, less those above the far bound, whose share
  ρ = Q(far)/Q(near) is less than 1/2000.
* narrow (near ≥ 0 and δ < 8, or near < 0 and w ≤ 3): Gauss–Legendre nodes in U/w. All weights are positive, so log Z,
  E U and E U² keep their relative accuracy where differences of φ and Φ lose theirs; Var U = E U² − (E U)²
  is never less than a sixth of E U² here, so it keeps its own.
* wide (near < 0, w > 3): with n = |near|, Z = 1 − Q(n) − Q(b), E X = φ(n) (1 − e^{−δ}) / Z and
  1 − Var X = (n φ(n) + b φ(b)) / Z + (E X)², a sum of positive terms that may be tiny.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfcx

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_SQRT_HALF_PI = math.sqrt(math.pi / 2)

# φ(40) underflows to 0 in double precision, so every quantity that multiplies φ may be cut off there.
FAR = 40.0

# Below the switch r_0 = 1/I_0 − x from erfcx loses a digit or two; above it the continued fraction of this depth,
# closed by its tail estimate, is exact to rounding.
_SWITCH = 3.0
_DEPTH = 40


class OneSided(NamedTuple):
    """X ~ N(0, 1) given X > −z, the tilted distribution of a step or probit factor in standard units.

    log_z: log Φ(z).
    d1: a = φ(z)/Φ(z), the mean of X and the first derivative of log Φ.
    shrink: 1 − b, the variance of X; about 1/z² for z → −∞.
    b: a (a + z), minus the second derivative of log Φ; about z φ(z) for z → +∞.
    odds: b / (1 − b), the precision X gains; about z² for z → −∞.
    excess: a + z, the mean of X above the bound −z; about 1/|z| for z → −∞.
    """

    log_z: jax.Array
    d1: jax.Array
    shrink: jax.Array
    b: jax.Array
    odds: jax.Array
    excess: jax.Array


def tail_ratios(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(r_0, r_1) of the module's docstring for x ≥ 0, each to a few units in the last places."""
    # Selections, not minimum and maximum, whose derivative is halved where both are equal.
    near, far = jnp.where(x < _SWITCH, x, _SWITCH), jnp.where(x < _SWITCH, _SWITCH, x)
    near_0 = 1 / (_SQRT_HALF_PI * erfcx(near / math.sqrt(2))) - near
    near_1 = 1 / near_0 - near
    # For large k, r_k solves r² + x r = k + 1/2 up to O(1/k²): at x = 0, r_k = √2 Γ(k/2 + 1)/Γ((k + 1)/2) ≈ √(k + 1/2).
    # Written as a quotient because −x + √(x² + …) would cancel.
    closing = 4.0 * _DEPTH + 2.0
    far_0 = 0.5 * closing / (far + jnp.sqrt(far * far + closing))
    far_1 = far_0
    for k in range(_DEPTH, 0, -1):
        far_0, far_1 = k / (far + far_0), far_0
    return jnp.where(x < _SWITCH, near_0, far_0), jnp.where(x < _SWITCH, near_1, far_1)


def density(x: jax.Array) -> jax.Array:
    """φ(x) with full relative accuracy.

    exp(−x²/2) alone would carry the rounding of x²/2, up to 8e-14. With c equal to x rounded to a multiple of 1/256, c²
    is exact and x² = c² + (x − c)(x + c) (Cody 1969). The second factor is 1 + expm1(…), because a compiler may merge
    the product of two exponentials into one and undo the split.
    """
    x = jnp.minimum(jnp.abs(x), FAR)
    coarse = jnp.round(256 * x) / 256
    leading = jnp.exp(-0.5 * coarse * coarse) / math.sqrt(2 * math.pi)
    return leading + leading * jnp.expm1(-0.5 * (x - coarse) * (x + coarse))


def one_sided(z: jax.Array) -> OneSided:
    """Moments of N(0, 1) truncated to (−z, ∞); every field keeps its relative accuracy from z = −1e8 to 1e8."""
    z = jnp.asarray(z, float)
    inside = z >= 0
    x = jnp.where(inside, z, -z)  # not |z|, whose derivative at 0 is 0
    r0, r1 = tail_ratios(x)

    # z ≥ 0: φ is small, Φ lies in [1/2, 1], and a, b are sums and products of positive numbers.
    pdf = density(x)
    tail = pdf / (x + r0)
    hazard = pdf / (1 - tail)
    b = hazard * (hazard + jnp.minimum(x, FAR))  # the cut keeps 0·∞ out

    # z < 0: in terms of the ratios; b ≥ 2/π there, so that 1 − shrink is safe.
    shrink = r0 * (r1 - r0)
    return OneSided(
        log_z=jnp.where(inside, jnp.log1p(-tail), -0.5 * x * x - _LOG_SQRT_2PI - jnp.log(x + r0)),
        d1=jnp.where(inside, hazard, x + r0),
        shrink=jnp.where(inside, 1 - b, shrink),
        b=jnp.where(inside, b, 1 - shrink),
        odds=jnp.where(inside, b / (1 - b), (x + r0) / (r1 - r0)),
        excess=jnp.where(inside, hazard + x, r0),
    )


@jax.custom_jvp
def log_ndtr(z: jax.Array) -> jax.Array:
    """log Φ(z), with relative accuracy also of the tiny −Q(z) for z > 0."""
    return one_sided(z).log_z


@log_ndtr.defjvp
def _log_ndtr_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (z,), (dz,) = primals, tangents
    return log_ndtr(z), mills(z) * dz


@jax.custom_jvp
def mills(z: jax.Array) -> jax.Array:
    """a(z) = φ(z)/Φ(z), the derivative of log Φ; about −z for z → −∞."""
    return one_sided(z).d1


@mills.defjvp
def _mills_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (z,), (dz,) = primals, tangents
    moments = one_sided(z)
    return moments.d1, -moments.b * dz


# A bound at this distance is at infinity; using it in place of ∞ keeps ∞ − ∞ and 0·∞ out of values and derivatives.
HUGE = 1e100

_FALL = 8.0
_WIDE = 3.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(14)
_NODES, _WEIGHTS = 0.5 * (1 + _NODES), 0.5 * _WEIGHTS
_FEW_NODES, _FEW_WEIGHTS = np.polynomial.legendre.leggauss(8)
_FEW_NODES, _FEW_WEIGHTS = 0.5 * (1 + _FEW_NODES), 0.5 * _FEW_WEIGHTS
_POWERS = np.stack([_WEIGHTS, _WEIGHTS * _NODES, _WEIGHTS * _NODES**2], axis=1)


class Interval(NamedTuple):
    """X ~ N(0, 1) given a < X < b.

    log_z: log(Φ(b) − Φ(a)).
    mean: E X. Where the interval is narrow, the position inside it lives in the next two fields.
    above_lower, below_upper: E X − a and b − E X, each with its own relative accuracy.
    variance: Var X, about (b − a)²/12 when narrow.
    precision_gain: 1/Var X − 1, tiny when the bounds are far out.
    """

    log_z: jax.Array
    mean: jax.Array
    above_lower: jax.Array
    below_upper: jax.Array
    variance: jax.Array
    precision_gain: jax.Array


# log Z, mean, mean − near, variance and gain in the reflected frame
_Moments = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]


def interval(a: jax.Array, b: jax.Array, width: jax.Array | None = None) -> Interval:
    """Moments of N(0, 1) restricted to (a, b), a < b; either bound may be infinite.

    `width` is b − a where the caller knows it to more digits than the difference of the rounded bounds; then only the
    bound closer to 0 and the width enter. An empty interval (b ≤ a) has log_z = −∞ and no variance.
    """
    no_lower, no_upper = jnp.isinf(a), jnp.isinf(b)
    a, b = jnp.clip(jnp.asarray(a, float), -HUGE, HUGE), jnp.clip(jnp.asarray(b, float), -HUGE, HUGE)
    width = b - a if width is None else jnp.minimum(width, 2 * HUGE)
    a, b, width = jnp.broadcast_arrays(a, b, jnp.maximum(width, 0.0))
    flip = a + b < 0
    near, far = jnp.where(flip, -b, a), jnp.where(flip, -a, b)
    fall = 0.5 * width * (near + far)

    outside = near >= 0
    tails = outside & (fall >= _FALL)
    narrows = (outside & (fall < _FALL)) | (~outside & (width <= _WIDE))
    # A form that is not taken sees harmless arguments, so that neither it nor its derivative makes a NaN.
    narrow = _narrow(*(jnp.where(narrows, v, 1.0) for v in (near, width, fall)))
    # Ratios cost more than all the rest, so tail and wide share them: at the distances of both bounds from 0.
    (n0, n1), (f0, f1) = (tail_ratios(jnp.where(narrows, 1.0, x)) for x in (jnp.where(outside, near, -near), far))
    bounds = ((near, 1.0), (far, 9.0), (width, 8.0), (fall, 40.0))
    ratios = ((n0, 0.5), (n1, 0.9), (f0, 0.1), (f1, 0.2))
    tail = _tail(*([jnp.where(tails, v, w) for v, w in pairs] for pairs in (bounds, ratios)))
    wide = _wide(*(jnp.where(tails | narrows, 1.0, v) for v in (-near, far, n0, f0)))
    chosen = (jnp.where(tails, t, jnp.where(narrows, n, w)) for t, n, w in zip(tail, narrow, wide, strict=True))
    log_z, mean, offset, variance, gain = chosen

    rest = width - offset  # the mean lies in the near half, so this does not cancel
    return Interval(
        log_z=log_z,
        mean=jnp.where(flip, -mean, mean),
        above_lower=jnp.where(no_lower, jnp.inf, jnp.where(flip, rest, offset)),
        below_upper=jnp.where(no_upper, jnp.inf, jnp.where(flip, offset, rest)),
        variance=variance,
        precision_gain=gain,
    )


def log_interval(a: jax.Array, b: jax.Array, width: jax.Array) -> jax.Array:
    """log(Φ(b) − Φ(a)) alone, at a fraction of the cost of all moments; bounds finite, arguments as for `interval`.

    In the reflected frame it is log Φ(−near) + log(1 − Φ(−far)/Φ(−near)), which does not cancel unless the interval is
    short against the scale on which the density falls; there a few Gauss–Legendre nodes are exact.
    """
    flip = a + b < 0
    near, far = jnp.where(flip, -b, a), jnp.where(flip, -a, b)
    short = jnp.maximum(width, 0.5 * width * (near + far)) < 0.5
    u = jnp.where(short, width, 0.25)[..., None] * _FEW_NODES
    total = jnp.exp(-u * (jnp.where(short, near, 0.0)[..., None] + 0.5 * u)) @ _FEW_WEIGHTS
    log_short = -0.5 * near * near - _LOG_SQRT_2PI + jnp.log(jnp.where(short, width, 1.0) * total)
    whole, cut = log_ndtr(jnp.where(short, 0.0, -near)), log_ndtr(jnp.where(short, -1.0, -far))
    return jnp.where(short, log_short, whole + jnp.log1p(-jnp.exp(cut - whole)))


def _tail(bounds: list[jax.Array], ratios: list[jax.Array]) -> _Moments:
    """With r_0 = E[X − z | X > z] and r_0 r_1 = E[(X − z)² | X > z], Q(z) = φ(z) / (z + r_0(z)); n near, f far."""
    (near, far, width, fall), (n0, n1, f0, f1) = bounds, ratios
    share = jnp.exp(-fall) * (near + n0) / (far + f0)
    offset = (n0 - share * (width + f0)) / (1 - share)
    square = (n0 * n1 - share * (width * (width + 2 * f0) + f0 * f1)) / (1 - share)
    variance = square - offset * offset
    log_z = -0.5 * near * near - _LOG_SQRT_2PI - jnp.log(near + n0) + jnp.log1p(-share)
    return log_z, near + offset, offset, variance, 1 / variance - 1


def _narrow(near: jax.Array, width: jax.Array, fall: jax.Array) -> _Moments:
    u = width[..., None] * _NODES
    sums = jnp.exp(-u * (near[..., None] + 0.5 * u)) @ _POWERS
    total, position = sums[..., 0], sums[..., 1] / sums[..., 0]
    offset, variance = width * position, width * width * (sums[..., 2] / total - position * position)
    log_z = -0.5 * near * near - _LOG_SQRT_2PI + jnp.log(width * total)
    # near + offset cancels when the interval straddles 0; φ(near) (1 − e^{−δ}) / Z does not.
    straddling = -jnp.expm1(-fall) / (jnp.where(width > 0, width, 1.0) * total)
    mean = jnp.where(near < 0, straddling, near + offset)
    return log_z, mean, offset, variance, 1 / variance - 1


def _wide(below: jax.Array, above: jax.Array, n0: jax.Array, f0: jax.Array) -> _Moments:
    """Bounds −below and above, with r_0 at their distances from 0."""
    cut = jnp.minimum(jnp.stack([below, above]), FAR)
    (n, far), pdf = cut, density(cut)
    missing = jnp.sum(pdf / (cut + jnp.stack([n0, f0])), axis=0)
    mean = pdf[0] * -jnp.expm1(-0.5 * (far - n) * (far + n)) / (1 - missing)
    lost = jnp.sum(cut * pdf, axis=0) / (1 - missing) + mean * mean
    return jnp.log1p(-missing), mean, below + mean, 1 - lost, lost / (1 - lost)
