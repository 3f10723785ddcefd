"""The Poisson likelihood of a count whose log rate is the latent, log t(f) = y f − e^f − log y!."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import is_traced
from cavity._numerics.gamma_functions import HALF_LOG_2PI, binet
from cavity.factors.base import Factor, Numbers, factor
from cavity.factors.recentred_rule import LogLikelihoodDerivatives, follow
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian, as_tilted

# e^f is cut off here: t is 0 long before, and its square must still be a number.
_LARGEST = 300.0


@factor
class Poisson(Factor):
    """The Poisson likelihood of a count y with rate e^f, log t(f) = y f − e^f − log y!. data: y.

    Integrated by the fixed rule of `factors.recentred_rule`. Both points that matter, the mode of t^p N(f; m, v) and
    that of e^f t^p N(f; m, v), solve p y + k − p e^f = (f − m)/v, with k = 0 and 1: in terms of w = p v e^f this is
    w + log w = log(p v) + m + v (p y + k), Lambert's equation.

    Raises:
        ValueError: in a run, if the data are not counts.

    Examples:
        >>> import cavity as cv
        >>> found = cv.factors.Poisson().predict(mean=0.0, variance=0.5)
        >>> round(float(found["mean"]), 4), round(float(found["variance"]), 4)
        (1.284, 2.3536)
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Gaussian sites, any power (by a fixed rule)",)

    def validate(self, data: jax.Array) -> None:
        super().validate(data)
        if is_traced(data):
            return
        counts = np.asarray(data, float)
        wrong = (counts < 0) | (counts != np.round(counts))
        if wrong.any():
            raise ValueError(f"data of Poisson must be counts 0, 1, 2, …; found {counts[wrong].ravel()[0]}.")

    def is_log_concave(self) -> bool:
        return True

    def log_density(self, x: jax.Array, data: jax.Array) -> jax.Array:
        return log_poisson_derivatives(x, jnp.asarray(data, float)).value

    def tilted(self, family: Family, cavity: jax.Array, data: jax.Array, power: float) -> Tilted:
        if not isinstance(family, Gaussian):
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        count = jnp.asarray(data, float)
        modes = poisson_landmarks(mean, variance, count, power)
        width = 1 / jnp.sqrt(1 / variance + power * jnp.exp(modes))
        scales = jnp.minimum(width, 0.7)

        def change(start: jax.Array, t: jax.Array) -> jax.Array:
            rate, near = jnp.exp(jnp.minimum(start, _LARGEST)), jnp.clip(t, -1.0, 1.0)
            growth = jnp.where(t == near, rate * jnp.expm1(near), jnp.exp(jnp.minimum(start + t, _LARGEST)) - rate)
            return count * t - growth

        return as_tilted(
            follow(lambda f: log_poisson_derivatives(f, count), power, mean, variance, modes, scales, change)
        )

    def expected_log(self, family: Family, cavity: jax.Array, data: jax.Array, tilted: Tilted) -> jax.Array:
        """y E f − E e^f − log y!, where E e^f = y − (log Z)' by parts, written as the log density is."""
        if not isinstance(family, Gaussian):
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        count, slope = jnp.asarray(data, float), tilted.stats[0]
        y = jnp.where(count > 0, count, 1.0)
        peak = -HALF_LOG_2PI - 0.5 * jnp.log(y) - binet(y)
        return slope + jnp.where(count > 0, y * (mean + variance * slope - jnp.log(y)) + peak, 0.0)

    def predict(self, mean: Numbers, variance: Numbers) -> dict[str, jax.Array]:
        """Mean e^(m + v/2) and variance of the count for a latent N(m, v): that of the count plus that of the rate."""
        mean, variance = jnp.asarray(mean, float), jnp.asarray(variance, float)
        rate = jnp.exp(mean + 0.5 * variance)
        return {"mean": rate, "variance": rate + rate**2 * jnp.expm1(variance)}


def log_poisson_derivatives(f: jax.Array, count: jax.Array) -> LogLikelihoodDerivatives:
    """y f − e^f − log y! and its derivatives.

    With u = f − log y it is −y (e^u − 1 − u) − ½ log 2πy − ω(y), ω the remainder of Stirling's formula: terms of the
    size of the result, where y f and log y! of a large count would nearly cancel.
    """
    rate = jnp.exp(jnp.minimum(f, _LARGEST))
    positive = count > 0
    y = jnp.where(positive, count, 1.0)
    u = jnp.minimum(f, _LARGEST) - jnp.log(y)
    value = -y * (jnp.expm1(u) - u) - HALF_LOG_2PI - 0.5 * jnp.log(y) - binet(y)
    return LogLikelihoodDerivatives(jnp.where(positive, value, -rate), count - rate, -rate)


def poisson_landmarks(mean: jax.Array, variance: jax.Array, count: jax.Array, power: float) -> jax.Array:
    """The two modes, by Newton's method for log w, which falls from the right onto the root of a convex function."""
    gain = jnp.log(jnp.maximum(power, 1e-30) * variance)
    level = gain + mean + variance * (power * count + jnp.array([0.0, 1.0]))
    log_w = jnp.where(level < 1, level, jnp.log(jnp.maximum(level, 1.0)))
    for _ in range(6):
        w = jnp.exp(log_w)
        log_w = log_w - (log_w + w - level) / (1 + w)
    return log_w - gain
