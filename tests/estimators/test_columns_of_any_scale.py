"""A unit of the columns is a unit of the weights: nothing else changes with it, for any likelihood."""

import numpy as np
import pytest

import cavity as cv
from cavity.kernels import RBF, Constant, Linear

RNG = np.random.default_rng(4)
X, NEW = RNG.normal(size=(40, 3)), RNG.normal(size=(6, 3))
LATENT = X @ [1.0, -2.0, 0.5]
MIXED = np.where(LATENT + RNG.normal(size=40) > 0, 1, -1)


def fitted(estimator, target, scale, rows=40):
    return estimator(Linear(scale**-2.0)).fit(scale * X[:rows], target[:rows])


@pytest.mark.parametrize("scale", [1e-10, 1e-5, 1e5, 1e10])
@pytest.mark.parametrize("likelihood", ["step", "probit", "logistic"])
def test_a_classifier_does_not_see_the_unit_of_the_columns(likelihood, scale):
    labels = np.where(LATENT > 0, 1, -1) if likelihood == "step" else MIXED

    def make(kernel):
        return cv.GPClassifier(kernel, likelihood=likelihood, label_noise=0.05, optimize=False, method=cv.EP())

    plain, other = fitted(make, labels, 1.0), fitted(make, labels, scale)
    assert other.log_evidence_ == pytest.approx(plain.log_evidence_, abs=1e-8 * 40)
    np.testing.assert_allclose(other.predict_proba(scale * NEW), plain.predict_proba(NEW), rtol=1e-8)
    np.testing.assert_allclose(other.loo_log_predictive_, plain.loo_log_predictive_, atol=1e-7)


@pytest.mark.parametrize("scale", [1e4, 1e8])
def test_a_probit_classifier_under_a_wide_prior_is_that_of_scaled_columns(scale):
    """Labels that no plane parts fix the weights whatever the prior is, of which latents have a variance of 1e16."""
    make = {"likelihood": "probit", "label_noise": 0.0, "optimize": False, "method": cv.EP()}
    wide = cv.GPClassifier(Linear(1.0), **make).fit(scale * X, MIXED)
    assert wide.status_ == "converged"
    model = cv.models.latent_gaussian(MIXED.astype(float), cv.factors.Probit(), X=X, prior_variance=scale**2)
    found = cv.infer(model, cv.EP())
    np.testing.assert_allclose(wide.predict_proba(scale * NEW)[:, 1], found.predict(NEW)["probability"], rtol=1e-8)
    assert wide.log_evidence_ == pytest.approx(float(found.log_evidence), abs=1e-8)
    # The prior says nothing, so that a hundred times wider the labels' evidence falls by that in three directions.
    wider = cv.GPClassifier(Linear(1e4), **make).fit(scale * X, MIXED)
    assert wider.log_evidence_ - wide.log_evidence_ == pytest.approx(-3 * np.log(100.0), abs=1e-3)
    np.testing.assert_allclose(wider.predict_proba(scale * NEW), wide.predict_proba(scale * NEW), rtol=1e-3)


def test_features_and_kernel_matrix_are_one_model():
    target = LATENT + 0.3 * RNG.normal(size=40)
    kernel = Linear(1.0) + Constant(1.0)
    by_features = cv.GPRegressor(kernel, random_state=0).fit(X, target)
    assert by_features.approximation_ == "exact, 4 features"
    matrix = cv.models.latent_gaussian(
        (target - target.mean()) / target.std(),
        cv.factors.Gaussian(float(by_features.models_[0].factor.variance)),
        X=X,
        kernel=by_features.kernel_,
    )
    found = cv.infer(matrix, cv.EP())
    assert by_features.log_evidence_ + 40 * np.log(target.std()) == pytest.approx(float(found.log_evidence), abs=1e-8)
    mean, deviation = by_features.predict(NEW, return_std=True)
    again = found.predict(NEW)
    np.testing.assert_allclose(mean, again["mean"] * target.std() + target.mean(), rtol=1e-8)
    np.testing.assert_allclose(deviation, np.sqrt(again["variance"]) * target.std(), rtol=1e-8)


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e8])
def test_with_more_features_than_rows_a_seen_row_is_known_up_to_the_noise(scale):
    wide = scale * RNG.normal(size=(5, 9))
    model = cv.GPRegressor(Linear(1.0), noise=0.1, normalize_y=False, optimize=False).fit(wide, np.arange(5.0))
    assert model.approximation_ == "exact"
    K = wide @ wide.T
    mean, deviation = model.predict(wide, return_std=True)
    # K (K + s² I)⁻¹ is I − s² (K + s² I)⁻¹, and the variance of a latent s² of its diagonal.
    inverse = np.linalg.inv(K + 0.01 * np.eye(5))
    np.testing.assert_allclose(mean, np.arange(5.0) - 0.01 * inverse @ np.arange(5.0), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(deviation**2, 0.02 - 1e-4 * np.diag(inverse), rtol=1e-8)


def test_a_sum_whose_digits_are_lost_says_so():
    kernel = Linear(1.0) + RBF(1.0)
    with pytest.warns(RuntimeWarning, match="may be rounding: scale the columns of X"):
        cv.GPRegressor(kernel, noise=0.1, normalize_y=False, optimize=False, method=cv.EP()).fit(1e6 * X, LATENT)
    with pytest.warns(RuntimeWarning, match="may be rounding"):
        cv.infer(cv.models.latent_gaussian(LATENT, cv.factors.Gaussian(0.01), X=1e6 * X, kernel=kernel), cv.EP())
