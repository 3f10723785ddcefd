"""A state drawn with unknown probabilities."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity.factors.base import Factor, factor, is_one
from cavity.families.base import Family, Tilted
from cavity.families.categorical import Categorical
from cavity.families.dirichlet import Dirichlet
from cavity.families.product import Product
from cavity.numerics.gamma_functions import dirichlet_expected_log
from cavity.numerics.gamma_increments import dirichlet_shape_step
from cavity.numerics.inverses import dirichlet_shapes


@factor
class CategoricalDraw(Factor):
    """t(y, w) = w_y, the probability of state y. Slots (y, w), or (w,) where y was observed: then it is the data.

    An observed y adds 1 to the shape of its state. Else, with cavities π of y and Dirichlet(a) of w, S = Σ a:

        Z = Σ π_k a_k/S,    the message to y is a/S,    E[log w_k] grows by (π_k/Z − 1)/S,

    and the message to w are the Dirichlet increments with these expected logarithms, uniform where the cavity of y is.

    Raises:
        ValueError: in a run, if an observed y is no state.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> draw = cv.factors.CategoricalDraw()
        >>> round(float(np.exp(draw.log_density(np.array([0.2, 0.3, 0.5]), 2))), 4)
        0.5
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Dirichlet, or Product of Categorical and Dirichlet, power 1",)

    def check(self, data: Any) -> None:
        checks.array("y", data, (1,))
        if not is_traced(data) and not np.all((np.asarray(data) >= 0) & (np.asarray(data) % 1 == 0)):
            raise ValueError("y of CategoricalDraw must be states: 0, 1, 2, …")

    def log_density(self, x: Any, data: Any) -> jax.Array:
        state, weights = x if isinstance(x, tuple) else (data, x)
        return jnp.log(weights[jnp.asarray(state, int)])

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        *states, last = family.families if isinstance(family, Product) else (family,)
        if not is_one(power) or not isinstance(last, Dirichlet) or last.match != "log" or len(states) > 1:
            return NotImplemented
        if not states:
            return seen(cavity, jnp.asarray(data, int))
        first = states[0]
        if not isinstance(first, Categorical) or first.states != last.components:
            return NotImplemented
        return unseen(first.log_probabilities(cavity[: first.size]), cavity[first.size :])


def seen(shapes: jax.Array, state: jax.Array) -> Tilted:
    """Of the weights alone: the message is the factor itself."""
    site = jax.nn.one_hot(state, shapes.shape[-1], dtype=float)
    return Tilted(jnp.log(shapes[state] / jnp.sum(shapes)), dirichlet_expected_log(shapes + site), site)


def unseen(log_probabilities: jax.Array, shapes: jax.Array) -> Tilted:
    """Of the state, with zeros for its counts of the impossible, and the weights."""
    total = jnp.sum(shapes)
    share = shapes / total
    log_mass = log_probabilities + jnp.log(share)
    log_z = logsumexp(log_mass)
    p = jnp.exp(log_probabilities)
    # π_k/Z − 1 from the differences of the π, which may be nearly equal.
    change = ((p[:, None] - p) @ share) * jnp.exp(-log_z) / total
    start = dirichlet_shapes(dirichlet_expected_log(shapes) + change) - shapes
    site = dirichlet_shape_step(shapes, change, start)
    return Tilted(
        log_z,
        jnp.concatenate([jnp.exp(log_mass - log_z), dirichlet_expected_log(shapes) + change]),
        jnp.concatenate([jnp.log(share), jnp.zeros_like(share), site]),
    )
