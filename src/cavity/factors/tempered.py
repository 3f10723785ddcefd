"""A factor raised to a power of each site's own: t(f)^w, for samples that count more or less than once."""

from typing import Any

import jax

from cavity.factors.base import Factor, factor
from cavity.families.base import Family, Tilted
from cavity.numerics import checks
from cavity.numerics.precision import is_traced


@factor
class Tempered(Factor):
    """t(f)^w. factor: t. The data of a site are the pair (data of t, w), w ≥ 0.

    Everything is the factor's own with `power` multiplied by w, so it is exact where the factor knows all powers.
    """

    factor: Factor

    @property
    def closed_forms(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.factor.closed_forms

    def check(self, data: Any) -> None:
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise ValueError(f"data of Tempered must be a pair (data, exponent); found {type(data).__name__}.")
        inner, exponent = data
        self.factor.check(inner)
        exponent = checks.array("exponent", exponent, (0, 1))
        if not is_traced(exponent) and not (exponent >= 0).all():
            raise ValueError(f"exponent must not be negative; found {exponent.min()}.")

    def is_log_concave(self) -> bool:
        return self.factor.is_log_concave()

    def log_density(self, x: jax.Array, data: Any) -> jax.Array:
        inner, exponent = data
        return exponent * self.factor.log_density(x, inner)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        inner, exponent = data
        return self.factor.tilted(family, cavity, inner, power * exponent)

    def predict(self, mean: Any, variance: Any) -> dict[str, jax.Array]:
        """The factor's own prediction: the weight of a sample says nothing about the next one."""
        return self.factor.predict(mean, variance)
