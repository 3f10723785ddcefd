"""A Gaussian truncated to an interval, as a problem with one site (lecture notes, "EP for truncation")."""

import math
from typing import Any

import numpy as np

from cavity.factors.truncation import Truncation
from cavity.families import Gaussian
from cavity.inference.problem import Problem, SiteGroup
from cavity.moments.closed_form import ClosedForm
from cavity.numerics import checks
from cavity.numerics.precision import float64
from cavity.posteriors.shared import Shared


@float64
def truncation(mean: float, variance: float, lower: Any = -math.inf, upper: Any = math.inf) -> Problem:
    """N(θ; mean, variance) restricted to lower < θ < upper; several pairs of bounds make several sites.

    With one site EP is exact in mean, variance and evidence (the probability of the interval).
    """
    low, high = np.broadcast_arrays(np.atleast_1d(np.asarray(lower, float)), np.atleast_1d(np.asarray(upper, float)))
    if low.ndim != 1 or np.isnan(low).any() or np.isnan(high).any():
        raise ValueError("lower and upper must be numbers or vectors of numbers, infinite where there is no bound.")
    if not (low < high).all():
        place = int(np.argmin(low < high))
        raise ValueError(f"lower must be below upper; found {low[place]} and {high[place]}.")
    family = Gaussian()
    prior = family.from_mean(checks.number("mean", mean), checks.positive("variance", variance))
    group = SiteGroup(factor=Truncation(), data=(low, high), family=family, moments=ClosedForm())
    return Problem(prior=prior, groups=(group,), posterior=Shared(family))
