"""Variational bounds against their own definition by quadrature and against the exact evidence."""

import math

import jax
import numpy as np
import pytest
from scipy import stats

from cavity import models
from cavity.baselines import jensen, laplace, variational_bayes, variational_bound_by_quadrature
from cavity.exact_inference import exact
from cavity.exact_inference.problem_data import clutter_data
from cavity.factors.clutter import Clutter
from cavity.factors.regression import Gaussian


def clutter_points(seed: int, n: int, w: float, d: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    clutter = rng.random((n, 1)) < w
    x = np.where(clutter, rng.normal(0, math.sqrt(10), (n, d)), rng.normal(2, 1, (n, d)))
    return x[:, 0] if d == 1 else x


def printed_bound(problem, estimate, exchanged: bool) -> float:
    """(3.68–3.76) letter by letter for the thesis's prior, with w and 1 − w of (3.76) as printed or exchanged."""
    data = clutter_data(problem)
    x, w, d = data.x, data.w, data.x.shape[1]
    q = data.responsibilities(np.atleast_1d(estimate.mean), float(np.trace(np.atleast_2d(estimate.covariance))))
    shares = (1 - w, w) if exchanged else (w, 1 - w)
    value = 0.0
    for j, c in enumerate((1.0, 10.0)):
        k = q[j].sum()
        centre = q[j] @ x / k
        scatter = (q[j] * np.sum((x - centre) ** 2, axis=1)).sum()
        spread = (1.0 / k + 100.0) if j == 0 else 10.0 / k
        value += -0.5 * d * (k - 1) * math.log(2 * math.pi * c) - 0.5 * d * math.log(k) - 0.5 * scatter / c
        value += stats.norm.logpdf(centre, 0, math.sqrt(spread)).sum()
        value += (q[j] * np.log(shares[j] / q[j])).sum()
    return value


@pytest.mark.parametrize("w", [0.2, 0.5, 0.8])
def test_clutter_equals_its_own_bound(w):
    problem = models.clutter(clutter_points(1, 20, w), w=w)
    estimate = variational_bayes(problem)
    assert estimate.log_evidence == pytest.approx(variational_bound_by_quadrature(problem, estimate), abs=1e-9)
    assert estimate.note == ""


@pytest.mark.parametrize("d", [1, 3])
def test_printed_formula_has_w_and_one_minus_w_exchanged(d):
    problem = models.clutter(clutter_points(1, 20, 0.2, d), w=0.2)
    estimate = variational_bayes(problem)
    assert printed_bound(problem, estimate, exchanged=True) == pytest.approx(estimate.log_evidence, abs=1e-9)
    assert printed_bound(problem, estimate, exchanged=False) < estimate.log_evidence - 10
    half = models.clutter(clutter_points(1, 20, 0.5, d), w=0.5)
    same = variational_bayes(half)
    assert printed_bound(half, same, exchanged=False) == pytest.approx(same.log_evidence, abs=1e-9)


def test_clutter_bounds_the_evidence_on_fifty_sets():
    for seed in range(50):
        w = (0.2, 0.5, 0.8)[seed % 3]
        problem = models.clutter(clutter_points(seed, 12, w), w=w)
        estimate = variational_bayes(problem)
        assert estimate.log_evidence <= exact(problem).log_evidence + 1e-10
        values = [value for _, value, _ in estimate.trace]
        assert np.all(np.diff(values) >= -1e-11)


def test_clutter_vector_is_a_bound():
    for seed in range(10):
        problem = models.clutter(clutter_points(seed, 9, 0.5, 2))
        assert variational_bayes(problem).log_evidence <= exact(problem).log_evidence


def test_no_clutter_and_only_clutter_are_exact():
    x = clutter_points(3, 8, 0.3)
    for w in (0.0, 1.0):
        problem = models.clutter(x, w=w)
        np.testing.assert_allclose(variational_bayes(problem)[:3], exact(problem)[:3], rtol=1e-10, atol=1e-14)


def test_multiplicity_counts():
    counted = models.posterior(Clutter(0.5, 10.0), np.array([2.0, 2.5, -3.0]), 0.0, 100.0, multiplicity=[2.0, 1.0, 0.0])
    listed = models.clutter([2.0, 2.0, 2.5])
    for method in (variational_bayes, laplace, jensen):
        np.testing.assert_allclose(method(counted)[:3], method(listed)[:3], rtol=1e-7)


@pytest.mark.parametrize("components", [2, 3])
def test_mixture_is_a_bound(components):
    for seed in range(10):
        p = np.random.default_rng(seed).random((20, components))
        p[0, 0] = 0.0
        problem = models.mixture_weights(p, prior=0.6)
        estimate = variational_bayes(problem)
        assert estimate.log_evidence <= exact(problem).log_evidence
        assert np.all(np.diff([value for _, value, _ in estimate.trace]) >= -1e-11)
        if components == 2:
            bound = variational_bound_by_quadrature(problem, estimate)
            assert estimate.log_evidence == pytest.approx(bound, abs=1e-8)


def test_jensen_lies_between_variational_bayes_and_the_truth():
    for seed in range(12):
        w = (0.2, 0.5, 0.8)[seed % 3]
        problem = models.clutter(clutter_points(seed, 12, w), w=w)
        estimate = jensen(problem)
        assert variational_bayes(problem).log_evidence <= estimate.log_evidence + 1e-9
        assert estimate.log_evidence <= exact(problem).log_evidence + 1e-9
        assert estimate.note == ""


def test_jensen_value_by_quadrature():
    """E_q log (p/q) on a fine grid, q the estimate's own."""
    x = clutter_points(5, 20, 0.5)
    estimate = jensen(models.clutter(x))
    sd = math.sqrt(estimate.covariance)
    grid = estimate.mean + sd * np.linspace(-12, 12, 4001)
    q = stats.norm.pdf(grid, estimate.mean, sd)
    terms = 0.5 * stats.norm.pdf(x[:, None], grid, 1) + 0.5 * stats.norm.pdf(x, 0, math.sqrt(10))[:, None]
    log_joint = stats.norm.logpdf(grid, 0, 10) + np.log(terms).sum(axis=0)
    bound = np.sum(q * (log_joint - stats.norm.logpdf(grid, estimate.mean, sd))) * (grid[1] - grid[0])
    assert estimate.log_evidence == pytest.approx(bound, abs=1e-8)


def test_jensen_is_exact_for_a_gaussian_posterior():
    problem = models.posterior(Gaussian(0.5), np.array([1.0, 2.0]), 0.5, 3.0)
    np.testing.assert_allclose(jensen(problem)[:3], exact(problem)[:3], rtol=1e-8)


def test_jensen_is_minus_infinity_where_a_term_is_zero():
    estimate = jensen(models.truncation(0.0, 1.0, -1.0, 2.0))
    assert estimate.log_evidence == -math.inf
    assert "every Gaussian" in estimate.note


def test_refusals_and_precision():
    gaussian = models.posterior(Gaussian(1.0), np.zeros(3))
    with pytest.raises(
        TypeError, match=r"variational_bayes supports .*clutter .*mixture_weights; found Gaussian factors"
    ):
        variational_bayes(gaussian)
    with pytest.raises(TypeError, match=r"jensen supports .* scalar Gaussian prior .*; found Mixture factors"):
        jensen(models.mixture_weights(np.ones((2, 2))))
    with pytest.raises(TypeError, match="variational_bound_by_quadrature supports"):
        variational_bound_by_quadrature(gaussian, exact(gaussian))
    x = clutter_points(0, 12, 0.5)
    inside = jensen(models.clutter(x))
    with jax.enable_x64(False):
        outside = jensen(models.clutter(x))
    assert outside.log_evidence == inside.log_evidence
