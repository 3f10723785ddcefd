"""From what a user names to parts of a model: likelihoods by name, and kernels that suit the data."""

import dataclasses
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from cavity._core import checks
from cavity.estimators.sklearn_kernels import SklearnKernel, as_kernel
from cavity.factors import Factor, Logistic, Probit, Step
from cavity.kernels import RBF, Constant, Kernel

BINARY: dict[str, type[Factor]] = {"step": Step, "probit": Probit, "logistic": Logistic}
#: where a search for label noise starts.
FIRST_LABEL_NOISE = 0.1
#: rows looked at for a typical distance: enough for a median, and no more than half a million distances.
ROWS_LOOKED_AT = 1000
#: how far, as a factor, a search may move the length scale below and above the typical distance.
SHORTEST, LONGEST = 1 / 30, 100.0
#: deviations of the logarithms of length scales and of variances from their start, in the prior of the search
LENGTH_SCALE_DEVIATION, VARIANCE_DEVIATION = 1.0, 3.0


def binary_likelihood(likelihood: Any, label_noise: Any) -> tuple[Factor, tuple[str, ...]]:
    """(factor, its parameters that are to be learned) for a likelihood of labels −1 and +1.

    Args:
        likelihood: "step", "probit", "logistic", or a factor, which brings its own label noise.
        label_noise: a number in [0, ½), or "auto" to learn it.
    """
    learned = isinstance(label_noise, str)
    if learned:
        checks.choice("label_noise", label_noise, ("auto",))
    elif not 0 <= checks.number("label_noise", label_noise) < 0.5:
        raise ValueError(f'label_noise must lie in [0, 0.5) or be "auto"; found {label_noise}.')
    free = ("label_noise",) if learned else ()
    if isinstance(likelihood, Factor):
        if learned and not hasattr(likelihood, "label_noise"):
            raise ValueError(f'label_noise="auto" needs a likelihood with label noise; {likelihood} has none.')
        if not {"log_probabilities", "noisy_log_probabilities"} <= likelihood.predict(0.0, 1.0).keys():
            raise ValueError(f"likelihood must be one of labels −1 and +1, such as Probit(); found {likelihood}.")
        return likelihood, free
    kind: Any = BINARY[checks.choice("likelihood", likelihood, tuple(BINARY))]
    return kind(label_noise=FIRST_LABEL_NOISE if learned else float(label_noise)), free


def suitable_kernel(kernel: Any, X: np.ndarray, *, amplitude: bool, bias: float = 0.0) -> Kernel | SklearnKernel:
    """The kernel a user means; for None the Gaussian kernel with a length scale typical of the data.

    Args:
        kernel: what `as_kernel` takes.
        X: inputs of the sites.
        amplitude: whether the kernel for None has a variance to be learned, which the step likelihood does not see.
        bias: variance of a constant added to the kernel for None.
    """
    if kernel is not None:
        return as_kernel(kernel)
    typical = typical_distance(X)
    bounds = (typical * SHORTEST, typical * LONGEST)
    found: Kernel = RBF(typical, length_scale_bounds=bounds)
    if amplitude:
        found = Constant(1.0) * found
    if bias > 0:
        found = found + Constant(bias).fix()
    return found


def search_deviations(kernel: Any, suited: Kernel | SklearnKernel) -> np.ndarray | None:
    """The prior of the search for the kernel made for None; a kernel of the user's has only its bounds."""
    if kernel is not None:
        return None
    scales = [LENGTH_SCALE_DEVIATION if "length_scale" in name else VARIANCE_DEVIATION for name in suited.names]
    return np.array(scales)


def typical_distance(X: np.ndarray) -> float:
    """The median distance of two rows that differ; 1 where none do."""
    step = -(-len(X) // ROWS_LOOKED_AT)
    distances = pdist(X[::step]) if len(X) > 1 else np.zeros(0)
    distances = distances[(distances > 0) & np.isfinite(distances)]
    return float(np.median(distances)) if distances.size else 1.0


def fix_kernel(kernel: Kernel | SklearnKernel) -> Kernel | SklearnKernel:
    """The kernel with nothing left to learn."""
    if isinstance(kernel, Kernel):
        return kernel.fix()
    bounds = {f"{parameter.name}_bounds": "fixed" for parameter in kernel.kernel.hyperparameters}
    changed: Any = kernel.kernel.clone_with_theta(kernel.theta)
    return dataclasses.replace(kernel, kernel=changed.set_params(**bounds))


def as_given(kernel: Kernel | SklearnKernel) -> Any:
    """The kernel as its user knows it: one of scikit-learn's without its wrapping."""
    return kernel.kernel if isinstance(kernel, SklearnKernel) else kernel
