"""The check of EP's answer against exact evidences that share nothing with it."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import clutter_posterior, draw_clutter

import cavity as cv
from cavity.exact_inference import exact
from cavity.inference.check import judgement


def angular_evidence(rows, noise, points=200_001):
    """log E ∏ t(rows_i · w), w ~ N(0, I) in the plane, of which only the angle counts; rows are y_i x_i."""
    angle = 2 * np.pi * (np.arange(points) + 0.5) / points
    right = np.stack([np.cos(angle), np.sin(angle)], axis=1) @ rows.T > 0
    return np.log(np.mean(np.prod(np.where(right, 1 - noise, noise), axis=1)))


@pytest.fixture(scope="module")
def step_machine():
    """Data of a step machine with flipped labels, in the plane, and its exact log evidence."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, 2))
    y = np.where(X @ np.array([1.0, -0.5]) > 0, 1.0, -1.0) * np.where(rng.random(30) < 0.1, -1.0, 1.0)
    return X, y, angular_evidence(y[:, None] * X, 0.1)


def test_clutter_where_ep_is_right():
    x = draw_clutter(0, 20)
    found = cv.infer(cv.models.clutter(x)).check()
    mean, variance, log_evidence = clutter_posterior(x)
    assert found.verdict == "EP agrees" and str(found) == found.sentence
    assert found.standard_error < 0.01
    assert abs(found.log_evidence - log_evidence) < 4 * found.standard_error
    assert abs(found.mean - mean) < 4 * found.mean_error < 0.1
    assert abs(found.variance - variance) < 4 * found.variance_error
    assert found.covariance == pytest.approx(found.variance)
    low, high = found.interval
    assert high - low == pytest.approx(2 * 1.96 * found.standard_error)
    assert found.draws.shape == found.log_weights.shape == (4000,)


def test_estimates_scatter_as_their_errors_say():
    x = draw_clutter(7, 20, w=0.7)
    solution, log_evidence = cv.infer(cv.models.clutter(x, w=0.7)), clutter_posterior(x, w=0.7)[2]
    found = [solution.check(1000, jax.random.key(seed)) for seed in range(40)]
    scaled = np.array([(one.log_evidence - log_evidence) / one.standard_error for one in found])
    assert abs(scaled.mean()) < 4 / math.sqrt(40)
    assert 0.7 < scaled.std() < 1.4


@pytest.mark.parametrize("form", ["weights", "kernel"])
def test_a_step_machine_in_both_forms(form, step_machine):
    """Thirty latents with a linear kernel are two coordinates, so that both forms are checked equally well."""
    X, y, log_evidence = step_machine
    prior = {"X": X} if form == "weights" else {"kernel_matrix": X @ X.T}
    solution = cv.infer(cv.models.latent_gaussian(y=y, likelihood=cv.factors.Step(0.1), **prior))
    found = solution.check()
    assert abs(found.log_evidence - log_evidence) < 4 * found.standard_error < 0.1
    assert abs(solution.log_evidence - log_evidence) > 0.1
    assert found.verdict == "EP is off" and "EP is off" in found.sentence
    assert found.difference == pytest.approx(solution.log_evidence - found.log_evidence)
    assert found.mean.shape == ((2,) if form == "weights" else (30,))
    assert found.variable == ("weights" if form == "weights" else "f")


def check_coordinates(problem, q, prior, mean, covariance):
    """z is standard under the prior and has q's moments."""
    at = problem.posterior.coordinates(problem.prior, q)
    np.testing.assert_allclose(at.root @ at.root.T, prior, atol=1e-12)
    np.testing.assert_allclose(at.centre + at.root @ at.mean, mean)
    np.testing.assert_allclose(at.root @ at.covariance @ at.root.T, covariance, atol=1e-12)


@pytest.mark.parametrize("shape", ["spherical", "diagonal", "full"])
def test_coordinates_of_a_shared_gaussian(shape):
    problem = cv.models.clutter(np.zeros((1, 2)), prior_variance=9.0, covariance=shape)
    spread = {"spherical": [0.5], "diagonal": [0.5, 2.0], "full": [0.5, 0.2, 0.2, 2.0]}[shape]
    precision = np.reshape(spread, (2, 2)) if shape == "full" else np.diag(np.broadcast_to(spread, 2))
    q = problem.posterior.refresh(problem.prior, ((None, jnp.array([[1.0, -3.0, *spread]])),))
    covariance = np.linalg.inv(np.eye(2) / 9 + precision)
    check_coordinates(problem, q, 9 * np.eye(2), covariance @ [1.0, -3.0], covariance)


