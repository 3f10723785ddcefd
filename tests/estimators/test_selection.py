"""Models and features chosen by evidence."""

import warnings

import numpy as np
import pytest
from pandas import DataFrame
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity.estimators import BayesPointMachine, GPRegressor, compare, select_features, selection
from cavity.inference.methods import EP
from cavity.inference.status import Status
from cavity.kernels import RBF, Linear

RNG = np.random.default_rng(6)
POINTS = RNG.standard_normal((30, 4))
LABELS = (POINTS[:, 2] > 0).astype(int)


def linear_evidence(X, y, noise):
    """log N(y; 0, X Xᵀ + noise² I)."""
    gram = X @ X.T + noise**2 * np.eye(len(y))
    return -0.5 * (y @ np.linalg.solve(gram, y) + np.linalg.slogdet(2 * np.pi * gram)[1])


def test_the_kernel_that_made_the_data_wins():
    settings = {"noise": 0.2, "optimize": False, "normalize_y": False}
    models = {"linear": GPRegressor(Linear(1.0), **settings), "wiggly": GPRegressor(RBF(0.05), **settings)}
    y = POINTS @ [1.0, -1.0, 0.5, 0.0] + 0.2 * RNG.standard_normal(30)
    rows = compare(models, POINTS, y)
    assert [row["name"] for row in rows] == ["linear", "wiggly"]
    gap = rows[0]["log_evidence"] - rows[1]["log_evidence"]
    assert rows[0]["probability"] == pytest.approx(1 / (1 + np.exp(-gap)))
    assert rows[0]["log_evidence"] == pytest.approx(linear_evidence(POINTS, y, 0.2), abs=1e-8)
    assert rows[0]["status"] == "converged" and rows[0]["converged"] and not hasattr(models["linear"], "models_")


def test_features_that_made_the_numbers_are_found():
    y = 2 * POINTS[:, 2] - POINTS[:, 1] + 0.3 * RNG.standard_normal(30)
    estimator = GPRegressor(Linear(1.0), noise=0.3, optimize=False, normalize_y=False)
    found = select_features(estimator, POINTS, y)
    assert found.features == (2, 1) and found.names == (2, 1)
    assert found.estimator.n_features_in_ == 2 and found.log_evidence == found.estimator.log_evidence_
    assert [row["features"] for row in found.table[4:7]] == [(2, 0), (2, 1), (2, 3)] and len(found.table) == 4 + 3 + 2
    assert found.log_evidence == pytest.approx(linear_evidence(POINTS[:, [1, 2]], y, 0.3), abs=1e-8)
    stopped = select_features(estimator, POINTS, y, max_features=1)
    assert stopped.features == (2,)


def test_a_model_that_cannot_be_fitted_is_a_row_and_a_pipeline_is_a_model():
    settings = {"noise": 0.2, "optimize": False, "normalize_y": False}
    models = {
        "broken": GPRegressor(likelihood="cauchy"),
        "scaled": make_pipeline(StandardScaler(), GPRegressor(Linear(1.0), **settings)),
        "plain": GPRegressor(Linear(1.0), **settings),
    }
    y, weights = POINTS @ [1.0, -1.0, 0.5, 0.0], np.append(2.0, np.ones(29))
    rows = {row["name"]: row for row in compare(models, POINTS, y, sample_weight=weights)}
    assert list(rows)[-1] == "broken" and rows["broken"]["status"] == "failed"
    assert "likelihood must be one of gaussian, student_t, poisson; found 'cauchy'" in rows["broken"]["error"]
    assert rows["broken"]["log_evidence"] is None and rows["plain"]["error"] is None
    by_hand = models["plain"].fit(StandardScaler().fit_transform(POINTS), y, weights)
    assert rows["scaled"]["log_evidence"] == pytest.approx(by_hand.log_evidence_, abs=1e-9)
    assert rows["scaled"]["probability"] + rows["plain"]["probability"] == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"None of the models could be fitted; the first, broken: likelihood must be"):
        compare({"broken": models["broken"]}, POINTS, y)


def test_a_fit_that_fell_short_does_not_win():
    """Its evidence is the larger, the other model taking nearly half of the labels to be wrong."""
    models = {"short": BayesPointMachine(method=EP(max_sweeps=1)), "good": BayesPointMachine(label_noise=0.45)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rows = compare(models, POINTS, LABELS)
    assert [row["name"] for row in rows] == ["good", "short"] and not rows[1]["converged"]
    assert rows[1]["log_evidence"] > rows[0]["log_evidence"]
    assert rows[0]["probability"] == 1.0 and rows[1]["probability"] is None


def test_features_of_fits_that_fell_short_are_not_taken(monkeypatch):
    """Feature 1 promises most, but its fits ended early; feature 2 cannot be fitted at all."""

    def fitted_row(name, estimator, X, y, fit_params):
        feature = int(name.split(", ")[-1])
        status = {1: Status.MAX_SWEEPS, 2: selection.FAILED}.get(feature, Status.CONVERGED)
        evidence = {0: -5.0, 1: 100.0, 2: None, 3: -4.0}[feature] if ", " not in name else {0: -3.0}.get(feature, 100.0)
        return {"name": name, "log_evidence": evidence, "status": status, "error": "why", "estimator": name}

    monkeypatch.setattr(selection, "fitted_row", fitted_row)
    found = select_features(BayesPointMachine(), POINTS, LABELS)
    assert found.features == (3, 0) and found.estimator == "3, 0"
    assert [str(row["status"]) for row in found.table[:4]] == ["converged", "max_sweeps", "failed", "converged"]
    with pytest.raises(ValueError, match="No single feature gave a fit that ended as it should; the first, 1: why"):
        select_features(BayesPointMachine(), DataFrame(POINTS[:, 1:3], columns=[1, 2]), LABELS)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="estimators is empty"):
        compare({}, POINTS, LABELS)
    with pytest.raises(TypeError, match="must have a log_evidence_ once fitted; LogisticRegression has none"):
        compare([LogisticRegression()], POINTS, LABELS)
    with pytest.raises(ValueError, match="max_features must be a whole number from 1 to 4; found 5"):
        select_features(BayesPointMachine(), POINTS, LABELS, max_features=5)
