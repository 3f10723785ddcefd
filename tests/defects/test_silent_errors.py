"""Wrong numbers, and wrong statuses, without a word.

Each test states the right answer of a known defect, fails today, and whoever mends the defect takes the mark off.
"""

import pickle

import jax
import mpmath
import numpy as np
import pytest

import cavity as cv


def answered(call, *words):
    """What `call` gives, or None where the library refuses it in a sentence that has one of these words."""
    try:
        return call()
    except (ValueError, TypeError) as error:
        refusal = str(error)
    assert any(word in refusal for word in words), f"refused, but without naming any of {words}: {refusal}"
    return None


# ---------------------------------------------------------------- defect 2: pickled models


def test_a_pickled_regressor_predicts_the_same_bits():
    X, new = np.linspace(-3, 3, 60)[:, None], np.linspace(-4, 4, 21)[:, None]
    with jax.enable_x64(False):  # as users have it
        model = cv.GPRegressor(kernel=cv.kernels.RBF(1.0), noise=1e-3, optimize=False).fit(X, np.sin(X[:, 0]))
        before = model.predict(new, return_std=True)
        after = pickle.loads(pickle.dumps(model)).predict(new, return_std=True)
    np.testing.assert_array_equal(before, after)


def test_a_pickled_classifier_predicts_the_same_bits():
    X, new = np.linspace(-3, 3, 60)[:, None], np.linspace(-4, 4, 21)[:, None]
    with jax.enable_x64(False):
        model = cv.GPClassifier(kernel=cv.kernels.RBF(1.0), optimize=False).fit(X, X[:, 0] > 0)
        before = model.predict_proba(new)
        after = pickle.loads(pickle.dumps(model)).predict_proba(new)
    np.testing.assert_array_equal(before, after)


# ---------------------------------------------------------------- defect 3: large multiplicities and weights


def evidence_of_copies(K, y, variance, copies):
    """log ∫ ∏ N(yᵢ; fᵢ, variance)^copies N(f; 0, K) df in 50 digits: a mean of copies has variance/copies."""
    with mpmath.workdps(50):
        n, w, s2 = len(y), mpmath.mpf(copies), mpmath.mpf(variance)
        C = mpmath.matrix(K.tolist()) + s2 / w * mpmath.eye(n)
        z = mpmath.matrix(y.tolist())
        mean = -(n * mpmath.log(2 * mpmath.pi) + mpmath.log(mpmath.det(C)) + (z.T * mpmath.lu_solve(C, z))[0]) / 2
        return float(mean - n * ((w - 1) / 2 * mpmath.log(2 * mpmath.pi * s2) + mpmath.log(w) / 2))


@pytest.mark.parametrize("y", [1e3, 1e4])
def test_a_million_copies_of_an_observation_have_the_right_variance_and_evidence(y):
    def run():
        problem = cv.models.latent_gaussian(
            np.array([y]), cv.factors.Gaussian(1.0), kernel_matrix=np.array([[1e4]]), multiplicity=np.array([1e6])
        )
        return cv.infer(problem)

    solution = answered(run, "multiplicity")
    if solution is not None:
        right = evidence_of_copies(np.array([[1e4]]), np.array([y]), 1.0, 1e6)
        assert np.ravel(solution.variance)[0] == pytest.approx(1 / (1e-4 + 1e6), rel=1e-6)
        assert solution.log_evidence == pytest.approx(right, rel=1e-10)


@pytest.mark.parametrize("weight", [1e6, 1e9])
def test_log_evidence_of_a_regressor_is_right_under_large_weights(weight):
    x = 2.0 * np.arange(10)
    y = np.sin(x) + 0.1 * np.cos(7 * x)
    kernel = np.exp(-0.5 * (x[:, None] - x) ** 2)

    def fit():
        model = cv.GPRegressor(kernel=cv.kernels.RBF(1.0), noise=0.1, normalize_y=False, optimize=False)
        return model.fit(x[:, None], y, sample_weight=np.full(10, weight))

    model = answered(fit, "sample_weight")
    if model is not None:
        assert model.log_evidence_ == pytest.approx(evidence_of_copies(kernel, y, 0.01, weight), rel=1e-11)


def separated(model, weight):
    """The model on 24 labels that a line parts, each of this weight."""
    X = np.linspace(-3, 3, 24)[:, None]
    return model.fit(X, np.where(X[:, 0] > 0, 1, -1), sample_weight=np.full(24, weight))


@pytest.mark.parametrize(
    ("make", "weight"),
    [
        (lambda: cv.GPClassifier(kernel=cv.kernels.RBF(1.0), likelihood="step", label_noise=0.1, optimize=False), 1e12),
        (lambda: cv.BayesPointMachine(likelihood="step", label_noise=0.1), 1e100),
    ],
    ids=["GPClassifier", "BayesPointMachine"],
)
def test_log_evidence_of_heavy_rows_is_that_of_their_best_explanation(make, weight):
    """(0.9^24)^weight times the prior mass of the functions that part the labels, whose logarithm is small."""
    model = answered(lambda: separated(make(), weight), "sample_weight")
    if model is not None:
        assert model.log_evidence_ / weight == pytest.approx(24 * np.log(0.9), abs=1e-8)


# ---------------------------------------------------------------- defect 4: columns that are not scaled


@pytest.mark.parametrize("scale", [1e5, 1e6, 1e8])
def test_a_linear_kernel_predicts_from_columns_of_any_scale(scale):
    rng = np.random.default_rng(2)
    X, new = rng.normal(size=(30, 3)), rng.normal(size=(5, 3))
    y = X @ np.array([1.0, -2.0, 0.5]) + 0.1 * rng.normal(size=30)

    def predict():
        kernel = cv.kernels.Linear(1.0)
        model = cv.GPRegressor(kernel=kernel, noise=0.1, normalize_y=False, optimize=False, method=cv.EP())
        return model.fit(scale * X, y).predict(scale * new, return_std=True)

    found = answered(predict, "X", "scale", "kernel")
    if found is not None:
        # Weights of X itself have the prior N(0, scale²): least squares with three rows more.
        rows = np.vstack([X / 0.1, np.eye(3) / scale])
        Q, R = np.linalg.qr(rows)
        mean = new @ np.linalg.solve(R, Q.T @ np.append(y / 0.1, np.zeros(3)))
        deviation = np.sqrt(0.01 + (np.linalg.solve(R.T, new.T) ** 2).sum(axis=0))
        np.testing.assert_allclose(found[0], mean, rtol=0, atol=1e-6)
        np.testing.assert_allclose(found[1], deviation, rtol=1e-6)


# ---------------------------------------------------------------- defect 5: the status of a learned factor


def with_learned_factor(max_sweeps):
    factor = cv.learned.just_in_time(cv.factors.Logistic(), oracle=cv.Quadrature())
    problem = cv.models.latent_gaussian(np.array([1.0, -1.0, 1.0]), factor, kernel_matrix=np.eye(3) + 0.5)
    return cv.infer(problem, cv.EP(max_sweeps=max_sweeps))


def test_a_healthy_run_of_a_learned_factor_counts_no_visit_as_nonfinite():
    solution = with_learned_factor(max_sweeps=100)
    assert solution.status == "converged"
    assert solution.nonfinite == 0


def test_one_sweep_of_a_learned_factor_does_not_end_as_nonfinite_factor():
    solution = with_learned_factor(max_sweeps=1)
    assert solution.status != "nonfinite_factor"
    assert solution.nonfinite == 0
