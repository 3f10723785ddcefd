"""Enumeration against sums written out in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cavity.factors import from_log_density
from cavity.families import Categorical, Gaussian, Product
from cavity.moments import Enumeration

KEY = jax.random.key(0)
TABLE = from_log_density(lambda x, table: jnp.log(table[x]))


@functools.cache
def compiled(family, power):
    return jax.jit(lambda cavity, table: Enumeration().tilt(None, TABLE, family, cavity, table, power, KEY)[0])


def tilt(family, cavity, table, power=1.0):
    return compiled(family, power)(cavity, jnp.asarray(table))


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0.01, 10), min_size=6, max_size=6), st.sampled_from([0.5, 1.0]))
def test_a_table_of_two_variables(entries, power):
    table = np.array(entries).reshape(2, 3)
    p, q = np.array([0.3, 0.7]), np.array([0.2, 0.5, 0.3])
    family = Product((Categorical(2), Categorical(3)))
    cavity = jnp.concatenate([Categorical(2).from_probabilities(p), Categorical(3).from_probabilities(q)])
    found = tilt(family, cavity, table, power)
    joint = table**power * np.outer(p, q)
    assert float(found.log_z) == pytest.approx(np.log(joint.sum()), rel=1e-12, abs=1e-14)
    marginals = np.concatenate([joint.sum(1), joint.sum(0)]) / joint.sum()
    np.testing.assert_allclose(found.stats, marginals, rtol=1e-12)
    np.testing.assert_allclose(found.site, family.message(cavity, found.stats), atol=1e-12)
    np.testing.assert_allclose(family.moments(cavity + found.site), marginals, rtol=1e-12)


def test_one_variable_gives_the_factor_itself():
    family, table = Categorical(3), np.array([2.0, 0.0, 5.0])
    cavity = family.from_probabilities([0.1, 0.6, 0.3])
    found = tilt(family, cavity, table)
    np.testing.assert_array_equal(found.site[3:], [0.0, 1.0, 0.0])
    np.testing.assert_allclose(found.site[2] - found.site[0], np.log(2.5), rtol=1e-14)
    assert float(found.stats[1]) == 0.0


def test_zeros_stay_zeros_and_are_right_where_the_cavity_is_zero():
    family = Product((Categorical(2), Categorical(2)))
    cavity = jnp.concatenate(
        [Categorical(2).from_probabilities([1.0, 0.0]), Categorical(2).from_probabilities([0.5, 0.5])]
    )
    found = tilt(family, cavity, [[1.0, 0.0], [2.0, 3.0]])
    first, second = found.site[:4], found.site[4:]
    # x0 = 0 forces x1 = 0; the message to x0 does not use x0's own cavity: (0.5·1, 0.5·2 + 0.5·3)/Z.
    assert float(found.log_z) == pytest.approx(np.log(0.5))
    np.testing.assert_array_equal(second[2:], [0.0, 1.0])
    np.testing.assert_array_equal(first[2:], [0.0, 0.0])
    np.testing.assert_allclose(first[:2], np.log([1.0, 5.0]), atol=1e-14)
    np.testing.assert_array_equal(found.stats, [1.0, 0.0, 1.0, 0.0])


def test_very_small_weights_do_not_become_zeros():
    factor = from_log_density(lambda x, d: -1000.0 * x)
    found, _ = Enumeration().tilt(None, factor, Categorical(3), Categorical(3).uniform(), 0.0, 1.0, KEY)
    np.testing.assert_array_equal(found.site[3:], 0.0)
    np.testing.assert_allclose(np.diff(found.site[:3]), -1000.0)


def test_the_impossible_is_flagged_not_nan():
    family = Categorical(2)
    found = tilt(family, family.from_probabilities([0.5, 0.5]), [0.0, 0.0])
    assert float(found.log_z) == -np.inf
    np.testing.assert_array_equal(found.site, 0.0)
    assert np.isfinite(found.stats).all()


def test_what_it_cannot_do_is_said_in_words():
    with pytest.raises(TypeError, match="Quadrature"):
        Enumeration().evaluations(Gaussian())
    with pytest.raises(ValueError, match="joint states"):
        Enumeration().evaluations(Product((Categorical(10),) * 8))
    assert Enumeration().evaluations(Product((Categorical(4), Categorical(3)))) == 12
