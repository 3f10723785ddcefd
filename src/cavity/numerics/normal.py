"""The standard normal distribution function and the moments of its one-sided truncation, accurate in both tails.

Everything rests on the half-range moments

    I_k(x) = ∫₀^∞ uᵏ exp(−x u − u²/2) du,        x ≥ 0,

through their ratios r_k = I_{k+1} / I_k. Integration by parts gives I_{k+2} = (k+1) I_k − x I_{k+1}, hence

    r_k = (k + 1) / (x + r_{k+1}),

a continued fraction of positive terms: nothing cancels. I_0(x) = Q(x)/φ(x) is the Mills ratio, Q = 1 − Φ, and
1/I_0 = x + r_0. With X ~ N(0, 1) and U = X − x given U > 0, E U = r_0 and Var U = r_0 (r_1 − r_0). Since r_1 → 2 r_0
for x → ∞ this difference loses one bit, where the textbook 1 − a (a + z), a = φ/Φ, loses all of them (relative error
1e-4 at z = −1000, a negative variance at −1e4).

All functions are elementwise, work under `jit` and `vmap`, and need float64 (`jax.enable_x64`) for what they promise.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
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
