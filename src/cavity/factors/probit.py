"""The probit likelihood t(f) = ε + (1 − 2ε) Φ(y f), y = ±1."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from cavity.factors.base import factor, is_one
from cavity.factors.recentred_rule import falling_root, follow
from cavity.factors.tilts import (
    BinaryLikelihood,
    LogLikelihoodDerivatives,
    as_tilted,
    binary_prediction,
    mirror_tilted,
    mixed,
    noise_levels,
    noisy_log,
    noisy_slopes,
    threshold,
)
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian
from cavity.numerics.normal import log_ndtr, mills, one_sided


@factor
class Probit(BinaryLikelihood):
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

    Label noise is mixed in by `factors.tilts`. Powers other than 1 have no closed form and are integrated by
    the fixed rule of `factors.recentred_rule`.

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

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        return noisy_log(log_ndtr(data * x), self.label_noise)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        if not isinstance(family, Gaussian):
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        mean = data * mean
        if is_one(power):
            tilt = mixed(threshold(mean, variance, 1.0), variance, noise_levels(self.label_noise))
        else:
            centres, scales = probit_landmarks(mean, variance, power, self.label_noise)
            tilt = follow(
                noisy_slopes(log_probit_derivatives, self.label_noise), power, mean, variance, centres, scales
            )
        return as_tilted(mirror_tilted(tilt, data))

    def predict(self, mean: Any, variance: Any) -> dict[str, jax.Array]:
        """Probability of +1, Φ(m/√(1 + v)), and logarithms of both labels' for a latent N(m, v), clean and noisy."""
        z = jnp.asarray(mean, float) / jnp.sqrt(1 + jnp.asarray(variance, float))
        return binary_prediction(log_ndtr(jnp.stack([-z, z], axis=-1)), self.label_noise)


def log_probit_derivatives(f: jax.Array) -> LogLikelihoodDerivatives:
    """log Φ and its derivatives a, −a (a + f)."""
    t = one_sided(f)
    return LogLikelihoodDerivatives(t.log_z, t.d1, -t.b)


def probit_landmarks(mean: jax.Array, variance: jax.Array, power: Any, label_noise: Any) -> tuple[jax.Array, jax.Array]:
    """Where Φ(f)^p N(f; m, v) and its slope have their mass, and where noise gives it a corner; and the scales there.

    The mode solves p a(f) = (f − m)/v. Since max(−f, 0) < a(f) < max(−f, 0) + 0.8, it lies between the two ends used.
    """
    gain = power * variance
    ends = jnp.stack([mean, mean + 0.8 * gain])
    low, high = jnp.where(ends < 0, ends / (1 + gain), ends)
    mode = falling_root(lambda f: power * mills(f) - (f - mean) / variance, low, high)
    width = 1 / jnp.sqrt(1 / variance + power * one_sided(mode).b)
    noise = jnp.maximum(label_noise, 1e-30)
    corner = ndtri(noise / (1 - noise))  # the floor equals the rise at Φ(f) = ε / (1 − 2ε), which may not exist
    centres = jnp.stack([mode, mean / (1 + variance), mean, corner])
    scales = jnp.stack([jnp.minimum(width, 1.0), jnp.ones_like(mean), jnp.sqrt(variance), jnp.full_like(mean, 0.3)])
    return centres, scales
