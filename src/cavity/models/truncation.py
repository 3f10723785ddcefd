"""A Gaussian truncated to an interval, as a problem with one site (lecture notes, "EP for truncation")."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, is_traced
from cavity.factors.interval import Truncation
from cavity.families import Gaussian
from cavity.inference.problem import Problem, SiteGroup
from cavity.moments.closed_form import ClosedForm
from cavity.posteriors.shared import Shared


@float64
def truncation(mean: float, variance: float, lower: Any = -math.inf, upper: Any = math.inf) -> Problem:
    """N(θ; mean, variance) restricted to lower < θ < upper; several pairs of bounds make several sites.

    With one site EP is exact in mean, variance and evidence (the probability of the interval).

    Args:
        mean: of the Gaussian before truncation.
        variance: of the same.
        lower: a bound or a vector of bounds, −inf where there is none.
        upper: a bound or a vector of bounds, inf where there is none.
    """
    low, high = bound("lower", lower), bound("upper", upper)
    if np.shape(low) != np.shape(high) and 1 not in (np.size(low), np.size(high)):
        raise ValueError(f"lower and upper must be of one length; found {np.size(low)} and {np.size(high)}.")
    low, high = jnp.broadcast_arrays(low, high) if is_traced((low, high)) else np.broadcast_arrays(low, high)
    if not is_traced((low, high)) and not (low < high).all():
        place = int(np.argmin(low < high))
        raise ValueError(f"lower must be below upper; found {low[place]} and {high[place]}.")
    family = Gaussian()
    prior = family.from_mean(checks.number("mean", mean), checks.positive("variance", variance))
    group = SiteGroup(factor=Truncation(), data=(low, high), family=family, moments=ClosedForm())
    return Problem(prior=prior, groups=(group,), posterior=Shared(family))


def bound(name: str, value: Any) -> Any:
    """A vector of bounds, infinite ones allowed."""
    if is_traced(value):
        return jnp.atleast_1d(jnp.asarray(value, float))
    try:
        result = np.atleast_1d(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or a vector of numbers; found {value!r}.") from None
    if result.ndim != 1 or result.size == 0 or np.isnan(result).any():
        raise ValueError(f"{name} must be a number or a vector of numbers, infinite where there is no bound.")
    return result
