"""Exact answers against mpmath, spectrally accurate trapezoid sums, brute force and closed forms."""

import itertools
import math

import jax
import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp

from cavity import models
from cavity.exact_inference import exact, posterior_density
from cavity.exact_inference.answers import POINTS, WEIGHTS, enumerate_clutter, integrate_on_host
from cavity.exact_inference.problem_data import clutter_data
from cavity.factors.clutter import Clutter
from cavity.factors.regression import Gaussian


def clutter_points(seed: int, n: int, theta: float = 2.0, w: float = 0.5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < w, rng.normal(0, math.sqrt(10), n), rng.normal(theta, 1, n))


def clutter_log_joint(x: np.ndarray, grid: np.ndarray, w: float, v: float = 100.0) -> np.ndarray:
    """Written from (3.1–3.3) with scipy's densities."""
    background = w * stats.norm.pdf(x, 0, math.sqrt(10))
    terms = np.log((1 - w) * stats.norm.pdf(x[:, None], grid, 1) + background[:, None])
    return stats.norm.logpdf(grid, 0, math.sqrt(v)) + terms.sum(axis=0)


def trapezoid(log_f: np.ndarray, grid: np.ndarray) -> tuple[float, float, float]:
    """On a uniform grid the trapezoid rule converges exponentially for a smooth density that vanishes at both ends."""
    log_z = logsumexp(log_f) + math.log(grid[1] - grid[0])
    share = np.exp(log_f - logsumexp(log_f))
    mean = share @ grid
    return log_z, mean, share @ (grid - mean) ** 2


def test_the_panel_rule_is_exact_for_polynomials():
    for degree in range(33):
        expected = 2 / (degree + 1) if degree % 2 == 0 else 0.0
        assert WEIGHTS @ POINTS**degree == pytest.approx(expected, abs=1e-14)


def test_clutter_against_mpmath():
    x = [2.1, -0.4, 7.0]
    estimate = exact(models.clutter(x, w=0.3))
    with mpmath.workdps(20):

        def joint(t):
            value = mpmath.npdf(t, 0, 10)
            for point in x:
                value *= 0.7 * mpmath.npdf(point, t, 1) + 0.3 * mpmath.npdf(point, 0, mpmath.sqrt(10))
            return value

        pieces = [-120, -40, *range(-15, 21, 5), 40, 120]
        moments = [mpmath.quad(lambda t, k=k: t**k * joint(t), pieces) for k in range(3)]
        mean = moments[1] / moments[0]
        reference = [float(mpmath.log(moments[0])), float(mean), float(moments[2] / moments[0] - mean**2)]
    assert estimate.log_evidence == pytest.approx(reference[0], abs=1e-13)
    assert estimate.mean == pytest.approx(reference[1], rel=1e-12)
    assert estimate.covariance == pytest.approx(reference[2], rel=1e-12)


@pytest.mark.parametrize(("n", "w"), [(20, 0.5), (20, 0.7), (200, 0.5)])
def test_clutter_against_trapezoid_sums(n, w):
    x = clutter_points(n, n, w=w)
    grid = np.linspace(-90, 90, 9_001)
    estimate = exact(models.clutter(x, w=w))
    log_z, mean, variance = trapezoid(clutter_log_joint(x, grid, w), grid)
    assert estimate.log_evidence == pytest.approx(log_z, abs=1e-11)
    assert estimate.mean == pytest.approx(mean, rel=1e-11)
    assert estimate.covariance == pytest.approx(variance, rel=1e-10)
    assert estimate.note == ""
    assert estimate.evaluations % n == 0
    assert estimate.trace[-1] == (estimate.evaluations, estimate.log_evidence, estimate.mean)


