"""Classifiers made of binary models: one for two classes, else one for each class against the rest."""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple, Self

import numpy as np
from joblib import Parallel, delayed
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin

from cavity._core import checks
from cavity.estimators._base import LatentGaussianEstimator, label_weights, loo_log_predictive
from cavity.estimators._types import ClassWeight, FittedModel, KernelChoice, Rows, Vector
from cavity.factors import Factor, Logistic, Probit, Step
from cavity.models._latent_gaussian.rows import UniqueRows, unique_rows

BINARY: dict[str, type[Factor]] = {"step": Step, "probit": Probit, "logistic": Logistic}
#: where a search for label noise starts.
FIRST_LABEL_NOISE = 0.1
#: in place of log 0, so that differences stay numbers.
FLOOR = -1e300


class OneVersusRest(ClassifierMixin, LatentGaussianEstimator):
    """A subclass gives `_fit_model`: the model of a set of sites with labels −1 and +1."""

    classes_: np.ndarray
    class_weight: ClassWeight
    n_jobs: int | None

    def _fit_model(self, unique: UniqueRows, seed: int, name: str) -> FittedModel:
        raise NotImplementedError

    def fit(self, X: Rows, y: Vector, sample_weight: Vector | None = None) -> Self:
        """Fit to labelled rows.

        Args:
            X: (n, d) inputs.
            y: (n,) labels, numbers or text.
            sample_weight: (n,), how often each row counts; fractions raise its likelihood to that power.

        Returns:
            The estimator itself, fitted. A model that did not converge gives a `ConvergenceWarning`.

        Raises:
            ValueError: an argument cannot be used, or no posterior explains the labels.
        """
        X, y = self._checked_rows(X, y)
        weights = label_weights(self, X, y, sample_weight)
        classes = present_classes(y, weights)
        rows = LabelledRows.of(classes, self._features(X), y, weights, getattr(self, "kernel", None))
        seeds, names = repeat(self._seed()), model_names(classes)
        models = self._in_threads(self._fit_model, rows.sets, seeds, names)
        self._warn(models, names)
        self.classes_ = classes
        self._finish(models, rows)
        return self

    def _in_threads(self, function: Callable[..., FittedModel], *arguments: Iterable[object]) -> list[Any]:
        """What `map` gives, in threads, one for each class: compiled code releases Python's lock."""
        return Parallel(n_jobs=self.n_jobs, prefer="threads")(map(delayed(function), *arguments))  # type: ignore[return-value]

    def _finish(self, models: Sequence[FittedModel], rows: "LabelledRows") -> None:
        """Attributes of a fit that has seen all rows."""
        self._summarise(models)
        own = list(map(loo_log_predictive, models, rows.sets, repeat(rows.features), rows.labels))
        label, codes = np.minimum(np.stack(own, axis=1), 0.0), rows.codes[:, None]
        with np.errstate(divide="ignore"):
            other = np.log(-np.expm1(label))  # of the ±1 label that the row does not have
        if len(models) == 1:
            logs = np.where(codes == 1, np.hstack([other, label]), np.hstack([label, other]))
        else:  # divided by their sum, as in `predict_proba`
            logs = np.maximum(np.where(codes == np.arange(len(models)), label, other), FLOOR)
            logs = logs - logsumexp(logs, axis=1, keepdims=True)
        self.loo_probabilities_ = np.exp(logs)
        of_labels = logs[np.arange(len(logs)), rows.codes]
        self.loo_log_predictive_ = np.where(rows.codes < 0, -np.inf, of_labels)

    def _summarise(self, models: Sequence[FittedModel]) -> None:
        super()._summarise(models)
        noises = [float(getattr(model.factor, "label_noise", 0.0)) for model in models]
        self.label_noise_ = noises[0] if len(noises) == 1 else np.array(noises)

    def decision_function(self, X: Rows) -> np.ndarray:
        """Log odds of the clean label.

        Args:
            X: (n, d) inputs.

        Returns:
            (n,) for the second of two classes; with more classes (n, classes), each against the rest.

        Raises:
            NotFittedError: the estimator has not been fitted.
            ValueError: X cannot be used, or has other columns than in `fit`.
        """
        logs = np.stack(list(map(itemgetter("log_probabilities"), self._predictions(X))), axis=1)
        odds = logs[..., 1] - logs[..., 0]
        return odds[:, 0] if len(self.models_) == 1 else odds

    def predict(self, X: Rows) -> np.ndarray:
        """The most probable class of every row.

        Args:
            X: (n, d) inputs.

        Returns:
            (n,) labels, of `classes_`.

        Raises:
            NotFittedError: the estimator has not been fitted.
            ValueError: X cannot be used, or has other columns than in `fit`.
        """
        odds = self.decision_function(X)
        return self.classes_[(odds > 0).astype(int) if odds.ndim == 1 else odds.argmax(axis=1)]

    def predict_proba(self, X: Rows, noisy: bool = False) -> np.ndarray:
        """Probabilities of the classes.

        With more than two classes, those of each class against the rest, divided by their sum.

        Args:
            X: (n, d) inputs.
            noisy: False: of the label as it should be. True: of the label as it would be observed, noise included.

        Returns:
            (n, classes) probabilities, columns in the order of `classes_`.

        Raises:
            NotFittedError: the estimator has not been fitted.
            ValueError: X cannot be used, or has other columns than in `fit`.
        """
        name = "noisy_log_probabilities" if noisy else "log_probabilities"
        logs = np.stack(list(map(itemgetter(name), self._predictions(X))), axis=1)
        if len(self.models_) == 1:
            return np.exp(logs[:, 0, :])
        ours = np.maximum(logs[..., 1], FLOOR)
        return np.exp(ours - logsumexp(ours, axis=1, keepdims=True))


