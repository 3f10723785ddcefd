"""A factor some of whose arguments are numbers."""

from typing import Any, NamedTuple

import jax

from cavity._core.pytrees import static
from cavity.factors.base import Factor, factor


class ObservedArguments(NamedTuple):
    """Data of `Conditioned`, of one site: the arguments that are numbers, in order, and the factor's own data."""

    values: tuple[Any, ...]
    own: Any


@factor
class Conditioned(Factor):
    """t(x) = factor(all arguments): those at `places` are data, the variables fill the other places in order.

    The factor's log density sees the tuple of all its arguments, as if all were variables; it is integrated numerically
    over those that are.

    Args:
        factor: the factor of all arguments.
        places: positions of the arguments that are observed.

    Examples:
        >>> import cavity as cv
        >>> from cavity.factors.conditioned import ObservedArguments
        >>> closeness = cv.factors.from_log_density(lambda x, data: -((x[0] - x[1]) ** 2))
        >>> given = cv.factors.Conditioned(closeness, places=(1,))
        >>> given.log_density(3.0, ObservedArguments(values=(1.0,), own=None))
        -4.0
    """

    factor: Factor
    places: tuple[int, ...] = static()

    def check(self, data: Any) -> None:
        super().check(data.values)
        self.factor.check(data.own)

    def has_density(self, data: Any) -> bool:
        return self.factor.has_density(data.own)

    def log_density(self, x: Any, data: Any) -> jax.Array:
        arguments = list(x) if isinstance(x, tuple) else [x]
        for place, value in zip(self.places, data.values, strict=True):
            arguments.insert(place, value)
        return self.factor.log_density(tuple(arguments), data.own)

    def default_moments(self) -> Any:
        return self.factor.default_moments()