def test_three_narrow_modes_far_apart_in_a_wide_prior():
    x = np.concatenate([300 + np.arange(4) / 10, -200 + np.arange(4) / 10, np.arange(4) / 10])
    # The clutter is so wide that each cluster may be the signal.
    problem = models.clutter(x, w=0.5, clutter_variance=1e6, prior_variance=1e8)
    by_panels, by_sets = exact(problem), enumerate_clutter(clutter_data(problem))
    assert by_panels.log_evidence == pytest.approx(by_sets.log_evidence, abs=1e-11)
    assert by_panels.mean == pytest.approx(by_sets.mean, abs=1e-9)
    assert by_panels.covariance == pytest.approx(by_sets.covariance, rel=1e-10)
    assert by_panels.covariance > 1e4


@pytest.mark.parametrize("seed", range(5))
def test_enumeration_and_quadrature_agree_in_one_dimension(seed):
    problem = models.clutter(clutter_points(seed, 10), w=0.1 + 0.2 * seed)
    by_panels, by_sets = exact(problem), enumerate_clutter(clutter_data(problem))
    np.testing.assert_allclose(by_sets[:3], by_panels[:3], rtol=1e-11)
    one_column = exact(models.clutter(clutter_points(seed, 10)[:, None], w=0.1 + 0.2 * seed))
    assert one_column.mean.shape == (1,)
    np.testing.assert_allclose(one_column.covariance, [[by_panels.covariance]], rtol=1e-12)


