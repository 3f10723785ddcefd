"""How far probabilities of labels can be believed: calibration in bins, and the Brier score."""

from typing import NamedTuple

import numpy as np

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
