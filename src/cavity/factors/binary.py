"""Likelihoods of a label y = ±1: t(f) = ε + (1 − 2ε) t₀(y f), a label that is wrong with probability ε (thesis 5.4).

The step has t₀ = Θ, the probit likelihood Φ, the logistic one σ(x) = 1/(1 + e^−x).

They are lower + weight · t₀: a floor plus a multiple of a likelihood that is known. With Z₀ = ∫ t₀ N(m, v) the mixture
has

    Z = lower + weight Z₀,        r = weight Z₀ / Z,        1 − r = lower / Z,

and its tilted distribution is (1 − r) · cavity + r · tilted₀. In terms of derivatives in the cavity mean m,

    d1 = r d1₀,        −d2 = r [r b₀ + (1 − r) c₀],        b₀ = −(log Z₀)'',    c₀ = −Z₀''/Z₀,

and the tilted variance in units of v is a sum of terms that are not negative,

    V = 1 + v d2 = (1 − r) + r V₀ + r (1 − r) v d1₀².

The site is tau = −d2/V and nu = (d1 − m d2)/V = r [r (d1₀ + m b₀) + (1 − r)(d1₀ + m c₀)] / V. So a tilted distribution
that hands over b₀, c₀, V₀ and the two sums d1₀ + m b₀ and d1₀ + m c₀, each with its own relative accuracy, leaves
nothing to cancel but what changes sign by itself: tau, where a label is wrong and the site turns negative.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity._numerics.normal import log_ndtr, mills, one_sided
from cavity.factors.base import Factor, Numbers, factor, is_one
from cavity.factors.recentred_rule import LogLikelihoodDerivatives, expected_log_of_step, falling_root, follow
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian, Tilt, as_tilted

# exp of this is still a normal double; what it would multiply beyond is smaller than every normal one.
_LARGEST_EXPONENT = 700.0


@factor
class BinaryLikelihood(Factor):
    """Base of likelihoods ε + (1 − 2ε) t₀(y f) of a label y in {−1, +1}, the data of a site."""

    label_noise: Numbers = 0.0

    def validate(self, data: jax.Array) -> None:
        """Refuse a label noise outside [0, ½) and labels other than −1 and +1; traced values pass."""
        super().validate(data)
        noise = checks.number("label_noise", self.label_noise)
        if not is_traced(noise) and not 0 <= noise < 0.5:
            raise ValueError(f"label_noise must lie in [0, 0.5); found {noise}.")
        if is_traced(data):
            return
        labels = np.asarray(data)
        wrong = np.abs(labels) != 1
        if wrong.any():
            found = labels[wrong].ravel()[0]
            raise ValueError(f"data of {type(self).__name__} must be labels −1 or +1; found {found}.")

    def is_log_concave(self) -> bool:
        return not np.any(self.label_noise)

    def expected_log(self, family: Family, cavity: jax.Array, data: jax.Array, tilted: Tilted) -> jax.Array:
        """E[log t] under t × cavity, where t has an edge of width 1 at 0."""
        if not isinstance(family, Gaussian):
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        tilted_mean, tilted_variance = family.coordinates(cavity + tilted.site)
        return expected_log_of_step(
            lambda f: self.log_density(data * f, data), data * mean, variance, data * tilted_mean, tilted_variance
        )


@factor
class Threshold(BinaryLikelihood):
    """Base of likelihoods with t₀(f) = Φ(f/√width); width 0 is the step. With z = y m/s and s² = v + width, t₀ has

        d1 = a/s,    −(log Z)'' = a (a + z)/s²,    −Z''/Z = a z/s²,    variance ratio (width + v (1 − b))/s²,

    and the two sums d1 + m (…) are (a/s) [(1 − b) + (a + z)²] and (a/s) (1 + z²).
    """

    width: ClassVar[float]

    def tilted(self, family: Family, cavity: jax.Array, data: jax.Array, power: float) -> Tilted:
        if not isinstance(family, Gaussian):
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        mean = data * mean
        total = variance + self.width
        scale = jnp.sqrt(total)
        z = mean / scale
        t = one_sided(z)
        tilt = Tilt(
            log_z=t.log_z,
            d1=t.d1 / scale,
            bend=t.b / total,
            rise=t.d1 * z / total,
            pull=t.d1 * (t.shrink + t.excess**2) / scale,
            lift=t.d1 * (1 + z * z) / scale,
            ratio=(self.width + variance * t.shrink) / total,
        )
        noise = self.label_noise
        levels = noise_levels(noise) if is_one(power) else powered_levels(noise, power)
        return as_tilted(mixed(tilt, variance, levels), data)


@factor
class Step(Threshold):
    """The step likelihood, 1 − ε where y f > 0 and ε elsewhere, of a label y in {−1, +1}, the data of a site.

    With a cavity N(m, v) and z = y m / √v, Z = ε + (1 − 2ε) Φ(z). The power t^p has the two levels ε^p and (1 − ε)^p,
    so the closed form holds for any power.

    Args:
        label_noise: ε, the probability of a wrong label, in [0, ½).

    Raises:
        ValueError: in a run, if ε is outside [0, ½) or a label is not −1 or +1.

    Examples:
        >>> import cavity as cv
        >>> found = cv.factors.Step(label_noise=0.1).predict(mean=1.0, variance=1.0)
        >>> round(float(found["probability"]), 4), round(float(found["noisy_probability"]), 4)
        (0.8413, 0.7731)
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Gaussian sites, any power",)
    width: ClassVar[float] = 0.0

    def log_density(self, x: jax.Array, data: jax.Array) -> jax.Array:
        noise = jnp.asarray(self.label_noise, float)
        wrong = jnp.where(noise > 0, jnp.log(jnp.where(noise > 0, noise, 1.0)), -jnp.inf)
        return jnp.where(data * x > 0, jnp.log1p(-noise), wrong)

    def expected_log(self, family: Family, cavity: jax.Array, data: jax.Array, tilted: Tilted) -> jax.Array:
        """π log(1 − ε) + (1 − π) log ε, with π = (1 − ε) Φ(z)/Z the share of the right side; 0 for ε = 0."""
        if not isinstance(family, Gaussian):
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        log_right, log_wrong = log_ndtr(jnp.stack([1.0, -1.0]) * data * mean / jnp.sqrt(variance))
        noise = jnp.asarray(self.label_noise, float)
        log_noise = jnp.log(jnp.where(noise > 0, noise, 1.0))
        wrong = jnp.where(noise > 0, log_noise + log_wrong, -jnp.inf)
        share = jnp.exp(wrong - jnp.logaddexp(jnp.log1p(-noise) + log_right, wrong))
        return (1.0 - share) * jnp.log1p(-noise) + share * log_noise

    def predict(self, mean: Numbers, variance: Numbers) -> dict[str, jax.Array]:
        """Probability of +1, Φ(m/√v), and logarithms of both labels' for a latent N(m, v), clean and noisy."""
        spread = jnp.sqrt(jnp.maximum(jnp.asarray(variance, float), jnp.finfo(float).tiny))
        z = jnp.asarray(mean, float) / spread
        return binary_prediction(log_ndtr(jnp.stack([-z, z], axis=-1)), self.label_noise)


