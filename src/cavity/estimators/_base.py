"""What all estimators share: checks of input, predictions, a truthful summary, draws, saving, and lines of progress."""

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter, methodcaller
from typing import Any, ClassVar

import jax
import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from cavity._core import checks
from cavity._core.compiling import compile_clock, split_seconds
from cavity._core.precision import float64
from cavity.estimators._saving import save_estimator
from cavity.estimators._types import ClassWeight, FittedModel, Rows, Seed, Vector, Verbose
from cavity.inference.solution import Solution
from cavity.inference.status import FIXED_POINTS, Status
from cavity.models._latent_gaussian.evidence_search import Evaluation
from cavity.models._latent_gaussian.fit_result import log_predictive
from cavity.models._latent_gaussian.rows import UniqueRows
from cavity.models.streaming import StreamProgress

#: what needs no warning: a fixed point, or a method that seeks none.
AS_PROMISED = (*FIXED_POINTS, Status.SINGLE_PASS)
#: from good to bad; what a set of models reports is the worst of theirs.
SEVERITY = (
    *AS_PROMISED,
    *(Status.RUNNING, Status.INTERRUPTED, Status.TIME_BUDGET, Status.MAX_SWEEPS, Status.STALLED),
    *(Status.SITES_SKIPPED, Status.UNSURE_FACTOR, Status.NONFINITE_FACTOR, Status.IMPROPER_POSTERIOR),
)
#: the largest weight of a row, of which the log evidence still has its digits
LARGEST_WEIGHT = 1e9
#: rows predicted at a time.
CHUNK = 8192


class LatentGaussianEstimator(BaseEstimator):
    """One or several latent Gaussian models, fitted and summed up.

    A subclass hands the models it has fitted to `_summarise` and says by `_features` what they see of X.
    """

    models_: list[FittedModel]
    random_state: Seed
    #: options of `validate_data` for X
    _input_checks: ClassVar[dict[str, Any]] = {"dtype": np.float64}

    def _features(self, X: np.ndarray) -> np.ndarray:
        """The rows the models were fitted on, made of checked inputs."""
        return X

    def _checked(self, X: Rows) -> np.ndarray:
        """New inputs, checked against the ones in training."""
        check_is_fitted(self)
        refuse_others("X", X)
        found: Any = validate_data(self, X, reset=False, **self._input_checks)  # type: ignore[arg-type]
        check_size("X", found)
        return found

    def _checked_rows(self, X: Rows, y: Vector, **options: bool) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and their observations. options: of `validate_data`."""
        refuse_others("X", X)
        checks.refuse_masked("y", y)
        found: Any = validate_data(self, X, y, **options, **self._input_checks)  # type: ignore[arg-type]
        check_size("X", found[0])
        return found

    def _predictions(self, X: Rows) -> list[dict[str, np.ndarray]]:
        """For every model what its likelihood predicts at the rows of X."""
        rows = self._checked(X)
        chunks = []
        for start in range(0, rows.shape[0], CHUNK):
            features = self._features(rows[start : start + CHUNK])
            chunks.append(list(map(methodcaller("predict", features), self.models_)))
        found = jax.tree.map(lambda *parts: np.concatenate(parts), *chunks)
        if any(np.isnan(values).any() for values in jax.tree.leaves(found)):
            raise ValueError("X must not be so large that predictions overflow; found one that is not a number.")
        return found

    def _seed(self) -> int:
        """A whole number from `random_state`, for restarts of the search."""
        return seed_from(self.random_state)

    def _summarise(self, models: Sequence[FittedModel]) -> None:
        """Attributes that follow from the models."""
        self.models_ = list(models)
        self.log_evidence_ = float(sum(map(attrgetter("log_evidence"), models)))
        self.status_: Status = max(map(attrgetter("status"), models), key=SEVERITY.index)
        self.n_sweeps_ = max(map(int, map(attrgetter("sweeps"), models)))
        factors = list(map(attrgetter("factor"), models))
        self.likelihood_: Any = factors[0] if len(factors) == 1 else factors

    def _warn(self, models: Sequence[FittedModel], names: Sequence[str]) -> None:
        """A `ConvergenceWarning` for every model that did not converge; an error where its numbers mean nothing.

        It comes before anything is assigned: where it ends the call, the estimator is what it was before.
        """
        for model, name in zip(models, names, strict=True):
            status, who = model.status, f"{type(self).__name__}{name}"
            noise = getattr(model.factor, "label_noise", None)
            hint = " With label_noise=0 no label may be wrong; allow for some." if noise == 0 else ""
            # Without label noise, a site that cannot be matched at all means labels that nothing explains.
            stuck = noise == 0 and not np.isfinite(model.mismatch)
            if status is Status.IMPROPER_POSTERIOR or stuck or not np.isfinite(model.log_evidence):
                raise ValueError(f"{who} could not be fitted: {status}. {status.sentence}{hint}")
            if status not in AS_PROMISED:
                message = f"{who} did not converge: {status} (mismatch {model.mismatch:.1e}). {status.sentence}{hint}"
                warnings.warn(message, ConvergenceWarning, stacklevel=3)

    @float64
    def sample_posterior(self, X: Rows, n_samples: int = 1, random_state: Seed = None) -> np.ndarray:
        """Draws of the latent function at the rows of X, jointly over the rows.

        Args:
            X: inputs, one per row.
            n_samples: how many draws.
            random_state: seed of the draws; the estimator's own `random_state` when None.

        Returns:
            (rows, n_samples); with one model per class (rows, classes, n_samples).

        Raises:
            NotFittedError: the estimator has not been fitted.
            ValueError: X cannot be used, or `n_samples` is no whole number from 1.
        """
        rows = self._features(self._checked(X))
        if isinstance(n_samples, bool) or not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise ValueError(f"n_samples must be a whole number from 1; found {n_samples!r}.")
        source = self.random_state if random_state is None else random_state
        keys = jax.random.split(jax.random.key(seed_from(source)), len(self.models_))
        draws = [model.sample(rows, key, n_samples).T for model, key in zip(self.models_, keys, strict=True)]
        return np.asarray(draws[0]) if len(draws) == 1 else np.stack(draws, axis=1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file that `cavity.load` reads: arrays and JSON, no pickle.

        Args:
            path: of the file; written exactly there, without an ending of its own.

        Raises:
            NotFittedError: the estimator has not been fitted.
            StorageError: a parameter is of a type that a file cannot hold.
        """
        save_estimator(self, path)


