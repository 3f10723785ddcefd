"""Latent Gaussian models: yᵢ depends on one latent fᵢ each, and the latents are jointly Gaussian (thesis 5.1–5.4).

Either f = X w with w ~ N(0, prior_variance I), held as a Gaussian over the weights (5.3), or f ~ N(0, K) with a kernel
matrix K, held as a Gaussian over the latents (5.4). The two agree where K = prior_variance X Xᵀ. For many rows a basis
may carry the process: it is then held as a Gaussian over the basis's weights, like a linear model.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, is_traced
from cavity.factors.base import Factor
from cavity.factors.wrappers import GaussianConvolved
from cavity.families.gaussian import Gaussian
from cavity.inference.problem import SiteGroup
from cavity.kernels import Basis, Kernel
from cavity.models.latent_gaussian.assembly import (
    check_finite_rows,
    check_kernel_room,
    covariance_matrix,
    kernel_schedule,
    weight_precision,
    weight_schedule,
)
from cavity.models.latent_gaussian.fit_result import FromBasis, FromKernel, FromKernelMatrix, FromWeights
from cavity.models.latent_gaussian.model import MOST_PADDED, LatentGaussian
from cavity.models.latent_gaussian.rows import bucket, padded
from cavity.moments.base import Moments
from cavity.moments.closed_form import ClosedForm
from cavity.moments.quadrature import default_moments
from cavity.posteriors.dense_algebra import KernelPrior
from cavity.posteriors.dense_gaussian import DenseGaussian
from cavity.posteriors.weight_gaussian import WeightGaussian, WeightPrior


@float64
def latent_gaussian(
    y: Any,
    likelihood: Factor,
    *,
    kernel_matrix: Any = None,
    X: Any = None,
    kernel: Any = None,
    basis: Basis | None = None,
    prior_variance: Any = None,
    multiplicity: Any = None,
    moments: Moments | None = None,
) -> LatentGaussian:
    """∏ t(fᵢ; yᵢ) under f ~ N(0, kernel_matrix), f ~ N(0, kernel(X, X)), or f = X w with w ~ N(0, prior_variance).

    Args:
        y: what the likelihood takes, one entry per observation: labels −1/+1, counts, numbers, classes.
        likelihood: one of `cavity.factors`: Step, Probit, Logistic, Gaussian, StudentT, Poisson, OrdinalProbit, or your
            own.
        kernel_matrix: (n, n), symmetric, positive semi-definite.
        X: (n, d). Alone: a linear model without bias; `mean` and `covariance` are then those of the weights.
        kernel: with X: a covariance function such as `cavity.kernels.RBF()`.
        basis: with X and kernel: `cavity.kernels.InducingInputs(Z)` or `RandomFeatures.draw(...)`, which carry the
            process at a cost of O(n m²) per sweep; `mean` and `covariance` are then those of its weights. EP with
            inducing inputs is FITC; `PowerEP(p)` for p → 0 the variational approximation.
        prior_variance: of the weights: a number, one per feature, or a covariance matrix; 1 by default.
        multiplicity: how many equal observations each row stands for; one each by default.
        moments: how tilted distributions are integrated; by default the likelihood's own way, else `Quadrature()`.
    """
    if not isinstance(likelihood, Factor):
        raise TypeError(
            f"likelihood must be a factor such as cavity.factors.Probit(); found {type(likelihood).__name__}."
        )
    data = jax.tree.map(observation_array, np.asarray(y) if isinstance(y, list) else y)
    sizes = {np.shape(leaf)[0] for leaf in jax.tree.leaves(data)}
    if len(sizes) != 1:
        raise ValueError(f"y must hold arrays of one length; found lengths {sorted(sizes)}.")
    (n,) = sizes
    if moments is None:
        moments = default_moments(likelihood)
    group = SiteGroup(likelihood, data, Gaussian(), moments, multiplicity)
    if prior_variance is not None and (kernel_matrix is not None or kernel is not None):
        raise ValueError("prior_variance is that of weights, and a kernel has none: scale the kernel instead.")
    if kernel_matrix is not None:
        if X is not None or kernel is not None:
            raise ValueError("Give kernel_matrix, or X, or X and kernel; found kernel_matrix and another of them.")
        check_kernel_room(n)
        prior = KernelPrior(covariance_matrix(kernel_matrix, n))
        return LatentGaussian(prior, (group,), DenseGaussian(), kernel_schedule(n), prediction=FromKernelMatrix())
    if X is None:
        raise ValueError("The prior of the latents is missing: give kernel_matrix, or X, or X and kernel.")
    rows = checks.array("X", X, (2,))
    if rows.shape[0] != n:
        raise ValueError(f"X must have one row per observation, {n}; found {rows.shape[0]}.")
    if kernel is not None:
        if not isinstance(kernel, Kernel):
            raise TypeError(
                f"kernel must be a kernel of cavity.kernels; found {type(kernel).__name__}. The values of any other "
                "covariance function can be given as kernel_matrix."
            )
        if basis is not None:
            return spanned_problem(group, rows, kernel, basis)
        check_kernel_room(n)
        k = kernel(rows) if runs_unpadded(rows) else np.asarray(kernel(padded(rows, bucket(n))))[:n, :n]
        prior = KernelPrior(covariance_matrix(k, n, name="kernel(X)"))
        return LatentGaussian(prior, (group,), DenseGaussian(), kernel_schedule(n), prediction=FromKernel(kernel, rows))
    if basis is not None:
        raise ValueError("basis carries a process with a kernel: give X, kernel and basis.")
    if not is_traced(rows) and (empty := ~np.asarray(rows).any(axis=1)).any():
        raise ValueError(
            f"X must not have rows of zeros only, where wᵀx is 0 whatever w; found row {int(empty.argmax())}."
        )
    precision = weight_precision(1.0 if prior_variance is None else prior_variance, rows.shape[1])
    prior = WeightPrior(rows, jnp.zeros(rows.shape[1]), precision)
    return LatentGaussian(prior, (group,), WeightGaussian(), weight_schedule(*rows.shape), prediction=FromWeights())


def spanned_problem(group: SiteGroup, rows: Any, kernel: Kernel, basis: Basis) -> LatentGaussian:
    """The group on latents that a basis carries."""
    if not isinstance(basis, Basis):
        raise TypeError(
            f"basis must be one of cavity.kernels, such as InducingInputs(Z); found {type(basis).__name__}."
        )
    if not isinstance(group.moments, ClosedForm):
        raise TypeError(
            f"basis needs a likelihood that is integrated in closed form; {type(group.factor).__name__} has "
            f"{type(group.moments).__name__}."
        )
    n = len(rows)
    spanned: Any = basis(kernel, rows if runs_unpadded(rows) else padded(rows, bucket(n)))
    if not runs_unpadded(rows):
        spanned = jax.tree.map(lambda part: np.asarray(part)[:n], spanned)
    if not is_traced(spanned):
        check_finite_rows("kernel(X)", spanned.rows)
        if (flat := ~np.asarray(spanned.rows).any(axis=1)).any():
            where = f"found 0 at {int(flat.argmax())}"
            raise ValueError(
                f"kernel(X) must have a positive diagonal, a latent of no variance observes nothing; {where}."
            )
    group = dataclasses.replace(group, factor=GaussianConvolved(group.factor), data=(group.data, spanned.residual))
    width, schedule = spanned.rows.shape[1], weight_schedule(*spanned.rows.shape)
    prior = WeightPrior(spanned.rows, jnp.zeros(width), jnp.eye(width))
    return LatentGaussian(prior, (group,), WeightGaussian(), schedule, prediction=FromBasis(kernel, basis))


def runs_unpadded(rows: Any) -> bool:
    """Whether a problem of these rows is not padded, and shares no program with one of a few rows more or less."""
    return is_traced(rows) or len(rows) > MOST_PADDED


def observation_array(leaf: Any) -> Any:
    """One array of observations as float64."""
    return checks.array("y", leaf, tuple(range(1, max(np.ndim(leaf), 1) + 1)))
