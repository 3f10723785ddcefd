"""Choosing a model by its evidence (thesis 5.7): which of several, and which features.

The evidence is p(labels | inputs, model). Two models of the same labels are compared by it without a test set; a
difference of 3 nats is odds of 20 to 1.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array

from cavity._core import checks
from cavity._core.system import Shared
from cavity.estimators._base import AS_PROMISED, LatentGaussianEstimator, refuse_others
from cavity.estimators._types import Rows, Vector

#: what stands for the status of a model that could not be fitted.
FAILED = "failed"
#: an estimator with an evidence, or a pipeline that ends with one
Estimator = LatentGaussianEstimator | Pipeline
#: what is known of a model that was tried, by name
Row = dict[str, Any]
#: what a fit would warn of is in its row
without_warnings = Shared(lambda: warnings.catch_warnings(action="ignore", category=ConvergenceWarning))


class Selection(NamedTuple):
    """Features found one after another; what `select_features` returns.

    Attributes:
        features: their column numbers in the order they were taken.
        names: their names where X had any, else the numbers.
        log_evidence: of the model with these features.
        table: a row for every model tried, with its status; one that did not converge is there and was not taken.
        estimator: fitted on these columns.

    Examples:
        >>> import cavity as cv
        >>> X = [[0.3, 1, -2], [-0.2, 2, 1], [0.1, 1, 1], [0.2, -1, 2], [-0.3, -2, -1], [-0.1, -1, -1]]
        >>> found = cv.select_features(cv.BayesPointMachine(bias=False), X, [1, 1, 1, -1, -1, -1], max_features=1)
        >>> found.names, found.estimator.predict([[2.0], [-1.0]]).tolist()
        ((1,), [1, -1])
    """

    features: tuple[int, ...]
    names: tuple[str | int, ...]
    log_evidence: float
    table: list[Row]
    estimator: Estimator


def compare(
    estimators: Mapping[str, Estimator] | Iterable[Estimator], X: Rows, y: Vector, **fit_params: Any
) -> list[Row]:
    """Fit every estimator to the same data and table their log evidences, the largest first.

    Args:
        estimators: of this library, or pipelines that end with one, by name; without names they are called by what they
            print as. They are cloned, not changed.
        X: inputs.
        y: labels, counts or measurements.
        **fit_params: what else `fit` takes, such as sample_weight; in a pipeline its last step gets it.

    Returns:
        Rows with name, log_evidence, probability (of the model, all being equally likely beforehand), status,
        converged, error, seconds and the fitted estimator. Models that did not converge follow those that did: their
        log_evidence is not reliable, and their probability is None. Of a model that could not be fitted the
        status is "failed" and error says why; it comes last, and its log_evidence and estimator are None as well.

    Raises:
        TypeError: an estimator has no evidence.
        ValueError: there are no estimators, or none could be fitted.

    Examples:
        No line separates these labels, a quadric does:

        >>> import cavity as cv
        >>> X, y = [[1, 1], [-1, -1], [1, -1], [-1, 1], [2, 2], [-2, 2]], [1, 1, 0, 0, 1, 0]
        >>> machines = {"linear": cv.BayesPointMachine(), "quadratic": cv.BayesPointMachine(degree=2)}
        >>> [(row["name"], round(row["probability"], 3)) for row in cv.compare(machines, X, y)]
        [('quadratic', 0.838), ('linear', 0.162)]
    """
    named = dict(estimators) if isinstance(estimators, Mapping) else {str(one): one for one in estimators}
    if not named:
        raise ValueError("estimators is empty: there is nothing to compare.")
    for one in named.values():
        last_step(one)
    rows = [fitted_row(name, one, X, y, fit_params) for name, one in named.items()]  # type: ignore[arg-type]
    fitted = [row for row in rows if row["status"] != FAILED]
    if not fitted:
        raise ValueError(f"None of the models could be fitted; the first, {first_reason(rows)}")
    sure = [row for row in fitted if row["converged"]]
    for row, share in zip(sure, softmax([row["log_evidence"] for row in sure]) if sure else [], strict=True):
        row["probability"] = float(share)
    ranked = sorted(fitted, key=lambda row: (not row["converged"], -row["log_evidence"]))
    return ranked + [row for row in rows if row["status"] == FAILED]


def select_features(
    estimator: Estimator,
    X: Rows,
    y: Vector,
    *,
    max_features: int | None = None,
    min_gain: float = 0.0,
    callback: Callable[[Row], object] | None = None,
    **fit_params: Any,
) -> Selection:
    """Forward selection: again and again take the feature that raises the log evidence most, while one does.

    The first feature is always taken. With d features about d²/2 models are fitted. The evidence of a fit that did not
    end as it should is not one to go by: such a model is in the table and never taken.

    Args:
        estimator: of this library, or a pipeline that ends with one; cloned for every fit.
        X: inputs, an array or a data frame.
        y: labels, counts or measurements.
        max_features: stop at this many.
        min_gain: what a feature must add to the log evidence, in nats.
        callback: called with every row of the table as it is made.
        **fit_params: what else `fit` takes, such as sample_weight.

    Returns:
        The features, the log evidence with them, the table of all models tried, and the estimator fitted to them.

    Raises:
        TypeError: the estimator has no evidence.
        ValueError: `max_features` is no number of columns, or no single feature gave a fit that ended as it should.

    Examples:
        The labels are the signs of the second column, which alone explains them best:

        >>> import cavity as cv
        >>> X = [[0.3, 1, -2], [-0.2, 2, 1], [0.1, 1, 1], [0.2, -1, 2], [-0.3, -2, -1], [-0.1, -1, -1]]
        >>> found = cv.select_features(cv.BayesPointMachine(bias=False), X, [1, 1, 1, -1, -1, -1])
        >>> found.features, round(found.log_evidence, 2)
        ((1,), -1.59)
        >>> [row["features"] for row in found.table]
        [(0,), (1,), (2,), (1, 0), (1, 2)]
    """
    last_step(estimator)
    refuse_others("X", X)
    table = np.asarray(check_array(X, dtype="float64"))
    columns = table.shape[1]
    most = columns if max_features is None else max_features
    if isinstance(most, bool) or not isinstance(most, int | np.integer) or not 1 <= most <= columns:
        raise ValueError(f"max_features must be a whole number from 1 to {columns}; found {max_features!r}.")
    checks.number("min_gain", min_gain)
    names = tuple(getattr(X, "columns", range(columns)))
    chosen: tuple[int, ...] = ()
    best: Row | None = None
    tried: list[Row] = []
    while len(chosen) < most:
        rows = []
        for feature in sorted(set(range(columns)) - set(chosen)):
            features = (*chosen, feature)
            label = ", ".join(str(names[i]) for i in features)
            rows.append({**fitted_row(label, estimator, table[:, features], y, fit_params), "features": features})
            if callback is not None:
                callback(rows[-1])
        tried += rows
        settled = [row for row in rows if row["status"] in AS_PROMISED]
        if not settled and best is None:
            raise ValueError(f"No single feature gave a fit that ended as it should; the first, {first_reason(rows)}")
        leading = max(settled, key=lambda row: row["log_evidence"], default=None)
        if leading is None or (best is not None and leading["log_evidence"] - best["log_evidence"] <= min_gain):
            break
        chosen, best = leading["features"], leading
    assert best is not None
    fitted = best["estimator"]
    for row in tried:
        del row["estimator"]
    return Selection(chosen, tuple(names[i] for i in chosen), float(best["log_evidence"]), tried, fitted)


def last_step(estimator: Estimator) -> tuple[LatentGaussianEstimator, str]:
    """The estimator itself, or the last one of a pipeline; and what the names of its fit parameters begin with."""
    name, last = estimator.steps[-1] if isinstance(estimator, Pipeline) else ("", estimator)
    if not isinstance(last, LatentGaussianEstimator):
        raise TypeError(f"estimators must have a log_evidence_ once fitted; {type(last).__name__} has none.")
    return last, f"{name}__" if name else ""


def fitted_row(name: str, estimator: Estimator, X: Rows, y: Vector, fit_params: Mapping[str, Any]) -> Row:
    """One estimator fitted, or why it could not be. What its warning would say is in the row."""
    began = time.perf_counter()
    row: Row = {"name": name, "log_evidence": None, "probability": None, "error": None, "estimator": None}
    row |= {"status": FAILED, "converged": False}
    whole: Any = clone(estimator)
    _, prefix = last_step(whole)
    try:
        with without_warnings():
            whole.fit(X, y, **{prefix + key: value for key, value in fit_params.items()})
    except (ValueError, TypeError) as error:
        row["error"] = str(error)
    else:
        last, _ = last_step(whole)
        row |= {"log_evidence": float(last.log_evidence_), "status": last.status_, "estimator": whole}
        row["converged"] = all(model.converged for model in last.models_)
    return {**row, "seconds": time.perf_counter() - began}


def first_reason(rows: list[Row]) -> str:
    """Name of the first model and what came of it."""
    return f"{rows[0]['name']}: {rows[0]['error'] or rows[0]['status'].sentence}"
