"""Monte Carlo for latent Gaussian models against orthant probabilities and closed forms, in its own error bars."""

import itertools

import jax
import numpy as np
import pytest
from scipy import stats

from cavity.baselines._latent_sampling import latent_sampling, log_mean_weight
from cavity.factors import Gaussian, Probit, Step


def covariance(n: int, seed: int, amplitude: float = 2.0) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(n, 2))
    return amplitude * np.exp(-0.5 * np.sum((x[:, None] - x[None]) ** 2, axis=2))


def negative_orthant(S: np.ndarray) -> float:
    """P(all x_i < 0), x ~ N(0, S): arcsines up to three dimensions, Genz's method above."""
    n = len(S)
    sd = np.sqrt(np.diag(S))
    angles = np.arcsin(np.clip(S / np.outer(sd, sd), -1, 1))[np.triu_indices(n, 1)]
    if n <= 3:
        return 2.0**-n + angles.sum() / (2 ** (n - 1) * np.pi)
    return stats.multivariate_normal(cov=S, seed=0, maxpts=60_000, abseps=1e-6, releps=1e-4).cdf(np.zeros(n))


def orthant_slopes(S: np.ndarray) -> np.ndarray:
    """∂P(x < b)/∂b_j at b = 0: the density of x_j = 0 times the probability of the others given it."""
    slopes = []
    for j in range(len(S)):
        rest = np.delete(np.arange(len(S)), j)
        given = S[np.ix_(rest, rest)] - np.outer(S[rest, j], S[rest, j]) / S[j, j]
        slopes.append(stats.norm.pdf(0, scale=np.sqrt(S[j, j])) * negative_orthant(given))
    return np.array(slopes)


def agrees(found, error, exact, largest_error):
    """Within 4.5 standard errors, which must themselves be small enough for the test to mean something."""
    assert np.max(error) <= largest_error
    np.testing.assert_array_less(np.abs(found - exact), 4.5 * error)


def test_gaussian_observations():
    """A singular prior: five latents that are functions of three numbers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 3))
    K, y, noise = X @ X.T, rng.normal(size=5), 0.5
    samples = latent_sampling(K, y, Gaussian(noise), jax.random.key(0), chains=200, steps=60, moves=100)
    noisy = K + noise * np.eye(5)
    exact = K @ np.linalg.solve(noisy, y), np.diag(K - K @ np.linalg.solve(noisy, K))
    agrees(samples.mean, samples.mean_error, exact[0], 0.03)
    agrees(samples.variance, samples.variance_error, exact[1], 0.03)
    log_evidence = stats.multivariate_normal(cov=noisy).logpdf(y)
    agrees(samples.log_evidence, samples.log_evidence_error, log_evidence, 0.03)
    assert samples.note == ""
    assert samples.effective_chains > 100


def test_probit_against_orthant_probabilities():
    """p(y) = P(y_i (f_i + noise_i) > 0 for all i), and E[f] = K ∂ log p(y)/∂(prior mean)."""
    K, y = covariance(6, 1), np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
    samples = latent_sampling(K, y, Probit(), jax.random.key(1), chains=200, steps=60, moves=100)
    S = (K + np.eye(6)) * np.outer(y, y)
    probability = negative_orthant(S)
    agrees(samples.log_evidence, samples.log_evidence_error, np.log(probability), 0.03)
    agrees(samples.mean, samples.mean_error, K @ (y * orthant_slopes(S)) / probability, 0.04)


def test_step_with_label_noise():
    """A density with jumps: every pattern of signs has its closed-form probability and mean."""
    K, y = covariance(3, 2), np.array([1.0, -1.0, -1.0])
    samples = latent_sampling(K, y, Step(0.1), jax.random.key(2), chains=200, steps=60, moves=100)
    evidence, mean = 0.0, np.zeros(3)
    for signs in itertools.product([-1.0, 1.0], repeat=3):
        likelihood = np.prod(np.where(y == signs, 0.9, 0.1))
        S = K * np.outer(signs, signs)
        evidence += likelihood * negative_orthant(S)
        mean += likelihood * (K @ (signs * orthant_slopes(S)))
    agrees(samples.log_evidence, samples.log_evidence_error, np.log(evidence), 0.03)
    agrees(samples.mean, samples.mean_error, mean / evidence, 0.04)


def test_weights_have_the_error_of_their_mean():
    """The error bar is the spread of the estimate over repetitions, for log-normal weights of known mean."""
    rng = np.random.default_rng(3)
    found = np.array([log_mean_weight(row)[:2] for row in rng.normal(-700.0, 0.5, (4000, 200))])
    assert np.mean(found[:, 0]) == pytest.approx(-700.0 + 0.125, abs=0.005)
    assert np.mean(found[:, 1]) == pytest.approx(np.std(found[:, 0]), rel=0.05)


def test_refusals():
    K, y, key = covariance(3, 2), np.ones(3), jax.random.key(0)
    with pytest.raises(ValueError, match="log density that is finite everywhere; that of Step is not"):
        latent_sampling(K, y, Step(), key, chains=2, steps=1, moves=5)
    with pytest.raises(ValueError, match="moves must be at least 5; found 4"):
        latent_sampling(K, y, Probit(), key, moves=4)
    with pytest.raises(ValueError, match="y must have one entry for each of the 3 rows of K; found 2"):
        latent_sampling(K, y[:2], Probit(), key)