def check_size(name: str, values: np.ndarray) -> None:
    """Refuse numbers that are finite but have no square to compute with."""
    numbers = np.asarray(values.data if sparse.issparse(values) else values)
    far = np.abs(numbers) > checks.LARGEST
    if far.any():
        raise ValueError(f"{name} must hold numbers between ±{checks.LARGEST:g}; found {numbers[far][0]:g}: scale it.")


def refuse_others(name: str, values: Any) -> None:
    """Refuse what scikit-learn would turn into numbers though it is none: masked entries, text, dates."""
    checks.refuse_masked(name, values)
    if sparse.issparse(values):
        return
    cells = np.asarray(values)
    kinds = {type(cell) for cell in cells.ravel()} if cells.dtype == object else {cells.dtype.type}
    for kind in kinds:
        if issubclass(kind, complex | np.complexfloating):
            raise ValueError(f"Complex data not supported: {name} must hold real numbers.")
        if issubclass(kind, str | bytes | np.datetime64 | np.timedelta64 | np.void):
            raise ValueError(f"{name} must hold numbers; found {kind.__name__}.")


def refuse_text(y: Any) -> None:
    """Refuse words where a regression needs numbers."""
    cells = np.asarray(y)
    words = (cell for cell in cells.ravel() if isinstance(cell, str | bytes)) if cells.dtype.kind in "OUS" else ()
    for word in words:
        raise ValueError(f"y must hold numbers; found {word!r}. A classifier takes words.")


def checked_sample_weight(sample_weight: Any, X: Any) -> np.ndarray:
    """One weight per row, not negative, not all zero; 1 each where none are given."""
    if sample_weight is not None:
        refuse_others("sample_weight", sample_weight)
    weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64))
    if (weights < 0).any():
        raise ValueError(f"sample_weight must not be negative; found {weights.min()}.")
    if (weights > LARGEST_WEIGHT).any():
        raise ValueError(
            f"sample_weight counts rows and must be at most {LARGEST_WEIGHT:g}, or the evidence has no digits "
            f"left; found {weights.max():g}: divide all weights by a common number."
        )
    if not (weights > 0).any():
        raise ValueError("sample_weight is zero in every row: no row is left.")
    return weights


