"""Truncation to an interval, t(x) = 1(lower < x < upper)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import Factor, factor
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian
from cavity.numerics.normal import HUGE, interval


@factor
class Truncation(Factor):
    """The indicator of lower < x < upper; the data of a site are the pair (lower, upper), either may be infinite.

    With a cavity N(m, s²) and X = (x − m)/s restricted to ((lower − m)/s, (upper − m)/s), of mean μ and variance V:

        d1 = μ / s,    d2 = −(1 − V) / s²,    g = 1/V − 1,
        tau = g / s²,    nu = tau c + (g δ + μ) / s,        m + s μ = c + s δ,

    for any anchor c. The nearer bound is the anchor where m lies outside the interval, m itself where it lies inside:
    then g δ and μ have the same sign and their sum does not cancel. (nu is a sum over an arbitrary origin; it has no
    relative accuracy of its own where tau c and the rest nearly annul each other.)

    For x < upper alone, z = (upper − m)/s and a = φ(z)/Φ(z), this is the site N(x; μ̃, σ̃²) with

        μ̃ = m − s / (a + z),
        σ̃² = s² [1 / (a (a + z)) − 1],
        Z̃ = Φ(z) √(2π (σ̃² + s²)) exp(+a / (2 (a + z))).

    The lecture notes ("EP for truncation") print μ̃ = m + …, σ̃² with the first term lacking s², and a minus in the
    exponent of Z̃; none of these matches the moments.

    An indicator is equal to all its powers, so `power` does not enter.

    Raises:
        ValueError: in a run, if a lower bound is not below the upper one.

    Examples:
        >>> import cavity as cv
        >>> positive = cv.factors.Truncation()
        >>> [float(positive.log_density(x, (0.0, float("inf")))) for x in (1.0, -1.0)]
        [0.0, -inf]
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Gaussian sites, any power",)

    def check(self, data: Any) -> None:
        """Bounds may be infinite, but must leave room between them."""
        try:
            lower, upper = (np.asarray(bound, float) for bound in data)
        except (TypeError, ValueError):
            raise ValueError("data of Truncation must be a pair (lower, upper) of arrays of numbers.") from None
        if lower.shape != upper.shape or not np.all(lower < upper):
            raise ValueError("data of Truncation must be arrays of one shape with lower below upper everywhere.")

    def is_log_concave(self) -> bool:
        return True

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        lower, upper = data
        return jnp.where((x > lower) & (x < upper), 0.0, -jnp.inf)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        if not isinstance(family, Gaussian):
            return NotImplemented
        # An infinite bound would leave ∞·0 = NaN in the derivative of its distance to the cavity.
        lower, upper = jnp.maximum(data[0], -HUGE), jnp.minimum(data[1], HUGE)
        mean, variance = family.coordinates(cavity)
        scale = jnp.sqrt(variance)
        a, b = (lower - mean) / scale, (upper - mean) / scale
        # The width is taken from the bounds themselves: b − a would lose it when the interval is narrow and far off.
        t = interval(a, b, width=(upper - lower) / scale)
        tau = t.precision_gain / variance
        anchor = jnp.where(a >= 0, lower, jnp.where(b <= 0, upper, mean))
        shift = jnp.where(a >= 0, t.above_lower, jnp.where(b <= 0, -t.below_upper, t.mean))
        nu = tau * anchor + (t.precision_gain * shift + t.mean) / scale
        stats = jnp.stack([t.mean / scale, -t.precision_gain * t.variance / variance], axis=-1)
        return Tilted(t.log_z, stats, jnp.stack([nu, tau], axis=-1))
