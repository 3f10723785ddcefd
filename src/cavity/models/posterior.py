"""Any posterior with a simple prior: prior(θ) ∏ tᵢ(θ) from a factor and its data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, is_traced
from cavity.factors.base import Factor
from cavity.families import FullGaussian, Gaussian
from cavity.families.base import Family
from cavity.inference.problem import Problem, SiteGroup
from cavity.moments.base import Moments
from cavity.moments.quadrature import default_moments
from cavity.posteriors.shared import Shared


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
    """
    if not isinstance(factor, Factor):
        raise TypeError(f"factor must be a cavity.factors.Factor; found {type(factor).__name__}.")
    data = np.asarray(data) if isinstance(data, list) else data
    if not jax.tree.leaves(data):
        raise ValueError("data is empty: it holds no arrays.")
    observations = jax.tree.map(observed, data)
    family, natural = gaussian_prior(prior_mean, prior_variance) if prior is None else named_prior(prior)
    if moments is None:
        moments = default_moments(factor)
    group = SiteGroup(factor=factor, data=observations, family=family, moments=moments, multiplicity=multiplicity)
    return Problem(prior=jnp.asarray(natural, float), groups=(group,), posterior=Shared(family))


def observed(leaf: Any) -> Any:
    """One array of data as float64; whether its values make sense is the factor's to say."""
    if is_traced(leaf):
        return jnp.asarray(leaf, float)
    try:
        values = np.asarray(leaf, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"data must be arrays of numbers; found {type(leaf).__name__}.") from None
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
        values = np.asarray(matrix)
        if not (np.array_equal(values, values.T) and np.all(np.linalg.eigvalsh(values) > 0)):
            raise ValueError("prior_variance must be a symmetric positive definite matrix.")
    family = FullGaussian(dimension)
    return family, family.from_mean(mean, matrix)
