"""The probit likelihood t(x) = Φ(y x), y = ±1."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import Factor, factor
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian
from cavity.numerics.normal import log_ndtr, one_sided


@factor
class Probit(Factor):
    """Φ(y x) for a label y in {−1, +1}, the data of a site.

    With a cavity N(m, v), s² = 1 + v and z = y m / s (lecture notes, "EP for Bayesian probit regression"):

        log Z = log Φ(z),    d1 = y a / s,    d2 = −b / s²,    a = φ(z)/Φ(z),    b = a (a + z).

    The site follows without forming 1 + v d2, whose difference loses every digit for a wide cavity on the wrong side:

        tau = b / (1 + v (1 − b)),
        nu  = y s a [(1 − b) + (a + z)²] / (1 + v (1 − b)),

    from nu = d1 + tau (m + v d1) and 1 − tau = s² (1 − b) / (1 + v (1 − b)). Both are products and sums of positive
    numbers, so they hold their relative accuracy for every cavity. The normalising constant of the site N(x; μ̃, σ̃²)
    with μ̃ = nu/tau, σ̃² = 1/tau is Z̃ = Z √(2π(v + σ̃²)) exp(+(m − μ̃)² / (2(v + σ̃²))); the lecture notes print a minus.
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Gaussian sites, power 1",)

    def check(self, data: Any) -> None:
        super().check(data)
        labels = np.asarray(data)
        wrong = np.abs(labels) != 1
        if wrong.any():
            raise ValueError(f"data of Probit must be labels −1 or +1; found {labels[wrong].ravel()[0]}.")

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        return log_ndtr(data * x)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        if not isinstance(family, Gaussian) or power != 1:
            return NotImplemented
        mean, variance = family.coordinates(cavity)
        scale = jnp.sqrt(1 + variance)
        t = one_sided(data * mean / scale)
        d1 = data * t.d1 / scale
        d2 = -t.b / scale**2
        resolution = 1 + variance * t.shrink
        nu = data * scale * t.d1 * (t.shrink + t.excess**2) / resolution
        return Tilted(t.log_z, jnp.stack([d1, d2], axis=-1), jnp.stack([nu, t.b / resolution], axis=-1))
