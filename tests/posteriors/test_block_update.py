"""Blocks of sites that change at once: against inverses written out, and against EP in NumPy, block by block."""

from importlib import import_module

import jax
import numpy as np
import pytest
from scipy.stats import norm

import cavity as cv
from cavity.posteriors import windows


def random_covariance(size, seed):
    root = np.random.default_rng(seed).normal(size=(size, size + 2))
    return root @ root.T / size


@pytest.mark.parametrize("kind", ["mixed", "rising", "falling", "none"])
def test_the_change_is_that_of_the_natural_parameters(kind):
    rng = np.random.default_rng(1)
    whole, mean = random_covariance(9, 0), rng.normal(size=9)
    own = np.array([4, 1, 7, 2])
    smallest = np.linalg.eigvalsh(np.linalg.inv(whole))[0]
    tau = {
        "mixed": np.array([0.7, -0.6 * smallest, 0.0, -0.3 * smallest]),
        "rising": np.array([0.7, 2.0, 1e-9, 30.0]),
        "falling": -0.9 * smallest * np.array([1.0, 0.5, 0.2, 1e-9]),
        "none": np.zeros(4),
    }[kind]
    nu = rng.normal(size=4)
    with jax.enable_x64(True):
        opened = windows.open_window(mean[own], whole[np.ix_(own, own)], whole[:, own])
        found = windows.absorb_all(opened, np.column_stack([nu, tau]))
        columns = np.asarray(windows.absorbed_columns(found))
        covariance = whole - (columns * np.asarray(found.signs)) @ columns.T
        moved = mean + np.asarray(found.reach @ found.moves)
    natural = np.linalg.inv(whole)
    precision, shift = natural.copy(), natural @ mean
    precision[own, own] += tau
    shift[own] += nu
    expected = np.linalg.inv(precision)
    assert bool(found.proper)
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-11 * np.abs(expected).max())
    np.testing.assert_allclose(moved, expected @ shift, rtol=0, atol=1e-10 * np.abs(expected @ shift).max())


def test_a_change_that_leaves_no_distribution_is_noticed():
    with jax.enable_x64(True):
        opened = windows.open_window(np.zeros(2), np.eye(2), np.eye(2))
        assert not bool(windows.absorb_all(opened, np.array([[0.0, 1.0], [0.0, -1.5]])).proper)


def one_sweep(prior_precision, directions, y, block):
    """EP's first sweep for probit sites along `directions`, `block` at a time from the same q, by plain inverses."""
    n = len(y)
    nu, tau = np.zeros(n), np.zeros(n)
    for start in range(0, n, block):
        own = np.arange(start, min(start + block, n))
        covariance = np.linalg.inv(prior_precision + directions.T @ (tau[:, None] * directions))
        mean = covariance @ directions.T @ nu
        new = []
        for i in own:
            v = directions[i] @ covariance @ directions[i]
            m = directions[i] @ mean
            t, u = 1 / v - tau[i], m / v - nu[i]
            v, m = 1 / t, u / t
            z = y[i] * m / np.sqrt(1 + v)
            ratio = norm.pdf(z) / norm.cdf(z)
            first = y[i] * ratio / np.sqrt(1 + v)
            second = ratio * (z + ratio) / (1 + v)
            mean_new, variance_new = m + v * first, v - v**2 * second
            new.append((mean_new / variance_new - u, 1 / variance_new - t))
        nu[own], tau[own] = np.array(new).T
    return np.column_stack([nu, tau])


@pytest.mark.parametrize(("n", "block"), [(60, 10), (55, 10), (60, 7)])
def test_a_sweep_in_blocks_is_that_of_the_plain_updates(n, block):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 3))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1)) + 1e-3 * np.eye(n)
    method = cv.EP(schedule=cv.Blocks(block), max_sweeps=1)
    kernel = cv.infer(cv.models.latent_gaussian(y, cv.factors.Probit(), kernel_matrix=K), method)
    expected = one_sweep(np.linalg.inv(K), np.eye(n), y, block)
    np.testing.assert_allclose(kernel.sites[0], expected, rtol=0, atol=1e-8 * np.abs(expected).max())


def test_a_sweep_in_blocks_over_weights_is_that_of_the_plain_updates():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(100, 3))
    y = np.where(rng.random(100) < 0.5, 1.0, -1.0)
    method = cv.EP(schedule=cv.Blocks(40), max_sweeps=1)
    weights = cv.infer(cv.models.latent_gaussian(y, cv.factors.Probit(), X=X), method)
    expected = one_sweep(np.eye(3), X, y, 40)
    np.testing.assert_allclose(weights.sites[0], expected, rtol=0, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("kernel", [cv.kernels.RBF(0.3), None], ids=["kernel form", "weight form"])
def test_on_an_accelerator_blocks_end_where_one_by_one_ends(monkeypatch, kernel):
    rng = np.random.default_rng(4)
    X = rng.uniform(size=(512, 6))
    y = np.where(np.sin(6 * X[:, 0]) - X[:, 1] + 0.3 * rng.normal(size=512) > 0, 1.0, -1.0)
    options = {"X": X, "kernel": kernel}
    one_by_one = cv.infer(cv.models.latent_gaussian(y, cv.factors.Probit(), **options), cv.EP(tol=1e-10))
    for form in ("exact_gp", "linear_model"):
        monkeypatch.setattr(import_module(f"cavity.models._latent_gaussian.{form}"), "is_accelerator", lambda: True)
    problem = cv.models.latent_gaussian(y, cv.factors.Probit(), **options)
    assert isinstance(problem.problem().schedule, cv.Blocks)
    blocks = cv.infer(problem, cv.EP(tol=1e-10))
    assert blocks.status == one_by_one.status == "converged"
    assert blocks.sweeps <= one_by_one.sweeps + 2
    np.testing.assert_allclose(blocks.mean, one_by_one.mean, atol=1e-8)
    np.testing.assert_allclose(blocks.log_evidence, one_by_one.log_evidence, atol=1e-9)
