"""Problems with one unknown that every site sees whole: clutter (thesis 3.1–3.2), mixture weights, truncation, any."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, is_traced
from cavity.factors.base import Factor
from cavity.factors.clutter import Clutter
from cavity.factors.interval import Truncation
from cavity.factors.probabilities import Mixture
from cavity.families import DiagonalGaussian, Dirichlet, FullGaussian, Gaussian, SphericalGaussian
from cavity.families.base import Family
from cavity.inference.problem import Problem, SiteGroup, checked_multiplicity
from cavity.moments.base import ClosedForm, Moments
from cavity.moments.quadrature import default_moments
from cavity.posteriors.shared import Shared

SHAPES = {"spherical": SphericalGaussian, "diagonal": DiagonalGaussian, "full": FullGaussian}


@float64
def clutter(
    x: Any, w: float = 0.5, clutter_variance: float = 10.0, prior_variance: float = 100.0, covariance: str = "spherical"
) -> Problem:
    """p(x | θ) = (1 − w) N(x; θ, I) + w N(x; 0, clutter_variance I),  θ ~ N(0, prior_variance I)  (3.1–3.3).

    Args:
        x: (n,) for one dimension or (n, d).
        w: share of clutter, in [0, 1].
        clutter_variance: variance of the clutter per coordinate.
        prior_variance: variance of the prior per coordinate.
        covariance: the shape of the Gaussian approximation of a vector θ: "spherical" (the thesis's), "diagonal" or
            "full".

    Returns:
        The problem, for `infer`.

    Raises:
        ValueError: x is no table of numbers, or a parameter is out of its range.

    Examples:
        A point far off is taken for clutter, and hardly moves the posterior mean:

        >>> import cavity as cv
        >>> near, far = cv.models.clutter([1.5, 1.8, 2.1, 2.4, 2.2]), cv.models.clutter([1.5, 1.8, 2.1, 2.4, -5.0])
        >>> print(cv.infer(near).mean.round(2), cv.infer(far).mean.round(2))
        2.0 1.95
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


@float64
def mixture_weights(densities: Any, prior: Any = 1.0) -> Problem:
    """p(x | w) = Σ_k w_k p_k(x) with w ~ Dirichlet(prior) (3.79–3.82, the prior normalised for every K).

    Args:
        densities: (n, K), the values p_k(x_i).
        prior: one concentration for all components, or K of them.

    Returns:
        The problem, for `infer`.

    Raises:
        ValueError: densities or prior are negative, empty, or not of one number of components.

    Examples:
        >>> import cavity as cv
        >>> solution = cv.infer(cv.models.mixture_weights([[0.9, 0.1], [0.8, 0.3], [0.2, 0.7]]))
        >>> solution.mean.round(3).tolist(), solution.concentration.round(2).tolist()
        ([0.605, 0.395], [1.59, 1.04])
    """
    table = checks.array("densities", densities, (2,))
    components = table.shape[1]
    if components < 2:
        raise ValueError(f"densities must have at least two columns, one a component; found {components}.")
    if not is_traced(table):
        if (table < 0).any():
            raise ValueError(f"densities must not be negative; found {table[table < 0][0]}.")
        empty = np.flatnonzero(table.max(axis=1) == 0)
        if empty.size:
            raise ValueError(f"densities must have a positive entry in every row; row {empty[0]} is all zero.")
    concentration = checks.array("prior", prior, (0, 1))
    if concentration.shape not in ((), (components,)):
        raise ValueError(f"prior must be a number or {components} numbers; found shape {concentration.shape}.")
    if not is_traced(concentration) and not (concentration > 0).all():
        raise ValueError(f"prior must be positive; found {concentration.min()}.")
    family = Dirichlet(components)
    if is_traced(table):
        log_densities = jnp.log(table)
    else:
        with np.errstate(divide="ignore"):
            log_densities = np.log(table)
    group = SiteGroup(factor=Mixture(), data=log_densities, family=family, moments=ClosedForm())
    start = jnp.broadcast_to(jnp.asarray(concentration, float), (components,))
    return Problem(prior=start, groups=(group,), posterior=Shared(family))


@float64
def truncation(mean: float, variance: float, lower: Any = -math.inf, upper: Any = math.inf) -> Problem:
    """N(θ; mean, variance) restricted to lower < θ < upper; several pairs of bounds make several sites.

    With one site EP is exact in mean, variance and evidence (the probability of the interval).

    Args:
        mean: of the Gaussian before truncation.
        variance: of the same.
        lower: a bound or a vector of bounds, −inf where there is none.
        upper: a bound or a vector of bounds, inf where there is none.

    Returns:
        The problem, for `infer`.

    Raises:
        ValueError: a lower bound is not below its upper one, or there are not as many of both.

    Examples:
        >>> import cavity as cv
        >>> import numpy as np
        >>> solution = cv.infer(cv.models.truncation(0.0, 1.0, lower=-1.96, upper=1.96))
        >>> print(np.exp(solution.log_evidence).round(3), solution.covariance.round(3))
        0.95 0.759
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
    result = np.atleast_1d(checks.real_numbers(name, value))
    if result.ndim != 1 or result.size == 0 or np.isnan(result).any():
        raise ValueError(f"{name} must be a number or a vector of numbers, infinite where there is no bound.")
    return result


@float64
def posterior(
    factor: Factor,
    data: Any,
    prior_mean: Any = 0.0,
    prior_variance: Any = 1.0,
    *,
    prior: tuple[Family, Any] | None = None,
    moments: Moments | None = None,
    multiplicity: Any = None,
) -> Problem:
    """prior(θ) ∏ t(θ; dataᵢ) for a scalar θ, or a vector when `prior_mean` is one.

    Args:
        factor: one of `cavity.factors`, or your own by `factors.from_log_density(lambda theta, y: ...)`.
        data: an array, or a tuple or dict of arrays, with the observations as leading axis.
        prior_mean: a number, or a vector for a vector θ.
        prior_variance: a number; for a vector θ a number or a covariance matrix.
        prior: (family, natural parameters) for a latent that is not Gaussian, instead of mean and variance.
        moments: how tilted distributions are integrated; by default the factor's closed form if it has one, else
            `Quadrature()` (up to three dimensions).
        multiplicity: how many equal factors each observation stands for; one each by default.

    Returns:
        The problem, for `infer`.

    Raises:
        TypeError: `factor` or `prior` is none.
        ValueError: the data are no arrays of observations, or the prior is not that of a Gaussian.

    Examples:
        The rate of counts, log rate ~ N(0, 4):

        >>> import cavity as cv
        >>> problem = cv.models.posterior(cv.factors.Poisson(), [2, 3, 4], prior_variance=4.0)
        >>> print(cv.infer(problem).mean.round(3))
        1.014
    """
    if not isinstance(factor, Factor):
        raise TypeError(f"factor must be a cavity.factors.Factor; found {type(factor).__name__}.")
    data = checks.real_numbers("data", data) if isinstance(data, list) else data
    if not jax.tree.leaves(data):
        raise ValueError("data is empty: it holds no arrays.")
    observations = jax.tree.map(observed, data)
    family, natural = gaussian_prior(prior_mean, prior_variance) if prior is None else named_prior(prior)
    if moments is None:
        moments = default_moments(factor)
    copies = checked_multiplicity(multiplicity, len(jax.tree.leaves(observations)[0]))
    group = SiteGroup(factor=factor, data=observations, family=family, moments=moments, multiplicity=copies)
    return Problem(prior=jnp.asarray(natural, float), groups=(group,), posterior=Shared(family))


def observed(leaf: Any) -> Any:
    """One array of data as float64; whether its values make sense is the factor's to say."""
    if is_traced(leaf):
        return jnp.asarray(leaf, float)
    values = checks.real_numbers("data", leaf)
    if values.ndim == 0 or values.size == 0:
        raise ValueError(f"data must have the observations as leading axis; found shape {values.shape}.")
    return values


def named_prior(prior: Any) -> tuple[Family, Any]:
    """(family, natural parameters) as given, of the right length."""
    if not (isinstance(prior, tuple) and len(prior) == 2 and isinstance(prior[0], Family)):
        raise TypeError(f"prior must be a pair (family, natural parameters); found {prior!r}.")
    family, natural = prior
    eta = checks.array("prior", natural, (1,))
    if eta.shape != (family.size,):
        raise ValueError(f"prior must have {family.size} natural parameters; found shape {eta.shape}.")
    return family, eta


def gaussian_prior(prior_mean: Any, prior_variance: Any) -> tuple[Family, jax.Array]:
    """A scalar or full Gaussian with its natural parameters."""
    mean = checks.array("prior_mean", prior_mean, (0, 1))
    if mean.ndim == 0:
        return Gaussian(), Gaussian().from_mean(mean, checks.positive("prior_variance", prior_variance))
    spread = checks.array("prior_variance", prior_variance, (0, 2))
    dimension = mean.shape[0]
    matrix = spread * jnp.eye(dimension) if spread.ndim == 0 else spread
    if matrix.shape != (dimension, dimension):
        raise ValueError(
            f"prior_variance must be a number or a ({dimension}, {dimension}) matrix; found {spread.shape}."
        )
    if not is_traced(matrix):
        checks.symmetric("prior_variance", matrix)
        if not (np.linalg.eigvalsh(np.asarray(matrix)) > 0).all():
            raise ValueError("prior_variance must be positive definite; found a matrix that is not.")
    family = FullGaussian(dimension)
    return family, family.from_mean(mean, matrix)
