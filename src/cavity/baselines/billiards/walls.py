"""The pool of a billiard: one wall per data point, and a separator to start from."""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog

from cavity._core import checks

#: a margin of unit weights on unit rows below this is none, but rounding of the linear program
TOUCHING = 1e-10


class Walls(NamedTuple):
    """Weights w separate where normals @ w > 0.

    normals: (n, d), yᵢ xᵢ of unit length. basis: with a kernel matrix K = R Rᵀ, where w lives in the coordinates of R,
    the matrix that turns w into weights α of the points, f(x) = k(x, X) α; else None.
    """

    normals: np.ndarray
    basis: np.ndarray | None

    def alpha(self, w: np.ndarray) -> np.ndarray | None:
        """α of w = Rᵀ α."""
        return None if self.basis is None else self.basis @ w


def walls(X: Any, y: Any, kernel_matrix: Any) -> Walls:
    """Walls in input space (X) or in the span of the points in feature space (kernel_matrix).

    The part of w outside the span is not seen by any wall. Leaving it out does not change the direction of the mean:
    directions inside the span stay uniform.
    """
    y = np.asarray(checks.array("y", y, (1,)))
    if not np.isin(y, (-1.0, 1.0)).all():
        raise ValueError(f"y must hold labels −1 and +1; found {y[~np.isin(y, (-1.0, 1.0))][0]:g}.")
    if (X is None) == (kernel_matrix is None):
        raise ValueError("Give X or kernel_matrix, one of them.")
    basis = None
    if X is not None:
        rows = np.asarray(checks.array("X", X, (2,)))
    else:
        rows, basis = matrix_root(np.asarray(checks.array("kernel_matrix", kernel_matrix, (2,))))
    if len(rows) != len(y):
        raise ValueError(f"y must have one label for each of the {len(rows)} points; found {len(y)}.")
    lengths = np.linalg.norm(rows, axis=1)
    if not lengths.all():
        raise ValueError(f"Point {int(np.argmin(lengths))} has length 0: no weights separate it.")
    return Walls(rows * (y / lengths)[:, None], basis)


def matrix_root(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R with K = R Rᵀ, as many columns as K has eigenvalues beyond rounding, and B with Rᵀ B = I."""
    if K.shape[0] != K.shape[1] or not np.allclose(K, K.T, rtol=1e-10, atol=1e-12 * np.abs(K).max()):
        raise ValueError(f"kernel_matrix must be square and symmetric; found shape {K.shape}.")
    values, vectors = np.linalg.eigh(0.5 * (K + K.T))
    kept = values > len(K) * np.finfo(float).eps * values[-1]
    scale = np.sqrt(values[kept])
    return vectors[:, kept] * scale, vectors[:, kept] / scale


def separator(normals: np.ndarray) -> np.ndarray:
    """Weights of unit length that separate: those of the largest smallest product with a normal, |wⱼ| ≤ 1.

    It is a linear program, so what it does not find is not there.
    """
    n, d = normals.shape
    found = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=np.column_stack([-normals, np.ones(n)]),
        b_ub=np.zeros(n),
        bounds=[(-1.0, 1.0)] * d + [(None, None)],
    )
    w = found.x[:-1] if found.status == 0 else np.zeros(d)
    length = float(np.linalg.norm(w))
    if not np.min(normals @ w) > TOUCHING * length:
        raise ValueError("The data are not separable: no weights have all points on the right side.")
    return w / length


def starting_point(normals: np.ndarray, start: Any) -> np.ndarray:
    """The given separator at unit length, or the one that the linear program finds."""
    if start is None:
        return separator(normals)
    w = np.asarray(checks.array("start", start, (1,)))
    if w.shape != normals.shape[1:]:
        raise ValueError(f"start must have {normals.shape[1]} numbers; found {w.size}.")
    worst = int(np.argmin(normals @ w))
    if not normals[worst] @ w > 0:
        raise ValueError(f"start must separate the data; point {worst} is on the wrong side of it.")
    return w / np.linalg.norm(w)
