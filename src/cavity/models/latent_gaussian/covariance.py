"""Covariance matrices as users give them or kernels make them: what is refused, each in one sentence."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import is_far, is_traced
from cavity.numerics.blocked import cholesky, identity

#: a kernel matrix may miss positive definiteness by this much of its largest entry, times n: rounding
ROUNDING = 1e-12


def check_finite_rows(name: str, rows: Any) -> None:
    """Refuse a kernel that overflows or has no Cholesky factor at the inducing inputs."""
    if not (jnp if is_far(rows) else np).isfinite(rows).all():
        raise ValueError(f"{name} must be finite and positive semi-definite at the points of the basis; it is not.")


def covariance_matrix(matrix: Any, n: int, name: str = "kernel_matrix") -> Any:
    """A symmetric positive semi-definite matrix, up to rounding."""
    k = checks.array(name, matrix, (2,))
    if k.shape != (n, n):
        raise ValueError(f"{name} must have shape ({n}, {n}), one row per observation; found {k.shape}.")
    if not is_traced(k):
        check_covariance(name, k)
    return k


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
        raise ValueError(f"prior_variance must be a number or one per feature, {d}; found {given.shape}.")
    if not is_traced(given) and not (np.asarray(given) > 0).all():
        raise ValueError(f"prior_variance must be positive; found {np.asarray(given).min()}.")
    return jnp.diag(jnp.broadcast_to(1.0 / given, (d,)))