@pytest.mark.parametrize("form", ["weights", "kernel"])
def test_coordinates_of_a_latent_gaussian(form):
    """A correlated prior of two weights, seen along three rows: three latents that are two coordinates."""
    rows, prior = np.array([[1.0, 0.5], [-0.3, 2.0], [1.5, 1.0]]), np.array([[2.0, 0.9], [0.9, 1.0]])
    nu, tau = np.array([1.0, -0.5, 0.2]), np.array([0.5, -0.1, 2.0])
    weights = np.linalg.inv(np.linalg.inv(prior) + rows.T * tau @ rows)
    given = {"X": rows, "prior_variance": prior} if form == "weights" else {"kernel_matrix": rows @ prior @ rows.T}
    problem = cv.models.latent_gaussian(y=np.ones(3), likelihood=cv.factors.Probit(), **given).problem()
    q = problem.posterior.refresh(problem.prior, ((None, jnp.stack([nu, tau], axis=1)),))
    seen = np.eye(2) if form == "weights" else rows
    check_coordinates(problem, q, seen @ prior @ seen.T, seen @ weights @ rows.T @ nu, seen @ weights @ seen.T)


def test_two_parts_of_a_product_and_multiplicity():
    """θ (Gaussian) and w (Dirichlet) in one q: the evidence is the product of the two exact ones."""
    x = draw_clutter(5, 8)
    densities = np.random.default_rng(0).uniform(0.1, 2.0, (6, 3))
    location, weights = cv.models.clutter(x), cv.models.mixture_weights(densities)
    location = dataclasses.replace(
        location, groups=(dataclasses.replace(location.groups[0], multiplicity=np.array([2.0, 0, 1, 1, 1, 1, 1, 1])),)
    )
    family = cv.families.Product((cv.families.Gaussian(), cv.families.Dirichlet(3)))
    groups = tuple(
        dataclasses.replace(group, scope=scope)
        for group, scope in zip(location.groups + weights.groups, [(0, 2), (2, 5)], strict=True)
    )
    prior = np.concatenate([location.prior, weights.prior])
    found = cv.infer(cv.Problem(prior, groups, type(location.posterior)(family))).check(20_000)
    parts = exact(location), exact(weights)
    assert abs(found.log_evidence - parts[0].log_evidence - parts[1].log_evidence) < 4 * found.standard_error < 0.1
    assert abs(found.mean[0] - parts[0].mean) < 4 * found.mean_error[0]
    assert np.all(np.abs(found.mean[1] - parts[1].mean) < 4 * found.mean_error[1])


def test_a_mode_out_of_reach_is_not_called_agreement():
    """Clutter in ten dimensions, EP left at the prior: the draws see what it sees, and the mass lies elsewhere."""
    problem = cv.models.clutter(draw_clutter(1, 12, theta=3.0, w=0.3, dimension=10), w=0.3)
    flat = cv.infer(problem, cv.EP(damping=1e-6, max_sweeps=1))
    found = flat.check()
    assert exact(problem).log_evidence > max(found.log_evidence, flat.log_evidence) + 10
    assert found.verdict == "inconclusive" and "other modes" in found.sentence


def test_a_state_that_is_no_gaussian_is_checked_too():
    problem = cv.models.clutter(draw_clutter(0, 10))
    solution = cv.infer(problem)
    broken = dataclasses.replace(solution, q=np.array([1.0, -1.0]), log_evidence=np.float64("nan"))
    found = broken.check()
    assert found.verdict == "EP is off" and "no finite log evidence" in found.sentence
    assert abs(found.log_evidence - exact(problem).log_evidence) < 4 * found.standard_error


@pytest.mark.parametrize(
    ("ep", "half", "trusted", "searched", "verdict"),
    [
        (-10.0, 0.02, True, True, "EP agrees"),
        (-10.04, 0.02, True, True, "EP agrees"),
        (-10.06, 0.02, True, True, "EP is off"),
        (-9.9, 0.02, True, True, "EP is off"),
        (-9.9, 0.02, True, False, "inconclusive"),
        (-10.1, 0.02, True, False, "EP is off"),
        (-10.0, 0.02, True, False, "inconclusive"),
        (-20.0, 0.02, False, True, "inconclusive"),
        (-10.0, 0.5, True, True, "inconclusive"),
        (-20.0, 0.5, True, True, "EP is off"),
        (math.nan, 0.02, True, True, "EP is off"),
    ],
)
def test_verdicts(ep, half, trusted, searched, verdict):
    assert judgement(ep, -10.0, half, trusted, searched)[0] == verdict


def test_what_cannot_be_checked_is_refused():
    x = draw_clutter(0, 5)
    solution = cv.infer(cv.models.clutter(x))
    with pytest.raises(ValueError, match="draws must be a whole number of at least 100; found 5"):
        solution.check(5)
    with pytest.raises(ValueError, match="one solution at a time"):
        dataclasses.replace(solution, code=np.zeros(2, int)).check()
    factor = cv.factors.from_log_z(lambda mean, variance, data: -0.5 * (data - mean) ** 2 / (1 + variance))
    with pytest.raises(cv.factors.MissingDensity, match="log density of every factor"):
        cv.infer(cv.models.posterior(factor, x)).check()
