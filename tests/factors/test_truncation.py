"""The truncation factor against 450-digit tables, and what the lecture notes print against exact truncated moments."""

import csv
from pathlib import Path

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cavity.factors.interval import Truncation
from cavity.families.gaussian import Gaussian, SphericalGaussian

TABLE = Path(__file__).parents[1] / "tables" / "normal.csv"


@jax.jit
def tilt(cavity, lower, upper):
    return Truncation().tilted(Gaussian(), cavity, (lower, upper), 1.0)


@pytest.fixture
def sites():
    """(lower, upper), the cavities and (log_z, d1, d2, nu, tau) of the truncation rows of the table."""
    with TABLE.open(newline="") as file:
        rows = np.array([[float(v) for v in row[1:] if v] for row in csv.reader(file) if row[0] == "truncation"])
    return rows[:, :2], rows[:, 2:4], rows[:, 4:]


def test_stats_and_site_against_table(sites):
    bounds, cavity, true = sites
    found = np.column_stack(jax.vmap(tilt)(cavity, *bounds.T))
    d1, nu, tau = true[:, 1], true[:, 3], true[:, 4]
    scale = np.abs(true)
    # nu = tau × tilted mean + d1 depends on the origin, so that its error is measured against these two terms; with the
    # bound at the origin they have one sign and the error is relative.
    tilted_mean = (cavity[:, 0] + d1) / cavity[:, 1]
    at_origin = (bounds == 0).any(axis=1)
    scale[:, 3] = np.where(at_origin, np.abs(nu), np.abs(tau * tilted_mean) + np.abs(d1))
    error = np.abs(found - true) / np.maximum(scale, 1e-290)
    assert np.all(error.max(axis=0) < 1e-12), error.max(axis=0)


def test_no_bounds_no_message():
    tilted = tilt(jnp.array([3.0, 2.0]), -jnp.inf, jnp.inf)
    assert [float(tilted.log_z), *map(float, tilted.stats), *map(float, tilted.site)] == [0, 0, 0, 0, 0]


def test_every_power_of_an_indicator_is_the_indicator():
    cavity = Gaussian().from_mean(-1.0, 4.0)
    tilted = jax.jit(Truncation().tilted, static_argnums=(0, 3))
    one, half = (tilted(Gaussian(), cavity, (0.0, 2.0), power) for power in (1.0, 0.5))
    for left, right in zip(one, half, strict=True):
        np.testing.assert_array_equal(left, right)


def test_log_density_and_missing_closed_form():
    x = np.array([-1.0, 0.5, 3.0])
    np.testing.assert_array_equal(Truncation().log_density(x, (0.0, 1.0)), [-np.inf, 0.0, -np.inf])
    assert Truncation().tilted(SphericalGaussian(2), np.ones(3), (0.0, 1.0), 1.0) is NotImplemented


def test_derivatives_of_log_z_exist_with_infinite_bounds():
    slope = jax.jit(jax.grad(lambda cavity: tilt(cavity, 1.0, jnp.inf).log_z))(jnp.array([0.3, 0.6]))
    mean, tau, d1 = 0.5, 0.6, float(tilt(jnp.array([0.3, 0.6]), 1.0, jnp.inf).stats[0])
    # log Z depends on nu through the mean alone, whose derivative is 1/tau; on tau through mean and deviation.
    np.testing.assert_allclose(slope[0], d1 / tau, rtol=1e-13)
    np.testing.assert_allclose(slope[1], -d1 * mean / tau + 0.5 * (mean - 1.0) * d1 / tau, rtol=1e-12)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.floats(-1e3, 1e3), st.floats(-6, 6), st.floats(-1e3, 1e3), st.floats(-6, 6) | st.just(np.inf))
def test_reflection_and_tilted_moments(mean, log_variance, lower, log_width):
    cavity = Gaussian().from_mean(mean, 10.0**log_variance)
    upper = lower + 10.0**log_width
    tilted, mirrored = tilt(cavity, lower, upper), tilt(cavity * jnp.array([-1.0, 1.0]), -upper, -lower)
    np.testing.assert_allclose(mirrored.site, tilted.site * jnp.array([-1.0, 1.0]), rtol=1e-13)
    assert np.isfinite(tilted.site).all()
    assert tilted.site[1] >= 0
    q = cavity + tilted.site
    slack = 1e-12 * (abs(lower) + abs(mean))
    assert lower - slack <= q[0] / q[1] <= upper + slack


