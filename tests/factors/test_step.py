"""The step factor against 450-digit tables over noise, power, margin and variance; derivatives, predictions, checks."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from cavity.factors import Step
from cavity.families import Beta, Gaussian

FAMILY = Gaussian()


@jax.jit
@jax.vmap
def tilt(noise, cavity, y):
    return Step(noise).tilted(FAMILY, cavity, y, 1.0)


@jax.jit
@jax.vmap
def tilt_power(noise, cavity, y, power):
    return Step(noise).tilted(FAMILY, cavity, y, power)


def test_power_one_against_table(likelihoods):
    rows = likelihoods("step", "crossing step")
    rows = rows.select(rows.power == 1)
    errors = rows.errors(tilt(rows.a, rows.cavity, rows.y))
    assert np.all(errors.max(axis=0) < 1e-11), errors.max(axis=0)


def test_traced_powers_against_table(likelihoods):
    rows = likelihoods("step", "crossing step")
    errors = rows.errors(tilt_power(rows.a, rows.cavity, rows.y, rows.power))
    assert np.all(errors.max(axis=0) < 1e-11), errors.max(axis=0)


def test_the_default_message_fails_where_the_factor_does_not(likelihoods):
    rows = likelihoods("step")
    rows = rows.select(rows.power == 1)
    stats = tilt(rows.a, rows.cavity, rows.y).stats
    d2, tau = np.asarray(stats[:, 1]), rows.true[:, 4]
    with np.errstate(all="ignore"):
        default = -d2 / (1 + rows.variance * d2)  # tau of the family's own message
        assert np.nanmax(np.abs(default / tau - 1)) > 1e-3


def test_a_wrong_label_gives_a_negative_site_that_fades_and_never_a_wrong_direction(likelihoods):
    rows = likelihoods("step")
    rows = rows.select((rows.power == 1) & (rows.a == 0.1))
    _, _, site = tilt(rows.a, rows.cavity, rows.y)
    margin = rows.y * rows.mean / np.sqrt(rows.variance)
    assert np.all(site[(margin < -2) & (margin > -30), 1] < 0)
    assert np.all(site[margin < -100] == 0)
    assert np.all(rows.y * site[:, 0] >= 0)


def test_power_zero_is_no_factor_at_all():
    found = tilt_power(jnp.array([0.0, 0.1]), jnp.array([[0.3, 2.0]] * 2), jnp.ones(2), jnp.zeros(2))
    for part in found:
        np.testing.assert_array_equal(part, 0)


def test_derivatives_in_the_noise():
    noises = np.array([1e-6, 0.01, 0.3])
    cavities = FAMILY.from_mean(np.array([-70.0, -3.0, -0.5, 2.0, 30.0])[:, None], 1.7)[:, 0]

    def log_z(noise):
        return tilt(jnp.full(5, noise), cavities, jnp.ones(5)).log_z

    margins = [mp.mpf(m) / mp.sqrt(mp.mpf(1.7)) for m in (-70.0, -3.0, -0.5, 2.0, 30.0)]
    in_noise = jax.jit(lambda noise: jax.jvp(log_z, (noise,), (1.0,))[1])
    for noise in noises:
        slope = in_noise(noise)
        exact = [(1 - 2 * mp.ncdf(z)) / (noise + (1 - 2 * noise) * mp.ncdf(z)) for z in margins]
        np.testing.assert_allclose(slope, np.array(exact, float), rtol=1e-11)
    slope = in_noise(0.0)
    assert np.isfinite(slope).all() and np.isfinite(log_z(0.0)).all()
    np.testing.assert_allclose(slope[1:], [float(1 / mp.ncdf(z) - 2) for z in margins[1:]], rtol=1e-11)


def test_predictions_keep_the_digits_of_the_unlikely_label():
    mean, variance = np.array([-12.0, 0.3, 45.0]), np.array([2.0, 0.5, 9.0])
    predict = jax.jit(lambda noise, m, v: Step(noise).predict(m, v))
    found = predict(0.05, mean, variance)
    z = [mp.mpf(m) / mp.sqrt(mp.mpf(v)) for m, v in zip(mean, variance, strict=True)]
    with mp.workdps(100):
        both = np.array([[float(mp.log(mp.ncdf(side * x))) for side in (-1, 1)] for x in z])
    np.testing.assert_allclose(found["log_probabilities"], both, rtol=1e-12)
    np.testing.assert_allclose(found["probability"], np.exp(both[:, 1]), rtol=1e-12)
    np.testing.assert_allclose(found["noisy_probability"], 0.05 + 0.9 * np.exp(both[:, 1]), rtol=1e-13)
    np.testing.assert_allclose(np.exp(found["noisy_log_probabilities"]).sum(axis=-1), 1, rtol=1e-13)
    certain = predict(0.0, np.array([-1.0, 0.0, 1.0]), np.zeros(3))["probability"]
    np.testing.assert_allclose(certain, [0, 0.5, 1], atol=1e-300)


def test_log_density_has_two_levels():
    x = jnp.array([-2.0, 3.0])
    np.testing.assert_allclose(Step(0.2).log_density(x, -1.0), np.log([0.8, 0.2]), rtol=1e-15)
    np.testing.assert_array_equal(Step().log_density(x, 1.0), [-np.inf, 0.0])


@pytest.mark.parametrize(
    ("noise", "labels", "message"),
    [
        (0.5, [1.0], r"label_noise must lie in \[0, 0.5\); found 0.5"),
        (-0.1, [1.0], r"label_noise must lie in \[0, 0.5\); found -0.1"),
        (0.1, [1.0, 0.0], r"data of Step must be labels −1 or \+1; found 0.0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(noise, labels, message):
    with pytest.raises(ValueError, match=message):
        Step(noise).validate(np.array(labels))


def test_other_families_have_no_closed_form():
    assert Step().tilted(Beta(), jnp.ones(2), 1.0, 1.0) is NotImplemented
