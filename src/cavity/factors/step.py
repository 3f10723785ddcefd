"""The step likelihood t(f) = ε + (1 − 2ε) Θ(y f): a label that is wrong with probability ε (thesis 5.4)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from cavity.factors.base import factor
from cavity.factors.tilts import (
    BinaryLikelihood,
    as_tilted,
    binary_prediction,
    mirror_tilted,
    mixed,
    powered_levels,
    threshold,
)
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian
from cavity.numerics.normal import log_ndtr


@factor
class Step(BinaryLikelihood):
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

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        noise = jnp.asarray(self.label_noise, float)
        wrong = jnp.where(noise > 0, jnp.log(jnp.where(noise > 0, noise, 1.0)), -jnp.inf)
        return jnp.where(data * x > 0, jnp.log1p(-noise), wrong)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        if not isinstance(family, Gaussian):
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        tilt = mixed(threshold(data * mean, variance, 0.0), variance, powered_levels(self.label_noise, power))
        return as_tilted(mirror_tilted(tilt, data))

    def expected_log(self, family: Family, cavity: jax.Array, data: Any, tilted: Tilted) -> jax.Array:
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

    def predict(self, mean: Any, variance: Any) -> dict[str, jax.Array]:
        """Probability of +1, Φ(m/√v), and logarithms of both labels' for a latent N(m, v), clean and noisy."""
        spread = jnp.sqrt(jnp.maximum(jnp.asarray(variance, float), jnp.finfo(float).tiny))
        z = jnp.asarray(mean, float) / spread
        return binary_prediction(log_ndtr(jnp.stack([-z, z], axis=-1)), self.label_noise)