@factor
class Probit(Threshold):
    """The probit likelihood ε + (1 − 2ε) Φ(y f) of a label y in {−1, +1}, the data of a site.

    Noise-free, for a cavity N(m, v), s² = 1 + v and z = y m / s (lecture notes, "EP for Bayesian probit regression"),

        log Z = log Φ(z),    d1 = y a / s,    d2 = −b / s²,    a = φ(z)/Φ(z),    b = a (a + z).

    The site follows without forming 1 + v d2, whose difference loses every digit for a wide cavity on the wrong side:

        tau = b / (1 + v (1 − b)),
        nu  = y s a [(1 − b) + (a + z)²] / (1 + v (1 − b)),

    from nu = d1 + tau (m + v d1) and 1 − tau = s² (1 − b) / (1 + v (1 − b)). Both are products and sums of positive
    numbers, so they hold their relative accuracy for every cavity. The normalising constant of the site N(x; μ̃, σ̃²)
    with μ̃ = nu/tau, σ̃² = 1/tau is Z̃ = Z √(2π(v + σ̃²)) exp(+(m − μ̃)² / (2(v + σ̃²))); the lecture notes print a
    minus.

    Powers other than 1 have no closed form and are integrated by the fixed rule of `factors.recentred_rule`.

    Args:
        label_noise: ε, the probability of a wrong label, in [0, ½).

    Raises:
        ValueError: in a run, if ε is outside [0, ½) or a label is not −1 or +1.

    Examples:
        >>> import cavity as cv
        >>> found = cv.factors.Probit(label_noise=0.1).predict(mean=1.0, variance=0.5)
        >>> round(float(found["probability"]), 4), round(float(found["noisy_probability"]), 4)
        (0.7929, 0.7343)
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Gaussian sites, power 1", "Gaussian sites, any power (by a fixed rule)")
    width: ClassVar[float] = 1.0

    def log_density(self, x: jax.Array, data: jax.Array) -> jax.Array:
        return shares(log_ndtr(data * x), noise_levels(self.label_noise)).log_z

    def tilted(self, family: Family, cavity: jax.Array, data: jax.Array, power: float) -> Tilted:
        if is_one(power) or not isinstance(family, Gaussian):
            return super().tilted(family, cavity, data, power)
        mean, variance = family.coordinates(cavity)
        mean = data * mean
        centres, scales = probit_landmarks(mean, variance, power, self.label_noise)
        slopes = noisy_slopes(log_probit_derivatives, self.label_noise)
        return as_tilted(follow(slopes, power, mean, variance, centres, scales), data)

    def predict(self, mean: Numbers, variance: Numbers) -> dict[str, jax.Array]:
        """Probability of +1, Φ(m/√(1 + v)), and logarithms of both labels' for a latent N(m, v), clean and noisy."""
        z = jnp.asarray(mean, float) / jnp.sqrt(1 + jnp.asarray(variance, float))
        return binary_prediction(log_ndtr(jnp.stack([-z, z], axis=-1)), self.label_noise)


