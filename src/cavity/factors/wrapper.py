"""Factors around another one, for which every site has a number of its own beside its data."""

from typing import Any, ClassVar

import jax

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity._core.pytrees import static
from cavity.factors.base import Factor, factor


class SiteWrapper(Factor):
    """Base of factors made from another one, `factor` = t, and one number per site.

    The data of a site are the pair (data of t, a number ≥ 0).
    """

    #: what the number is called
    number: ClassVar[str]

    factor: Factor

    @property
    def closed_forms(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.factor.closed_forms

    def check(self, data: Any) -> None:
        if not isinstance(data, tuple | list) or len(data) != 2:
            kind, found = type(self).__name__, type(data).__name__
            raise ValueError(f"data of {kind} must be a pair (data, {self.number}); found {found}.")
        inner, number = data
        self.factor.check(inner)
        number = checks.array(self.number, number, (0, 1))
        if not is_traced(number) and not (number >= 0).all():
            raise ValueError(f"{self.number} must not be negative; found {number.min()}.")

    def is_log_concave(self) -> bool:
        """As t: neither powers nor Gaussian noise change that."""
        return self.factor.is_log_concave()

    def predict(self, mean: Any, variance: Any) -> dict[str, jax.Array]:
        """The factor's own prediction: the number of a site does not concern the next observation."""
        return self.factor.predict(mean, variance)


@factor
class WithMoments(Factor):
    """A factor that brings the strategy that integrates it. moments: see `cavity.moments.Moments`."""

    factor: Factor
    moments: Any = static()

    def default_moments(self) -> Any:
        return self.moments

    def check(self, data: Any) -> None:
        self.factor.check(data)

    def has_density(self, data: Any) -> bool:
        return self.factor.has_density(data)

    def log_density(self, x: Any, data: Any) -> jax.Array:
        return self.factor.log_density(x, data)

    def is_log_concave(self) -> bool:
        return self.factor.is_log_concave()

    def predict(self, mean: Any, variance: Any) -> dict[str, jax.Array]:
        return self.factor.predict(mean, variance)
