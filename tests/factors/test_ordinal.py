"""The ordinal probit factor against 40-digit sums, closed form and powers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cavity.factors import OrdinalProbit, Probit
from cavity.families import Beta, Gaussian

FAMILY = Gaussian()
THRESHOLDS = np.array([-1.0, 0.2, 2.5])


@jax.jit
@jax.vmap
def tilt(cavity, y):
    return OrdinalProbit(THRESHOLDS, 0.7).tilted(FAMILY, cavity, y, 1.0)


@jax.jit
@jax.vmap
def tilt_power(cavity, y, power):
    return OrdinalProbit(THRESHOLDS, 0.7).tilted(FAMILY, cavity, y, power)


def test_power_one_against_table(likelihoods):
    rows = likelihoods("ordinal")
    rows = rows.select(rows.power == 1)
    errors = rows.errors(tilt(rows.cavity, rows.y)).max(axis=0)
    assert np.all(errors < 1e-11), errors


def test_traced_powers_against_table(likelihoods):
    rows = likelihoods("ordinal")
    errors = rows.errors(tilt_power(rows.cavity, rows.y, rows.power)).max(axis=0)
    assert errors[0] < 1e-10
    assert np.all(errors[1:] < 1e-8), errors


def test_one_threshold_is_a_probit():
    cavities = FAMILY.from_mean(np.array([-30.0, -1.0, 0.4, 6.0]), 1.8)
    two = OrdinalProbit(jnp.zeros(1), 1.0)
    ordinal = jax.jit(jax.vmap(lambda c, y: two.tilted(FAMILY, c, y, 1.0), in_axes=(0, None)))
    probit = jax.jit(jax.vmap(lambda c, y: Probit().tilted(FAMILY, c, y, 1.0), in_axes=(0, None)))
    for y in (0, 1):
        for left, right in zip(ordinal(cavities, y), probit(cavities, 2.0 * y - 1.0), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-12)


def test_derivatives_in_thresholds_and_scale_against_differences():
    cavities = FAMILY.from_mean(np.array([-4.0, 0.3, 1.0, 2.0]), 0.8)

    @jax.jit
    def log_z(thresholds, scale):
        factor = OrdinalProbit(thresholds, scale)
        return jax.vmap(lambda c, y: factor.tilted(FAMILY, c, y, 1.0).log_z)(cavities, jnp.arange(4))

    slopes, spread = jax.jit(jax.jacfwd(log_z, argnums=(0, 1)))(THRESHOLDS, 0.7)
    step = 1e-4

    def difference(function):
        return (8 * (function(step) - function(-step)) - function(2 * step) + function(-2 * step)) / (12 * step)

    for k in range(3):
        moved = difference(lambda h, k=k: log_z(THRESHOLDS + h * np.eye(3)[k], 0.7))
        np.testing.assert_allclose(slopes[:, k], moved, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(spread, difference(lambda h: log_z(THRESHOLDS, 0.7 + h)), rtol=1e-8)


def test_predictions_and_log_density_against_scipy():
    mean, variance = np.array([[-3.0], [0.4]]), 0.6
    found = jax.jit(OrdinalProbit(THRESHOLDS, 0.7).predict)(mean[:, 0], variance)
    edges = np.array([-np.inf, *THRESHOLDS, np.inf])
    exact = np.diff(stats.norm.cdf((edges - mean) / np.sqrt(variance + 0.49)))
    np.testing.assert_allclose(found["probabilities"], exact, rtol=1e-9)
    np.testing.assert_allclose(found["probabilities"].sum(axis=-1), 1, rtol=1e-14)
    density = jax.jit(OrdinalProbit(THRESHOLDS, 0.7).log_density)(0.4, np.arange(4))
    np.testing.assert_allclose(density, np.log(np.diff(stats.norm.cdf((edges - 0.4) / 0.7))), rtol=1e-12)


@pytest.mark.parametrize(
    ("thresholds", "scale", "classes", "message"),
    [
        ([0.0, 0.0], 1.0, [1], r"thresholds must increase; found \[0.0, 0.0\]"),
        ([0.0, 1.0], -1.0, [1], "scale must be positive; found -1.0"),
        ([0.0, 1.0], 1.0, [0, 3], "data of OrdinalProbit must be classes 0 to 2; found 3"),
        ([0.0, 1.0], 1.0, [0.5], "data of OrdinalProbit must be classes 0 to 2; found 0.5"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(thresholds, scale, classes, message):
    with pytest.raises(ValueError, match=message):
        OrdinalProbit(np.array(thresholds), scale).validate(np.array(classes))


def test_other_families_have_no_closed_form():
    assert OrdinalProbit(THRESHOLDS).tilted(Beta(), jnp.ones(2), 1, 1.0) is NotImplemented
