"""What a fitted classifier found out about its own training data, in plain numbers and words for tables and pages.

How far its probabilities of labels can be believed is among it: calibration in bins, and the Brier score.
"""

from typing import Any, NamedTuple

import numpy as np

from cavity.kernels import Kernel
from cavity.kernels.base import Sum

#: models whose kernels are written out
WRITTEN_OUT = 3
#: bins of equal width between the least probability a predicted label can have and 1
BINS = 10


class Calibration(NamedTuple):
    """Rows in bins by the probability of their predicted label; bins without rows are left out.

    confidence: mean probability in each bin. accuracy: share of its rows whose prediction is their label. counts: its
    rows. error: expected calibration error Σ counts/n |accuracy − confidence|. brier: mean of ½ Σ_k (p_k − [y = k])²,
    which for two classes is (p − y)².
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray
    error: float
    brier: float


def calibration(probabilities: np.ndarray, codes: np.ndarray) -> Calibration:
    """Calibration of predicted labels.

    Args:
        probabilities: (n, classes), each row adding up to 1.
        codes: (n,), the column of the label that was observed.
    """
    rows, classes = probabilities.shape
    predicted = probabilities.argmax(axis=1)
    confidence = probabilities[np.arange(rows), predicted]
    edges = np.linspace(1.0 / classes, 1.0, BINS + 1)
    place = np.digitize(confidence, edges[1:-1])
    counts = np.bincount(place, minlength=BINS)
    some = counts > 0
    means = np.bincount(place, confidence, BINS)[some] / counts[some]
    right = np.bincount(place, predicted == codes, BINS)[some] / counts[some]
    observed = np.eye(classes)[codes]
    return Calibration(
        confidence=means,
        accuracy=right,
        counts=counts[some],
        error=float(counts[some] @ np.abs(right - means) / rows),
        brier=float(0.5 * np.mean(np.sum((probabilities - observed) ** 2, axis=1))),
    )


class Findings(NamedTuple):
    """The account of a fit.

    probabilities: (n, classes), what the other rows say of each row's label as it would be observed. codes: (n,), the
    column of the label it has. residuals, histories: for each model, mismatch by sweep and log evidence by step of
    the search, NaN where a step was refused.
    """

    classes: np.ndarray
    codes: np.ndarray
    probabilities: np.ndarray
    training_error: float
    calibration: Calibration
    log_evidence: float
    kernel: str
    label_noise: str
    method: str
    status: str
    sentence: str
    sweeps: int
    seconds: float
    residuals: list[np.ndarray]
    histories: list[np.ndarray]

    @property
    def own(self) -> np.ndarray:
        """Leave-one-out probability of every row's own label."""
        return self.probabilities[np.arange(len(self.codes)), self.codes]

    @property
    def loo_error(self) -> float:
        """Share of rows whose label the other rows would not have predicted."""
        return float(np.mean(self.probabilities.argmax(axis=1) != self.codes))

    def suspects(self, most: int) -> np.ndarray:
        """The rows whose own label is least probable given the others, the least probable first."""
        return np.argsort(self.own, kind="stable")[:most]


def findings(estimator: Any, X: np.ndarray, y: np.ndarray, seconds: float) -> Findings:
    """Summary of a classifier fitted to X and y with weights of 1; `seconds` is the time the fit took."""
    codes = np.searchsorted(estimator.classes_, y)
    probabilities = estimator.loo_probabilities_
    models = estimator.models_
    return Findings(
        classes=estimator.classes_,
        codes=codes,
        probabilities=probabilities,
        training_error=float(np.mean(estimator.predict(X) != y)),
        calibration=calibration(probabilities, codes),
        log_evidence=estimator.log_evidence_,
        kernel=name_models([kernel_words(model) for model in models]),
        label_noise=name_models([f"{noise:.3g}" for noise in np.atleast_1d(estimator.label_noise_)]),
        method=", ".join(dict.fromkeys(model.method for model in models)),
        status=str(estimator.status_).replace("_", " "),
        sentence=estimator.status_.sentence,
        sweeps=int(estimator.n_sweeps_),
        seconds=seconds,
        residuals=[np.asarray(model.residuals) for model in models],
        histories=[np.array([step["log_evidence"] for step in model.history], float) for model in models],
    )


def kernel_words(model: Any) -> str:
    """The kernel of a model with the values learned; a linear model is one in its weights."""
    kernel = vars(model).get("kernel")
    if kernel is None:
        return f"linear (weight variance {np.ravel(model.prior_variance)[0]:.3g})"
    if not isinstance(kernel, Kernel):
        return str(kernel.kernel)
    return (" + " if isinstance(kernel, Sum) else " × ").join(part_words(part) for part in kernel.parts)


def part_words(part: Kernel) -> str:
    """One kernel and its parameters; of many length scales the shortest and the longest."""
    said = []
    for name in part.parameters:
        values = np.ravel(getattr(part, name))
        few = f"{values[0]:.3g}" if values.size == 1 else f"{values.min():.3g} to {values.max():.3g}"
        said.append(f"{name.replace('_', ' ')} {few}")
    return f"{type(part).__name__} ({', '.join(said)})"


def name_models(words: list[str]) -> str:
    """One for each model, the first few written out."""
    more = f"; and {len(words) - WRITTEN_OUT} more" if len(words) > WRITTEN_OUT else ""
    return "; ".join(words[:WRITTEN_OUT]) + more
