"""Proposals: densities against SciPy, strata against known integrals, particles against a posterior with two modes."""

import math

import numpy as np
import pytest
from scipy import stats

from cavity._diagnostics.proposal import Component, fit_mixture, mixture, temper, widen_gaussian
from cavity._diagnostics.psis import stratified_log_mean, weighted_moments

MEAN, ROOT = np.array([1.0, -2.0]), np.array([[2.0, 0.0], [0.7, 0.5]])


@pytest.mark.parametrize("freedom", [math.inf, 8.0])
def test_densities_of_components(freedom):
    z = np.random.default_rng(0).normal(size=(20, 2)) * 4
    covariance = ROOT @ ROOT.T
    if math.isinf(freedom):
        expected = stats.multivariate_normal(MEAN, covariance).logpdf(z)
    else:
        expected = stats.multivariate_t(MEAN, covariance, df=freedom).logpdf(z)
    np.testing.assert_allclose(Component(MEAN, ROOT, freedom).log_density(z), expected, rtol=1e-12)


def test_no_component_around_what_is_no_gaussian():
    assert widen_gaussian(MEAN, -np.eye(2), 8.0, 1.2) is None
    assert widen_gaussian(np.array([np.nan, 0.0]), np.eye(2), 8.0, 1.2) is None


def test_the_error_of_a_stratified_estimate_is_the_one_met():
    """∫ N(z; 0, 1) = 1 by draws from three components: the estimates scatter as their error bars say."""
    target = Component(np.zeros(1), np.eye(1))
    proposal = mixture(
        [
            (0.2, Component(np.array([-1.0]), np.eye(1))),
            (0.0, None),
            (0.3, Component(np.array([2.0]), 2 * np.eye(1), 8.0)),
            (0.5, Component(np.array([0.5]), 0.6 * np.eye(1))),
        ]
    )
    found = []
    for seed in range(300):
        drawn = proposal.draw(np.random.default_rng(seed), 200)
        assert len(drawn.z) == 200
        found.append(stratified_log_mean(target.log_density(drawn.z) - drawn.log_density, drawn.stratum))
    values, errors = np.array(found).T
    assert abs(np.mean(np.exp(values)) - 1) < 4 * values.std() / math.sqrt(300)
    assert 0.9 < values.std() / np.sqrt(np.mean(errors**2)) < 1.1


def test_particles_find_two_narrow_modes_in_a_wide_prior():
    """Two modes of width 0.02 at distance 2 under N(0, I) in three dimensions, the farther one with more mass."""
    spots = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    log_heights = np.log([0.3, 0.7])

    def log_likelihood(z):
        squares = np.sum((z[:, None] - spots) ** 2, axis=2)
        return np.logaddexp.reduce(log_heights - 0.5 * squares / 0.02**2, axis=1)

    found = [temper(log_likelihood, 3, np.random.default_rng(seed), 1000) for seed in range(8)]
    # The prior is 0.02-flat at both spots: ∫ N(z; 0, I) L = Σ heights (2π)^{3/2} 0.02³ N(spot; 0, I).
    exact = 3 * math.log(0.02) - 0.5
    assert abs(np.mean([particles.log_evidence for particles in found]) - exact) < 0.15
    assert abs(np.mean([particles.z[:, 0] < 0 for particles in found]) - 0.7) < 0.1
    fitted = fit_mixture(found[0].z, np.random.default_rng(0), 2)
    np.testing.assert_allclose(sorted(mean[0] for _, mean, _ in fitted), [-1.0, 1.0], atol=0.02)


def test_a_likelihood_that_is_zero_everywhere_has_no_particles():
    assert temper(lambda z: np.full(len(z), -math.inf), 2, np.random.default_rng(0), 50) is None


def test_moments_of_a_discrete_distribution():
    """Weighted values are a distribution of their own: its moments by hand."""
    x = np.array([[0.0, 1.0], [2.0, 1.0], [2.0, 4.0]])
    weights = np.array([0.5, 0.25, 0.25])
    found = weighted_moments(x, weights, most=50)
    np.testing.assert_allclose(found.mean, [1.0, 1.75])
    np.testing.assert_allclose(found.covariance, [[1.0, 0.75], [0.75, 1.6875]])
    np.testing.assert_allclose(found.variance, [1.0, 1.6875])
    np.testing.assert_allclose(found.mean_error[0], math.sqrt(0.25 + 2 / 16))
    product = (x - found.mean).prod(axis=1)
    np.testing.assert_allclose(found.covariance_error[0, 1], math.sqrt(weights**2 @ (product - 0.75) ** 2))
    assert weighted_moments(x, weights, most=1).covariance is None
    number, pair = weighted_moments((x[:, 0], x), weights, most=50).mean
    assert number == 1.0 and pair.shape == (2,)
