"""Importance sampling against closed forms, within its own standard error."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from cavity.factors import Clutter, Probit, from_log_density
from cavity.families import Beta, Categorical, Dirichlet, FullGaussian, Gaussian, Product
from cavity.moments import Importance

KEY = jax.random.key(1)


def tilt(strategy, factor, family, eta, data=0.0):
    return jax.jit(lambda e: strategy.tilt(None, factor, family, e, data, 1.0, KEY))(jnp.asarray(eta))


def test_probit_within_the_standard_error():
    eta = Gaussian().from_mean(0.5, 2.0)
    found, info = tilt(Importance(draws=20_000), Probit(), Gaussian(), eta, -1.0)
    exact = Probit().tilted(Gaussian(), eta, -1.0, 1.0)
    assert 1 < float(info["ess"]) < 20_000
    assert abs(float(found.log_z - exact.log_z)) < 5 * float(info["error"])
    np.testing.assert_allclose(found.stats, exact.stats, atol=0.02)
    np.testing.assert_allclose(found.site, exact.site, atol=0.03)


def test_ten_nodes_beat_thousands_of_draws():
    """Chapter 2: in one dimension quadrature needs about ten values where sampling needs thousands."""
    eta = Gaussian().from_mean(0.5, 2.0)
    exact = float(Probit().tilted(Gaussian(), eta, -1.0, 1.0).log_z)
    nodes, weights = np.polynomial.hermite_e.hermegauss(10)
    ten = np.log(weights @ ndtr(-(0.5 + np.sqrt(2.0) * nodes)) / weights.sum())
    found, info = tilt(Importance(draws=4_000), Probit(), Gaussian(), eta, -1.0)
    assert abs(ten - exact) < 1e-3 < float(info["error"])
    assert abs(ten - exact) < 0.2 * abs(float(found.log_z) - exact)


def test_vectors_in_more_dimensions_than_quadrature_takes():
    family = FullGaussian(5)
    eta = family.from_mean(np.zeros(5), np.eye(5))
    factor, x = Clutter(0.5, 10.0), jnp.ones(5)
    found, _ = tilt(Importance(draws=20_000), factor, family, eta, x)
    exact = factor.tilted(family, eta, x, 1.0)
    assert abs(float(found.log_z - exact.log_z)) < 0.02
    np.testing.assert_allclose(found.stats, exact.stats, atol=0.05)


def test_a_flat_factor_gives_a_flat_site_exactly():
    family = FullGaussian(2)
    eta = family.from_mean(np.array([3.0, -1.0]), np.array([[2.0, 1.0], [1.0, 3.0]]))
    flat = from_log_density(lambda x, d: 0.0 * x[0] + d)
    found, info = tilt(Importance(draws=50), flat, family, eta, 1.5)
    assert float(found.log_z) == pytest.approx(1.5, rel=1e-12)
    np.testing.assert_allclose(found.site, 0.0, atol=1e-12)
    assert float(info["error"]) < 1e-7
    assert float(info["ess"]) == pytest.approx(50)


@dataclass(frozen=True)
class Wide:
    """N(40, 1), a proposal where the factor is."""

    def sample(self, key, shape):
        return 40.0 + jax.random.normal(key, shape)

    def log_density(self, x):
        return -0.5 * (x - 40.0) ** 2 - 0.5 * jnp.log(2 * jnp.pi)


def test_a_proposal_of_ones_own_reaches_what_the_cavity_cannot():
    eta = Gaussian().from_mean(0.0, 1.0)
    factor = from_log_density(lambda x, d: -0.5 * (x - d) ** 2 * 4.0)
    found, info = tilt(Importance(draws=50_000, proposal=Wide()), factor, Gaussian(), eta, 50.0)
    assert float(info["ess"]) > 1000
    np.testing.assert_allclose(found.site, [200.0, 4.0], rtol=0.05)
    blind, info = tilt(Importance(draws=1000), factor, Gaussian(), eta, 50.0)
    assert float(info["ess"]) < 5
    assert np.isfinite(blind.site).all()


def test_the_same_key_gives_the_same_answer():
    eta = Gaussian().from_mean(0.0, 1.0)
    first, second = (tilt(Importance(draws=100), Probit(), Gaussian(), eta, 1.0)[0] for _ in range(2))
    np.testing.assert_array_equal(first.site, second.site)


def test_beta_dirichlet_and_products():
    factor = from_log_density(lambda x, d: jnp.log(x))
    found, _ = tilt(Importance(draws=20_000), factor, Beta(), jnp.array([2.0, 3.0]), 0.0)
    np.testing.assert_allclose(found.site, [1.0, 0.0], atol=0.2)
    factor = from_log_density(lambda x, d: jnp.log(x[1]))
    family = Dirichlet(3, "mean_square")
    found, _ = tilt(Importance(draws=20_000), factor, family, jnp.array([2.0, 3.0, 1.5]))
    np.testing.assert_allclose(found.site, [0.0, 1.0, 0.0], atol=0.3)

    family = Product((Gaussian(), Categorical(2)))
    eta = jnp.concatenate([Gaussian().from_mean(0.0, 1.0), Categorical(2).from_probabilities([0.5, 0.5])])
    factor = from_log_density(lambda x, d: -0.5 * (x[0] - 1.0) ** 2 + jnp.where(x[1] == 0, jnp.log(3.0), 0.0))
    found, _ = tilt(Importance(draws=20_000), factor, family, eta, 0.0)
    np.testing.assert_allclose(found.site[:2], [1.0, 1.0], atol=0.05)
    np.testing.assert_allclose(found.stats[2:], [0.75, 0.25], atol=0.01)


def test_no_mass_is_flagged_not_nan():
    never = from_log_density(lambda x, d: -jnp.inf + 0 * x)
    for family, eta in ((Gaussian(), [0.0, 1.0]), (Gaussian(), [0.0, -1.0])):
        found, info = tilt(Importance(draws=10), never, family, jnp.array(eta), 0.0)
        assert float(found.log_z) == -np.inf
        assert float(info["error"]) == np.inf
        assert float(info["ess"]) == 0
        np.testing.assert_array_equal(found.site, 0.0)
        assert np.isfinite(found.stats).all()


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="draws must be an integer"):
        Importance(draws=0)
    with pytest.raises(TypeError, match="proposal must be"):
        Importance(proposal="prior")
    assert Importance(draws=123).evaluations(Gaussian()) == 123
