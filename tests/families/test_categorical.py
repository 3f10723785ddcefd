"""Exact zeros: products, deletion of one of several zeros, messages, divergences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cavity.families import Categorical

FAMILY = Categorical(3)
ZERO_FIRST = np.array([0.0, 0.2, -0.3, 1.0, 0.0, 0.0])
ALSO_ZERO_FIRST = np.array([0.0, 1.0, 0.5, 1.0, 0.0, 0.0])
PLAIN = np.array([0.4, -0.2, 0.1, 0.0, 0.0, 0.0])


def test_deleting_one_of_two_zeros_leaves_a_zero_and_deleting_the_only_one_removes_it():
    q = PLAIN + ZERO_FIRST + ALSO_ZERO_FIRST
    assert float(FAMILY.moments(q - ZERO_FIRST)[0]) == 0
    back = np.asarray(FAMILY.moments(q - ZERO_FIRST - ALSO_ZERO_FIRST))
    np.testing.assert_allclose(back, FAMILY.moments(PLAIN), rtol=1e-13)
    np.testing.assert_allclose(FAMILY.moments(q - ZERO_FIRST), FAMILY.moments(PLAIN + ALSO_ZERO_FIRST), rtol=1e-13)


def test_damped_and_powered_zeros_stay_zero_until_they_are_gone():
    q = PLAIN + 0.1 * ZERO_FIRST
    assert float(FAMILY.moments(q)[0]) == 0
    for _ in range(9):
        q = q + 0.1 * ZERO_FIRST
    assert bool(FAMILY.is_proper(q - ZERO_FIRST))
    assert float(FAMILY.moments(q - ZERO_FIRST)[0]) > 0


def test_message_is_silent_where_the_cavity_is_zero_and_turns_the_cavity_into_the_tilted():
    cavity = PLAIN + ZERO_FIRST
    stats = np.array([0.0, 0.0, 1.0])
    message = np.asarray(FAMILY.message(cavity, stats))
    assert message[0] == 0
    np.testing.assert_array_equal(message[3:], [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(FAMILY.moments(cavity + message), stats)
    stats = np.array([0.2, 0.5, 0.3])
    np.testing.assert_allclose(FAMILY.moments(PLAIN + FAMILY.message(PLAIN, stats)), stats, rtol=1e-13)
    # The scale of the cavity does not enter.
    scaled = PLAIN + np.array([50.0, 50.0, 50.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(FAMILY.message(scaled, stats), FAMILY.message(PLAIN, stats), atol=1e-13)


def test_nothing_possible():
    none = np.array([0.0, 0.0, 0.0, 1.0, 2.0, 1.0])
    assert float(FAMILY.log_partition(none)) == -np.inf
    assert not bool(FAMILY.is_proper(none))
    np.testing.assert_array_equal(FAMILY.moments(none), np.zeros(3))
    assert float(FAMILY.distance(none, PLAIN)) == np.inf
    assert float(FAMILY.log_partition(PLAIN - ZERO_FIRST)) == np.inf


def test_impossible_states_in_densities_draws_and_divergences():
    assert float(FAMILY.log_density(ZERO_FIRST, 0)) == -np.inf
    assert float(FAMILY.log_density(ZERO_FIRST, 7)) == -np.inf
    np.testing.assert_allclose(np.exp(FAMILY.log_density(PLAIN, np.arange(3))), FAMILY.moments(PLAIN), rtol=1e-13)
    assert not np.any(np.asarray(FAMILY.sample(jax.random.key(0), ZERO_FIRST, (1000,))) == 0)
    assert float(FAMILY.kl(PLAIN, ZERO_FIRST)) == np.inf
    p, q = np.asarray(FAMILY.moments(ZERO_FIRST)), np.asarray(FAMILY.moments(PLAIN))
    assert float(FAMILY.kl(ZERO_FIRST, PLAIN)) == pytest.approx(np.sum(p[1:] * np.log(p[1:] / q[1:])))
    assert float(FAMILY.entropy(ZERO_FIRST)) == pytest.approx(-np.sum(p[1:] * np.log(p[1:])))


def test_extreme_weights_do_not_overflow():
    steep = np.array([0.0, 900.0, -900.0, 0.0, 0.0, 0.0])
    steeper = np.array([0.0, 950.0, 0.0, 0.0, 0.0, 0.0])
    assert np.all(np.isfinite(FAMILY.moments(steep)))
    assert float(FAMILY.kl(steep, steeper)) == pytest.approx(0, abs=1e-300)
    assert float(FAMILY.kl(PLAIN, steep)) > 100
    assert float(FAMILY.distance(steep, steeper)) < 1e-100


def test_distance_counts_standard_deviations():
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.25, 0.3, 0.45])
    expected = np.max(np.abs(p - q) / np.sqrt(p * (1 - p)))
    assert float(FAMILY.distance(FAMILY.from_probabilities(p), FAMILY.from_probabilities(q))) == pytest.approx(expected)
    # One state holds nearly everything: its 1 − p rounds to 0, yet rounding must not look like a mismatch.
    sure = FAMILY.from_probabilities(np.array([1e-30, 1.0, 2e-30]))
    assert float(FAMILY.distance(sure, np.asarray(sure) * (1 + 1e-15))) < 1e-12


def test_tilted_statistics_from_log_z():
    table = jnp.array([0.3, 0.0, 2.0])
    cavity = jnp.asarray(PLAIN)
    p = np.asarray(FAMILY.moments(PLAIN))
    for log_z in (lambda w: jnp.log(jnp.sum(table * w)), lambda w: jnp.log(jnp.sum(table * w) / jnp.sum(w))):
        value, stats = FAMILY.tilted_stats(log_z, cavity)
        assert float(value) == pytest.approx(np.log(table @ p))
        np.testing.assert_allclose(stats, table * p / (table @ p), atol=1e-15)


def test_mean_and_covariance_are_those_of_the_number():
    p = np.array([0.2, 0.3, 0.5])
    eta = FAMILY.from_probabilities(2 * p)
    assert float(FAMILY.mean(eta)) == pytest.approx(1.3)
    assert float(FAMILY.covariance(eta)) == pytest.approx(0.3 + 4 * 0.5 - 1.3**2)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="states"):
        Categorical(0)
