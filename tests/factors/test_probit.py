"""The probit factor against tables, with label noise and powers too, and the lecture notes against exact integrals."""

import csv
from pathlib import Path

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from cavity.factors.binary import Probit
from cavity.families.gaussian import Gaussian, SphericalGaussian

TABLE = Path(__file__).parents[1] / "tables" / "normal.csv"


@jax.jit
def tilt(cavity, y):
    return Probit().tilted(Gaussian(), cavity, y, 1.0)


@pytest.fixture
def sites():
    """y, the cavities and (log_z, d1, d2, nu, tau) of the probit rows of the table."""
    with TABLE.open(newline="") as file:
        rows = np.array([[float(v) for v in row[1:] if v] for row in csv.reader(file) if row[0] == "probit"])
    return rows[:, 0], rows[:, 1:3], rows[:, 3:]


def test_stats_and_site_against_table(sites):
    y, cavity, true = sites
    tilted = jax.vmap(tilt)(cavity, y)
    found = np.column_stack(tilted)
    assert np.max(np.abs(found / true - 1)) < 1e-12


def test_site_is_the_default_message_where_that_is_safe():
    family, cavity = Gaussian(), Gaussian().from_mean(0.4, 2.5)
    tilted = tilt(cavity, -1.0)
    np.testing.assert_allclose(tilted.site, family.message(cavity, tilted.stats), rtol=1e-13)


def test_the_default_message_fails_where_the_factor_does_not(sites):
    y, cavity, true = sites
    tilted = jax.vmap(tilt)(cavity, y)
    default = jax.vmap(Gaussian().message)(cavity, tilted.stats)
    assert np.nanmax(np.abs(default[:, 1] / true[:, 4] - 1)) > 1e-6


def test_log_density_is_log_phi():
    x = np.array([-40.0, -1.0, 0.0, 2.0])
    expected = [float(mp.log(mp.ncdf(-v))) for v in x]
    np.testing.assert_allclose(jax.jit(Probit().log_density)(x, -1.0), expected, rtol=1e-13)


def test_label_noise_against_table(likelihoods):
    rows = likelihoods("probit", "crossing probit")
    noisy = jax.jit(jax.vmap(lambda noise, cavity, y: Probit(noise).tilted(Gaussian(), cavity, y, 1.0)))
    errors = rows.errors(noisy(rows.a, rows.cavity, rows.y))
    assert np.all(errors.max(axis=0) < 1e-11), errors.max(axis=0)


def test_powers_against_table(likelihoods):
    rows = likelihoods("probit_power")
    tilted = jax.jit(jax.vmap(lambda noise, cavity, y, p: Probit(noise).tilted(Gaussian(), cavity, y, p)))
    errors = rows.errors(tilted(rows.a, rows.cavity, rows.y, rows.power)).max(axis=0)
    assert errors[0] < 1e-10
    assert np.all(errors[1:] < 1e-8), errors


def test_derivatives_in_the_noise():
    """log Z = log(ε + (1 − 2ε) Φ(z)) with z = −40 to 40."""
    z = np.array([-40.0, -3.0, -0.5, 2.0, 40.0])
    cavities = Gaussian().from_mean(z * np.sqrt(2.5), 1.5)
    log_z = jax.vmap(lambda noise, cavity: Probit(noise).tilted(Gaussian(), cavity, 1.0, 1.0).log_z)
    slope = jax.jit(lambda noise: jax.jvp(lambda e: log_z(e, cavities), (noise,), (jnp.ones(5),))[1])
    for noise in (1e-6, 0.2):
        exact = [float((1 - 2 * mp.ncdf(x)) / (noise + (1 - 2 * noise) * mp.ncdf(x))) for x in z]
        np.testing.assert_allclose(slope(jnp.full(5, noise)), exact, rtol=1e-11)
    assert np.isfinite(slope(jnp.zeros(5))).all()


def test_predictions_of_both_labels():
    mean, variance = np.array([-60.0, 0.4]), np.array([2.0, 0.7])
    found = jax.jit(Probit(0.1).predict)(mean, variance)
    z = [mp.mpf(m) / mp.sqrt(1 + mp.mpf(v)) for m, v in zip(mean, variance, strict=True)]
    with mp.workdps(600):
        both = np.array([[float(mp.log(mp.ncdf(side * x))) for side in (-1, 1)] for x in z])
    np.testing.assert_allclose(found["log_probabilities"], both, rtol=1e-12)
    np.testing.assert_allclose(found["noisy_probability"], 0.1 + 0.8 * np.exp(both[:, 1]), rtol=1e-13)


def test_bad_input_is_refused_and_other_families_have_no_closed_form():
    with pytest.raises(ValueError, match=r"data of Probit must be labels −1 or \+1; found 2.0"):
        Probit().validate(np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"label_noise must lie in \[0, 0.5\); found 0.7"):
        Probit(0.7).validate(np.array([1.0]))
    assert Probit().tilted(SphericalGaussian(2), np.ones(3), 1.0, 1.0) is NotImplemented


def test_the_exponent_of_the_site_constant_in_the_lecture_notes_has_the_wrong_sign():
    """Z̃ must make ∫ cavity × Z̃ N(x; μ̃, σ̃²) equal to Z; the exponent is printed with a minus and needs a plus."""
    mean, variance, y = 0.9, 1.8, -1
    log_z, _, (nu, tau) = tilt(Gaussian().from_mean(mean, variance), float(y))
    site_mean, site_variance = mp.mpf(float(nu / tau)), mp.mpf(float(1 / tau))
    total = variance + site_variance

    def normal(x, m, v):
        return mp.npdf(x, m, mp.sqrt(v))

    exact = mp.quad(lambda x: normal(x, mean, variance) * mp.ncdf(y * x), [-mp.inf, 0, mp.inf])
    overlap = mp.quad(lambda x: normal(x, mean, variance) * normal(x, site_mean, site_variance), [-mp.inf, 0, mp.inf])
    exponent = (mean - site_mean) ** 2 / (2 * total)
    corrected, printed = (exact * mp.sqrt(2 * mp.pi * total) * mp.exp(sign * exponent) for sign in (1, -1))
    assert abs(float(mp.exp(float(log_z)) / exact - 1)) < 1e-13
    assert abs(float(corrected * overlap / exact - 1)) < 1e-12
    assert abs(float(printed * overlap / exact - 1)) > 0.5
