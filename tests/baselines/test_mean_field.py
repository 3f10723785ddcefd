"""TAP's fixed points are EP's; naive mean field's solve their own equations."""

import numpy as np
import pytest
from scipy import optimize, stats

import cavity
from cavity.baselines import naive_mean_field, tap
from cavity.factors import Step


def problem(seed, n, d):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d))
    return rows, np.sign(rows @ rng.normal(size=d))


@pytest.mark.parametrize("label_noise", [0.0, 0.05])
def test_tap_has_eps_fixed_point(label_noise):
    rows, y = problem(0, 7, 9)
    K = rows @ rows.T
    ep = cavity.infer(cavity.models.latent_gaussian(y, Step(label_noise), kernel_matrix=K), cavity.EP(tol=1e-11))
    found = tap(K, y, label_noise)
    assert ep.converged and found.converged
    np.testing.assert_allclose(found.alpha, ep.q.weights, atol=1e-8 * np.abs(ep.q.weights).max())
    cavity_precision = 1.0 / np.diagonal(ep.covariance) - ep.sites[0][:, 1]
    np.testing.assert_allclose(found.variance, 1.0 / cavity_precision, rtol=1e-8)


def test_three_points():
    X, y = np.array([[1.0, 0, 1], [0, 0, 1], [0, 1, 1]]), np.array([1.0, -1, -1])
    ep = cavity.infer(cavity.models.latent_gaussian(y, Step(), X=X), cavity.EP(tol=1e-12))
    np.testing.assert_allclose(X.T @ tap(X @ X.T, y).alpha, ep.mean, atol=1e-8)


def test_naive_mean_field_against_a_root_finder():
    """α_i = E[∂ log Θ] with the other latents taken as known: variance of f_i given the others by conditioning."""
    rows, y = problem(1, 5, 8)
    K = rows @ rows.T
    found = naive_mean_field(K, y)
    others = [np.delete(np.arange(5), i) for i in range(5)]
    own = np.array([K[i, i] - K[i, o] @ np.linalg.solve(K[np.ix_(o, o)], K[o, i]) for i, o in enumerate(others)])
    np.testing.assert_allclose(found.variance, own, rtol=1e-9)

    def equations(alpha):
        cavity_mean = y * (K @ (y * alpha)) - own * alpha
        z = cavity_mean / np.sqrt(own)
        return alpha - stats.norm.pdf(z) / stats.norm.cdf(z) / np.sqrt(own)

    root = optimize.fsolve(equations, 0.5 * y * found.alpha + 0.1, xtol=1e-13)
    np.testing.assert_allclose(found.alpha, y * root, rtol=1e-7)
    assert np.abs(found.alpha - tap(K, y).alpha).max() > 0.01


def test_many_equal_points():
    """λ without a step of its own would swing here, and α stand still beside it."""
    X, y = np.array([[1.0, 0, 1]] * 20 + [[0, 0, 1], [0, 1, 1]]), np.array([1.0] * 20 + [-1, -1])
    ep = cavity.infer(cavity.models.latent_gaussian(y, Step(), X=X), cavity.EP(tol=1e-12))
    found = tap(X @ X.T, y)
    assert found.converged and found.iterations == len(found.trace)
    np.testing.assert_allclose(X.T @ found.alpha, ep.mean, atol=1e-8)


def test_too_few_iterations_say_so():
    rows, y = problem(2, 7, 9)
    assert not tap(rows @ rows.T, y, max_iterations=3).converged


def test_a_singular_matrix_has_no_naive_mean_field():
    rows, y = problem(3, 6, 2)
    with pytest.raises(ValueError, match="smallest eigenvalue"):
        naive_mean_field(rows @ rows.T, y)
    with pytest.raises(ValueError, match="a column for each"):
        tap(np.eye(3), y)