def test_what_the_lecture_notes_print_for_a_truncation():
    """x < c under N(m, s²): three of three printed site parameters miss the exact moments, the corrected ones hit."""
    with mp.workdps(40):
        errors = {s: _printed_and_corrected(mp.mpf("0.7"), mp.mpf("-0.4"), mp.mpf(s)) for s in ("1.9", "1")}
    for corrected, sign_of_mean, _, sign_of_exponent in errors.values():
        assert corrected < 1e-30
        assert sign_of_mean > 0.1
        assert sign_of_exponent > 0.1
    # The missing factor s² is invisible for a cavity of unit variance.
    assert errors["1.9"][2] > 0.1
    assert errors["1"][2] < 1e-30


def _printed_and_corrected(c, m, s):
    """Largest error of (mean, variance, mass) of cavity × site: corrected, then with one printed parameter each."""
    z = (c - m) / s
    a = mp.npdf(z) / mp.ncdf(z)
    moments = [mp.quad(lambda x, k=k: x**k * mp.npdf(x, m, s), [-mp.inf, m, c]) for k in range(3)]
    mass, mean = moments[0], moments[1] / moments[0]
    exact = mean, moments[2] / moments[0] - mean**2, mass

    def mismatch(site_mean, site_variance, sign):
        precision = 1 / s**2 + 1 / site_variance
        total = site_variance + s**2
        exponent = 1 / (2 * (1 + z / a))
        constant = mp.ncdf(z) * mp.sqrt(2 * mp.pi * total) * mp.exp(sign * exponent)
        overlap = mp.npdf(m, site_mean, mp.sqrt(total))  # ∫ N(x; m, s²) N(x; μ̃, σ̃²) dx
        found = (m / s**2 + site_mean / site_variance) / precision, 1 / precision, constant * overlap
        return max(abs(f - e) for f, e in zip(found, exact, strict=True))

    site_mean, site_variance = m - s / (a + z), s**2 / (a * (a + z)) - s**2
    return (
        mismatch(site_mean, site_variance, 1),
        mismatch(m + s / (a + z), site_variance, 1),
        mismatch(site_mean, abs(1 / (a * (a + z)) - s**2), 1),  # as printed it can even be negative
        mismatch(site_mean, site_variance, -1),
    )


@pytest.mark.parametrize("exponent", range(3, 16))
@pytest.mark.parametrize(
    ("mean", "variance", "lower"), [(0.0, 1.0, 0.3), (2.0, 0.25, -1.0), (0.0, 1.0, 30.0), (0.0, 1e16, 0.0)]
)
def test_narrow_intervals_keep_their_digits(mean, variance, lower, exponent):
    """log Z, place in the interval and variance by mpmath; the width is that of the bounds as numbers."""
    upper = max(lower + 10.0**-exponent, np.nextafter(lower, np.inf))
    with mp.workdps(60):
        s = mp.sqrt(mp.mpf(variance))
        a, b = (mp.mpf(lower) - mp.mpf(mean)) / s, (mp.mpf(upper) - mp.mpf(mean)) / s
        middle, half = (a + b) / 2, (b - a) / 2
        density = lambda u: mp.exp(-half * u * (middle + half * u / 2))  # noqa: E731 — φ over that in the middle
        z, first, second = (mp.quad(lambda u, k=k: u**k * density(u), [-1, 0, 1]) for k in range(3))
        place, spread = first / z, second / z - (first / z) ** 2
        log_z, width = mp.log(z * half * mp.npdf(middle)), mp.mpf(upper) - mp.mpf(lower)
        # The site: precision and mean of the truncated Gaussian without the cavity's.
        tau = 1 / (spread * (half * s) ** 2) - 1 / s**2
        where = (mp.mpf(lower) + mp.mpf(upper)) / 2 + place * half * s
        nu = where / (spread * (half * s) ** 2) - mp.mpf(mean) / s**2
        log_z, tau, nu, width = map(float, (log_z, tau, nu, width))
    found = tilt(Gaussian().from_mean(mean, variance), lower, upper)
    assert float(found.log_z) == pytest.approx(log_z, rel=1e-13)
    np.testing.assert_allclose(found.site[1], tau, rtol=1e-11)
    assert abs(float(found.site[0]) - nu) <= 1e-11 * (abs(nu) + tau * width)
