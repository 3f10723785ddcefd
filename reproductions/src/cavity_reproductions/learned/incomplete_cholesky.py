"""Kernel ridge regression in its dual form, with a pivoted incomplete Cholesky factor of the Gram matrix."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

#: residual variance at which the factor is complete enough
STOP = 1e-8


class LowRankRoot(NamedTuple):
    """root: (rows, rank), Gram ≈ root rootᵀ, exact in the rows and columns of the pivots."""

    root: np.ndarray
    pivots: np.ndarray


def incomplete_cholesky(
    diagonal: np.ndarray, column: Callable[[int], np.ndarray], rank: int, stop: float = STOP
) -> LowRankRoot:
    """Greedy: the row with the largest residual variance is next, until none is above `stop`.

    diagonal: of the Gram matrix; column: one column of it by number. No other entries are looked at.
    """
    residual = np.array(diagonal, float)
    rank = min(rank, len(residual))
    root, pivots = np.zeros((len(residual), rank)), []
    while len(pivots) < rank:
        best = int(np.argmax(residual))
        if residual[best] <= stop:
            break
        done = len(pivots)
        fresh = (column(best) - root[:, :done] @ root[best, :done]) / np.sqrt(residual[best])
        root[:, done] = fresh
        residual = np.maximum(residual - fresh**2, 0.0)
        # Its own residual is 0 but for rounding, which must not make it a pivot again.
        residual[best] = 0.0
        pivots.append(best)
    return LowRankRoot(root[:, : len(pivots)], np.array(pivots, int))


def dual_weights(factor: LowRankRoot, targets: np.ndarray, ridge: float) -> np.ndarray:
    """α = (L Lᵀ + ridge I)⁻¹ y by Woodbury's identity; predictions are k(x, X) α, with the kernel itself."""
    root = factor.root
    inside = root.T @ root + ridge * np.eye(root.shape[1])
    return (targets - root @ np.linalg.solve(inside, root.T @ targets)) / ridge
