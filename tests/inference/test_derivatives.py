"""Derivatives of the log evidence, in forward mode through `infer` and in reverse mode of the energy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from derivative_cases import DERIVATIVES, derivatives

import cavity as cv
from cavity.inference.energy import energy
from cavity.posteriors.dense_algebra import dense


@pytest.mark.parametrize("name", ["kernel, student_t", "weights, probit", "inducing, logistic"])
def test_parameters_of_kernels_and_likelihoods_have_the_slopes_of_recomputed_evidence(name):
    found = [derivatives(*DERIVATIVES[name], np.random.default_rng([seed, 5])) for seed in range(2)]
    known = [own for own in found if own is not None]
    assert known and max(own.error for own in known) < 1e-6


def test_slopes_of_a_dense_posterior_are_those_of_its_definition():
    """Sites of both signs; every output against a posterior made by plain inverses."""
    rng = np.random.default_rng(3)
    root = rng.standard_normal((5, 5))
    k, nu, tau = root @ root.T + np.eye(5), rng.standard_normal(5), np.array([2.0, -0.05, 0.0, 1e3, 0.3])

    def plain(k, nu, tau):
        covariance = jnp.linalg.inv(jnp.linalg.inv(k) + jnp.diag(tau))
        mean, half = covariance @ nu, 0.5 * jnp.linalg.slogdet(jnp.eye(5) + k * tau)[1]
        weights, weak = nu - tau * mean, 1 - tau * jnp.diagonal(covariance)
        divergence = 0.5 * (weights @ mean - jnp.sum(1 - weak)) + half
        return mean, jnp.diagonal(covariance), covariance, weak, weights, 0.5 * nu @ mean - half, divergence

    def ours(k, nu, tau):
        q = dense(k, nu, tau)
        return q.mean, q.variance, q.covariance[0], q.weak, q.weights, q.log_partition, q.divergence

    moved = (k @ k / 10, rng.standard_normal(5), rng.standard_normal(5))
    for own, right in zip(*(jax.jvp(f, (k, nu, tau), moved)[1] for f in (ours, plain)), strict=True):
        np.testing.assert_allclose(own, right, rtol=1e-9, atol=1e-9)
    for own, right in zip(
        *(jax.grad(lambda *x, f=f: f(*x)[6], (1, 2))(k, nu, tau) for f in (ours, plain)), strict=True
    ):
        np.testing.assert_allclose(own, right, rtol=1e-9, atol=1e-9)


JUMP = cv.factors.from_log_density(lambda f, y: jnp.where(y * f > 0, jnp.log(0.9), jnp.log(0.1)))
BELOW = cv.factors.from_log_density(lambda x, bound: jnp.where(x < bound, 0.0, -jnp.inf))


def slopes(model, at):
    """By forward mode, by the energy."""
    sites = cv.infer(model(at), cv.EP(tol=1e-11)).sites
    forward = jax.jacfwd(lambda value: cv.infer(model(value), cv.EP(tol=1e-11)).log_evidence)(at)
    return float(forward), float(jax.grad(lambda value: -energy(model(value), sites).value)(at))


def test_a_density_that_jumps_has_the_derivatives_of_its_closed_form():
    labels = np.array([1.0, -1.0, 1.0])
    right = slopes(lambda mean: cv.models.posterior(cv.factors.Step(0.1), labels, mean, 1.7), 0.3)
    assert slopes(lambda mean: cv.models.posterior(JUMP, labels, mean, 1.7), 0.3) == pytest.approx(right, abs=1e-7)


def test_bounds_of_a_rate_are_felt_by_derivatives_in_its_prior():
    """P(x < 0.7) of an exponential variable of rate b is 1 − exp(−0.7 b)."""

    def model(rate):
        family = cv.families.Gamma()
        return cv.models.posterior(BELOW, np.array([0.7]), prior=(family, jnp.stack([jnp.ones_like(rate), rate])))

    right = 0.7 / np.expm1(0.7 * 1.3)
    assert slopes(model, jnp.asarray(1.3)) == pytest.approx((right, right), rel=1e-7)