def test_enumeration_in_two_dimensions_against_a_grid():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(5, 2)) * 2 + 1
    covariance = np.array([[4.0, 1.5], [1.5, 2.0]])
    problem = models.posterior(Clutter(0.4, 10.0), x, prior_mean=[0.5, -1.0], prior_variance=covariance)
    estimate = exact(problem)
    side = np.linspace(-14, 14, 281)
    grid = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    log_f = stats.multivariate_normal([0.5, -1.0], covariance).logpdf(grid)
    for point in x:
        signal = 0.6 * stats.multivariate_normal(point, np.eye(2)).pdf(grid)
        log_f += np.log(signal + 0.4 * stats.multivariate_normal([0, 0], 10 * np.eye(2)).pdf(point))
    log_z = logsumexp(log_f) + 2 * math.log(side[1] - side[0])
    share = np.exp(log_f - logsumexp(log_f))
    mean = share @ grid
    assert estimate.log_evidence == pytest.approx(log_z, abs=1e-10)
    np.testing.assert_allclose(estimate.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(estimate.covariance, ((grid - mean).T * share) @ (grid - mean), rtol=1e-9)
    np.testing.assert_allclose(posterior_density(problem, grid[:500], log=True), log_f[:500], rtol=1e-12)


def test_conjugate_and_narrow():
    """One observation a million times sharper than the prior, many prior deviations away."""
    y, variance = 37.123456, 1e-8
    estimate = exact(models.posterior(Gaussian(variance), np.array([y]), 0.0, 1.0))
    assert estimate.log_evidence == pytest.approx(stats.norm.logpdf(y, 0, math.sqrt(1 + variance)), abs=1e-9)
    assert estimate.mean == pytest.approx(y / (1 + variance), rel=1e-13)
    assert estimate.covariance == pytest.approx(variance / (1 + variance), rel=1e-6)


def test_a_jump_is_located():
    estimate = exact(models.truncation(0.3, 4.0, 1.0, 1.7))
    reference = stats.truncnorm((1.0 - 0.3) / 2, (1.7 - 0.3) / 2, 0.3, 2.0)
    assert estimate.log_evidence == pytest.approx(math.log(np.diff(stats.norm.cdf([1.0, 1.7], 0.3, 2.0))[0]), abs=1e-11)
    assert estimate.mean == pytest.approx(reference.mean(), rel=1e-11)
    assert estimate.covariance == pytest.approx(reference.var(), rel=1e-9)


def test_no_mass_is_said():
    estimate = exact(models.truncation(0.0, 1.0, [2.0, -3.0], [3.0, -2.0]))
    assert estimate.log_evidence == -math.inf
    assert "No mass" in estimate.note


def test_integrate_a_spike_on_a_background():
    """A peak at a panel's edge is climbed to from both sides."""
    result = integrate_on_host(lambda t: -0.5 * ((t - 1.0 - 1e-7) / 1e-9) ** 2, np.linspace(-5, 5, 11))
    assert result.log_z == pytest.approx(math.log(1e-9 * math.sqrt(2 * math.pi)), abs=1e-6)


def brute_force(p: np.ndarray, a: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Sum over every assignment of observations to components."""
    n, components = p.shape
    z, first, second = 0.0, np.zeros(components), np.zeros((components, components))
    for choice in itertools.product(range(components), repeat=n):
        counts = a + np.bincount(choice, minlength=components)
        total = counts.sum()
        weight = np.prod(p[np.arange(n), list(choice)])
        weight *= np.exp(gammaln(counts).sum() - gammaln(total) - gammaln(a).sum() + gammaln(a.sum()))
        z += weight
        first += weight * counts / total
        second += weight * (np.outer(counts, counts) + np.diag(counts)) / (total * (total + 1))
    return math.log(z), first / z, second / z - np.outer(first, first) / z**2


@pytest.mark.parametrize(("components", "prior"), [(2, [1.0, 1.0]), (3, [0.5, 2.0, 1.3]), (4, [1.0, 1.0, 1.0, 1.0])])
def test_mixture_against_all_assignments(components, prior):
    p = np.random.default_rng(components).random((6, components))
    p[2, 0] = 0.0
    estimate = exact(models.mixture_weights(p, prior=prior))
    log_z, mean, covariance = brute_force(p, np.array(prior))
    assert estimate.log_evidence == pytest.approx(log_z, abs=1e-13)
    np.testing.assert_allclose(estimate.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(estimate.covariance, covariance, rtol=1e-11)


def test_two_components_against_quadrature():
    x = np.random.default_rng(0).normal(0.5, math.sqrt(3), 50)
    p = np.stack([stats.norm.pdf(x, 0, math.sqrt(3)), stats.norm.pdf(x, 1, math.sqrt(3))], axis=1)
    problem = models.mixture_weights(p, prior=[0.7, 1.4])
    estimate = exact(problem)
    logit = np.linspace(-80, 80, 8001)
    w = 1 / (1 + np.exp(-logit))
    log_f = stats.beta.logpdf(w, 0.7, 1.4) + np.log(w) - np.logaddexp(0, logit)
    log_f += np.log(np.outer(w, p[:, 0]) + np.outer(1 / (1 + np.exp(logit)), p[:, 1])).sum(axis=1)
    log_f = np.where(np.isfinite(log_f), log_f, -np.inf)
    share = np.exp(log_f - logsumexp(log_f))
    assert estimate.log_evidence == pytest.approx(logsumexp(log_f) + math.log(logit[1] - logit[0]), abs=1e-8)
    assert estimate.mean[0] == pytest.approx(share @ w, abs=1e-8)
    assert estimate.covariance[0, 0] == pytest.approx(share @ (w - share @ w) ** 2, rel=1e-7)
    grid = np.array([0.2, 0.6])
    direct = stats.beta.logpdf(grid, 0.7, 1.4) + np.log(np.outer(grid, p[:, 0]) + np.outer(1 - grid, p[:, 1])).sum(
        axis=1
    )
    np.testing.assert_allclose(posterior_density(problem, grid, log=True), direct, rtol=1e-12)


def test_three_components_against_two_dimensional_quadrature():
    """A polynomial on the triangle: the tensor Gauss–Legendre rule is exact after w = (u, (1−u)v, (1−u)(1−v))."""
    p = np.random.default_rng(5).random((12, 3)) * np.array([1.0, 3.0, 0.2])
    a = np.array([1.0, 3.0, 2.0])
    points, weights = np.polynomial.legendre.leggauss(30)
    u, v = np.meshgrid(0.5 + 0.5 * points, 0.5 + 0.5 * points, indexing="ij")
    w = np.stack([u, (1 - u) * v, (1 - u) * (1 - v)], axis=-1)
    constant = np.exp(gammaln(a.sum()) - gammaln(a).sum())
    f = 0.25 * np.outer(weights, weights) * (1 - u) * constant * np.prod(w ** (a - 1), axis=-1)
    f *= np.prod(w @ p.T, axis=-1)
    mean = np.einsum("ij,ijk->k", f, w) / f.sum()
    estimate = exact(models.mixture_weights(p, prior=a))
    assert estimate.log_evidence == pytest.approx(math.log(f.sum()), abs=1e-12)
    np.testing.assert_allclose(estimate.mean, mean, rtol=1e-12)
    covariance = np.einsum("ij,ijk,ijl->kl", f, w - mean, w - mean) / f.sum()
    np.testing.assert_allclose(estimate.covariance, covariance, rtol=1e-10)


def test_uniform_prior_is_normalised():
    """(3.81) says p(w) = 1, which is a density only for K = 2; with Γ(K) one observation has the mean density."""
    assert exact(models.mixture_weights([[1.0, 2.0, 6.0]])).log_evidence == pytest.approx(math.log(3.0), abs=1e-14)


def test_densities_of_any_scale():
    rng = np.random.default_rng(1)
    p = np.exp(rng.normal(size=(100, 2)) * 5)
    scaled = p * np.exp(rng.normal(size=100) * 100)[:, None]
    shift = float(np.log(scaled[:, 0] / p[:, 0]).sum())
    plain, far = exact(models.mixture_weights(p)), exact(models.mixture_weights(scaled))
    assert far.log_evidence == pytest.approx(plain.log_evidence + shift, rel=1e-12)
    np.testing.assert_allclose(far.mean, plain.mean, rtol=1e-11)


def test_multiplicity_counts():
    x = np.array([2.0, 2.5, -3.0])
    prior = {"prior_mean": 0.0, "prior_variance": 100.0}
    counted = exact(models.posterior(Clutter(0.5, 10.0), x, multiplicity=np.array([2.0, 1.0, 0.0]), **prior))
    listed = exact(models.clutter([2.0, 2.0, 2.5]))
    np.testing.assert_allclose(counted[:3], listed[:3], rtol=1e-12)
    vectors = {"prior_mean": np.zeros(2), "prior_variance": 100.0}
    pairs = np.stack([x, x], axis=1)
    problem = models.posterior(Clutter(0.5, 10.0), pairs, multiplicity=np.array([2.0, 1.0, 0.0]), **vectors)
    listed = exact(models.clutter(pairs[[0, 0, 1]]))
    assert exact(problem).log_evidence == pytest.approx(listed.log_evidence, abs=1e-12)
    fraction = models.posterior(Clutter(0.5, 10.0), pairs, multiplicity=np.array([1.5, 1.0, 1.0]), **vectors)
    with pytest.raises(ValueError, match=r"whole multiplicities; found 1.5"):
        exact(fraction)


def test_what_is_too_much_is_refused():
    with pytest.raises(ValueError, match="n ≤ 14; found 15"):
        exact(models.clutter(np.zeros((15, 2))))
    with pytest.raises(ValueError, match="n = 300 and K = 5"):
        exact(models.mixture_weights(np.ones((300, 5))))


def test_a_grid_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"one row of 3 numbers per point; found shape \(4,\)"):
        posterior_density(models.mixture_weights(np.ones((2, 3))), np.ones(4) / 3)
    with pytest.raises(ValueError, match=r"one row of 2 numbers per point; found shape \(4,\)"):
        posterior_density(models.clutter(np.ones((2, 2))), np.ones(4))


def test_other_problems_are_refused():
    vector = models.posterior(Gaussian(1.0), np.zeros((3, 2)), prior_mean=np.zeros(2))
    with pytest.raises(TypeError, match=r"exact supports .*; found Gaussian factors under FullGaussian"):
        exact(vector)
    with pytest.raises(TypeError, match=r"must be a cavity Problem .* found str"):
        exact("clutter")


def test_outside_double_precision():
    x = clutter_points(0, 20)
    inside = exact(models.clutter(x))
    with jax.enable_x64(False):
        outside = exact(models.clutter(x))
    assert outside.log_evidence == inside.log_evidence
    assert isinstance(outside.mean, float)
