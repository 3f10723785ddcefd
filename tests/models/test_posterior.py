"""Any posterior from a log density: against closed forms, grids and exact conjugacy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import cavity as cv
from cavity.baselines import laplace

Y = np.array([1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0])


def test_probit_from_its_log_density_equals_the_closed_form():
    numeric = cv.factors.from_log_density(lambda theta, y: jax.scipy.special.log_ndtr(y * theta))
    closed = cv.infer(cv.models.posterior(cv.factors.Probit(), Y, 0.5, 4.0), cv.EP(tol=1e-10))
    by_nodes = cv.infer(cv.models.posterior(numeric, Y, 0.5, 4.0), cv.EP(tol=1e-9))
    assert closed.converged and by_nodes.converged
    np.testing.assert_allclose(by_nodes.sites[0], closed.sites[0], rtol=1e-7)
    np.testing.assert_allclose(by_nodes.log_evidence, closed.log_evidence, rtol=1e-9)


def test_probit_from_its_log_z_equals_the_closed_form():
    factor = cv.factors.from_log_z(
        lambda mean, variance, y: jax.scipy.special.log_ndtr(y * mean / jnp.sqrt(1.0 + variance))
    )
    closed = cv.infer(cv.models.posterior(cv.factors.Probit(), Y, 0.5, 4.0))
    by_derivatives = cv.infer(cv.models.posterior(factor, Y, 0.5, 4.0))
    np.testing.assert_allclose(by_derivatives.sites[0], closed.sites[0], rtol=1e-8)


def test_logistic_against_a_grid():
    factor = cv.factors.from_log_density(lambda theta, y: -jnp.logaddexp(0.0, -y * theta))
    solution = cv.infer(cv.models.posterior(factor, Y, 0.0, 9.0))
    grid = np.linspace(-30, 30, 20_001)
    log_joint = -0.5 * grid**2 / 9 - 0.5 * np.log(18 * np.pi) - np.logaddexp(0.0, -Y[:, None] * grid).sum(axis=0)
    mass = np.exp(log_joint)
    total = np.trapezoid(mass, grid)
    mean = np.trapezoid(mass * grid, grid) / total
    variance = np.trapezoid(mass * (grid - mean) ** 2, grid) / total
    assert solution.converged
    # How far EP's fixed point is from the truth is EP's own error, not ours to bound: it must beat Laplace's.
    peak = laplace(solution.problem)
    assert abs(solution.mean - mean) < abs(peak.mean - mean)
    assert abs(solution.covariance - variance) < abs(peak.covariance - variance)
    assert abs(solution.log_evidence - np.log(total)) < abs(peak.log_evidence - np.log(total))
    for y, site in zip(Y, solution.sites[0], strict=True):
        nu, tau = solution.q - site
        tilted = np.exp(-0.5 * tau * (grid - nu / tau) ** 2 - np.logaddexp(0.0, -y * grid))
        tilted /= tilted.sum()
        np.testing.assert_allclose(tilted @ grid, solution.mean, rtol=1e-7)
        np.testing.assert_allclose(tilted @ (grid - tilted @ grid) ** 2, solution.covariance, rtol=1e-7)


def test_beta_latent_with_a_bernoulli_density_is_conjugate():
    factor = cv.factors.from_log_density(lambda p, y: y * jnp.log(p) + (1 - y) * jnp.log1p(-p))
    y = np.array([1.0, 0.0, 1.0, 1.0])
    problem = cv.models.posterior(factor, y, prior=(cv.families.Beta(), np.array([2.0, 3.0])))
    solution = cv.infer(problem)
    np.testing.assert_allclose(solution.q, [5.0, 4.0], rtol=1e-7)
    np.testing.assert_allclose(solution.log_evidence, special.betaln(5, 4) - special.betaln(2, 3), rtol=1e-8)


def test_gamma_latent_with_a_poisson_density_is_conjugate():
    factor = cv.factors.from_log_density(lambda rate, k: k * jnp.log(rate) - rate - jax.scipy.special.gammaln(k + 1))
    counts = np.array([3.0, 0.0, 5.0])
    problem = cv.models.posterior(factor, counts, prior=(cv.families.Gamma(), np.array([2.0, 1.5])))
    np.testing.assert_allclose(cv.infer(problem).q, [10.0, 4.5], rtol=1e-7)


def test_small_vectors_by_product_quadrature_and_by_sampling():
    """Logistic regression with two weights: both strategies against a grid."""
    rows = np.array([[1.0, 0.5, 1.0], [1.0, -1.0, -1.0], [1.0, 2.0, 1.0], [1.0, 0.1, -1.0]])
    factor = cv.factors.from_log_density(lambda w, row: -jnp.logaddexp(0.0, -row[2] * (w @ row[:2])))
    problem = cv.models.posterior(factor, rows, prior_mean=np.zeros(2), prior_variance=4.0)
    by_nodes = cv.infer(problem, cv.EP(tol=1e-6))
    axis = np.linspace(-14, 14, 401)
    a, b = np.meshgrid(axis, axis, indexing="ij")
    log_joint = -(a**2 + b**2) / 8 - np.log(8 * np.pi)
    for x0, x1, y in rows:
        log_joint -= np.logaddexp(0.0, -y * (a * x0 + b * x1))
    mass = np.exp(log_joint) * (axis[1] - axis[0]) ** 2
    mean = np.array([np.sum(mass * a), np.sum(mass * b)]) / mass.sum()
    assert by_nodes.converged
    np.testing.assert_allclose(by_nodes.mean, mean, atol=0.02)
    np.testing.assert_allclose(by_nodes.log_evidence, np.log(mass.sum()), atol=5e-3)

    sampled = cv.infer(problem.with_moments(cv.Importance(draws=20_000)), cv.EP(tol=1e-6), key=jax.random.key(3))
    assert sampled.converged
    np.testing.assert_allclose(sampled.mean, mean, atol=0.05)
    assert (sampled.info[0]["ess"] > 1000).all()


def test_high_dimension_needs_sampling_and_says_so():
    factor = cv.factors.from_log_density(lambda w, y: -jnp.logaddexp(0.0, -y * jnp.sum(w)))
    problem = cv.models.posterior(factor, Y, prior_mean=np.zeros(5))
    with pytest.raises(TypeError, match="Importance"):
        cv.infer(problem)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"factor": "probit"}, "factor"),
        ({"data": []}, "data"),
        ({"data": np.array([])}, "data"),
        ({"data": [np.nan]}, "data"),
        ({"data": [1.0, 0.5]}, "data"),
        ({"prior_variance": 0.0}, "prior_variance"),
        ({"prior_mean": np.nan}, "prior_mean"),
        ({"prior_mean": np.zeros(2), "prior_variance": np.diag([1.0, -1.0])}, "prior_variance"),
        ({"prior_mean": np.zeros(2), "prior_variance": np.eye(3)}, "prior_variance"),
        ({"prior_mean": np.zeros(2), "prior_variance": [[2.0, 1.0], [0.0, 2.0]]}, "prior_variance"),
        ({"data": 1.0}, "data"),
    ],
)
def test_bad_input_is_named(arguments, word):
    settings = {"factor": cv.factors.Probit(), "data": Y, **arguments}
    with pytest.raises((TypeError, ValueError), match=f"^{word} "):
        cv.infer(cv.models.posterior(**settings))
