"""The Student-t likelihood of a real observation: y = f + scale · t with df degrees of freedom."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from cavity._core import checks
from cavity._core.precision import float64
from cavity.factors.base import Factor, factor
from cavity.factors.label_noise import as_tilted
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian
from cavity.numerics.gamma_functions import HALF_LOG_2PI, binet, log_minus_digamma
from cavity.numerics.mixture_tails import Tilt
from cavity.numerics.scale_mixture import tilt_of


@factor
class StudentT(Factor):
    """The Student-t likelihood t(f) ∝ (1 + (y − f)²/(df · scale²))^(−(df + 1)/2). data: y.

    The likelihood is not log-concave: between a cavity and an observation far from it the tilted density may have two
    modes. It is integrated as a mixture over its scale (`numerics.scale_mixture`), where neither shows.

    Args:
        scale: of the noise.
        df: degrees of freedom.

    Raises:
        ValueError: in a run, if the scale or the degrees of freedom are not positive.

    Examples:
        >>> import cavity as cv
        >>> robust = cv.factors.StudentT(scale=1.0, df=4.0)
        >>> round(float(robust.log_density(0.0, 3.0)), 4)
        -3.9275
    """

    scale: Any
    df: Any

    closed_forms: ClassVar[tuple[str, ...]] = ("Gaussian sites, any power (by a fixed rule)",)

    def check(self, data: Any) -> None:
        checks.positive("scale", self.scale)
        checks.positive("df", self.df)
        super().check(data)

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        df, scaled = jnp.asarray(self.df, float), (x - data) / jnp.asarray(self.scale, float)
        return self.log_peak() - 0.5 * (df + 1) * jnp.log1p(scaled**2 / df)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        if not isinstance(family, Gaussian):
            return NotImplemented
        alpha, tilt, _ = self.mixture(cavity, data, power)
        log_z = tilt.log_z + power * self.log_peak() + 0.5 * jnp.log(alpha) - HALF_LOG_2PI - binet(alpha)
        pull, lift = tilt.pull + data * tilt.bend, tilt.lift + data * tilt.rise
        return as_tilted(tilt._replace(log_z=log_z, pull=pull, lift=lift))

    def expected_log(self, family: Family, cavity: jax.Array, data: Any, tilted: Tilted) -> jax.Array:
        """log t(y) − α E[log(1 + x²/c)]: the mixture's E[log w] − ψ(α) in place of the last expectation."""
        if not isinstance(family, Gaussian):
            return NotImplemented
        alpha, _, log_growth = self.mixture(cavity, data, 1.0)
        return self.log_peak() + alpha * (log_growth + log_minus_digamma(alpha))

    def mixture(self, cavity: jax.Array, data: Any, power: float) -> tuple[jax.Array, Tilt, jax.Array]:
        """α, and what the mixture over scales makes of the cavity, about y so that a large y takes no digits."""
        df, scale = jnp.asarray(self.df, float), jnp.asarray(self.scale, float)
        alpha = 0.5 * power * (df + 1)
        mean, variance = Gaussian().coordinates(cavity)
        return alpha, *tilt_of(alpha, df * scale**2, mean - data, variance)

    @float64
    def predict(self, mean: Any, variance: Any) -> dict[str, jax.Array]:
        """Mean and variance of y for a latent N(mean, variance); the variance is infinite for df ≤ 2."""
        mean, variance = jnp.broadcast_arrays(jnp.asarray(mean, float), jnp.asarray(variance, float))
        df = jnp.asarray(self.df, float)
        finite = df > 2
        noise = jnp.where(finite, jnp.asarray(self.scale, float) ** 2 * df / jnp.where(finite, df - 2, 1.0), jnp.inf)
        return {"mean": mean, "variance": variance + noise}

    def log_peak(self) -> jax.Array:
        """log t at f = y.

        log Γ(a + ½) − log Γ(a), a = df/2, is written with Stirling's remainders, which do not cancel for large df.
        """
        a, scale = 0.5 * jnp.asarray(self.df, float), jnp.asarray(self.scale, float)
        return a * jnp.log1p(0.5 / a) - 0.5 + binet(a + 0.5) - binet(a) - HALF_LOG_2PI - jnp.log(scale)
