"""Models and features chosen by evidence."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from cavity.estimators import BayesPointMachine, GPRegressor, compare, select_features
from cavity.kernels import RBF, Linear

RNG = np.random.default_rng(6)
POINTS = RNG.standard_normal((30, 4))
LABELS = (2 * POINTS[:, 2] - POINTS[:, 1] + 0.3 * RNG.standard_normal(30) > 0).astype(int)


def test_the_kernel_that_made_the_data_wins():
    settings = {"noise": 0.2, "optimize": False, "normalize_y": False}
    models = {"linear": GPRegressor(Linear(1.0), **settings), "wiggly": GPRegressor(RBF(0.05), **settings)}
    y = POINTS @ [1.0, -1.0, 0.5, 0.0] + 0.2 * RNG.standard_normal(30)
    rows = compare(models, POINTS, y)
    assert [row["name"] for row in rows] == ["linear", "wiggly"]
    gap = rows[0]["log_evidence"] - rows[1]["log_evidence"]
    assert rows[0]["probability"] == pytest.approx(1 / (1 + np.exp(-gap)))
    gram = POINTS @ POINTS.T + 0.04 * np.eye(30)
    exact = -0.5 * (y @ np.linalg.solve(gram, y) + np.linalg.slogdet(2 * np.pi * gram)[1])
    assert rows[0]["log_evidence"] == pytest.approx(exact, abs=1e-8)
    assert rows[0]["status"] == "converged" and rows[0]["converged"] and not hasattr(models["linear"], "machines_")


def test_features_that_made_the_labels_are_found():
    found = select_features(BayesPointMachine(label_noise=0.05, bias=False), POINTS, LABELS, min_gain=1.0)
    assert found.features == (2, 1) and found.names == (2, 1)
    assert found.estimator.n_features_in_ == 2 and found.log_evidence == found.estimator.log_evidence_
    assert len(found.table) == 4 + 3 + 2
    assert max(row["log_evidence"] for row in found.table if len(row["features"]) <= 2) == found.log_evidence


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="estimators is empty"):
        compare({}, POINTS, LABELS)
    with pytest.raises(TypeError, match="must have a log_evidence_ once fitted; LogisticRegression has none"):
        compare([LogisticRegression()], POINTS, LABELS)
    with pytest.raises(ValueError, match="max_features must be a whole number from 1 to 4; found 5"):
        select_features(BayesPointMachine(), POINTS, LABELS, max_features=5)
