"""Data that break things: an answer with a true status or one clear error, never NaN."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.gaussian_process.kernels import RBF as SklearnRBF

from cavity.estimators import BayesPointMachine, GPClassifier, GPOrdinal, GPRegressor
from cavity.factors import Gaussian
from cavity.kernels import RBF

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


@pytest.mark.parametrize("estimator", [GPClassifier(), BayesPointMachine(), GPRegressor(), GPOrdinal()], ids=repr)
def test_numbers_without_a_square_are_refused(estimator):
    huge = POINTS.copy()
    huge[3, 1] = -1e200
    with pytest.raises(ValueError, match=r"^X must hold numbers between ±1e\+100; found -1e\+200: scale it\.$"):
        estimator.fit(huge, LABELS)


def test_measurements_and_monomials_without_a_square_are_refused():
    with pytest.raises(ValueError, match=r"^y must hold numbers between ±1e\+100; found 2e\+200: scale it\.$"):
        GPRegressor().fit(POINTS, np.append(POINTS[1:, 0], 2e200))
    with pytest.raises(ValueError, match=r"X is too large for degree=2: a monomial is beyond 1e\+100"):
        BayesPointMachine(degree=2).fit(POINTS * 1e60, LABELS)
    sparse_rows = sparse.csr_matrix(POINTS * 1e200)
    with pytest.raises(ValueError, match="X must hold numbers between"):
        BayesPointMachine().partial_fit(sparse_rows, LABELS, classes=[0, 1])


def test_large_numbers_are_only_another_unit():
    one, other = GPRegressor(RBF(1.5), noise=0.6, optimize=False), GPRegressor(RBF(1.5e90), noise=6e89, optimize=False)
    one, other = one.fit(POINTS, POINTS[:, 1]), other.fit(POINTS * 1e90, POINTS[:, 1] * 1e90)
    assert other.status_ == "converged"
    assert other.log_evidence_ == pytest.approx(one.log_evidence_ - 12 * 90 * np.log(10), abs=1e-6)
    with pytest.raises(ValueError, match="X must hold numbers between"):
        other.predict(POINTS * 1e200)


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


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        (GPClassifier(likelihood=Gaussian(1.0)), r"likelihood must be one of labels −1 and \+1, .* found Gaussian"),
        (
            BayesPointMachine(likelihood=Gaussian(1.0)),
            r"likelihood must be one of labels −1 and \+1, .* found Gaussian",
        ),
        (GPClassifier(restarts=-1), "restarts must be a whole number from 0; found -1"),
        (
            GPClassifier(SklearnRBF(1.0, (1e-3, np.inf)), restarts=2),
            r"bounds, which must be finite and above 0; found \(0.001, inf\) for length_scale",
        ),
        (GPClassifier(verbose=-1), "verbose must be a whole number from 0, or a function of a line of text; found -1"),
    ],
    ids=repr,
)
def test_bad_settings_are_named(estimator, sentence):
    with pytest.raises(ValueError, match=sentence):
        estimator.fit(POINTS, LABELS)
