"""What a latent Gaussian model refuses: one sentence, before any computing."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF as SklearnRBF

import cavity as cv

RNG = np.random.default_rng(4)
X = RNG.standard_normal((6, 2))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)


def model(**settings):
    return cv.models.latent_gaussian(Y, cv.factors.Probit(), **settings)


def test_a_prior_covariance_of_weights_must_be_one():
    with pytest.raises(ValueError, match=r"prior_variance must be symmetric; .* by up to 0.5"):
        model(X=X, prior_variance=[[1.0, 0.5], [0.0, 1.0]])
    with pytest.raises(ValueError, match="prior_variance must be positive definite"):
        model(X=X, prior_variance=[[1.0, 2.0], [2.0, 1.0]])
    # The same covariance, written as features with independent weights.
    covariance = np.array([[2.0, 0.6], [0.6, 1.0]])
    correlated = cv.infer(model(X=X, prior_variance=covariance))
    independent = cv.infer(model(X=X @ np.linalg.cholesky(covariance)))
    assert float(correlated.log_evidence) == pytest.approx(float(independent.log_evidence), abs=1e-7)


@pytest.mark.parametrize("prior", [{"kernel_matrix": np.eye(6)}, {"X": X, "kernel": cv.kernels.RBF()}])
def test_a_variance_of_weights_beside_a_kernel(prior):
    with pytest.raises(ValueError, match="prior_variance is that of weights, and a kernel has none"):
        model(prior_variance=2.0, **prior)


@pytest.mark.parametrize("kernel", [SklearnRBF(), "rbf", np.dot])
def test_a_kernel_of_another_kind(kernel):
    with pytest.raises(TypeError, match=r"kernel must be a kernel of cavity.kernels; found \w+.* as kernel_matrix"):
        model(X=X, kernel=kernel)


def test_predictions_from_a_kernel_matrix_need_variances():
    solution = cv.infer(model(kernel_matrix=np.eye(6)))
    with pytest.raises(ValueError, match=r"predicts by predict\(cross, variance\)"):
        solution.predict(np.zeros((1, 6)))


def test_a_kernel_that_overflows_is_named():
    with pytest.raises(ValueError, match="must be finite"):
        model(X=1e90 * X, kernel=cv.kernels.Polynomial(degree=4))


def test_a_method_by_name_is_refused():
    with pytest.raises(TypeError, match=r"method must be made by Auto\(\)"):
        cv.GPClassifier(method="ep").fit(X, Y)
