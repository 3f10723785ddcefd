"""Partitions with inference of their own: a Gaussian model solved exactly, and a logistic one by quadrature."""

import jax
import numpy as np
import pytest

from cavity import distributed
from cavity.distributed.gaussian import unpack_naturals
from cavity.distributed.partitions import naturals_from_draws
from cavity.inference.status import Status

RNG = np.random.default_rng(0)
#: three partitions of a linear model with unit noise
LINEAR = [(RNG.normal(size=(n, 2)), RNG.normal(size=n)) for n in (5, 9, 14)]
PRIOR = (np.array([0.5, -0.5]), np.array([[2.0, 0.3], [0.3, 1.0]]))


def gaussian_tilted(shard, mean, covariance, key):
    """Exact moments of N(y; Xw, I) N(w; mean, covariance)."""
    X, y = shard
    precision = np.linalg.inv(covariance)
    found = np.linalg.inv(precision + X.T @ X)
    return found @ (precision @ mean + X.T @ y), found


def gaussian_draws(shard, mean, covariance, key):
    """Independent draws of the same."""
    centre, spread = gaussian_tilted(shard, mean, covariance, key)
    return centre + np.asarray(jax.random.normal(key, (20_000, 2))) @ np.linalg.cholesky(spread).T


def linear_posterior():
    """(mean, covariance) from all rows at once."""
    X, y = (np.concatenate([shard[i] for shard in LINEAR]) for i in (0, 1))
    precision = np.linalg.inv(PRIOR[1])
    covariance = np.linalg.inv(precision + X.T @ X)
    return covariance @ (precision @ PRIOR[0] + X.T @ y), covariance


@pytest.mark.parametrize("asynchronous", [False, True])
def test_gaussian_partitions_give_the_exact_posterior(client, asynchronous):
    found = distributed.infer_partitions(
        PRIOR, LINEAR, tilted=gaussian_tilted, client=client, asynchronous=asynchronous
    )
    mean, covariance = linear_posterior()
    assert found.status is Status.CONVERGED and found.noise == 0.0
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-10)


def test_draws_give_it_within_their_noise_and_settle(client):
    key = jax.random.key(3)
    found = distributed.infer_partitions(PRIOR, LINEAR, tilted=gaussian_draws, key=key, damping=0.7, client=client)
    mean, covariance = linear_posterior()
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(found.noise, np.sqrt(2 / 19_999), rtol=1e-12)
    # Noise of three partitions adds up; the precision of a site is a difference, so it is larger than of the whole.
    deviation = np.sqrt(np.diagonal(covariance))
    assert np.all(np.abs(found.mean - mean) < 10 * found.noise * deviation)
    np.testing.assert_allclose(np.diagonal(found.covariance), np.diagonal(covariance), rtol=10 * found.noise)


def test_the_precision_from_draws_is_unbiased():
    rng, d, count = np.random.default_rng(1), 3, 9
    total = np.zeros((d, d))
    for _ in range(4000):
        total += unpack_naturals(naturals_from_draws(rng.normal(size=(count, d)), d)[0])[1]
    # Var of an entry of the mean of 4000 is below (0.05)²; without the correction it would be 8/4 = 2
    np.testing.assert_allclose(total / 4000, np.eye(d), atol=0.15)


GRID = np.linspace(-12, 12, 4001)
SLOPES = [np.array([1.0, 2.0, -0.5]), np.array([0.7, -1.5]), np.array([3.0])]


def log_likelihood(slopes):
    """Σ log σ(s w) on the grid."""
    return -np.logaddexp(0.0, -np.outer(slopes, GRID)).sum(axis=0)


def moments_on_grid(log_density):
    mass = np.exp(log_density - log_density.max())
    mean = (mass @ GRID) / mass.sum()
    return mean, (mass @ (GRID - mean) ** 2) / mass.sum()


def logistic_tilted(slopes, mean, covariance, key):
    mean, variance = moments_on_grid(log_likelihood(slopes) - 0.5 * (GRID - mean[0]) ** 2 / covariance[0, 0])
    return np.array([mean]), np.array([[variance]])


def test_a_logistic_model_has_the_fixed_point_of_ep_by_quadrature(client):
    found = distributed.infer_partitions(
        (np.zeros(1), np.eye(1) * 4.0), SLOPES, tilted=logistic_tilted, tol=1e-10, client=client
    )
    nu, tau = np.zeros(3), np.zeros(3)
    for _ in range(100):
        for k, slopes in enumerate(SLOPES):
            c_tau, c_nu = 0.25 + tau.sum() - tau[k], nu.sum() - nu[k]
            mean, variance = moments_on_grid(log_likelihood(slopes) - 0.5 * c_tau * GRID**2 + c_nu * GRID)
            tau[k], nu[k] = 1 / variance - c_tau, mean / variance - c_nu
    precision = 0.25 + tau.sum()
    assert found.converged
    np.testing.assert_allclose(found.mean[0], nu.sum() / precision, atol=1e-8)
    np.testing.assert_allclose(found.covariance[0, 0], 1 / precision, atol=1e-8)
    exact, variance = moments_on_grid(log_likelihood(np.concatenate(SLOPES)) - 0.125 * GRID**2)
    np.testing.assert_allclose(found.mean[0], exact, atol=0.02 * np.sqrt(variance))


@pytest.mark.parametrize(
    ("tilted", "said"),
    [
        (lambda *_: np.zeros((4, 2)), r"Shard 0: tilted must return more than d \+ 2 = 4 draws"),
        (lambda *_: np.full((9, 2), np.nan), "finite draws"),
        (lambda *_: (np.zeros(2), -np.eye(2)), "positive definite covariance"),
        (lambda *_: (1, 2, 3), "found 3 things"),
    ],
)
def test_what_a_sampler_must_not_return_is_said(client, tilted, said):
    with pytest.raises(ValueError, match=said):
        distributed.infer_partitions(PRIOR, LINEAR[:1], tilted=tilted, client=client)


def test_bad_arguments_are_refused(client):
    with pytest.raises(TypeError, match="prior must be a pair"):
        distributed.infer_partitions(np.zeros(2), LINEAR, tilted=gaussian_tilted)
    with pytest.raises(ValueError, match="positive definite"):
        distributed.infer_partitions((np.zeros(2), -np.eye(2)), LINEAR, tilted=gaussian_tilted)
    with pytest.raises(TypeError, match="tilted must be a function"):
        distributed.infer_partitions(PRIOR, LINEAR, tilted=None)
    with pytest.raises(TypeError, match="key must be made by"):
        distributed.infer_partitions(PRIOR, LINEAR, tilted=gaussian_tilted, key=0)
    with pytest.raises(ValueError, match="at least one partition"):
        distributed.infer_partitions(PRIOR, [], tilted=gaussian_tilted)
