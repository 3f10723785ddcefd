"""Digits that are lost where numbers are large or small, 34, 37, 41 and 47 of the list of known defects.

Each test states the right answer of a known defect, fails today, and whoever mends the defect takes the mark off.
"""

import jax
import mpmath
import numpy as np
import pytest
from right_or_refused import unless_refused
from scipy.special import log_ndtr

import cavity as cv


def log_normal(x, variance):
    """log N(x; 0, variance)."""
    return -0.5 * np.log(2 * np.pi * variance) - 0.5 * x**2 / variance


# ---------------------------------------------------------------- 34: Gaussian noise that is small


def exact_process(X, y, length_scale, noise):
    """(log evidence, log p(yᵢ | the others)) of a Gaussian process with the Gaussian kernel; K itself is well posed."""
    covariance = np.exp(-0.5 * ((X - X.T) / length_scale) ** 2) + noise**2 * np.eye(len(y))
    inverse = np.linalg.inv(covariance)
    evidence = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    variances = 1 / np.diag(inverse)
    return evidence, log_normal(variances * (inverse @ y), variances)


def fitted(X, y, length_scale, noise):
    kernel = cv.kernels.RBF(length_scale).fix()
    return cv.GPRegressor(kernel, noise=noise, normalize_y=False, optimize=False).fit(X, y)


SIX = np.array([[1.0], [3.0], [5.0], [6.0], [7.0], [8.0]])


@pytest.mark.parametrize("noise", [1e-5, 1e-6, 1e-7, 1e-10])
def test_the_evidence_of_a_process_keeps_its_digits_at_small_noise(noise):
    y = (SIX * np.sin(SIX)).ravel()
    exact, _ = exact_process(SIX, y, 1.0, noise)
    assert exact == pytest.approx(-48.88021, abs=1e-5)
    assert fitted(SIX, y, 1.0, noise).log_evidence_ == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("noise", [1e-5, 1e-10])
def test_left_out_rows_keep_their_digits_at_small_noise(noise):
    y = (SIX * np.sin(SIX)).ravel()
    _, exact = exact_process(SIX, y, 1.0, noise)
    np.testing.assert_allclose(fitted(SIX, y, 1.0, noise).loo_log_predictive_, exact, rtol=0, atol=1e-7)


def test_the_evidence_of_sixty_rows_keeps_its_digits_at_small_noise():
    X = np.linspace(0.0, 12.0, 60)[:, None]
    y = (X * np.sin(X)).ravel()
    exact, _ = exact_process(X, y, 0.3, 1e-8)
    assert fitted(X, y, 0.3, 1e-8).log_evidence_ == pytest.approx(exact, abs=1e-6)


# ---------------------------------------------------------------- 37: extremes


@pytest.mark.parametrize("shape", [1e6, 1e9, 1e11])
def test_the_density_of_a_gamma_keeps_its_digits_at_a_large_shape(shape):
    with mpmath.workdps(50):
        a, x = mpmath.mpf(shape), mpmath.mpf(0.25)
        exact = float(a * mpmath.log(4 * a) - mpmath.loggamma(a) + (a - 1) * mpmath.log(x) - 4 * a * x)
    family = cv.families.Gamma()
    found = float(family.log_density(family.from_shape_rate(shape, 4 * shape), 0.25))
    assert found == pytest.approx(exact, rel=1e-13)


def test_a_column_with_a_zero_can_be_the_weights_of_a_linear_relation():
    column, y, noise = np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 2.5]), 0.1
    graph = cv.FactorGraph()
    slope, level = graph.gaussian(0.0, 1.0), graph.gaussian(0.0, 1.0)
    graph.linear(slope, level, weights=(column, 1.0), variance=noise, out=y)
    found = cv.infer(graph, cv.EP())
    design = np.stack([column, np.ones(3)], axis=1)
    mean = np.linalg.solve(np.eye(2) + design.T @ design / noise, design.T @ y / noise)
    np.testing.assert_allclose([found.marginals[slope].mean, found.marginals[level].mean], mean, atol=1e-6)


