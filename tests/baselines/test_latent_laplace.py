"""Laplace's method for latent Gaussian models against scikit-learn, closed forms and a generic optimiser."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity.baselines._latent_laplace import latent_laplace
from cavity.factors import Gaussian, Probit, Step, from_log_density
from cavity.factors.wrappers import FromLogZ

LOGISTIC = from_log_density(lambda f, y: -jnp.logaddexp(0.0, -y * f))
#: Student's t with 4 degrees of freedom and scale 0.3, up to its constant
HEAVY_TAILED = from_log_density(lambda f, y: -2.5 * jnp.log1p((y - f) ** 2 / (4 * 0.09)))


def rbf(a: np.ndarray, b: np.ndarray, scale: float = 1.0, amplitude: float = 1.0) -> np.ndarray:
    return amplitude * np.exp(-0.5 * np.sum((a[:, None] - b[None]) ** 2, axis=2) / scale**2)


def points(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return x, np.where(x[:, 0] + 0.7 * rng.normal(size=n) > 0, 1.0, -1.0)


def test_logistic_against_scikit_learn():
    x, y = points(40)
    new = np.random.default_rng(1).normal(size=(7, 2))
    K = rbf(x, x, 0.8, 3.0)
    kernel = ConstantKernel(3.0) * RBF(0.8)
    peer = GaussianProcessClassifier(kernel, optimizer=None, max_iter_predict=200).fit(x, y)
    estimate = latent_laplace(K, y, LOGISTIC)
    assert estimate.note == ""
    # Its Newton iteration stops when log p(y) changes by less than 1e-10, which leaves about 1e-6 in f.
    assert estimate.log_evidence == pytest.approx(peer.log_marginal_likelihood_value_, abs=1e-9)
    mean, variance = estimate.predict(rbf(new, x, 0.8, 3.0), np.full(7, 3.0))
    peer_mean, peer_variance = peer.latent_mean_and_variance(new)
    np.testing.assert_allclose(mean, peer_mean, atol=2e-6)
    np.testing.assert_allclose(variance, peer_variance, atol=2e-6)


def test_exact_for_gaussian_observations():
    x, _ = points(20)
    y = np.random.default_rng(2).normal(size=20)
    new = np.random.default_rng(3).normal(size=(4, 2))
    K, cross, noise = rbf(x, x), rbf(new, x), 0.2
    estimate = latent_laplace(K, y, Gaussian(noise))
    noisy = K + noise * np.eye(20)
    assert estimate.log_evidence == pytest.approx(stats.multivariate_normal(cov=noisy).logpdf(y), abs=1e-11)
    np.testing.assert_allclose(estimate.mean, K @ np.linalg.solve(noisy, y), atol=1e-11)
    np.testing.assert_allclose(estimate.covariance, K - K @ np.linalg.solve(noisy, K), atol=1e-12)
    mean, variance = estimate.predict(cross, np.ones(4))
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(noisy, y), atol=1e-11)
    np.testing.assert_allclose(variance, 1 - np.sum(cross * np.linalg.solve(noisy, cross.T).T, axis=1), atol=1e-12)
    # The trace: the prior, then the mode after one step.
    assert len(estimate.trace) == 2 and estimate.trace[-1][0] == estimate.evaluations == 40


def test_singular_kernel_equals_the_weights_of_a_linear_model():
    """f = X w, w ~ N(0, 2 I): the mode of w by BFGS, its curvature from Φ's derivatives."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(25, 3))
    y = np.where(X @ [1.0, -1.0, 0.5] + rng.normal(size=25) > 0, 1.0, -1.0)
    estimate = latent_laplace(2.0 * X @ X.T, y, Probit())

    def energy(w):
        z = y * (X @ w)
        ratio = np.exp(stats.norm.logpdf(z) - stats.norm.logcdf(z))
        return 0.25 * w @ w - stats.norm.logcdf(z).sum(), 0.5 * w - X.T @ (y * ratio), ratio * (ratio + z)

    w = minimize(lambda w: energy(w)[:2], np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-10}).x
    value, _, W = energy(w)
    precision = 0.5 * np.eye(3) + (X.T * W) @ X
    np.testing.assert_allclose(estimate.mean, X @ w, atol=1e-8)
    np.testing.assert_allclose(estimate.covariance, X @ np.linalg.solve(precision, X.T), atol=1e-8)
    log_evidence = -value - 0.5 * np.linalg.slogdet(precision)[1] - 1.5 * math.log(2.0)
    assert estimate.log_evidence == pytest.approx(log_evidence, abs=1e-10)


