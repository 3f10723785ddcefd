"""A factor raised to a power of each site's own: t(f)^w, for samples that count more or less than once."""

from typing import Any, ClassVar

import jax

from cavity.factors.base import Factor, factor
from cavity.factors.wrapper import SiteWrapper
from cavity.families.base import Family, Tilted


@factor
class Tempered(SiteWrapper):
    """The factor raised to a power per site, t(f)^w. data: the pair (data of t, w), w ≥ 0.

    Everything is the factor's own with `power` multiplied by w, so it is exact where the factor knows all powers.

    Args:
        factor: t.

    Examples:
        >>> import cavity as cv
        >>> half = cv.factors.Tempered(cv.factors.Probit())
        >>> round(float(half.log_density(0.0, (1, 0.5))), 4)
        -0.3466
    """

    factor: Factor

    number: ClassVar[str] = "exponent"

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        inner, exponent = data
        return exponent * self.factor.log_density(x, inner)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        inner, exponent = data
        return self.factor.tilted(family, cavity, inner, power * exponent)
