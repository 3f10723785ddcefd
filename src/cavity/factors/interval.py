"""Likelihoods of an interval.

`Truncation` is t(x) = 1(lower < x < upper). In the ordinal probit likelihood a class is seen when the latent plus
Gaussian noise falls between two thresholds.
"""

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity._numerics.normal import HUGE, interval, log_interval
from cavity.factors.base import AnyArray, Factor, Numbers, factor, is_one
from cavity.factors.recentred_rule import LogLikelihoodDerivatives, expected_log_of_step, falling_root, follow
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian, as_tilted


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

    def validate(self, data: tuple[jax.Array, jax.Array]) -> None:
        """Bounds may be infinite, but must leave room between them."""
        try:
            lower, upper = (np.asarray(bound, float) for bound in data)
        except (TypeError, ValueError):
            raise ValueError("data of Truncation must be a pair (lower, upper) of arrays of numbers.") from None
        if lower.shape != upper.shape or not np.all(lower < upper):
            raise ValueError("data of Truncation must be arrays of one shape with lower below upper everywhere.")

    def is_log_concave(self) -> bool:
        return True

    def log_density(self, x: jax.Array, data: tuple[jax.Array, jax.Array]) -> jax.Array:
        lower, upper = data
        return jnp.where((x > lower) & (x < upper), 0.0, -jnp.inf)

    def tilted(self, family: Family, cavity: jax.Array, data: tuple[jax.Array, jax.Array], power: float) -> Tilted:
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


