"""A Gaussian observation of the latent: conjugate, so EP is exact on it."""

from typing import Any

import jax
import jax.numpy as jnp

from cavity._core import checks
from cavity.factors.base import Factor, factor
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import LOG_2PI
from cavity.families.gaussian import Gaussian as GaussianFamily


@factor
class Gaussian(Factor):
    """A Gaussian observation, t(θ) = N(y; θ, variance): conjugate, so that EP is exact. data: y.

    Args:
        variance: of the noise.

    Raises:
        ValueError: in a run, if the variance is not positive.

    Examples:
        >>> import cavity as cv
        >>> cv.factors.Gaussian(variance=0.25).predict(mean=1.0, variance=0.5)
        {'mean': 1.0, 'variance': 0.75}
    """

    variance: Any

    closed_forms = ("Gaussian with any power",)

    def check(self, data: Any) -> None:
        checks.positive("variance", self.variance)
        super().check(data)

    def is_log_concave(self) -> bool:
        return True

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        return -0.5 * ((data - x) ** 2 / self.variance + jnp.log(self.variance) + LOG_2PI)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        """t**power is N(y; θ, variance/power) up to a constant; its site is (y, 1)·power/variance for any cavity."""
        if not isinstance(family, GaussianFamily):
            return NotImplemented
        mean, spread = family.coordinates(cavity)
        variance = self.variance / power
        total = spread + variance
        gap = data - mean
        # The power of the density and the density of the power differ by a constant.
        constant = -0.5 * power * (jnp.log(self.variance) + LOG_2PI) + 0.5 * (jnp.log(variance) + LOG_2PI)
        log_z = constant - 0.5 * (gap**2 / total + jnp.log(total) + LOG_2PI)
        site = jnp.stack([data / variance, 1.0 / variance])
        return Tilted(log_z, jnp.stack([gap / total, -1.0 / total]), site)

    def predict(self, mean: Any, variance: Any) -> dict[str, jax.Array]:
        """Mean and variance of a new observation y."""
        return {"mean": mean, "variance": variance + self.variance}
