"""Classifiers made of binary machines: one for two classes, else one for each class against the rest."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from cavity.estimators.base import LatentGaussianEstimator, leave_one_out
from cavity.estimators.choices import plain
from cavity.estimators.weights import class_weights, sample_weights
from cavity.models.merging import Merged, merge

#: in place of log 0, so that differences stay numbers.
FLOOR = -1e300


class OneVersusRest(ClassifierMixin, LatentGaussianEstimator):
    """A subclass gives `_fit_machine`: the machine of a set of sites with labels −1 and +1."""

    classes_: np.ndarray

    def _fit_machine(self, merged: Merged, seed: int) -> Any:
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit to labelled rows.

        Args:
            X: (n, d) inputs.
            y: (n,) labels, numbers or text.
            sample_weight: (n,), how often each row counts; fractions raise its likelihood to that power.
        """
        X, y = validate_data(self, X, y, **self._input_checks())
        check_classification_targets(y)
        weights = sample_weights(sample_weight, X)
        weights = weights * class_weights(self.class_weight, y, weights)  # type: ignore[attr-defined]
        self.classes_ = present_classes(y, weights)
        codes = self._codes(y)
        rows = self._features(X)
        sets = [merge(rows, labels, weights) for labels in self._binary_labels(codes)]
        seed = self._seed()
        machines = self._fit_machines(lambda number: self._fit_machine(sets[number], seed), len(sets))
        self._finish(machines, sets, rows, codes)
        return self

    def _finish(self, machines: Sequence[Any], sets: list[Merged], rows: np.ndarray, codes: np.ndarray) -> None:
        """Attributes of a fit that has seen all rows."""
        self._summarise(machines)
        self._warn(self._names())
        self._remember(sets)
        labels = self._binary_labels(codes)
        found = [leave_one_out(m, own, rows, y) for m, own, y in zip(machines, sets, labels, strict=True)]
        self.loo_log_predictive_ = own_label(found, codes)

    def _remember(self, sets: list[Merged]) -> None:
        """What a stream keeps of its rows; others keep nothing."""

    def _codes(self, y: np.ndarray) -> np.ndarray:
        """The place of every label in `classes_`; −1 for a class whose rows all have weight 0."""
        places = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        return np.where(self.classes_[places] == y, places, -1)

    def _binary_labels(self, codes: np.ndarray) -> list[np.ndarray]:
        """Labels −1 and +1 of every row, a vector for each machine; two classes have one, for the second class."""
        positive = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return [np.where(codes == code, 1.0, -1.0) for code in positive]

    def _names(self) -> list[str]:
        """What a machine is called in a warning."""
        if len(self.classes_) == 2:
            return [""]
        return [f" (class {label!r} against the rest)" for label in self.classes_.tolist()]

    def _summarise(self, machines: Sequence[Any]) -> None:
        super()._summarise(machines)
        noises = [float(getattr(plain(machine.factor), "label_noise", 0.0)) for machine in machines]
        self.label_noise_ = noises[0] if len(noises) == 1 else np.array(noises)

    def _log_probabilities(self, X: Any, noisy: bool) -> np.ndarray:
        """(rows, machines, 2): log P(−1) and log P(+1) of every machine."""
        name = "noisy_log_probabilities" if noisy else "log_probabilities"
        return np.stack([found[name] for found in self._predictions(X)], axis=1)

    def decision_function(self, X: Any) -> np.ndarray:
        """Log odds of the clean label: (n,) for the second of two classes, else (n, classes), each against the rest."""
        logs = self._log_probabilities(X, noisy=False)
        odds = logs[..., 1] - logs[..., 0]
        return odds[:, 0] if len(self.machines_) == 1 else odds

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row."""
        odds = self.decision_function(X)
        return self.classes_[(odds > 0).astype(int) if odds.ndim == 1 else odds.argmax(axis=1)]

    def predict_proba(self, X: Any, noisy: bool = False) -> np.ndarray:
        """(n, classes) probabilities, columns in the order of `classes_`.

        With more than two classes, those of each class against the rest, divided by their sum.

        Args:
            X: inputs, one a row.
            noisy: False: of the label as it should be. True: of the label as it would be observed, noise included.
        """
        logs = self._log_probabilities(X, noisy)
        if len(self.machines_) == 1:
            return np.exp(logs[:, 0, :])
        ours = np.maximum(logs[..., 1], FLOOR)
        return np.exp(ours - logsumexp(ours, axis=1, keepdims=True))


def present_classes(y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The classes of the rows that count; at least two."""
    classes = np.unique(y[weights > 0])
    if len(classes) < 2:
        where = "" if (weights > 0).all() else " where weights are above zero"
        raise ValueError(f"y must hold at least two classes{where}; found one class: {classes.tolist()[0]!r}.")
    return classes


def own_label(machines: list[np.ndarray], codes: np.ndarray) -> np.ndarray:
    """log p(own label | other rows) from what each machine says of its own ±1 labels; −∞ for a class that is not known.

    For more than two classes log P(+1) of machine k is what it says of the rows of class k, and log(1 − e^(…)) of what
    it says of the others; the sum over k is divided out as in `predict_proba`.
    """
    if len(machines) == 1:
        return np.where(codes < 0, -np.inf, machines[0])
    said = np.stack(machines, axis=1)
    own = codes[:, None] == np.arange(len(machines))
    with np.errstate(divide="ignore"):
        for_class = np.maximum(np.where(own, said, np.log(-np.expm1(np.minimum(said, 0.0)))), FLOOR)
    result = for_class[np.arange(len(codes)), codes] - logsumexp(for_class, axis=1)
    return np.where(codes < 0, -np.inf, result)
