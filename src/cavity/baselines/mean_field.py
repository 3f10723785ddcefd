"""TAP and naive mean field of Opper & Winther (2000) for the Bayes point machine, with the step size they adapt.

Both iterate on α, where f(x) = Σ αᵢ yᵢ k(x, xᵢ), C_ij = y_i y_j k(x_i, x_j):

    h = C α (5.85),   h\\i = h − λ α (5.68),   α ← α + step · (∂ log Z(h\\i, λ) − α) (5.67)

and differ in λ, the variance of a latent without its own label. TAP takes λᵢ = 1/[(C + Λ)⁻¹]ᵢᵢ − vᵢ (5.88) with
vᵢ = λᵢ (1/(αᵢ hᵢ) − 1) (5.69), by the same step: a full one lets λ swing where points are many. Its fixed points are
EP's. Naive mean field keeps λᵢ = 1/[C⁻¹]ᵢᵢ, which is Opper &
Winther's and not in the thesis: the others are taken to be known.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr

from cavity._core import checks
from cavity._core.system import one_blas_thread

#: the step grows by this while the largest change falls, and is halved when it does not (Opper & Winther)
GROWTH, CUT = 1.1, 0.5
#: it then stays below this share of the step that failed, which is lifted slowly: else it fails again and again
BELOW, LIFT = 0.9, 1.01
#: and is at least this share of the first one: while λ settles the change may grow whatever the step
LEAST = 0.1
#: reciprocal condition number below which C has no inverse to speak of
SINGULAR = 1e-13


class MeanField(NamedTuple):
    """A solution of the mean-field equations.

    Attributes:
        alpha: the latent's mean is k(x, X) alpha, labels included.
        variance: λ, of each latent without its own label.
        converged: whether the last change was within the tolerance.
        iterations: made.
        trace: alpha after every iteration.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> K = cv.kernels.RBF()([[0.0], [1.0], [2.0]])
        >>> found = baselines.tap(K, np.array([1, 1, -1]))
        >>> found.converged, found.alpha.shape
        (True, (3,))
    """

    alpha: np.ndarray
    variance: np.ndarray
    converged: bool
    iterations: int
    trace: list[np.ndarray]


def tap(
    K: Any, y: Any, label_noise: float = 0.0, step: float = 0.5, tolerance: float = 1e-10, max_iterations: int = 10_000
) -> MeanField:
    """TAP for labels y under f ~ N(0, K) (5.67, 5.85, 5.88), with EP's fixed points.

    Where a step leads out of where λ is defined, the run ends and `converged` is false.

    Args:
        K: (n, n), prior covariance of the latents.
        y: (n,), labels −1 and +1.
        label_noise: probability of a wrong label.
        step: of α and λ at the start.
        tolerance: of the largest change a full step would make, of α relative to the largest α and of λ to itself.
        max_iterations: steps at most.

    Returns:
        The solution.

    Raises:
        ValueError: if K is not square.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> K = cv.kernels.RBF()([[0.0], [1.0], [2.0]])
        >>> baselines.tap(K, np.array([1, 1, -1])).converged
        True
    """
    C, y = signed(K, y)
    return iterate(C, y, label_noise, np.diagonal(C).copy(), True, step, tolerance, max_iterations)


def naive_mean_field(
    K: Any, y: Any, label_noise: float = 0.0, step: float = 0.5, tolerance: float = 1e-10, max_iterations: int = 10_000
) -> MeanField:
    """Naive mean field for labels y under f ~ N(0, K), which must have an inverse; otherwise as `tap`.

    Args:
        K: (n, n), prior covariance of the latents.
        y: (n,), labels −1 and +1.
        label_noise: probability of a wrong label.
        step: of α and λ at the start.
        tolerance: of the largest change a full step would make, of α relative to the largest α and of λ to itself.
        max_iterations: steps at most.

    Returns:
        The solution.

    Raises:
        ValueError: if K has no inverse.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> K = cv.kernels.RBF()([[0.0], [1.0], [2.0]])
        >>> baselines.naive_mean_field(K, np.array([1, 1, -1])).converged
        True
    """
    C, y = signed(K, y)
    values = np.linalg.eigvalsh(C)
    if values[0] <= SINGULAR * values[-1]:
        raise ValueError(
            f"Naive mean field needs the inverse of the kernel matrix; its smallest eigenvalue is {values[0]:.1e}, as "
            "with repeated points or more points than features."
        )
    own = 1.0 / np.diagonal(np.linalg.inv(C))
    return iterate(C, y, label_noise, own, False, step, tolerance, max_iterations)


def signed(K: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """C_ij = y_i y_j K_ij (5.89)."""
    K, y = np.asarray(checks.array("K", K, (2,))), np.asarray(checks.array("y", y, (1,)))
    if K.shape != (len(y), len(y)):
        raise ValueError(f"K must have a row and a column for each of the {len(y)} labels; found shape {K.shape}.")
    return K * np.outer(y, y), y


@one_blas_thread()
def iterate(
    C: np.ndarray,
    y: np.ndarray,
    label_noise: float,
    own: np.ndarray,
    responds: bool,
    step: float,
    tolerance: float,
    max_iterations: int,
) -> MeanField:
    """Iterate to a fixed point of α; `responds`: whether λ (`own`) is updated too, as in TAP."""
    alpha, before, ceiling, least = np.zeros(len(y)), np.inf, 1.0, LEAST * step
    trace: list[np.ndarray] = []
    for _ in range(max_iterations):
        cavity = C @ alpha - own * alpha
        pull = slope(cavity, own, label_noise)
        target = own
        if responds:
            # 1/v = αh/(λ(1 − αh)); the product form loses no digits where a label says nothing.
            product = pull * (cavity + own * pull)
            target = left_out_variance(C, product / (own * (1.0 - product)))
            if not np.all(target > 0):
                break  # too large a step
        size = max(np.max(pull), np.max(np.abs(alpha)), np.finfo(float).tiny)
        change = max(np.max(np.abs(pull - alpha)) / size, np.max(np.abs(target / own - 1.0)))
        if change <= tolerance:
            return MeanField(y * alpha, own, True, len(trace), trace)
        alpha, own = alpha + step * (pull - alpha), own + step * (target - own)
        trace.append(y * alpha)
        if change < before:
            step, ceiling = min(step * GROWTH, ceiling), min(ceiling * LIFT, 1.0)
        else:
            step, ceiling = max(step * CUT, least), step * BELOW
        before = change
    return MeanField(y * alpha, own, False, len(trace), trace)


def slope(cavity: np.ndarray, own: np.ndarray, label_noise: float) -> np.ndarray:
    """α of every label from the mean and variance of its latent without it (5.65–5.67)."""
    z = cavity / np.sqrt(own)
    log_density = -0.5 * z**2 - 0.5 * np.log(2 * np.pi)
    if label_noise == 0:
        return np.exp(log_density - log_ndtr(z)) / np.sqrt(own)
    scale = 1.0 - 2.0 * label_noise
    return scale * np.exp(log_density) / (label_noise + scale * ndtr(z)) / np.sqrt(own)


def left_out_variance(C: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """λᵢ = (1/Aᵢᵢ − 1/vᵢ)⁻¹ with A = (C⁻¹ + Λ⁻¹)⁻¹ (5.74), which is (5.88) without its cancellation."""
    A = np.linalg.solve(np.eye(len(C)) + C * precision, C)
    return 1.0 / (1.0 / np.diagonal(A) - precision)