def log_probit_derivatives(f: jax.Array) -> LogLikelihoodDerivatives:
    """log Φ and its derivatives a, −a (a + f)."""
    t = one_sided(f)
    return LogLikelihoodDerivatives(t.log_z, t.d1, -t.b)


def probit_landmarks(mean: jax.Array, variance: jax.Array, power: float, noise: Numbers) -> tuple[jax.Array, jax.Array]:
    """Where Φ(f)^p N(f; m, v) and its slope have their mass, and where noise gives it a corner; and the scales there.

    The mode solves p a(f) = (f − m)/v. Since max(−f, 0) < a(f) < max(−f, 0) + 0.8, it lies between the two ends used.
    """
    gain = power * variance
    ends = jnp.stack([mean, mean + 0.8 * gain])
    low, high = jnp.where(ends < 0, ends / (1 + gain), ends)
    mode = falling_root(lambda f: power * mills(f) - (f - mean) / variance, low, high)
    width = 1 / jnp.sqrt(1 / variance + power * one_sided(mode).b)
    noise = jnp.maximum(noise, 1e-30)
    corner = ndtri(noise / (1 - noise))  # the floor equals the rise at Φ(f) = ε / (1 − 2ε), which may not exist
    centres = jnp.stack([mode, mean / (1 + variance), mean, corner])
    scales = jnp.stack([jnp.minimum(width, 1.0), jnp.ones_like(mean), jnp.sqrt(variance), jnp.full_like(mean, 0.3)])
    return centres, scales


class Levels(NamedTuple):
    """lower + weight · t₀ for t₀ in [0, 1]. short: 1 − (lower + weight), tiny where the upper level is near 1."""

    lower: jax.Array
    weight: jax.Array
    short: jax.Array


def noise_levels(label_noise: Numbers) -> Levels:
    """ε + (1 − 2ε) t₀."""
    noise = jnp.asarray(label_noise, float)
    return Levels(noise, 1 - 2 * noise, noise)


def powered_levels(label_noise: Numbers, power: float) -> Levels:
    """ε^p + ((1 − ε)^p − ε^p) t₀, the power of a noisy indicator t₀; 0^p is 0 unless p is 0."""
    noise = jnp.asarray(label_noise, float)
    noisy = noise > 0
    safe = jnp.where(noisy, noise, 0.25)
    log_upper = power * jnp.log1p(-noise)
    lower = jnp.where(noisy, jnp.exp(power * jnp.log(safe)), jnp.where(jnp.asarray(power) == 0, 1.0, 0.0))
    # As a multiple of the upper level, because for a small power the two levels agree in many digits.
    share = jnp.where(noisy, -jnp.expm1(power * (jnp.log(safe) - jnp.log1p(-safe))), 1.0 - lower)
    return Levels(lower, jnp.exp(log_upper) * share, -jnp.expm1(log_upper))


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


def noisy_slopes(
    slopes: Callable[[jax.Array], LogLikelihoodDerivatives], label_noise: Numbers
) -> Callable[[jax.Array], LogLikelihoodDerivatives]:
    """log(ε + (1 − 2ε) t₀) and its derivatives r ℓ₀' and r (ℓ₀'' + (1 − r) ℓ₀'²), r the share of t₀."""

    def noisy(f: jax.Array) -> LogLikelihoodDerivatives:
        at = slopes(f)
        log_t, r, rest = shares(at.value, noise_levels(label_noise))
        return LogLikelihoodDerivatives(log_t, r * at.first, r * (at.second + rest * at.first**2))

    return noisy


def binary_prediction(log_probabilities: jax.Array, label_noise: Numbers) -> dict[str, jax.Array]:
    """Probabilities of the label, clean and as observed, from (log P(−1), log P(+1)) of the clean label.

    Logarithms of both labels are given: the probability of the unlikely one keeps its digits.
    """
    noisy = shares(log_probabilities, noise_levels(label_noise)).log_z
    return {
        "probability": jnp.exp(log_probabilities[..., 1]),
        "noisy_probability": jnp.exp(noisy[..., 1]),
        "log_probabilities": log_probabilities,
        "noisy_log_probabilities": noisy,
    }
