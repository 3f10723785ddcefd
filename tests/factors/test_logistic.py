"""The logistic factor against 40-digit sums: cavities narrow and wide, right and wrong labels, noise, powers."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from cavity.factors import Logistic, Probit
from cavity.families import Beta, Gaussian

FAMILY = Gaussian()


@jax.jit
@jax.vmap
def tilt(noise, cavity, y):
    return Logistic(noise).tilted(FAMILY, cavity, y, 1.0)


@jax.jit
@jax.vmap
def tilt_power(noise, cavity, y, power):
    return Logistic(noise).tilted(FAMILY, cavity, y, power)


def test_power_one_against_table(likelihoods):
    rows = likelihoods("logistic")
    rows = rows.select(rows.power == 1)
    errors = rows.errors(tilt(rows.a, rows.cavity, rows.y))
    usual = (rows.variance >= 1e-7) & (rows.variance <= 1e7)
    assert errors[:, 0].max() < 1e-10
    assert np.all(errors[usual, 1:].max(axis=0) < 1e-8), errors[usual].max(axis=0)
    assert np.all(errors[~usual].max(axis=0) < 1e-6), errors[~usual].max(axis=0)


def test_powers_against_table(likelihoods):
    rows = likelihoods("logistic")
    rows = rows.select((rows.power != 1) | (rows.variance == 1))
    errors = rows.errors(tilt_power(rows.a, rows.cavity, rows.y, rows.power)).max(axis=0)
    assert errors[0] < 1e-10
    assert np.all(errors[1:] < 1e-8), errors


def test_the_mirrored_label_mirrors_the_site(likelihoods):
    rows = likelihoods("logistic")
    rows = rows.select(rows.power == 1)
    log_z, _, site = tilt(rows.a, rows.cavity, rows.y)
    mirror, _, opposite = tilt(rows.a, rows.cavity * np.array([-1.0, 1.0]), -rows.y)
    np.testing.assert_array_equal(log_z, mirror)
    np.testing.assert_array_equal(site * np.array([-1.0, 1.0]), opposite)


def test_slack_is_linear_and_a_probits_quadratic():
    """Thesis 5.1: a label on the wrong side costs like x under the logistic function, like x² under Φ."""
    x = np.array([20.0, 40.0])
    linear, quadratic = (np.asarray(factor.log_density(x, -1.0)) for factor in (Logistic(), Probit()))
    assert linear[1] / linear[0] == pytest.approx(2.0, rel=1e-6)
    assert quadratic[1] / quadratic[0] == pytest.approx(4.0, rel=0.02)


def test_both_labels_share_all_the_probability(likelihoods):
    """Z(+1) + Z(−1) = 1: two integrals over different places."""
    rows = likelihoods("logistic")
    rows = rows.select(rows.power == 1)
    total = np.exp(tilt(rows.a, rows.cavity, rows.y).log_z) + np.exp(tilt(rows.a, rows.cavity, -rows.y).log_z)
    np.testing.assert_allclose(total, 1, rtol=1e-12)


def test_derivatives_in_the_noise_and_in_the_cavity_mean():
    means = np.array([-60.0, -2.0, 0.5, 9.0])
    cavities = FAMILY.from_mean(means, 3.0)

    def log_z(noise, shift):
        return tilt(jnp.full(4, noise), cavities + shift * jnp.array([1 / 3.0, 0.0]), jnp.ones(4))

    clean = np.exp(log_z(0.0, 0.0).log_z)
    in_noise = jax.jit(lambda noise: jax.jvp(lambda e: log_z(e, 0.0).log_z, (noise,), (1.0,))[1])
    for noise in (0.0, 1e-6, 0.1):
        slope = in_noise(noise)
        np.testing.assert_allclose(slope, (1 - 2 * clean) / (noise + (1 - 2 * noise) * clean), rtol=1e-10)
    tilted, slope = jax.jit(lambda shift: jax.jvp(lambda s: log_z(0.1, s), (shift,), (1.0,)))(0.0)
    np.testing.assert_allclose(slope.log_z, tilted.stats[:, 0], rtol=1e-10)
    np.testing.assert_allclose(slope.stats[:, 0], tilted.stats[:, 1], rtol=1e-8)


def test_predictions_against_quadrature():
    mean, variance = np.array([-25.0, 0.0, 0.8]), np.array([4.0, 1.0, 9.0])
    found = jax.jit(Logistic(0.1).predict)(mean, variance)
    exact = []
    for m, sd in zip(mean, np.sqrt(variance), strict=True):
        cuts = [m + k * sd for k in range(-12, 13)]
        exact.append(mp.quad(lambda f, m=m, sd=sd: mp.npdf(f, m, sd) / (1 + mp.exp(-f)), cuts))
    np.testing.assert_allclose(found["probability"], np.array(exact, float), rtol=1e-12)
    np.testing.assert_allclose(found["noisy_probability"], 0.1 + 0.8 * np.array(exact, float), rtol=1e-12)
    both = [float(mp.log1p(-exact[0])), float(mp.log(exact[0]))]
    np.testing.assert_allclose(found["log_probabilities"][0], both, rtol=1e-12)


def test_log_density_and_refusals():
    x = np.array([-800.0, 0.3])
    log_density = jax.jit(lambda noise: Logistic(noise).log_density(x, 1.0))
    np.testing.assert_allclose(log_density(0.0), [-800.0, -np.log1p(np.exp(-0.3))], rtol=1e-15)
    np.testing.assert_allclose(log_density(0.2)[0], np.log(0.2), rtol=1e-14)
    with pytest.raises(ValueError, match=r"data of Logistic must be labels −1 or \+1; found 0.0"):
        Logistic().validate(np.array([0.0, 1.0]))
    assert Logistic().tilted(Beta(), jnp.ones(2), 1.0, 1.0) is NotImplemented
