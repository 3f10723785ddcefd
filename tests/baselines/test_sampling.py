"""Importance and Gibbs sampling converge to the exact answer within Monte Carlo error."""

import math

import numpy as np
import pytest

from cavity import models
from cavity.baselines import gibbs, gibbs_chain, gibbs_density, importance
from cavity.baselines.sampling import summarise
from cavity.exact_inference import exact, posterior_density
from cavity.factors.clutter import Clutter
from cavity.factors.regression import Gaussian


def clutter_points(seed: int, n: int, d: int = 1, w: float = 0.5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    clutter = rng.random((n, 1)) < w
    x = np.where(clutter, rng.normal(0, math.sqrt(10), (n, d)), rng.normal(2, 1, (n, d)))
    return x[:, 0] if d == 1 else x


def standard_error(values: np.ndarray, batches: int = 50) -> np.ndarray:
    """Of the mean of a correlated chain, from the spread of batch means."""
    means = values[: len(values) // batches * batches].reshape(batches, -1, values.shape[1]).mean(axis=1)
    return means.std(axis=0, ddof=1) / math.sqrt(batches)


def test_importance_converges():
    problem = models.clutter(clutter_points(0, 10))
    truth = exact(problem)
    estimate = importance(problem, samples=200_000, seed=1)
    size = float(estimate.note.split()[3])
    assert size > 1000
    # With effective size S the relative error of the evidence is about √(1/S − 1/samples).
    assert abs(estimate.log_evidence - truth.log_evidence) < 4 / math.sqrt(size)
    assert abs(estimate.mean - truth.mean) < 4 * math.sqrt(truth.covariance / size)
    assert estimate.covariance == pytest.approx(truth.covariance, rel=0.15)
    assert estimate.evaluations == 2_000_000
    assert estimate.trace[-1] == (2_000_000, estimate.log_evidence, estimate.mean)
    sizes = [evaluations for evaluations, _, _ in estimate.trace]
    assert sizes == sorted(set(sizes))


def test_a_proposal_like_the_integrand_beats_even_draws():
    """(2.3) and (2.4): both are right on average; over 200 repeats the second scatters a tenth as much or less."""
    x = clutter_points(0, 10)
    problem = models.clutter(x)
    truth = exact(problem)
    rng, sd = np.random.default_rng(1), 1.5 * math.sqrt(truth.covariance)
    even = rng.uniform(-50, 50, (200, 400))
    near = truth.mean + sd * rng.normal(size=(200, 400))
    gaussian = np.exp(-0.5 * ((near - truth.mean) / sd) ** 2) / (sd * math.sqrt(2 * math.pi))
    shares = []
    for theta, weight in ((even, 100.0), (near, 1 / gaussian)):
        values = np.exp(posterior_density(problem, theta.ravel(), log=True) - truth.log_evidence).reshape(200, 400)
        estimates = (values * weight).mean(axis=1)
        shares.append(estimates.std())
        assert abs(estimates.mean() - 1) < 4 * estimates.std() / math.sqrt(200)
    assert shares[1] < 0.1 * shares[0]


def test_importance_on_vectors_and_weights():
    vector = models.posterior(Clutter(0.5, 10.0), clutter_points(1, 6, 2), prior_mean=[1.0, 1.0], prior_variance=4.0)
    mixture = models.mixture_weights(np.random.default_rng(0).random((25, 3)), prior=0.8)
    for problem in (vector, mixture):
        estimate, truth = importance(problem, samples=50_000, seed=0), exact(problem)
        size = float(estimate.note.split()[3])
        assert abs(estimate.log_evidence - truth.log_evidence) < 4 / math.sqrt(size)
        assert np.all(np.abs(estimate.mean - truth.mean) < 4 * np.sqrt(np.diag(truth.covariance) / size))


def test_the_seed_decides():
    problem = models.clutter(clutter_points(0, 5))
    for method in (importance, gibbs):
        first, again, other = (method(problem, samples=100, seed=seed) for seed in (3, 3, 4))
        assert first.mean == again.mean != other.mean


@pytest.mark.parametrize("averaging", [False, True])
def test_gibbs_converges_on_clutter(averaging):
    problem = models.clutter(clutter_points(2, 20))
    truth = exact(problem)
    chain = gibbs_chain(problem, samples=8_000, burn_in=200, seed=5)
    estimate = summarise(chain, averaging)
    error = standard_error(chain.means if averaging else chain.samples)[0]
    assert abs(estimate.mean - truth.mean) < 4 * error
    assert estimate.covariance == pytest.approx(truth.covariance, rel=0.1)
    assert math.isnan(estimate.log_evidence)
    assert estimate.evaluations == 8_200 * 20
    assert estimate.trace[-1][0] == estimate.evaluations
    assert estimate.trace[-1][2] == pytest.approx(estimate.mean, rel=1e-12)
    assert gibbs(problem, 8_000, 200, 5, averaging).mean == estimate.mean


def test_gibbs_on_vectors_with_a_correlated_prior():
    covariance = np.array([[3.0, 1.2], [1.2, 1.0]])
    problem = models.posterior(
        Clutter(0.4, 10.0), clutter_points(3, 8, 2), prior_mean=[1.0, 0.0], prior_variance=covariance
    )
    truth = exact(problem)
    chain = gibbs_chain(problem, samples=10_000, seed=1)
    for averaging, values in ((False, chain.samples), (True, chain.means)):
        estimate = summarise(chain, averaging)
        assert np.all(np.abs(estimate.mean - truth.mean) < 4 * standard_error(values))
        np.testing.assert_allclose(estimate.covariance, truth.covariance, atol=0.08 * np.max(truth.covariance))


def test_gibbs_on_mixture_weights():
    problem = models.mixture_weights(np.random.default_rng(4).random((30, 3)), prior=[1.0, 0.5, 2.0])
    truth = exact(problem)
    chain = gibbs_chain(problem, samples=10_000, seed=2)
    for averaging, values in ((False, chain.samples), (True, chain.means)):
        estimate = summarise(chain, averaging)
        assert np.all(np.abs(estimate.mean - truth.mean) < 4 * standard_error(values))
        np.testing.assert_allclose(estimate.covariance, truth.covariance, atol=0.15 * np.max(truth.covariance))


def test_densities_from_the_chain():
    """Both are normalised and near the exact posterior; the averaged one is nearer."""
    clutter = models.clutter(clutter_points(6, 15, w=0.7), w=0.7)
    mixture = models.mixture_weights(np.random.default_rng(1).random((20, 2)))
    for problem, grid in ((clutter, np.linspace(-40, 40, 1601)), (mixture, np.linspace(0.0025, 0.9975, 200))):
        step = grid[1] - grid[0]
        truth = posterior_density(problem, grid)
        truth /= truth.sum() * step
        chain = gibbs_chain(problem, samples=10_000, seed=0)
        errors = []
        for averaging in (True, False):
            density = gibbs_density(chain, grid, averaging)
            assert density.sum() * step == pytest.approx(1.0, abs=1e-3)
            errors.append(np.abs(density - truth).sum() * step)
        assert errors[0] < 0.1
        assert errors[0] < 0.5 * errors[1]


def test_multiplicity_counts():
    x = np.array([2.0, 2.5, -3.0])
    counted = models.posterior(Clutter(0.5, 10.0), x, 0.0, 100.0, multiplicity=[2.0, 1.0, 0.0])
    listed = models.clutter([2.0, 2.0, 2.5])
    assert gibbs(counted, samples=200, seed=1).mean == pytest.approx(gibbs(listed, samples=200, seed=1).mean, rel=1e-12)
    assert importance(counted, 500, 1).mean == pytest.approx(importance(listed, 500, 1).mean, rel=1e-9)
    with pytest.raises(ValueError, match="gibbs needs whole multiplicities"):
        gibbs(models.posterior(Clutter(0.5, 10.0), x, 0.0, 100.0, multiplicity=[1.5, 1.0, 1.0]))


def test_refusals():
    with pytest.raises(
        TypeError, match=r"gibbs supports .*clutter .*mixture_weights; found Gaussian factors under Gaussian"
    ):
        gibbs(models.posterior(Gaussian(1.0), np.zeros(3)))
    with pytest.raises(ValueError, match="samples must be at least 1"):
        importance(models.clutter([1.0]), samples=0)
    with pytest.raises(ValueError, match="samples must be at least 1"):
        gibbs(models.clutter([1.0]), samples=0)
    with pytest.raises(ValueError, match="samples of 2 numbers"):
        gibbs_density(gibbs_chain(models.clutter(np.zeros((3, 2))), 10), np.linspace(0, 1, 5))
    impossible = importance(models.truncation(0.0, 1.0, 50.0, 51.0), 100)
    assert impossible.log_evidence == -math.inf
    assert "likelihood zero" in impossible.note
