"""Models and features chosen by evidence."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from cavity.estimators import BayesPointMachine, GPRegressor, compare, select_features
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
    assert rows[0]["status"] == "converged" and rows[0]["converged"] and not hasattr(models["linear"], "machines_")


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


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="estimators is empty"):
        compare({}, POINTS, LABELS)
    with pytest.raises(TypeError, match="must have a log_evidence_ once fitted; LogisticRegression has none"):
        compare([LogisticRegression()], POINTS, LABELS)
    with pytest.raises(ValueError, match="max_features must be a whole number from 1 to 4; found 5"):
        select_features(BayesPointMachine(), POINTS, LABELS, max_features=5)
