"""What a row counts: its sample weight times the weight of its class."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight

from cavity._core import checks


def checked_sample_weight(sample_weight: Any, X: Any) -> np.ndarray:
    """One weight per row, not negative, not all zero; 1 each where none are given."""
    weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64))
    if (weights < 0).any():
        raise ValueError(f"sample_weight must not be negative; found {weights.min()}.")
    if not (weights > 0).any():
        raise ValueError("sample_weight is zero in every row: no row is left.")
    return weights


def class_weights(
    class_weight: Any, y: np.ndarray, sample_weight: np.ndarray, known: np.ndarray | None = None
) -> np.ndarray:
    """A factor for every row: its class's as given, 1 where that is not named; "balanced" gives equal totals.

    "Balanced" counts the sample weights, so that a row of weight 2 is the row written twice.

    Args:
        class_weight: a dictionary by class, "balanced" or None.
        y: the labels.
        sample_weight: of every row.
        known: the classes that may be named, of which a part of a stream need not hold all; None: those of y.
    """
    if class_weight is None:
        return np.ones(len(y))
    classes, codes = np.unique(y, return_inverse=True)
    if isinstance(class_weight, str):
        checks.choice("class_weight", class_weight, ("balanced",))
        totals = np.bincount(codes, sample_weight, len(classes))
        present = totals > 0
        return np.where(present, totals.sum() / (present.sum() * np.where(present, totals, 1.0)), 1.0)[codes]
    if not isinstance(class_weight, Mapping):
        raise ValueError(f'class_weight must be a dictionary, "balanced" or None; found {type(class_weight).__name__}.')
    nameable = (classes if known is None else known).tolist()
    for label, weight in class_weight.items():
        if label not in nameable:
            raise ValueError(f"class_weight names the class {label!r}, which y does not hold.")
        if checks.number(f"class_weight[{label!r}]", weight) < 0:
            raise ValueError(f"class_weight[{label!r}] must not be negative; found {weight}.")
    return np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])[codes]
