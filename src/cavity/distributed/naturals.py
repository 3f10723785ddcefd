"""Natural parameters of a Gaussian over d weights as one vector: what travels between a client and its workers.

The precision matrix is symmetric, so its upper triangle is enough: d + d(d + 1)/2 numbers. Products and ratios of
densities are sums and differences of such vectors.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve


class Moments(NamedTuple):
    """Mean, covariance, and the log normaliser up to (2π)^{d/2}: ½ hᵀ Λ⁻¹ h − ½ log |Λ|."""

    mean: np.ndarray
    covariance: np.ndarray
    log_partition: float


def packed_size(d: int) -> int:
    """Numbers in a packed vector."""
    return d + d * (d + 1) // 2


def pack(shift: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """(Λm, Λ) as one vector."""
    return np.concatenate([shift, precision[np.triu_indices(len(shift))]])


def unpack(vector: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
    """(shift, precision) of a packed vector."""
    precision = np.zeros((d, d))
    precision[np.triu_indices(d)] = vector[d:]
    return vector[:d].copy(), precision + np.triu(precision, 1).T


def factor_of(precision: np.ndarray) -> np.ndarray | None:
    """The lower Cholesky factor, or None for a precision that is not positive definite."""
    try:
        lower = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        return None
    return lower if np.isfinite(lower).all() else None


def is_proper(vector: np.ndarray, d: int) -> bool:
    """Whether the Gaussian can be normalised."""
    return bool(np.isfinite(vector).all()) and factor_of(unpack(vector, d)[1]) is not None


def moments(vector: np.ndarray, d: int) -> Moments:
    """Moments of a proper Gaussian."""
    shift, precision = unpack(vector, d)
    lower = factor_of(precision)
    if lower is None:
        raise ValueError("the precision matrix is not positive definite.")
    mean = cho_solve((lower, True), shift)
    inverse = cho_solve((lower, True), np.eye(d))
    half_log_determinant = float(np.log(np.diagonal(lower)).sum())
    return Moments(mean, 0.5 * (inverse + inverse.T), 0.5 * float(shift @ mean) - half_log_determinant)


def from_moments(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The packed vector of N(mean, covariance)."""
    lower = factor_of(covariance)
    if lower is None:
        raise ValueError("the covariance matrix is not positive definite.")
    precision = cho_solve((lower, True), np.eye(len(mean)))
    precision = 0.5 * (precision + precision.T)
    return pack(precision @ mean, precision)
