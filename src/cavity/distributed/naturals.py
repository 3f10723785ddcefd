"""Natural parameters of a Gaussian over d weights as one vector: what travels between a client and its workers.

The precision matrix is symmetric, so its upper triangle is enough: d + d(d + 1)/2 numbers. Products and ratios of
densities are sums and differences of such vectors.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve


class GaussianMoments(NamedTuple):
    """Mean, covariance, and the log normaliser up to (2π)^{d/2}: ½ hᵀ Λ⁻¹ h − ½ log |Λ|."""

    mean: np.ndarray
    covariance: np.ndarray
    log_partition: float


def packed_size(d: int) -> int:
    """Numbers in a packed vector."""
    return d + d * (d + 1) // 2


def packed_dimension(vector: np.ndarray) -> int:
    """The d of a packed vector."""
    return round(np.sqrt(2 * vector.size + 2.25) - 1.5)


def pack_naturals(shift: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """(Λm, Λ) as one vector."""
    return np.concatenate([shift, precision[np.triu_indices(len(shift))]])


def unpack_naturals(vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(shift, precision) of a packed vector."""
    d = packed_dimension(vector)
    precision = np.zeros((d, d))
    precision[np.triu_indices(d)] = vector[d:]
    return vector[:d].copy(), precision + np.triu(precision, 1).T


def cholesky_or_none(matrix: np.ndarray) -> np.ndarray | None:
    """The lower Cholesky factor, or None for a matrix that is not positive definite."""
    try:
        lower = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None
    return lower if np.isfinite(lower).all() else None


def is_covariance(matrix: np.ndarray) -> bool:
    """Whether a matrix is symmetric, up to rounding, and positive definite."""
    return np.allclose(matrix, matrix.T, rtol=1e-6) and cholesky_or_none(matrix) is not None


def is_proper(vector: np.ndarray) -> bool:
    """Whether the Gaussian can be normalised."""
    return bool(np.isfinite(vector).all()) and cholesky_or_none(unpack_naturals(vector)[1]) is not None


def to_moments(vector: np.ndarray) -> GaussianMoments:
    """Moments of a proper Gaussian.

    Raises:
        ValueError: the precision matrix is not positive definite.
    """
    shift, precision = unpack_naturals(vector)
    lower = cholesky_or_none(precision)
    if lower is None:
        raise ValueError("the precision matrix is not positive definite.")
    mean = cho_solve((lower, True), shift)
    inverse = cho_solve((lower, True), np.eye(len(shift)))
    half_log_determinant = float(np.log(np.diagonal(lower)).sum())
    return GaussianMoments(mean, 0.5 * (inverse + inverse.T), 0.5 * float(shift @ mean) - half_log_determinant)


def from_moments(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The packed vector of N(mean, covariance).

    Raises:
        ValueError: the covariance matrix is not positive definite.
    """
    lower = cholesky_or_none(covariance)
    if lower is None:
        raise ValueError("the covariance matrix is not positive definite.")
    precision = cho_solve((lower, True), np.eye(len(mean)))
    precision = 0.5 * (precision + precision.T)
    return pack_naturals(precision @ mean, precision)
