"""Bayesian linear regression: updates against the formulas written out, leaving one out against doing it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cavity.learned.feature_regression import Regression, fit_weights, leave_one_out_errors, update


def data(count=30, size=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, size))
    return x, x @ rng.normal(size=(size, 2)) + 0.1 * rng.normal(size=(count, 2)), rng.uniform(0.01, 0.3, count)


def blank(size, targets, prior=1.0):
    """Before any label."""
    return Regression(prior * jnp.eye(size), jnp.zeros((size, targets)))


def test_the_posterior_is_equations_12_and_13():
    x, y, noise = data()
    found = fit_weights(jnp.asarray(x), jnp.asarray(y), jnp.asarray(noise), prior=2.0)
    covariance = np.linalg.inv((x.T / noise) @ x + np.eye(6) / 2.0)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-10)
    np.testing.assert_allclose(found.weights, covariance @ (x.T / noise) @ y, rtol=1e-9)
    mean, variance = found.predict(jnp.asarray(x[:3]))
    np.testing.assert_allclose(mean, x[:3] @ covariance @ (x.T / noise) @ y, rtol=1e-9)
    np.testing.assert_allclose(variance, np.einsum("ij,jk,ik->i", x[:3], covariance, x[:3]), rtol=1e-9)


def test_updates_one_by_one_or_together_end_at_the_same():
    x, y, noise = data()
    now = blank(6, 2, prior=2.0)
    for k in range(10):
        now = update(now, jnp.asarray(x[k : k + 1]), jnp.asarray(y[k : k + 1]), jnp.asarray(noise[k : k + 1]))
    filled = np.append(noise[10:], np.inf)  # a row that fills up tells nothing, whatever is in it
    now = update(
        now,
        jnp.asarray(np.vstack([x[10:], np.full(6, 9.0)])),
        jnp.asarray(np.vstack([y[10:], [np.nan] * 2])),
        jnp.asarray(filled),
    )
    whole = fit_weights(jnp.asarray(x), jnp.asarray(y), jnp.asarray(noise), prior=2.0)
    np.testing.assert_allclose(now.covariance, whole.covariance, rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(now.weights, whole.weights, rtol=1e-8)


def test_leaving_one_out_is_what_it_says():
    x, y, _ = data(count=12)
    for ridge in (1e-3, 0.5):
        errors = []
        for k in range(12):
            rest = np.delete(np.arange(12), k)
            w = np.linalg.solve(x[rest].T @ x[rest] + ridge * np.eye(6), x[rest].T @ y[rest])
            errors.append((y[k] - x[k] @ w) ** 2)
        found = leave_one_out_errors(jnp.asarray(x), jnp.asarray(y), jnp.array([ridge]))
        np.testing.assert_allclose(found[0], np.mean(errors, axis=0), rtol=1e-9)


def test_an_update_costs_the_square_of_the_features():
    """Section 3.3 of the paper; operations counted by the compiler, and the cube a new fit needs would be 8 times."""

    def operations(size):
        now = blank(size, 2)
        given = jnp.ones((1, size)), jnp.ones((1, 2)), jnp.ones(1)
        return jax.jit(update).lower(now, *given).compile().cost_analysis()["flops"]

    assert operations(800) / operations(400) == pytest.approx(4.0, rel=0.1)


def test_thousands_of_updates_stay_accurate():
    rng = np.random.default_rng(1)
    now, total = blank(20, 1), np.eye(20)
    for _ in range(100):
        x = rng.normal(size=(20, 20))
        now = update(now, jnp.asarray(x), jnp.zeros((20, 1)), jnp.full(20, 1e-4))
        total = total + x.T @ x / 1e-4
    np.testing.assert_allclose(now.covariance, np.linalg.inv(total), rtol=1e-6, atol=1e-15)