def binary_likelihood(likelihood: str | Factor, label_noise: float | str) -> tuple[Factor, tuple[str, ...]]:
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


def present_classes(y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The classes of the rows that count; at least two."""
    classes = np.unique(y[weights > 0])
    if len(classes) < 2:
        where = "" if (weights > 0).all() else " where weights are above zero"
        raise ValueError(f"y must hold at least two classes{where}; found one class: {classes.tolist()[0]!r}.")
    return classes


def model_names(classes: np.ndarray) -> list[str]:
    """What a model is called in a warning."""
    if len(classes) == 2:
        return [""]
    return [f" (class {label!r} against the rest)" for label in classes.tolist()]


class LabelledRows(NamedTuple):
    """Rows as the models see them.

    features: (n, d). codes: (n,), the place of each label among the classes; −1 for one that is not there. labels: −1
    and +1, a vector for each model; two classes have one, for the second class. sets: the sites of each model.
    """

    features: np.ndarray
    codes: np.ndarray
    labels: list[np.ndarray]
    sets: list[UniqueRows]

    @classmethod
    def of(
        cls, classes: np.ndarray, features: np.ndarray, y: np.ndarray, weights: np.ndarray, kernel: KernelChoice = None
    ) -> "LabelledRows":
        """Weighted rows with their labels; `kernel` is the estimator's, if it has one."""
        codes = class_codes(classes, y)
        found = cls(features, codes, [], [])
        for code in [1] if len(classes) == 2 else range(len(classes)):
            own = np.where(codes == code, 1.0, -1.0)
            found.labels.append(own)
            found.sets.append(unique_rows(features, own, weights, kernel))
        return found


def class_codes(classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The place of every label among the sorted classes; −1 where it is not there. No label is cast: 0.4 is not 0."""
    if object in (classes.dtype, y.dtype):  # of a data frame: text, or numbers among which some are missing
        known = {label: place for place, label in enumerate(classes.tolist())}
        return np.array([known.get(label, -1) for label in y.tolist()], int)
    places = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    return np.where(classes[places] == y, places, -1)
