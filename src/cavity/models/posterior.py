"""Any posterior with a simple prior: prior(θ) ∏ tᵢ(θ) from a factor and its data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import Factor
from cavity.families import FullGaussian, Gaussian
from cavity.families.base import Family
from cavity.inference.problem import Problem, SiteGroup
from cavity.moments.base import Moments
from cavity.moments.closed_form import ClosedForm
from cavity.moments.quadrature import Quadrature
from cavity.numerics import checks
from cavity.numerics.precision import float64, is_traced
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

    factor: one of `cavity.factors`, or your own by `factors.from_log_density(lambda theta, y: ...)`.
    data: a pytree whose leaves have the observations as leading axis.
    prior_variance: a number; for a vector θ a number or a covariance matrix.
    prior: (family, natural parameters) for a latent that is not Gaussian, instead of mean and variance.
    moments: how tilted distributions are integrated; by default the factor's closed form if it has one, else
        `Quadrature()` (up to three dimensions).
    """
    if not isinstance(factor, Factor):
        raise TypeError(f"factor must be a cavity.factors.Factor; found {type(factor).__name__}.")
    if not jax.tree.leaves(data):
        raise ValueError("data is empty: it holds no arrays.")
    observations = jax.tree.map(lambda leaf: checks.array("data", leaf, tuple(range(1, np.ndim(leaf) + 1))), data)
    family, natural = gaussian_prior(prior_mean, prior_variance) if prior is None else prior
    if moments is None:
        moments = ClosedForm() if factor.closed_forms or factor.log_z is not None else Quadrature()
    group = SiteGroup(factor=factor, data=observations, family=family, moments=moments, multiplicity=multiplicity)
    return Problem(prior=jnp.asarray(natural, float), groups=(group,), posterior=Shared(family))


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
    if not is_traced(matrix) and not bool(np.all(np.linalg.eigvalsh(np.asarray(matrix)) > 0)):
        raise ValueError("prior_variance must be positive definite.")
    family = FullGaussian(dimension)
    return family, family.from_mean(mean, matrix)
