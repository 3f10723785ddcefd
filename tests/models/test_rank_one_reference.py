"""The plain EP that other tests compare with, held against closed forms, a printed result and quadrature."""

import numpy as np
import pytest
from rank_one_ep import gaussian, logistic, probit, rank_one_ep, step, weight_ep
from scipy import stats

#: (1, 0) labelled +, (0, 0) and (0, 1) labelled −, a third coordinate of 1; rows y_i x_i (thesis 5.5)
THREE_POINTS = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, -1.0], [0.0, -1.0, -1.0]])
PRINTED_COVARIANCE = np.array([[0.358, 0.0589, -0.118], [0.0589, 0.542, -0.0809], [-0.118, -0.0809, 0.163]])
#: half a unit of the last printed digit of each entry
PRINTED_DIGITS = np.array([[5e-4, 5e-5, 5e-4], [5e-5, 5e-4, 5e-5], [5e-4, 5e-5, 5e-4]])


def kernel_problem(n: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """An RBF kernel matrix of random points and random labels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    K = 2.0 * np.exp(-0.5 * np.sum((x[:, None] - x[None]) ** 2, axis=2))
    return K, np.where(x[:, 0] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)


def test_exact_for_gaussian_observations():
    K, _ = kernel_problem()
    y = np.random.default_rng(1).normal(size=12)
    result = rank_one_ep(K, gaussian(y, 0.3))
    noisy = K + 0.3 * np.eye(12)
    assert result.converged
    assert result.log_evidence == pytest.approx(stats.multivariate_normal(cov=noisy).logpdf(y), abs=1e-12)
    np.testing.assert_allclose(result.mean, K @ np.linalg.solve(noisy, y), atol=1e-12)
    np.testing.assert_allclose(result.covariance, K - K @ np.linalg.solve(noisy, K), atol=1e-12)
    # log Z_i is the density of y_i given the others, from the inverse of the noisy kernel matrix.
    precision = np.linalg.inv(noisy)
    gap = precision @ y / np.diag(precision)
    left_out = stats.norm.logpdf(gap, scale=np.diag(precision) ** -0.5)
    np.testing.assert_allclose(result.loo_log_z, left_out, atol=1e-12)


def test_three_points_of_the_thesis():
    weights = weight_ep(THREE_POINTS)
    assert np.all(np.abs(weights.covariance - PRINTED_COVARIANCE) <= PRINTED_DIGITS)
    np.testing.assert_allclose(weights.mean, [1.178, -0.514, -0.533], atol=5e-4)
    # The exact evidence is 1/12: the share of the sphere on which all three have their label.
    assert np.exp(weights.log_evidence) == pytest.approx(1 / 12, rel=2e-3)
    latent = rank_one_ep(THREE_POINTS @ THREE_POINTS.T, step(np.ones(3)))
    assert latent.log_evidence == pytest.approx(weights.log_evidence, abs=1e-9)
    np.testing.assert_allclose(latent.mean, THREE_POINTS @ weights.mean, atol=1e-9)
    np.testing.assert_allclose(latent.covariance, THREE_POINTS @ weights.covariance @ THREE_POINTS.T, atol=1e-9)


def test_weights_and_kernels_agree_with_label_noise():
    """(5.52) and (5.76) for more points than weights, so that the kernel matrix is singular, and sites below zero."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(15, 3))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    y[np.argmax(X[:, 0])] = -1.0
    weights = weight_ep(y[:, None] * X, epsilon=0.1, prior_variance=2.0)
    latent = rank_one_ep(2.0 * X @ X.T, step(y, 0.1), order=rng.permutation(15))
    assert np.min(latent.tau) < 0
    np.testing.assert_allclose(latent.mean, X @ weights.mean, atol=1e-8)
    np.testing.assert_allclose(latent.tau, 1 / weights.v, atol=1e-8)
    assert latent.log_evidence == pytest.approx(weights.log_evidence, abs=1e-8)


def test_sign_probabilities_of_two_latents():
    """EP's evidence for two probit terms, against the orthant probability ¼ + asin(ρ)/2π."""
    K = np.array([[1.0, 0.6], [0.6, 1.5]])
    result = rank_one_ep(K, probit(np.array([1.0, -1.0])))
    rho = -0.6 / np.sqrt(2.0 * 2.5)
    exact = 0.25 + np.arcsin(rho) / (2 * np.pi)
    assert result.log_evidence == pytest.approx(np.log(exact), abs=2e-4)


@pytest.mark.parametrize(
    ("moments", "term"),
    [
        (step(-np.ones(1), 0.1), lambda f: np.where(f < 0, 0.9, 0.1)),
        (probit(-np.ones(1), 0.05), lambda f: 0.05 + 0.9 * stats.norm.cdf(-f)),
        (probit(np.ones(1)), stats.norm.cdf),
        (gaussian(np.array([0.4]), 0.5), lambda f: stats.norm.pdf(0.4, f, np.sqrt(0.5))),
        (logistic(-np.ones(1)), lambda f: 1 / (1 + np.exp(f))),
    ],
    ids=["step", "noisy-probit", "probit", "gaussian", "logistic"],
)
def test_tilted_moments_against_a_sum(moments, term):
    """Mean and variance m + v d1, v + v² d2 of term × cavity, by the midpoint rule with a cell edge at 0."""
    m, v = 0.7, 1.9
    f = (np.arange(-400_000, 400_000) + 0.5) * 4e-5
    mass = term(f) * stats.norm.pdf(f, m, np.sqrt(v)) * 4e-5
    z = mass.sum()
    mean = mass @ f / z
    log_z, d1, d2 = moments(0, m, v)
    assert log_z == pytest.approx(np.log(z), abs=1e-9)
    assert m + v * d1 == pytest.approx(mean, abs=1e-8)
    assert v + v**2 * d2 == pytest.approx(mass @ (f - mean) ** 2 / z, abs=1e-8)


def test_logistic_fixed_point():
    """At the end q and every tilted distribution have the same moments, and visits in another order end there too."""
    K, y = kernel_problem(6)
    result = rank_one_ep(K, logistic(y), tol=1e-9)
    other = rank_one_ep(K, logistic(y), tol=1e-9, order=np.arange(6)[::-1])
    np.testing.assert_allclose(other.mean, result.mean, atol=1e-8)
    assert other.log_evidence == pytest.approx(result.log_evidence, abs=1e-8)
    f = np.linspace(-16, 16, 20_001)
    for i in range(6):
        variance = 1 / (1 / result.variance[i] - result.tau[i])
        mean = variance * (result.mean[i] / result.variance[i] - result.nu[i])
        mass = stats.norm.pdf(f, mean, np.sqrt(variance)) / (1 + np.exp(-y[i] * f))
        assert mass @ f / mass.sum() == pytest.approx(result.mean[i], abs=1e-8)
        assert result.loo_log_z[i] == pytest.approx(np.log(mass.sum() * (f[1] - f[0])), abs=1e-9)
