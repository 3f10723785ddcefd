"""Laplace's method: the mode by finite differences of the joint density, the integral by its own formula."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from cavity import models
from cavity.baselines import laplace
from cavity.baselines._laplace import clutter_curvature, logistic_normal, softmax_curvature
from cavity.exact_inference import exact, posterior_density
from cavity.exact_inference.problem_data import clutter_data, mixture_data
from cavity.factors.base import Factor, factor
from cavity.factors.clutter import Clutter
from cavity.factors.regression import Gaussian
from cavity.families import Dirichlet


@factor
class Logit(Factor):
    """A Bernoulli observation y = ±1 of log odds θ·z."""

    def log_density(self, x, data):
        z, y = data
        return -jnp.logaddexp(0.0, -y * jnp.sum(z * x))


def differences(f, point: np.ndarray, h: float = 1e-3) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and Hessian by central differences."""
    d = point.size
    eye = np.eye(d) * h
    gradient = np.array([(f(point + e) - f(point - e)) / (2 * h) for e in eye])
    hessian = np.array(
        [
            [(f(point + a + b) - f(point + a - b) - f(point - a + b) + f(point - a - b)) / (4 * h * h) for b in eye]
            for a in eye
        ]
    )
    return gradient, hessian


def clutter_points(seed: int, n: int, d: int, w: float = 0.5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    clutter = rng.random((n, 1)) < w
    return np.where(clutter, rng.normal(0, math.sqrt(10), (n, d)), rng.normal(2, 1, (n, d)))


@pytest.mark.parametrize("d", [1, 2])
def test_clutter_mode_curvature_and_integral(d):
    x = clutter_points(1, 20, d)
    problem = models.clutter(x[:, 0] if d == 1 else x, w=0.3, covariance="full")
    estimate = laplace(problem)

    def joint(theta):
        return float(posterior_density(problem, theta[None, :] if d > 1 else theta, log=True)[0])

    mode = np.atleast_1d(estimate.mean)
    gradient, hessian = differences(joint, mode)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-4)
    np.testing.assert_allclose(-np.linalg.inv(hessian), np.atleast_2d(estimate.covariance), rtol=1e-4)
    # The step of EM is (Λ₀ + Σ r)⁻¹ times the gradient: it ends where the gradient does.
    _, following, _ = clutter_curvature(clutter_data(problem), mode)
    np.testing.assert_allclose(following, mode, atol=1e-12)
    value = (
        joint(mode) + 0.5 * d * math.log(2 * math.pi) + 0.5 * np.linalg.slogdet(np.atleast_2d(estimate.covariance))[1]
    )
    assert estimate.log_evidence == pytest.approx(value, abs=1e-11)
    assert estimate.note == ""
    assert estimate.trace[-1][0] == estimate.evaluations == 20 * len(estimate.trace)


def test_curvature_away_from_the_mode():
    """(3.63) holds at any θ, which the trace relies on."""
    problem = models.clutter(clutter_points(2, 15, 2), w=0.4)
    theta = np.array([0.7, 3.0])
    _, hessian = differences(lambda t: float(posterior_density(problem, t[None, :], log=True)[0]), theta)
    np.testing.assert_allclose(clutter_curvature(clutter_data(problem), theta)[2], hessian, rtol=1e-5, atol=1e-6)


def test_newton_and_em_find_the_same():
    """The same terms written as another factor take the generic road."""

    @factor
    class Other(Factor):
        def log_density(self, x, data):
            return Clutter(0.5, 10.0).log_density(x, data)

    x = clutter_points(4, 20, 1)[:, 0]
    em = laplace(models.clutter(x))
    newton = laplace(models.posterior(Other(), x, 0.0, 100.0), start=em.mean + 0.2)
    np.testing.assert_allclose(newton[:3], em[:3], rtol=1e-9)
    assert newton.note == ""
    assert newton.evaluations < em.evaluations


def test_exact_for_a_gaussian_posterior():
    y = np.array([0.3, 1.8, -0.2])
    problem = models.posterior(Gaussian(2.0), y, 1.0, 3.0)
    np.testing.assert_allclose(laplace(problem)[:3], exact(problem)[:3], rtol=1e-11)


