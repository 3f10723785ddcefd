"""Directed Decision and Probabilistic Teacher: by hand, and where the components are separable."""

import math

import numpy as np
import pytest
from scipy import stats

from cavity import models
from cavity.baselines import directed_decision, probabilistic_teacher
from cavity.exact_inference import exact


def test_directed_decision_by_hand():
    p = np.array([[0.9, 0.3], [0.2, 0.3], [0.5, 0.6]])
    estimate = directed_decision(models.mixture_weights(p))
    # a = (1, 1) → first; a = (2, 1): 0.4 against 0.3 → first; a = (3, 1): 1.5 against 0.6 → first; a = (4, 1)
    np.testing.assert_allclose(estimate.mean, [0.8, 0.2])
    predictive = [(0.9 + 0.3) / 2, (0.4 + 0.3) / 3, (1.5 + 0.6) / 4]
    assert estimate.log_evidence == pytest.approx(math.log(np.prod(predictive)), abs=1e-13)
    assert estimate.evaluations == 3
    assert estimate.covariance[0, 0] == pytest.approx(stats.beta(4, 1).var(), rel=1e-12)
    np.testing.assert_allclose([step[1] for step in estimate.trace], np.cumsum(np.log(predictive)), rtol=1e-12)


def test_separable_components_are_counted():
    """When every observation names its component both rules, and the exact answer, are the same Dirichlet."""
    rng = np.random.default_rng(0)
    z = rng.choice(3, 60, p=[0.5, 0.3, 0.2])
    x = rng.normal(z * 100.0, 1.0)
    problem = models.mixture_weights(stats.norm.pdf(x[:, None], np.array([0.0, 100.0, 200.0]), 1.0), prior=0.5)
    truth = exact(problem)
    for estimate in (directed_decision(problem), probabilistic_teacher(problem, seed=0)):
        assert estimate.log_evidence == pytest.approx(truth.log_evidence, abs=1e-10)
        np.testing.assert_allclose(estimate.mean, (0.5 + np.bincount(z)) / 61.5, rtol=1e-12)
        np.testing.assert_allclose(estimate.covariance, truth.covariance, rtol=1e-10)


def test_teacher_draws_from_the_predictive_probabilities():
    problem = models.mixture_weights([[0.3, 0.1]], prior=[1.0, 2.0])
    firsts = [probabilistic_teacher(problem, seed).mean[0] == pytest.approx(0.5) for seed in range(400)]
    # P(first) = 0.3 / (0.3 + 0.2) = 0.6
    assert abs(np.mean(firsts) - 0.6) < 4 * math.sqrt(0.24 / 400)


def test_overlapping_components_mislead_directed_decision():
    """The fault of the rule: it ends at one component, while the teacher keeps the truth within its spread."""
    x = np.random.default_rng(1).normal(0.5, math.sqrt(3.25), 500)
    p = stats.norm.pdf(x[:, None], np.array([0.0, 1.0]), math.sqrt(3))
    problem = models.mixture_weights(p)
    truth = exact(problem)
    decided = directed_decision(problem)
    gap = abs(decided.mean[0] - truth.mean[0])
    assert gap > 3 * math.sqrt(decided.covariance[0, 0])
    assert decided.covariance[0, 0] < truth.covariance[0, 0]


def test_refusals():
    with pytest.raises(TypeError, match=r"directed_decision supports .*mixture_weights; found Clutter factors"):
        directed_decision(models.clutter([1.0]))
    with pytest.raises(TypeError, match=r"probabilistic_teacher supports .*mixture_weights; found Clutter factors"):
        probabilistic_teacher(models.clutter([1.0]))
