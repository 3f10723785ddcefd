"""A coin of unknown probability."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity.factors.base import Factor, factor, is_one
from cavity.factors.categorical_draw import seen, unseen
from cavity.families.base import Family, Tilted
from cavity.families.beta import Beta
from cavity.families.categorical import Categorical
from cavity.families.product import Product


@factor
class Bernoulli(Factor):
    """t(y, p) = p^y (1 − p)^(1 − y), y = 0 or 1. Slots (y, p), or (p,) where y was observed: then it is the data.

    A `CategoricalDraw` between two states with weights (1 − p, p). An observed y adds (y, 1 − y) to the shapes. Else,
    with cavities (1 − π, π) of y and Beta(a, b) of p, S = a + b:

        Z = (π a + (1 − π) b)/S,    the message to y is (b, a)/S,
        E[log p] grows by b (2π − 1)/(S² Z),    E[log(1 − p)] by −a (2π − 1)/(S² Z).

    Raises:
        ValueError: in a run, if an observed y is neither 0 nor 1.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> coin = cv.factors.Bernoulli()
        >>> round(float(np.exp(coin.log_density(0.25, 1))), 4)
        0.25
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Beta, or Product of Categorical(2) and Beta, power 1",)

    def check(self, data: Any) -> None:
        checks.array("y", data, (1,))
        if not is_traced(data) and not np.isin(np.asarray(data), (0, 1)).all():
            raise ValueError("y of Bernoulli must be 0 or 1.")

    def log_density(self, x: Any, data: Any) -> jax.Array:
        y, p = x if isinstance(x, tuple) else (data, x)
        return jnp.where(jnp.asarray(y) == 1, jnp.log(p), jnp.log1p(-p))

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        *states, last = family.families if isinstance(family, Product) else (family,)
        if not is_one(power) or not isinstance(last, Beta) or states not in ([], [Categorical(2)]):
            return NotImplemented
        shapes = cavity[-1:-3:-1]  # of 1 − p and p, the weights of the states 0 and 1
        if states:
            found = unseen(Categorical(2).log_probabilities(cavity[:4]), shapes)
        else:
            found = seen(shapes, jnp.asarray(data, int))
        return Tilted(found.log_z, swap_states(found.stats), swap_states(found.site))


def swap_states(values: jax.Array) -> jax.Array:
    """The last two, of the weights of states 0 and 1, in the order of p and 1 − p."""
    return jnp.concatenate([values[:-2], values[-1:-3:-1]])
