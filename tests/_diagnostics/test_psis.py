"""Pareto smoothing against distributions whose tails and integrals are known."""

import math

import numpy as np
import pytest

from cavity._diagnostics.psis import Pareto, effective_sample_size, fit_pareto, smooth


@pytest.mark.parametrize("shape", [-0.4, 0.0, 0.3, 0.7, 1.2])
def test_the_fit_finds_shape_and_scale(shape):
    """Excesses drawn by inverting the distribution function; the average of many fits is close to the truth."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(100):
        u = rng.random(300)
        excesses = 2.5 * (-np.log(u) if shape == 0 else (u**-shape - 1) / shape)
        found.append(fit_pareto(excesses))
    mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
    assert abs(mean[0] - shape) < 0.04
    assert abs(mean[1] / 2.5 - 1) < 0.05
    if shape >= 0:
        # No worse than maximum likelihood, whose asymptotic deviation is (1 + k)/√n; near k = −½ that is not reached.
        assert spread[0] < 1.3 * (1 + shape) / math.sqrt(300)


@pytest.mark.parametrize("shape", [-0.5, 0.0, 0.8])
def test_quantiles_invert_the_distribution(shape):
    p = np.array([0.01, 0.5, 0.99])
    y = Pareto(shape, 3.0).quantile(p)
    below = 1 - np.exp(-y / 3.0) if shape == 0 else 1 - (1 + shape * y / 3.0) ** (-1 / shape)
    np.testing.assert_allclose(below, p, rtol=1e-12)


@pytest.mark.parametrize(("power", "low", "high"), [(0.2, 0.1, 0.35), (0.5, 0.4, 0.65), (0.9, 0.75, 1.05)])
def test_k_hat_of_weights_with_a_known_tail(power, low, high):
    """u^−k has the tail P(w > x) = x^(−1/k) exactly."""
    rng = np.random.default_rng(2)
    k_hats = [smooth(-power * np.log(rng.random(4000))).k_hat for _ in range(20)]
    assert low < np.mean(k_hats) < high


def test_smoothed_weights_estimate_a_known_moment():
    """E x² = 4 under N(0, 4), from draws of N(0, 1.5²): k = 1 − 1.5²/4 = 0.44, finite mean, infinite fourth moments."""
    rng = np.random.default_rng(3)
    plain, smoothed = [], []
    for _ in range(200):
        x = 1.5 * rng.standard_normal(1000)
        log_weights = -(x**2) / 8 + x**2 / 4.5
        weights = np.exp(log_weights)
        plain.append(weights @ x**2 / weights.sum())
        smoothed.append(np.exp(smooth(log_weights).log_weights) @ x**2)
    errors = [np.sqrt(np.mean((np.array(found) - 4.0) ** 2)) for found in (plain, smoothed)]
    assert errors[1] < errors[0] < 0.6
    assert abs(np.mean(smoothed) - 4.0) < 0.15


def test_weights_sum_to_one_keep_their_order_and_never_exceed_the_largest():
    log_weights = np.random.default_rng(4).standard_t(3, 500)
    found = smooth(log_weights).log_weights
    assert abs(np.exp(found).sum() - 1) < 1e-12
    np.testing.assert_array_equal(np.argsort(found, kind="stable"), np.argsort(log_weights, kind="stable"))
    raw_ratio = log_weights.max() - np.sort(log_weights)[250]
    assert found.max() - np.sort(found)[250] <= raw_ratio + 1e-12


def test_weights_without_a_tail():
    flat = smooth(np.zeros(200))
    assert flat.k_hat == 0.0
    np.testing.assert_allclose(np.exp(flat.log_weights), 1 / 200)
    half = smooth(np.where(np.arange(200) < 100, 0.0, -math.inf))
    assert half.k_hat == 0.0
    assert np.exp(half.log_weights).sum() == pytest.approx(1.0)
    assert smooth(np.where(np.arange(200) < 2, 0.0, -math.inf)).k_hat == math.inf
    none = smooth(np.full(50, -math.inf))
    assert none.k_hat == math.inf and np.all(none.log_weights == -math.inf)


def test_effective_sample_size():
    assert effective_sample_size(np.full(40, -700.0)) == pytest.approx(40)
    assert effective_sample_size(np.log([1.0, 2.0, 3.0])) == pytest.approx(36 / 14)
    assert effective_sample_size(np.array([0.0, -math.inf])) == 1.0
    assert effective_sample_size(np.full(3, -math.inf)) == 0.0
