"""What must be true of a fitted model that was read from a file: finite numbers, in shapes that fit together.

Where a file says one thing twice, both are compared. With α = K⁻¹ m, the latents of a Gaussian process are m = K α, and
its sites say α = c (ν − τ m); of a linear model, precision · covariance = 1 and mean = covariance · shift. They may
differ by a millionth of the terms that cancel, which rounding does not reach.
"""

from typing import Any

import jax
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64
from cavity.kernels import Kernel
from cavity.models._latent_gaussian.exact_gp import ROUNDING, ExactGP, has_cholesky_factor
from cavity.models._latent_gaussian.fit_result import FitResult
from cavity.models._latent_gaussian.linear_model import LinearModel, weight_precision
from cavity.models._latent_gaussian.sparse_gp import SparseGP

#: of the terms that cancel, two ways to one number may differ by this share
SHARE = 1e-6
#: rows at which a process is compared with its kernel
ROWS = 8


@float64
def check_fitted(model: Any, columns: int) -> None:
    """Refuse, in one sentence, a model that no fit to so many columns can have left."""
    check_result(model)
    if isinstance(model, LinearModel):
        check_linear_model(model, columns)
    elif isinstance(model, SparseGP):
        check_sparse_gp(model, columns)
    else:
        check_exact_gp(model, columns)


def check_numbers(name: str, values: np.ndarray, *shape: int, least: float = -np.inf, finite: bool = True) -> None:
    """Refuse numbers in another shape, NaN, those below the least, and unless they may be infinite those too large."""
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; found {values.shape}")
    wrong = np.isnan(values) | (values < least) | (finite & (np.abs(values) > checks.LARGEST))
    if wrong.any():
        raise ValueError(
            f"{name} must hold {'finite ' if finite else ''}numbers from {least:g}; found {values[wrong][0]}"
        )


def check_result(model: FitResult) -> None:
    """What every fitted model has."""
    n = len(model.sites)
    check_numbers("sites", model.sites, n, 2)
    check_numbers("loo_log_predictive", model.loo_log_predictive, n, finite=False)
    check_numbers("latent_mean", model.latent_mean, n)
    check_numbers("latent_variance", model.latent_variance, n, least=0.0)
    if model.residuals.ndim != 1:  # of sweeps, NaN where one could not be measured
        raise ValueError(f"residuals must have one axis; found shape {model.residuals.shape}")
    for name in ("log_evidence", "seconds", "sweeps"):
        checks.number(name, getattr(model, name))
    if not model.mismatch >= 0 or not isinstance(model.sweeps, int) or model.sweeps < 0:
        raise ValueError(f"mismatch and sweeps must not be negative; found {model.mismatch}, {model.sweeps}")
    if not isinstance(model.method, str) or not all(isinstance(step, dict) for step in model.history):
        raise ValueError("method must be text and history a list of dictionaries")
    model.factor.validate(np.ones(1))  # +1, class 1, a count of 1: data of every likelihood
    if any((np.abs(leaf) > checks.LARGEST).any() for leaf in jax.tree.leaves(model.factor)):
        raise ValueError(f"parameters of the likelihood must be at most {checks.LARGEST:g}")


def differs(one: Any, other: Any, size: Any, share: float = SHARE) -> bool:
    """Whether two ways to the same numbers differ by more than a share of the terms they are made of."""
    return bool((np.abs(one - other) > share * (size + np.abs(one))).any())


def check_spread(name: str, matrix: np.ndarray, d: int) -> None:
    """Refuse what is no covariance of d numbers, up to rounding."""
    check_numbers(name, matrix, d, d)
    if not (
        checks.is_symmetric(matrix, SHARE) and has_cholesky_factor(matrix, ROUNDING * d * float(abs(matrix).max()))
    ):
        raise ValueError(f"{name} must be symmetric and positive definite")


def check_linear_model(model: LinearModel, d: int) -> None:
    """Mean and covariance are those of shift and precision, as well as the condition of the matrix lets them be."""
    check_numbers("mean", model.mean, d)
    check_numbers("shift", model.shift, d)
    check_spread("covariance", model.covariance, d)
    check_spread("precision", model.precision, d)
    weight_precision(model.prior_variance, d)
    spread, inverse, ones = np.abs(model.covariance), np.abs(model.precision), np.ones(d)
    growth = float((inverse @ (spread @ ones)).max())
    if differs(model.precision @ (model.covariance @ ones), ones, inverse @ (spread @ ones)):
        raise ValueError("covariance must be the inverse of precision")
    if differs(model.mean, model.covariance @ model.shift, spread @ np.abs(model.shift), SHARE * max(growth, 1.0)):
        raise ValueError("mean must be covariance times shift")


def check_sparse_gp(model: SparseGP, columns: int) -> None:
    """The basis is one of the kernel, and has a weight for every function."""
    for name, values in model.basis.arrays().items():
        check_numbers(name, values, *values.shape)
    point = jax.ShapeDtypeStruct((1, columns), float)
    model.kernel.check_points("X", np.zeros((1, columns)))
    model.basis.validate(model.kernel, columns)
    width = jax.eval_shape(lambda X: model.basis.span(model.kernel, X).rows, point).shape[1]
    check_numbers("weight_mean", model.weight_mean, width)
    check_spread("weight_covariance", model.weight_covariance, width)
    check_numbers("residual", model.residual, len(model.sites), least=0.0)


def check_exact_gp(model: ExactGP, columns: int) -> None:
    """The latents are K α at some rows, and α is what the sites say."""
    n, kernel = len(model.sites), model.kernel
    check_numbers("X", model.X, n, columns)
    check_numbers("multiplicity", model.multiplicity, n, least=0.0)
    check_numbers("alpha", model.alpha, n)
    if isinstance(kernel, Kernel):
        kernel.check_points("X", model.X)
    shift, pull = (model.multiplicity[:, None] * model.sites * np.stack([np.ones(n), model.latent_mean], axis=1)).T
    known = model.latent_variance > 0
    if differs(model.alpha[known], (shift - pull)[known], (np.abs(shift) + np.abs(pull))[known]):
        raise ValueError("alpha must be what the sites of the rows say")
    some = np.unique(np.linspace(0, n - 1, ROWS).astype(int))
    cross, own = np.array(kernel(model.X[some], model.X)), np.asarray(kernel.diagonal(model.X[some]))
    # Noise that a row shares with itself alone is not in the covariance of two sets of rows.
    cross[np.arange(len(some)), some] = own
    if not np.isfinite(cross).all() or differs(
        model.latent_mean[some], cross @ model.alpha, np.abs(cross) @ np.abs(model.alpha)
    ):
        raise ValueError("latent_mean must be the kernel matrix times alpha")