def test_heavy_tails_have_negative_curvature():
    """Outliers under Student's t: W < 0 there, the posterior by a direct inverse at a mode found by BFGS."""
    x = np.linspace(0, 5, 25)[:, None]
    y = np.sin(2 * x[:, 0]) + 0.1 * np.random.default_rng(5).normal(size=25)
    y[[4, 15]] += np.array([6.0, -7.0])
    K = rbf(x, x, 0.6) + 1e-3 * np.eye(25)
    estimate = latent_laplace(K, y, HEAVY_TAILED)
    assert estimate.note == ""
    # On the way K⁻¹ + W was not positive definite and the steps had to do without it.
    assert any(math.isnan(log_z) for _, log_z, _ in estimate.trace)
    inverse = np.linalg.inv(K)

    def energy(f):
        gap, width = y - f, 4 * 0.09
        slope = -5 * gap / (width + gap**2)
        return 0.5 * f @ inverse @ f + 2.5 * np.log1p(gap**2 / width).sum(), inverse @ f + slope

    found = minimize(energy, estimate.mean + 0.01, jac=True, method="BFGS", options={"gtol": 1e-7, "maxiter": 5000}).x
    np.testing.assert_allclose(estimate.mean, found, atol=1e-5)
    gap, width = y - estimate.mean, 4 * 0.09
    np.testing.assert_allclose(energy(estimate.mean)[1], 0.0, atol=1e-9)
    W = 5 * (width - gap**2) / (width + gap**2) ** 2
    assert np.sum(W < 0) >= 2
    np.testing.assert_allclose(estimate.covariance, np.linalg.inv(inverse + np.diag(W)), atol=1e-10)
    log_det = np.linalg.slogdet(np.eye(25) + K * W)[1]
    assert estimate.log_evidence == pytest.approx(-energy(estimate.mean)[0] - 0.5 * log_det, abs=1e-9)
    new = np.array([[0.93], [2.2], [7.0]])
    cross = rbf(new, x, 0.6)
    _, variance = estimate.predict(cross, np.ones(3))
    np.testing.assert_allclose(variance, 1 - np.diag(cross @ np.linalg.inv(K + np.diag(1 / W)) @ cross.T), atol=1e-10)


def test_refusals():
    x, y = points(6)
    K = rbf(x, x)
    for step in (Step(), Step(0.1)):
        with pytest.raises(TypeError, match="needs a log density with a slope; that of Step changes by jumps"):
            latent_laplace(K, y, step)
    with pytest.raises(TypeError, match="FromLogZ has no log_density"):
        latent_laplace(K, y, FromLogZ(lambda m, v, y: m))
    with pytest.raises(ValueError, match=r"y must have one entry for each of the 6 rows of K; found 5"):
        latent_laplace(K, y[:5], LOGISTIC)
    with pytest.raises(ValueError, match=r"K must be square; found shape \(5, 6\)"):
        latent_laplace(K[:5], y, LOGISTIC)
    with pytest.raises(ValueError, match="K must be symmetric"):
        latent_laplace(K + np.triu(np.ones((6, 6)), 1), y, LOGISTIC)
    with pytest.raises(ValueError, match=r"K must have no negative eigenvalue; found -1\.5"):
        latent_laplace(K - (1.5 + np.linalg.eigvalsh(K)[0]) * np.eye(6), y, LOGISTIC)
    with pytest.raises(ValueError, match="labels"):
        latent_laplace(K, np.zeros(6), Probit())
    with pytest.raises(ValueError, match=r"cross must have shape \(2, 6\).*found \(2, 5\)"):
        latent_laplace(K, y, LOGISTIC).predict(np.zeros((2, 5)), np.ones(2))
