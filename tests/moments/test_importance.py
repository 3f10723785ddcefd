"""Importance sampling against closed forms, within its own standard error."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cavity.factors import Clutter, Probit, from_log_density
from cavity.families import Beta, Categorical, Dirichlet, FullGaussian, Gaussian, Product
from cavity.moments import Importance

KEY = jax.random.key(1)


def test_probit_within_the_standard_error():
    eta = Gaussian().from_mean(0.5, 2.0)
    found, info = Importance(draws=40_000).tilt(None, Probit(), Gaussian(), eta, -1.0, 1.0, KEY)
    exact = Probit().tilted(Gaussian(), eta, -1.0, 1.0)
    assert 1 < float(info["ess"]) < 40_000
    assert abs(float(found.log_z - exact.log_z)) < 5 * float(info["error"])
    np.testing.assert_allclose(found.stats, exact.stats, atol=0.02)
    np.testing.assert_allclose(found.site, exact.site, atol=0.03)


def test_vectors_in_more_dimensions_than_quadrature_takes():
    family = FullGaussian(5)
    eta = family.from_mean(np.zeros(5), np.eye(5))
    factor, x = Clutter(0.5, 10.0), jnp.ones(5)
    found, _ = Importance(draws=100_000).tilt(None, factor, family, eta, x, 1.0, KEY)
    exact = factor.tilted(family, eta, x, 1.0)
    assert abs(float(found.log_z - exact.log_z)) < 0.02
    np.testing.assert_allclose(found.stats, exact.stats, atol=0.05)


def test_a_flat_factor_gives_a_flat_site_exactly():
    family = FullGaussian(2)
    eta = family.from_mean(np.array([3.0, -1.0]), np.array([[2.0, 1.0], [1.0, 3.0]]))
    flat = from_log_density(lambda x, d: 0.0 * x[0] + d)
    found, info = Importance(draws=50).tilt(None, flat, family, eta, 1.5, 1.0, KEY)
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
    found, info = Importance(draws=50_000, proposal=Wide()).tilt(None, factor, Gaussian(), eta, 50.0, 1.0, KEY)
    assert float(info["ess"]) > 1000
    np.testing.assert_allclose(found.site, [200.0, 4.0], rtol=0.05)
    blind, info = Importance(draws=1000).tilt(None, factor, Gaussian(), eta, 50.0, 1.0, KEY)
    assert float(info["ess"]) < 5
    assert np.isfinite(blind.site).all()


def test_the_same_key_gives_the_same_answer():
    eta = Gaussian().from_mean(0.0, 1.0)
    first, second = (Importance(draws=100).tilt(None, Probit(), Gaussian(), eta, 1.0, 1.0, KEY)[0] for _ in range(2))
    np.testing.assert_array_equal(first.site, second.site)


def test_beta_dirichlet_and_products():
    factor = from_log_density(lambda x, d: jnp.log(x))
    found, _ = Importance(draws=100_000).tilt(None, factor, Beta(), jnp.array([2.0, 3.0]), 0.0, 1.0, KEY)
    np.testing.assert_allclose(found.site, [1.0, 0.0], atol=0.1)
    factor = from_log_density(lambda x, d: jnp.log(x[1]))
    for match in ("log", "mean_square"):
        found, _ = Importance(draws=100_000).tilt(
            None, factor, Dirichlet(3, match), jnp.array([2.0, 3.0, 1.5]), 0.0, 1.0, KEY
        )
        np.testing.assert_allclose(found.site, [0.0, 1.0, 0.0], atol=0.15)

    family = Product((Gaussian(), Categorical(2)))
    eta = jnp.concatenate([Gaussian().from_mean(0.0, 1.0), Categorical(2).from_probabilities([0.5, 0.5])])
    factor = from_log_density(lambda x, d: -0.5 * (x[0] - 1.0) ** 2 + jnp.where(x[1] == 0, jnp.log(3.0), 0.0))
    found, _ = Importance(draws=100_000).tilt(None, factor, family, eta, 0.0, 1.0, KEY)
    np.testing.assert_allclose(found.site[:2], [1.0, 1.0], atol=0.05)
    np.testing.assert_allclose(found.stats[2:], [0.75, 0.25], atol=0.01)


def test_no_mass_is_flagged_not_nan():
    never = from_log_density(lambda x, d: -jnp.inf + 0 * x)
    for family, eta in ((Gaussian(), [0.0, 1.0]), (Gaussian(), [0.0, -1.0]), (Beta(), [2.0, 3.0])):
        found, info = Importance(draws=10).tilt(None, never, family, jnp.array(eta), 0.0, 1.0, KEY)
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
