"""The Poisson factor against 40-digit sums: counts from 0 to 10⁶, cavities narrow and wide."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cavity.factors import Poisson
from cavity.families import Beta, Gaussian

FAMILY = Gaussian()


@jax.jit
@jax.vmap
def tilt(cavity, y, power):
    return Poisson().tilted(FAMILY, cavity, y, power)


def test_against_table(likelihoods):
    rows = likelihoods("poisson")
    errors = rows.errors(tilt(rows.cavity, rows.y, rows.power))
    usual = (rows.variance >= 1e-7) & (rows.variance <= 1e7)
    assert errors[:, 0].max() < 1e-10
    assert np.all(errors[usual, 1:].max(axis=0) < 1e-8), errors[usual].max(axis=0)
    assert np.all(errors[~usual].max(axis=0) < 1e-6), errors[~usual].max(axis=0)


def test_a_count_under_a_low_rate_is_a_straight_line():
    """e^f is nothing there: log t = y f − log y!, so the site has nu = y and no precision."""
    site = tilt(jnp.array([[-500.0, 1.0]]), jnp.array([3.0]), jnp.array([1.0])).site
    np.testing.assert_allclose(site, [[3.0, 0.0]], rtol=1e-13, atol=1e-25)


def test_power_zero_says_nothing():
    for part in tilt(jnp.array([[0.3, 2.0]]), jnp.array([4.0]), jnp.array([0.0])):
        np.testing.assert_allclose(part, 0, atol=1e-14)


def test_log_density_is_the_poisson_mass():
    f, y = np.array([-3.0, 0.4, 2.0, 14.0]), np.array([0.0, 3.0, 7.0, 1.2e6])
    np.testing.assert_allclose(jax.jit(Poisson().log_density)(f, y), stats.poisson.logpmf(y, np.exp(f)), rtol=1e-10)


def test_predictions_against_draws_of_the_rate():
    """Mean and variance of the count from a fine grid of the latent."""
    mean, variance = 0.7, 0.4
    grid = np.linspace(-12, 12, 4001)
    weights = stats.norm.pdf(grid) / np.sum(stats.norm.pdf(grid))
    rate = np.exp(mean + np.sqrt(variance) * grid)
    expected = np.sum(weights * rate)
    spread = expected + np.sum(weights * (rate - expected) ** 2)
    found = Poisson().predict(np.array([mean]), variance)
    np.testing.assert_allclose([found["mean"][0], found["variance"][0]], [expected, spread], rtol=1e-12)


@pytest.mark.parametrize("count", [-1.0, 2.5])
def test_only_counts(count):
    with pytest.raises(ValueError, match=f"data of Poisson must be counts 0, 1, 2, …; found {count}"):
        Poisson().validate(np.array([1.0, count]))


def test_other_families_have_no_closed_form():
    assert Poisson().tilted(Beta(), jnp.ones(2), 1.0, 1.0) is NotImplemented
