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
from cavity._core.precision import float64, is_far, is_traced
from cavity.factors.base import Factor
from cavity.factors.convolved import GaussianConvolved
from cavity.families.gaussian import Gaussian
from cavity.inference.problem import SiteGroup
from cavity.kernels import Basis, Kernel
from cavity.models.latent_gaussian.assembly import (
    check_kernel_room,
    kernel_schedule,
    weight_schedule,
)
from cavity.models.latent_gaussian.predict import FromBasis, FromKernel, FromKernelMatrix, FromWeights, LatentGaussian
from cavity.moments.base import Moments
from cavity.moments.closed_form import ClosedForm
from cavity.moments.quadrature import default_moments
from cavity.numerics.blocked import identity
from cavity.numerics.linear import cholesky
from cavity.posteriors.dense_algebra import KernelPrior
from cavity.posteriors.dense_gaussian import DenseGaussian
from cavity.posteriors.weight_gaussian import WeightGaussian, WeightPrior

#: a kernel matrix may miss positive definiteness by this much of its largest entry, times n: rounding
ROUNDING = 1e-12


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
        y: what the likelihood takes, one entry an observation: labels −1/+1, counts, numbers, classes.
        likelihood: one of `cavity.factors`: Step, Probit, Logistic, Gaussian, StudentT, Poisson, OrdinalProbit, or your
            own.
        kernel_matrix: (n, n), symmetric, positive semi-definite.
        X: (n, d). Alone: a linear model without bias; `mean` and `covariance` are then those of the weights.
        kernel: with X: a covariance function such as `cavity.kernels.RBF()`.
        basis: with X and kernel: `cavity.kernels.InducingInputs(Z)` or `RandomFeatures.draw(...)`, which carry the
            process at a cost of O(n m²) a sweep; `mean` and `covariance` are then those of its weights. EP with
            inducing inputs is FITC; `PowerEP(p)` for p → 0 the variational approximation.
        prior_variance: of the weights: a number, one a feature, or a covariance matrix; 1 by default.
        multiplicity: how many equal observations each row stands for; one each by default.
        moments: how tilted distributions are integrated; by default the likelihood's own way, else `Quadrature()`.
    """
    if not isinstance(likelihood, Factor):
        raise TypeError(
            f"likelihood must be a factor such as cavity.factors.Probit(); found {type(likelihood).__name__}."
        )
    data = jax.tree.map(observed, np.asarray(y) if isinstance(y, list) else y)
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
        raise ValueError(f"X must have one row an observation, {n}; found {rows.shape[0]}.")
    if kernel is not None:
        if not isinstance(kernel, Kernel):
            raise TypeError(
                f"kernel must be a kernel of cavity.kernels; found {type(kernel).__name__}. The values of any other "
                "covariance function can be given as kernel_matrix."
            )
        if basis is not None:
            return spanned_problem(group, rows, kernel, basis)
        check_kernel_room(n)
        prior = KernelPrior(covariance_matrix(kernel(rows), n, name="kernel(X)"))
        return LatentGaussian(prior, (group,), DenseGaussian(), kernel_schedule(n), prediction=FromKernel(kernel, rows))
    if basis is not None:
        raise ValueError("basis carries a process with a kernel: give X, kernel and basis.")
    if not is_traced(rows) and (empty := ~np.asarray(rows).any(axis=1)).any():
        raise ValueError(
            f"X must not have rows of zeros only, where wᵀx is 0 whatever w; found row {int(empty.argmax())}."
        )
    precision = weight_precision(1.0 if prior_variance is None else prior_variance, rows.shape[1])
    prior = WeightPrior(jnp.asarray(rows), jnp.zeros(rows.shape[1]), precision)
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
    spanned = basis(kernel, rows)
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


def check_finite_rows(name: str, rows: jax.Array) -> None:
    """Refuse a kernel that overflows or has no Cholesky factor at the inducing inputs."""
    if not bool(jnp.all(jnp.isfinite(rows))):
        raise ValueError(f"{name} must be finite and positive semi-definite at the points of the basis; it is not.")


def observed(leaf: Any) -> Any:
    """One array of observations as float64."""
    return checks.array("y", leaf, tuple(range(1, max(np.ndim(leaf), 1) + 1)))


def covariance_matrix(matrix: Any, n: int, name: str = "kernel_matrix") -> jax.Array:
    """A symmetric positive semi-definite matrix, up to rounding."""
    k = checks.array(name, matrix, (2,))
    if k.shape != (n, n):
        raise ValueError(f"{name} must have shape ({n}, {n}), one row an observation; found {k.shape}.")
    if is_traced(k):
        return k
    check_covariance(name, k if is_far(k) else np.asarray(k))
    return jnp.asarray(k)


def check_covariance(name: str, k: Any) -> None:
    """Refuse a matrix that is not finite, not symmetric, has a latent of no variance, or is indefinite."""
    if not (jnp if is_far(k) else np).isfinite(k).all():
        raise ValueError(f"{name} must be finite: with these inputs and parameters the kernel overflows.")
    check_symmetric(name, k)
    variances = np.asarray(k.diagonal())
    if (flat := variances <= 0).any():
        where = f"found {variances[flat][0]:g} at {int(flat.argmax())}"
        raise ValueError(f"{name} must have a positive diagonal, a latent of no variance observes nothing; {where}.")
    if not has_cholesky_factor(k, ROUNDING * len(k) * float(abs(k).max())):
        raise ValueError(f"{name} must be positive semi-definite; its smallest eigenvalue is negative beyond rounding.")


def check_symmetric(name: str, k: Any) -> None:
    """Refuse a matrix that differs from its transpose beyond rounding."""
    gap = float(abs(k - k.T).max())
    if gap > 1e-10 * float(abs(k).max()):
        raise ValueError(f"{name} must be symmetric; entries differ from their mirror images by up to {gap:.3g}.")


def has_cholesky_factor(k: Any, moved_by: float = 0.0) -> bool:
    """Whether the matrix is positive definite, its diagonal moved by what rounding may have done to it."""
    if is_far(k):
        lower = cholesky(jnp.where(identity(len(k)), k + moved_by, k))
        return bool(jnp.isfinite(lower[-1, -1]))
    moved = k.copy()
    moved[np.diag_indices_from(moved)] += moved_by
    try:
        np.linalg.cholesky(moved)
    except np.linalg.LinAlgError:
        return False
    return True


def weight_precision(prior_variance: Any, d: int) -> jax.Array:
    """The inverse prior covariance of the weights."""
    if np.ndim(prior_variance) == 2:
        given = checks.array("prior_variance", prior_variance, (2,))
        if given.shape != (d, d):
            raise ValueError(f"prior_variance must have shape ({d}, {d}); found {given.shape}.")
        if not is_traced(given):
            check_symmetric("prior_variance", given)
            if not has_cholesky_factor(given):
                raise ValueError("prior_variance must be positive definite; found a matrix that is not.")
        return jnp.linalg.inv(jnp.asarray(given))
    given = checks.array("prior_variance", np.atleast_1d(prior_variance), (1,))
    if given.shape not in {(1,), (d,)}:
        raise ValueError(f"prior_variance must be a number or one a feature, {d}; found {given.shape}.")
    if not is_traced(given) and not (np.asarray(given) > 0).all():
        raise ValueError(f"prior_variance must be positive; found {np.asarray(given).min()}.")
    return jnp.diag(jnp.broadcast_to(1.0 / given, (d,)))
