"""Truncation as a model: one site is exact, several bounds combine."""

import numpy as np
import pytest
from scipy import stats

import cavity as cv


@pytest.mark.parametrize(("lower", "upper"), [(-np.inf, 0.3), (1.0, np.inf), (-0.5, 0.7), (5.0, 5.1), (-30.0, -29.0)])
@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (2.0, 9.0)])
def test_one_site_is_exact(lower, upper, mean, variance):
    solution = cv.infer(cv.models.truncation(mean, variance, lower, upper))
    sd = np.sqrt(variance)
    reference = stats.truncnorm((lower - mean) / sd, (upper - mean) / sd, loc=mean, scale=sd)
    assert solution.status == "converged"
    np.testing.assert_allclose(solution.mean, reference.mean(), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(solution.covariance, reference.var(), rtol=1e-6)
    low, high = stats.norm.logcdf([(lower - mean) / sd, (upper - mean) / sd])
    if lower + upper < 2 * mean:
        np.testing.assert_allclose(solution.log_evidence, high + np.log1p(-np.exp(low - high)), rtol=1e-9, atol=1e-12)


def test_two_one_sided_sites_approximate_an_interval():
    both = cv.infer(cv.models.truncation(0.0, 1.0, lower=[-1.0, -np.inf], upper=[np.inf, 1.0]))
    one = cv.infer(cv.models.truncation(0.0, 1.0, -1.0, 1.0))
    assert both.converged
    np.testing.assert_allclose(both.mean, 0.0, atol=1e-8)
    assert abs(both.log_evidence - one.log_evidence) < 0.1


def test_bounds_can_be_mapped():
    import jax

    lower = np.array([-1.0, 0.0, 2.0])
    together = jax.vmap(lambda a: cv.infer(cv.models.truncation(0.0, 1.0, a)).mean)(lower)
    np.testing.assert_allclose(together, stats.truncnorm(lower, np.inf).mean(), rtol=1e-9)


def test_the_factor_takes_infinite_bounds_as_data():
    problem = cv.models.posterior(cv.factors.Truncation(), (np.array([0.0]), np.array([np.inf])))
    np.testing.assert_allclose(cv.infer(problem).mean, np.sqrt(2 / np.pi), rtol=1e-10)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((0.0, 1.0, 2.0, 1.0), "lower"),
        ((0.0, 1.0, 1.0, 1.0), "lower"),
        ((0.0, 1.0, np.nan, 1.0), "lower"),
        ((0.0, -1.0, 0.0, 1.0), "variance"),
        ((np.nan, 1.0, 0.0, 1.0), "mean"),
        ((0.0, 1.0, "a", 1.0), "lower"),
        ((0.0, 1.0, [], 1.0), "lower"),
        ((0.0, 1.0, [0.0, 1.0], [2.0, 3.0, 4.0]), "lower"),
    ],
)
def test_bad_input_is_named(arguments, word):
    with pytest.raises(ValueError, match=word):
        cv.models.truncation(*arguments)