def test_a_very_wide_gaussian_cut_to_an_interval_converges():
    found = cv.infer(cv.models.truncation(0.0, 1e16, 0.0, 1.0), cv.EP())
    # Uniform on the interval but for 1e-17.
    assert found.mean == pytest.approx(0.5, abs=1e-9)
    assert found.covariance == pytest.approx(1 / 12, abs=1e-9)
    assert found.log_evidence == pytest.approx(log_normal(0.0, 1e16), abs=1e-9)
    assert found.status == "converged"


@pytest.mark.parametrize(
    ("name", "mean", "variance", "exact"),
    [("mean", np.inf, 1.0, 1.0), ("mean", -np.inf, 1.0, 0.0), ("variance", 0.5, np.inf, 0.5)],
)
def test_the_logistic_integral_has_its_limits_at_infinity(name, mean, variance, exact):
    found = unless_refused(lambda: cv.factors.Logistic().predict(mean, variance)["probability"], naming=name)
    assert found is None or float(found) == pytest.approx(exact, abs=1e-12)


# ---------------------------------------------------------------- 41: far from 0 in units of the posterior's width


def test_the_evidence_of_a_truncation_far_from_zero_keeps_its_digits():
    found = cv.infer(cv.models.truncation(1e8, 1.0, 1e8 - 0.5, 1e8 + 1.0), cv.EP())
    # Φ(1) − Φ(−½)
    exact = np.log(np.exp(log_ndtr(1.0)) - np.exp(log_ndtr(-0.5)))
    assert exact == pytest.approx(-0.630, abs=1e-3)
    assert found.log_evidence == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize(("mean", "variance", "off"), [(1.7e9, 1.0, 0.5), (1e5, 1e-4, 0.005)])
def test_the_evidence_of_one_gaussian_observation_far_from_zero_keeps_its_digits(mean, variance, off):
    graph = cv.FactorGraph()
    x = graph.gaussian(mean, variance)
    graph.add(cv.factors.Gaussian(variance), x, data=mean + off)
    found = cv.infer(graph, cv.EP())
    # What is seen of y is the number nearest to mean + off.
    assert found.log_evidence == pytest.approx(log_normal((mean + off) - mean, 2 * variance), abs=1e-6)


def test_the_evidence_of_clutter_far_from_zero_keeps_its_digits():
    graph = cv.FactorGraph()
    x = graph.gaussian(1e8, 100.0)
    graph.add(cv.factors.Clutter(0.5, 10.0), x, data=1e8 + 1.0)
    # No clutter around 0 comes so far: the observation is one of x, N(1; 0, 101), with probability ½.
    assert cv.infer(graph, cv.EP()).log_evidence == pytest.approx(np.log(0.5) + log_normal(1.0, 101.0), abs=1e-7)


def test_the_evidence_of_a_bound_far_out_keeps_its_digits():
    found = cv.infer(cv.models.truncation(0.0, 1.0, 1e5), cv.EP())
    assert found.log_evidence == pytest.approx(log_ndtr(-1e5), rel=1e-12)


# ---------------------------------------------------------------- 47: single precision under a user's own jit


def test_infer_under_a_users_jit_is_exact_or_refused():
    with jax.enable_x64(False):  # as in a program that changed no setting
        graph = cv.FactorGraph()
        x = graph.gaussian(1000.3, 1.0)
        graph.add(cv.factors.Gaussian(1.0), x, data=1001.7)
        problem = graph.problem()
        found = unless_refused(lambda: float(jax.jit(cv.infer)(problem).log_evidence), naming="x64")
        alone = float(cv.infer(graph).log_evidence)
    assert alone == pytest.approx(log_normal(1001.7 - 1000.3, 2.0), abs=1e-9)
    assert found is None or found == pytest.approx(alone, rel=1e-12)