def label_weights(estimator: Any, X: Any, y: np.ndarray, sample_weight: Any, classes: Any = None) -> np.ndarray:
    """The weights of checked rows, those of their classes included. classes: where they are known already."""
    check_classification_targets(y)
    weights = checked_sample_weight(sample_weight, X)
    return weights * class_weights(estimator.class_weight, y, weights, classes)


def class_weights(
    class_weight: ClassWeight, y: np.ndarray, sample_weight: np.ndarray, known: np.ndarray | None = None
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


def loo_log_predictive(model: FittedModel, unique: UniqueRows, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log p(yᵢ | the other rows) for every row handed in, whatever its weight.

    A row that shares its site with others is predicted from all copies but one. A row of weight 0 is not in q: its
    label is predicted from all others. Under fractional weights the label still counts as a whole.
    """
    result = np.asarray(model.loo_log_predictive)[unique.site]
    left_out = unique.site < 0
    if left_out.any():
        mean, variance = model.latent(X[left_out])
        marginals = np.stack([mean, np.ones_like(mean)], axis=1) / np.maximum(variance, np.finfo(float).tiny)[:, None]
        result[left_out] = log_predictive(model.factor, marginals, y[left_out])
    return result


def seed_from(random_state: Any) -> int:
    """A whole number from what scikit-learn takes as a random state; for None a new one every time.

    NumPy's own generator, which scikit-learn takes for None, is left as it is: others draw from it too.
    """
    if random_state is None:
        return int(np.random.default_rng().integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))


class ProgressLines:
    """Turns what a fit reports into lines of text; one for every model, since it counts the points.

    Args:
        callback: called with every line.
        name: what the lines begin with.
    """

    def __init__(self, callback: Callable[[str], object], name: str) -> None:
        self.callback = callback
        self.name = name
        self.points = 0

    def point(self, evaluation: Evaluation) -> None:
        """A point of the search for parameters."""
        self.points += 1
        found = "no fixed point of EP" if evaluation.solution is None else f"log evidence {evaluation.log_evidence:.6g}"
        self.callback(f"{self.name}: search, point {self.points}, {found}")

    def sweep(self, solution: Solution) -> None:
        """A sweep of the last run."""
        self.callback(
            f"{self.name}: sweep {int(solution.sweeps)}, mismatch {float(solution.mismatch):.1e}, "
            f"log evidence {float(solution.log_evidence):.6g}"
        )

    def stream(self, progress: StreamProgress) -> None:
        """How far a pass over a stream is."""
        stage = f"sweep {progress.sweep}" if progress.stage == "sweep" else f"measurement after sweep {progress.sweep}"
        rows = (
            f"{progress.rows} rows"
            if progress.ended or progress.total is None
            else f"{progress.rows} of {progress.total} rows"
        )
        self.callback(
            f"{self.name}: {stage}, {rows}, {progress.speed:.2g} rows per second, mismatch {progress.mismatch:.1e}"
        )


@contextlib.contextmanager
def progress_lines(verbose: Verbose, name: str) -> Iterator[ProgressLines | None]:
    """What `verbose` asks for: nothing for 0, lines on standard output for a number above, or a function of a line.

    The last line, at the end of the block, says how long it took.
    """
    if not callable(verbose) and (not isinstance(verbose, bool | int | np.integer) or verbose < 0):
        raise ValueError(f"verbose must be a whole number from 0, or a function of a line of text; found {verbose!r}.")
    if not callable(verbose) and not verbose:
        yield None
        return
    lines, began = ProgressLines(verbose if callable(verbose) else print_line, name), time.perf_counter()
    with compile_clock() as clock:
        yield lines
    lines.callback(f"{name}: {split_seconds(time.perf_counter() - began, clock.seconds)}")


def print_line(line: str) -> None:
    """A line that is seen at once, also where output is held back."""
    print(line, flush=True)