def test_vector_logistic_regression():
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(30, 3)), rng.choice([-1.0, 1.0], 30)
    covariance = np.diag([1.0, 4.0, 0.5])
    problem = models.posterior(Logit(), (z, y), prior_mean=np.array([0.1, 0.0, -1.0]), prior_variance=covariance)
    estimate = laplace(problem)

    def joint(theta):
        prior = stats.multivariate_normal([0.1, 0.0, -1.0], covariance).logpdf(theta)
        return prior - np.logaddexp(0, -y * (z @ theta)).sum()

    gradient, hessian = differences(joint, estimate.mean)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)
    np.testing.assert_allclose(estimate.covariance, -np.linalg.inv(hessian), rtol=1e-5)
    reference = joint(estimate.mean) + 1.5 * math.log(2 * math.pi) + 0.5 * np.linalg.slogdet(estimate.covariance)[1]
    assert estimate.log_evidence == pytest.approx(reference, abs=1e-10)


def test_saddle_is_reported():
    """Between two equal clusters the curvature is negative: EM started there by symmetry stays there."""
    estimate = laplace(models.clutter([-4.0, 4.0], w=0.5), start=0.0)
    assert estimate.mean == pytest.approx(0.0, abs=1e-12)
    assert math.isnan(estimate.log_evidence)
    assert math.isnan(estimate.covariance)
    assert "not positive definite" in estimate.note


def test_no_mode_is_reported():
    estimate = laplace(models.truncation(0.0, 1.0, 1.0, 2.0))
    assert estimate.note != ""


@pytest.mark.parametrize("components", [2, 3])
def test_softmax_basis(components):
    p = np.random.default_rng(components).random((40, components))
    a = np.linspace(0.8, 1.7, components)
    problem = models.mixture_weights(p, prior=a)
    estimate = laplace(problem)

    def density(b):
        """Log density of b, w = softmax(b, 0): that of w plus log of the numerical Jacobian |dw/db|."""
        w = weights(b)
        jacobian = np.array([(weights(b + e)[:-1] - weights(b - e)[:-1]) / 2e-5 for e in np.eye(components - 1) * 1e-5])
        log_prior = gammaln(a.sum()) - gammaln(a).sum() + (a - 1) @ np.log(w)
        return log_prior + np.log(p @ w).sum() + np.linalg.slogdet(jacobian)[1]

    def weights(b):
        e = np.exp(np.append(b, 0.0))
        return e / e.sum()

    # The mode is not the mean, so it is found again by running EM from the estimate's mean.
    w = estimate.mean
    for _ in range(1000):
        w = softmax_curvature(mixture_data(problem), w)[1]
    b = np.log(w[:-1] / w[-1])
    gradient, hessian = differences(density, b, 1e-2)
    np.testing.assert_allclose(gradient, 0.0, atol=2e-3)
    value = density(b) + 0.5 * (components - 1) * math.log(2 * math.pi) - 0.5 * np.linalg.slogdet(-hessian)[1]
    assert estimate.log_evidence == pytest.approx(value, abs=1e-3)
    truth = exact(problem)
    assert estimate.log_evidence == pytest.approx(truth.log_evidence, abs=0.3)
    np.testing.assert_allclose(estimate.mean, truth.mean, atol=0.05)
    np.testing.assert_allclose(estimate.mean.sum(), 1.0, rtol=1e-12)


def test_reference_component_does_not_matter():
    p = np.random.default_rng(7).random((30, 3))
    plain, turned = laplace(models.mixture_weights(p)), laplace(models.mixture_weights(p[:, [2, 0, 1]]))
    assert turned.log_evidence == pytest.approx(plain.log_evidence, abs=1e-10)
    np.testing.assert_allclose(turned.mean, plain.mean[[2, 0, 1]], rtol=1e-6)


def test_logistic_normal_against_a_sum():
    centre, sd = 0.7, 1.3
    b = np.linspace(-20, 20, 4001)
    share = stats.norm.pdf(b, centre, sd) * (b[1] - b[0])
    w = 1 / (1 + np.exp(-b))
    mean, covariance = logistic_normal(np.array([centre]), np.array([[sd**2]]))
    assert mean[0] == pytest.approx(share @ w, abs=1e-9)
    assert covariance[0, 1] == pytest.approx(-(share @ (w - share @ w) ** 2), rel=1e-7)


def test_refusal_and_precision():
    other = models.posterior(Gaussian(1.0), np.zeros(2), prior=(Dirichlet(2), np.ones(2)))
    with pytest.raises(TypeError, match=r"laplace supports .*; found Gaussian factors under Dirichlet"):
        laplace(other)
    x = clutter_points(0, 10, 1)[:, 0]
    inside = laplace(models.posterior(Gaussian(1.0), x))
    with jax.enable_x64(False):
        outside = laplace(models.posterior(Gaussian(1.0), x))
    assert outside.log_evidence == inside.log_evidence
