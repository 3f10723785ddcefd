"""A factor of a latent that is known up to independent noise: what t(f) says of g where f = g + e, e ~ N(0, r).

In a low-rank model g is the part of the latent that the basis spans and r the prior variance it leaves, each site's
own. The power of Power EP belongs to t and is taken before f is integrated out (Bui, Yan & Turner 2017, section 4):

    ∫ t(f)^p N(f; g, r) df,    not its p-th power.

Under the cavity N(g; m, v) log Z, d₁ and d₂ are those of t^p under N(f; m, v + r), and the matched message about g is
the message (ν, τ) about f seen through the noise, (ν, τ) / (1 + r τ).
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from cavity.factors.base import Factor, factor
from cavity.factors.wrapper import SiteWrapper
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian


@factor
class GaussianConvolved(SiteWrapper):
    """The likelihood ∫ t(f) N(f; g, r) df of g, where f = g + e and e ~ N(0, r). data: the pair (data of t, r), r ≥ 0.

    Args:
        factor: t, a factor of one Gaussian latent.

    Examples:
        >>> import cavity as cv
        >>> convolved = cv.factors.GaussianConvolved(cv.factors.Probit())
        >>> round(float(convolved.log_density(0.0, (1, 0.5))), 4)
        -0.6931
    """

    factor: Factor

    number: ClassVar[str] = "residual"

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        """log ∫ t(f) N(f; x, r) df; where r = 0, log t(x)."""
        inner, residual = data
        some = jnp.asarray(residual) > 0
        variance = jnp.where(some, residual, 1.0)
        integrated = self.factor.tilted(Gaussian(), Gaussian().from_mean(x, variance), inner, 1.0).log_z
        return jnp.where(some, integrated, self.factor.log_density(x, inner))

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        inner, residual = data
        if not isinstance(family, Gaussian):
            return NotImplemented
        found = self.factor.tilted(family, add_noise_variance(cavity, residual), inner, power)
        if found is NotImplemented:
            return NotImplemented
        # Of a negative message 1 + r τ would cancel, and the general formula does not, which has d₂ > 0.
        negative = found.site[..., 1:] < 0
        direct = add_noise_variance(jnp.where(negative, 0.0, found.site), residual)
        return found._replace(site=jnp.where(negative, family.message(cavity, found.stats), direct))

    def expected_log(self, family: Family, cavity: jax.Array, data: Any, tilted: Tilted) -> jax.Array:
        """E[log t(f)] under t(f) N(f; g, r) × cavity(g)."""
        inner, residual = data
        wide = add_noise_variance(cavity, residual)
        found = self.factor.tilted(family, wide, inner, 1.0)
        if found is NotImplemented:
            return NotImplemented
        return self.factor.expected_log(family, wide, inner, found)


def add_noise_variance(eta: Any, residual: Any) -> Any:
    """(ν, τ) of a Gaussian after noise of variance r is added: (ν, τ) / (1 + r τ), for a flat one too."""
    return eta / (1.0 + residual * eta[..., 1])[..., None]
