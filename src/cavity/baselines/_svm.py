"""Support vector machines through scikit-learn on our kernel matrices, and two criteria to choose kernels by."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.svm import SVC

from cavity._core import checks
from cavity.baselines.billiards import separator, walls

#: slack costs this much where none is wanted
HARD = 1e10
#: an α below this share of the largest is not a support vector's
SUPPORT = 1e-7
#: steps of the search for the smallest ball, at most
MOST_STEPS = 100_000


class SVM(NamedTuple):
    """A support vector machine, f(x) = Σ alpha_i k(x, x_i) + bias.

    Attributes:
        alpha: labels included.
        bias: 0 where there is none.
        scales: what the columns of k(x, X) are divided by.
        K: the kernel matrix, with scaled points.
        y: the labels.
        with_bias: whether f has a constant.
        iterations: made by libsvm.

    Examples:
        >>> from cavity import baselines
        >>> K, y = [[2.0, -1.0], [-1.0, 2.0]], [1, -1]
        >>> machine = baselines.svm(K, y)
        >>> machine.support.tolist(), round(machine.margin, 4)
        ([0, 1], 1.2247)
    """

    alpha: np.ndarray
    bias: float
    scales: np.ndarray
    K: np.ndarray
    y: np.ndarray
    with_bias: bool
    iterations: int

    def decide(self, cross: Any) -> np.ndarray:
        """f of new points, up to their own length where inputs were normalised; cross: k(x, X), one row per point."""
        return np.asarray(cross) / self.scales @ self.alpha + self.bias

    @property
    def support(self) -> np.ndarray:
        """Indices of the support vectors."""
        size = np.abs(self.alpha)
        return np.flatnonzero(size > SUPPORT * size.max())

    @property
    def margin(self) -> float:
        """M, the distance of the nearest point from the boundary in feature space, without slack."""
        return float(1.0 / np.sqrt(self.alpha @ self.K @ self.alpha))

    @property
    def margin_criterion(self) -> float:
        """R²/M², R the radius of the smallest ball around the points (Cristianini et al. 1998)."""
        return smallest_ball(self.K) / self.margin**2

    @property
    def span_errors(self) -> np.ndarray:
        """Θ(α_i − [C_sv⁻¹]_ii) of every support vector: whether it is wrong when left out and the others stay.

        With a bias C_sv has a further row and column of labels (Chapelle & Vapnik 1999).
        """
        chosen = self.support
        C = self.K[np.ix_(chosen, chosen)] * np.outer(self.y[chosen], self.y[chosen])
        if self.with_bias:
            C = np.block([[C, self.y[chosen][:, None]], [self.y[chosen][None], np.zeros((1, 1))]])
        spans = np.diagonal(np.linalg.pinv(C, hermitian=True))[: chosen.size]
        return np.abs(self.alpha[chosen]) > spans

    @property
    def span_bound(self) -> int:
        """Their sum (5.93), an estimate of the leave-one-out errors."""
        return int(np.sum(self.span_errors))


def svm(kernel_matrix: Any, y: Any, *, C: float | None = None, bias: bool = False, normalise: bool = False) -> SVM:
    """The support vector machine of a kernel matrix and labels −1, +1.

    Args:
        kernel_matrix: (n, n), of the same kernel EP is given.
        y: (n,).
        C: price of slack; None allows none, and the data must then be separable.
        bias: whether f has a constant that costs nothing. Without one it is the model of the Bayes point machine:
            scikit-learn is given every point with its mirror image, which leaves no room for a constant.
        normalise: whether points are scaled to length 1 in feature space first (Herbrich & Graepel 2000).

    Returns:
        The machine.

    Raises:
        ValueError: if C is None and the data are not separable.

    Examples:
        >>> from cavity import baselines
        >>> K, y = [[2.0, -1.0], [-1.0, 2.0]], [1, -1]
        >>> baselines.svm(K, y).alpha.round(4).tolist()
        [0.3333, -0.3333]
    """
    K, y = np.asarray(checks.array("kernel_matrix", kernel_matrix, (2,))), np.asarray(checks.array("y", y, (1,)))
    scales = np.sqrt(np.diagonal(K)) if normalise else np.ones(len(K))
    K = K / np.outer(scales, scales)
    if C is None:
        # libsvm would look for a machine that does not exist for ever.
        separator(walls(None, y, K + np.mean(np.diagonal(K)) * bias).normals)
    price = HARD if C is None else checks.positive("C", C)
    # libsvm compares gradients with a fixed tolerance, so the matrix is given a scale of 1.
    scale = float(np.mean(np.diagonal(K)))
    mirror = np.array([[1.0]]) if bias else np.array([[1.0, -1.0], [-1.0, 1.0]])
    copies = len(mirror)
    machine = SVC(C=price * scale / copies, kernel="precomputed", tol=1e-8, cache_size=500)
    machine.fit(np.kron(mirror, K / scale), np.kron(mirror[0], y))
    dual = np.zeros(copies * len(y))
    dual[machine.support_] = machine.dual_coef_[0]
    # Of the two images each has its share, with the label of its own.
    alpha = np.kron(mirror[0], np.eye(len(y))) @ dual / scale
    constant = float(machine.intercept_[0]) if bias else 0.0
    return SVM(alpha, constant, scales, K, y, bias, int(np.sum(machine.n_iter_)))


def smallest_ball(K: np.ndarray, tolerance: float = 1e-9) -> float:
    """R² of the smallest ball around points with inner products K: max Σ βᵢ Kᵢᵢ − βᵀKβ, β ≥ 0, Σ β = 1.

    Weight is moved from the nearest point that has any to the farthest, the best amount at a time, until the farthest
    lies on the ball. Σ βᵢ‖xᵢ − centre‖² is R² from below, the farthest distance from above.

    Args:
        K: (n, n), inner products of the points.
        tolerance: of R², relative.

    Returns:
        R².

    Examples:
        >>> import numpy as np
        >>> from cavity import baselines
        >>> round(baselines.smallest_ball(np.array([[1.0, -1.0], [-1.0, 1.0]])), 6)
        1.0
    """
    beta = np.full(len(K), 1.0 / len(K))
    own, products = np.diagonal(K), K @ beta
    distances = own - 2.0 * products + beta @ products
    for _ in range(MOST_STEPS):
        far = int(np.argmax(distances))
        near = int(np.argmin(np.where(beta > 0, distances, np.inf)))
        if distances[far] - beta @ distances <= tolerance * distances[far]:
            break
        apart = K[far, far] + K[near, near] - 2.0 * K[far, near]
        amount = min((distances[far] - distances[near]) / (2.0 * apart), beta[near])
        beta[far] += amount
        beta[near] = 0.0 if amount == beta[near] else beta[near] - amount
        products = products + amount * (K[:, far] - K[:, near])
        distances = own - 2.0 * products + beta @ products
    return float(beta @ distances)
