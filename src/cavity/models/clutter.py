"""The clutter problem: find a point among unrelated observations (thesis 3.1–3.2)."""

from typing import Any

import jax.numpy as jnp

from cavity._core import checks
from cavity._core.precision import float64
from cavity.factors.clutter import Clutter
from cavity.families import DiagonalGaussian, FullGaussian, Gaussian, SphericalGaussian
from cavity.inference.problem import Problem, SiteGroup
from cavity.moments.closed_form import ClosedForm
from cavity.posteriors.shared import Shared

SHAPES = {"spherical": SphericalGaussian, "diagonal": DiagonalGaussian, "full": FullGaussian}


@float64
def clutter(
    x: Any,
    w: float = 0.5,
    clutter_variance: float = 10.0,
    prior_variance: float = 100.0,
    covariance: str = "spherical",
) -> Problem:
    """p(x | θ) = (1 − w) N(x; θ, I) + w N(x; 0, clutter_variance I),  θ ~ N(0, prior_variance I)  (3.1–3.3).

    Args:
        x: (n,) for one dimension or (n, d).
        w: share of clutter, in [0, 1].
        clutter_variance: variance of the clutter per coordinate.
        prior_variance: variance of the prior per coordinate.
        covariance: the shape of the Gaussian approximation of a vector θ: "spherical" (the thesis's), "diagonal" or
            "full".
    """
    points = checks.array("x", x, (1, 2))
    term = Clutter(checks.fraction("w", w), checks.positive("clutter_variance", clutter_variance))
    spread = checks.positive("prior_variance", prior_variance)
    shape = SHAPES[checks.choice("covariance", covariance, tuple(SHAPES))]
    if points.ndim == 1:
        family = Gaussian()
        prior = family.from_mean(0.0, spread)
    else:
        dimension = points.shape[1]
        family = shape(dimension)
        widths = {"spherical": spread, "diagonal": spread * jnp.ones(dimension), "full": spread * jnp.eye(dimension)}
        prior = family.from_mean(jnp.zeros(dimension), widths[covariance])
    group = SiteGroup(factor=term, data=points, family=family, moments=ClosedForm())
    return Problem(prior=prior, groups=(group,), posterior=Shared(family))
