"""The Student-t likelihood of a real observation: y = f + scale · t with df degrees of freedom."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from cavity.factors.base import Factor, factor
from cavity.factors.label_noise import as_tilted
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian
from cavity.numerics import checks
from cavity.numerics.follow import Slopes, follow
from cavity.numerics.gamma_functions import HALF_LOG_2PI, binet
from cavity.numerics.precision import float64


@factor
class StudentT(Factor):
    """t(f) ∝ (1 + (y − f)²/(df · scale²))^(−(df + 1)/2); the data of a site are y.

    Integrated by the fixed rule of `numerics.follow`. The likelihood is not log-concave: between a cavity N(m, v) and
    an observation far from it the tilted density may have two modes. With x = f − y they are fixed points of

        x = (m − y) / (1 + v p (df + 1) / (df · scale² + x²)),

    which rises to the one nearer y when started there and falls to the one nearer m when started at m.
    """

    scale: Any
    df: Any

    closed_forms: ClassVar[tuple[str, ...]] = ("Gaussian sites, any power (by a fixed rule)",)

    def check(self, data: Any) -> None:
        checks.positive("scale", self.scale)
        checks.positive("df", self.df)
        super().check(data)

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        return self.slopes(x - data).value

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        if not isinstance(family, Gaussian):
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        gap = mean - data
        # About y, where the likelihood is narrow, so that a large y takes no digits from it.
        tilt = follow(self.slopes, power, gap, variance, *self.places(gap, variance, power))
        return as_tilted(tilt._replace(pull=tilt.pull + data * tilt.bend, lift=tilt.lift + data * tilt.rise))

    @float64
    def predict(self, mean: Any, variance: Any) -> dict[str, jax.Array]:
        """Mean and variance of y for a latent N(mean, variance); the variance is infinite for df ≤ 2."""
        mean, variance = jnp.broadcast_arrays(jnp.asarray(mean, float), jnp.asarray(variance, float))
        df = jnp.asarray(self.df, float)
        finite = df > 2
        noise = jnp.where(finite, jnp.asarray(self.scale, float) ** 2 * df / jnp.where(finite, df - 2, 1.0), jnp.inf)
        return {"mean": mean, "variance": variance + noise}

    def slopes(self, x: jax.Array) -> Slopes:
        """log t at f = y + x and its derivatives.

        log Γ(a + ½) − log Γ(a), a = df/2, is written with Stirling's remainders, which do not cancel for large df.
        """
        df, scale = jnp.asarray(self.df, float), jnp.asarray(self.scale, float)
        a, spread = 0.5 * df, df * scale**2
        constant = a * jnp.log1p(0.5 / a) - 0.5 + binet(a + 0.5) - binet(a) - HALF_LOG_2PI - jnp.log(scale)
        bottom = spread + x * x
        value = constant - (a + 0.5) * jnp.log1p(x * x / spread)
        return Slopes(value, -(df + 1) * x / bottom, -(df + 1) * (spread - x * x) / bottom**2)

    def places(self, gap: jax.Array, variance: jax.Array, power: Any) -> tuple[jax.Array, jax.Array]:
        """The two modes, the higher one first, then y and m, all relative to y, with the scales there."""
        df, scale = jnp.asarray(self.df, float), jnp.asarray(self.scale, float)
        spread, gain = df * scale**2, variance * power * (df + 1)

        def step(_: Any, x: jax.Array) -> jax.Array:
            return gap / (1 + gain / (spread + x * x))

        start = jax.lax.stop_gradient(jnp.stack([jnp.zeros_like(gap), gap]))
        modes = jax.lax.fori_loop(0, 50, step, start)
        heights = power * self.slopes(modes).value - (modes - gap) ** 2 / (2 * variance)
        modes = jnp.where(heights[1] > heights[0], modes[::-1], modes)
        centres = jnp.append(modes, jnp.stack([jnp.zeros_like(gap), gap]))
        width = 1 / jnp.sqrt(1 / variance + power * jnp.abs(self.slopes(centres).second))
        return centres, jnp.minimum(width, jnp.sqrt(spread + centres**2))