@factor
class OrdinalProbit(Factor):
    """P(class k | f) = Φ((b_{k+1} − f)/s) − Φ((b_k − f)/s), with b_0 = −∞, b_K = ∞ and the K − 1 thresholds between.

    The data of a site are its class, 0 to K − 1.

    Against a cavity N(m, v) the noisy latent is N(m, S²), S² = v + s², restricted to the interval. With mean μ and
    variance V of that restriction in units of S (`numerics.normal`):

        d1 = μ / S,    d2 = −(1 − V) / S²,    tilted variance / v = (s² + v V) / S²,

    and for any anchor c, with m + S μ = c + S δ, the site's nu times that ratio is

        (1 − V) c / S² + [V μ + (1 − V) δ] / S.

    The nearer threshold is the anchor where m lies outside the interval, m itself where it lies inside; then nothing
    cancels in the bracket. Powers other than 1 are integrated by the fixed rule of `factors.recentred_rule`.

    Args:
        thresholds: b_1 < … < b_{K−1}.
        scale: s, the standard deviation of the noise.

    Raises:
        ValueError: in a run, if the thresholds do not increase, the scale is not positive or a class does not exist.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> found = cv.factors.OrdinalProbit(thresholds=[-1.0, 1.0]).predict(mean=0.5, variance=1.0)
        >>> np.round(found["probabilities"], 4).tolist()
        [0.1444, 0.4937, 0.3618]
    """

    thresholds: AnyArray
    scale: Numbers = 1.0

    closed_forms: ClassVar[tuple[str, ...]] = ("Gaussian sites, power 1", "Gaussian sites, any power (by a fixed rule)")

    def validate(self, data: jax.Array) -> None:
        super().validate(data)
        checks.positive("scale", self.scale)
        thresholds = checks.array("thresholds", self.thresholds, (1,))
        if not is_traced(thresholds) and not np.all(np.diff(thresholds) > 0):
            raise ValueError(f"thresholds must increase; found {np.asarray(thresholds).tolist()}.")
        if is_traced(data):
            return
        classes, last = np.asarray(data, float), len(thresholds)
        wrong = (classes < 0) | (classes > last) | (classes != np.round(classes))
        if wrong.any():
            found = classes[wrong].ravel()[0]
            raise ValueError(f"data of OrdinalProbit must be classes 0 to {last}; found {found:g}.")

    def bounds(self, data: AnyArray) -> tuple[jax.Array, jax.Array]:
        """Lower and upper threshold of a class; the outermost are far away instead of infinite."""
        inner = jnp.asarray(self.thresholds, float)
        edges = jnp.concatenate([jnp.array([-HUGE]), inner, jnp.array([HUGE])])
        index = jnp.asarray(data).astype(int)
        return edges[index], edges[index + 1]

    def is_log_concave(self) -> bool:
        return True

    def log_density(self, x: jax.Array, data: jax.Array) -> jax.Array:
        lower, upper = self.bounds(data)
        width = (upper - lower) / self.scale
        return log_interval((lower - x) / self.scale, (upper - x) / self.scale, width)

    def tilted(self, family: Family, cavity: jax.Array, data: jax.Array, power: float) -> Tilted:
        if not isinstance(family, Gaussian):
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        lower, upper = self.bounds(data)
        if not is_one(power):
            centres, scales = self.places(mean, variance, lower, upper, power)
            return as_tilted(follow(self.slopes(lower, upper), power, mean, variance, centres, scales))
        total = variance + self.scale**2
        scale = jnp.sqrt(total)
        a, b = (lower - mean) / scale, (upper - mean) / scale
        t = interval(a, b, width=(upper - lower) / scale)
        lost = t.precision_gain * t.variance  # 1 − V
        ratio = (self.scale**2 + variance * t.variance) / total
        anchor = jnp.where(a >= 0, lower, jnp.where(b <= 0, upper, mean))
        shift = jnp.where(a >= 0, t.above_lower, jnp.where(b <= 0, -t.below_upper, t.mean))
        nu = (lost * anchor / total + (t.variance * t.mean + lost * shift) / scale) / ratio
        stats = jnp.stack([t.mean / scale, -lost / total], axis=-1)
        return Tilted(t.log_z, stats, jnp.stack([nu, lost / total / ratio], axis=-1))

    def expected_log(self, family: Family, cavity: jax.Array, data: jax.Array, tilted: Tilted) -> jax.Array:
        """E[log t], in units of s from the middle of the interval, or from the only threshold of an outermost class."""
        if not isinstance(family, Gaussian):
            return NotImplemented
        lower, upper = self.bounds(data)
        first, last = lower <= -HUGE, upper >= HUGE
        centre = jnp.where(first, upper, jnp.where(last, lower, 0.5 * (lower + upper)))
        half_width = jnp.where(first | last, 0.0, 0.5 * (upper - lower) / self.scale)
        mean, variance = family.coordinates(cavity)
        tilted_mean, tilted_variance = family.coordinates(cavity + tilted.site)
        return expected_log_of_step(
            lambda f: self.log_density(centre + self.scale * f, data),
            (mean - centre) / self.scale,
            variance / self.scale**2,
            (tilted_mean - centre) / self.scale,
            tilted_variance / self.scale**2,
            half_width,
        )

    def predict(self, mean: Numbers, variance: Numbers) -> dict[str, jax.Array]:
        """Probabilities of the K classes, on a last axis, and their logarithms, for a latent N(mean, variance)."""
        mean, variance = jnp.asarray(mean, float)[..., None], jnp.asarray(variance, float)[..., None]
        lower, upper = self.bounds(np.arange(np.shape(self.thresholds)[0] + 1))
        scale = jnp.sqrt(variance + jnp.asarray(self.scale, float) ** 2)
        width = (upper - lower) / scale
        log_probabilities = interval((lower - mean) / scale, (upper - mean) / scale, width=width).log_z
        return {"probabilities": jnp.exp(log_probabilities), "log_probabilities": log_probabilities}

    def slopes(self, lower: jax.Array, upper: jax.Array) -> Callable[[jax.Array], LogLikelihoodDerivatives]:
        """log P(class | f) and its derivatives μ/s and −(1 − V)/s², as for a cavity of no variance."""

        def at(f: jax.Array) -> LogLikelihoodDerivatives:
            width = (upper - lower) / self.scale
            t = interval((lower - f) / self.scale, (upper - f) / self.scale, width=width)
            return LogLikelihoodDerivatives(
                t.log_z, t.mean / self.scale, -t.precision_gain * t.variance / self.scale**2
            )

        return at

    def places(
        self, mean: jax.Array, variance: jax.Array, lower: jax.Array, upper: jax.Array, power: float
    ) -> tuple[jax.Array, jax.Array]:
        """The mode, and where each threshold meets the cavity, with the scales there.

        The mode lies between m and the middle of the interval, and not beyond what a single threshold would do to it
        (see the bounds of the hazard in `probit.places`).
        """
        s = self.scale
        gain = power * variance / s**2

        def pushed(distance: jax.Array) -> jax.Array:
            """How far, in units of s, the mode can lie above a threshold that m exceeds by `distance`."""
            moved = distance + 0.8 * gain
            return jnp.where(moved < 0, moved / (1 + gain), moved)

        def end(bound: jax.Array, sign: float) -> jax.Array:
            distance = sign * (mean - bound) / s
            near = bound + sign * s * pushed(jnp.minimum(distance, HUGE * 1e-50))
            return jnp.where(distance + 0.8 * gain < 0, near, mean + sign * 0.8 * gain * s)

        middle = 0.5 * (lower + upper)
        low = jnp.maximum(jnp.minimum(mean, middle), end(upper, -1.0))
        high = jnp.minimum(jnp.maximum(mean, middle), end(lower, 1.0))
        likelihood = self.slopes(lower, upper)
        mode = falling_root(lambda f: power * likelihood(f).first - (f - mean) / variance, low, high)
        width = 1 / jnp.sqrt(1 / variance - power * likelihood(mode).second)
        finite = jnp.stack([lower > -HUGE, upper < HUGE])
        meets = (jnp.stack([lower, upper]) * variance + mean * s**2) / (variance + s**2)
        narrow = jnp.minimum(jnp.minimum(width, s), upper - lower)
        return jnp.append(mode, jnp.where(finite, meets, mode)), jnp.stack([narrow, 0.7 * s, 0.7 * s])
