"""Data that break things: an answer with a true status or one clear error, never NaN."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF as SklearnRBF

from cavity.estimators import BayesPointMachine, GPClassifier, GPOrdinal, GPRegressor

RNG = np.random.default_rng(7)
POINTS = RNG.standard_normal((12, 2))
LABELS = (POINTS[:, 0] > 0).astype(int)
LABELS[:2] = 1 - LABELS[:2]
INPUTS = {
    "constant features": np.ones((12, 2)),
    "zero features": np.zeros((12, 2)),
    "scaled by 1e12": POINTS * 1e12,
    "scaled by 1e-12": POINTS * 1e-12,
    "one column of 1e12": POINTS * [1e12, 1.0],
    "identical rows, opposite labels": np.repeat(POINTS[:6], 2, axis=0),
}


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("estimator", [GPClassifier(), BayesPointMachine(), GPRegressor(), GPOrdinal()], ids=repr)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_answer_that_is_a_number(estimator, inputs):
    X = INPUTS[inputs]
    estimator.fit(X, LABELS)
    answers = [estimator.predict(X), [estimator.log_evidence_]]
    if not isinstance(estimator, GPRegressor):
        answers.append(estimator.predict_proba(X))
    assert all(np.isfinite(answer).all() for answer in answers)
    assert not np.isnan(estimator.loo_log_predictive_).any()
    assert estimator.status_.sentence


def test_one_row():
    one = GPRegressor().fit([[1.0, 2.0]], [3.0])
    assert one.predict([[1.0, 2.0]]) == pytest.approx(3.0)
    for estimator in (GPClassifier(), BayesPointMachine(), GPOrdinal()):
        with pytest.raises(ValueError, match="y must hold at least two classes; found one class: 1"):
            estimator.fit([[1.0, 2.0]], [1])


class Indefinite(SklearnRBF):
    """exp(+distance²): symmetric, far from positive definite."""

    def __call__(self, X, Y=None, eval_gradient=False):
        return 1 / super().__call__(X, Y)


def test_a_kernel_that_is_not_positive_definite():
    with pytest.raises(ValueError, match=r"positive|improper"):
        GPClassifier(Indefinite(1.0), optimize=False).fit(POINTS, LABELS)


def test_all_weights_zero():
    for estimator in (GPClassifier(), BayesPointMachine(), GPRegressor(), GPOrdinal()):
        with pytest.raises(ValueError, match=r"(?i)weight.*zero"):
            estimator.fit(POINTS, LABELS, sample_weight=np.zeros(12))
