"""Adaptive integration of one variable against mpmath and known integrals."""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cavity._numerics.quadrature import CAPACITY, ORDER, POINTS, WEIGHTS, integrate

LOG_ROOT_2PI = 0.5 * np.log(2 * np.pi)


def one(u):
    """The logarithm of a factor that is 1."""
    return jnp.zeros_like(u)


def moments(integral):
    weights = jnp.exp(integral.log_weights)
    mean = jnp.sum(weights * integral.nodes)
    return float(integral.log_z), float(mean), float(jnp.sum(weights * (integral.nodes - mean) ** 2))


@functools.cache
def compiled(shape):
    """One compilation for each kind of density; location and scale are arguments."""
    kinds = {
        "gaussian": lambda u, y, s: -0.5 * ((u - y) / s) ** 2,
        "laplace": lambda u, y, s: -jnp.abs(u - y) / s - 0.5 * u**2,
        "cauchy": lambda u, y, s: -jnp.log1p(((u - y) / s) ** 2) - 0.5 * u**2,
        "box": lambda u, y, s: jnp.where(jnp.abs(u - y) < s, 0.0, -jnp.inf) - 0.5 * u**2,
    }
    return jax.jit(lambda y, s: integrate(one, lambda u: kinds[shape](u, y, s)))


def reference(density, breaks):
    """(log Z, mean, variance) of a density given as a function of mpmath numbers."""
    mpmath.mp.dps = 30
    total = mpmath.quad(density, breaks)
    mean = mpmath.quad(lambda u: u * density(u), breaks) / total
    variance = mpmath.quad(lambda u: (u - mean) ** 2 * density(u), breaks) / total
    return float(mpmath.log(total)), float(mean), float(variance)


def check(found, expected, error):
    assert float(error) < 1e-8
    assert abs(found[0] - expected[0]) < 1e-9 * max(1.0, abs(expected[0]))
    assert abs(found[1] - expected[1]) < 1e-9 * np.sqrt(expected[2]) + 1e-15 * abs(expected[1])
    assert abs(found[2] / expected[2] - 1) < 1e-9


def test_the_rule_is_exact_for_polynomials():
    for degree in range(0, ORDER, 2):
        assert np.dot(WEIGHTS, POINTS**degree) == pytest.approx(2 / (degree + 1), rel=1e-14)
    assert (WEIGHTS > 0).all()


@pytest.mark.parametrize(("y", "s"), [(0.0, 1.0), (0.3, 1e-3), (50.0, 1e-3), (-1234.5, 0.1), (7e5, 1.0), (0.0, 1e6)])
def test_gaussians_near_and_far_sharp_and_flat(y, s):
    integral = compiled("gaussian")(y, s)
    check(moments(integral), (LOG_ROOT_2PI + np.log(s), y, s**2), integral.error)
    assert integral.nodes.shape == (ORDER * CAPACITY,)


@settings(max_examples=12, deadline=None)
@given(y=st.floats(-8, 8), log_scale=st.floats(-5, 0.5))
def test_a_kink_anywhere(y, log_scale):
    s = 10.0**log_scale
    integral = compiled("laplace")(y, s)
    # In closed form: two half normals, through mpmath's erfc.
    mpmath.mp.dps = 40
    one, total = 1 / mpmath.mpf(s), 0
    for sign in (1, -1):
        # ∫_{sign (u − y) > 0} exp(−sign (u − y)/s − u²/2) du, shifted to a normal with mean −sign/s
        tail = mpmath.ncdf(-sign * mpmath.mpf(y) - one) * mpmath.sqrt(2 * mpmath.pi)
        total += tail * mpmath.exp(one**2 / 2 + sign * y * one)
    assert abs(float(integral.log_z) - float(mpmath.log(total))) < 1e-9 * max(1.0, abs(float(mpmath.log(total))))
    assert float(integral.error) < 1e-8


@settings(max_examples=6, deadline=None)
@given(y=st.floats(-4, 4), log_scale=st.floats(-4, 0))
def test_heavy_tails_keep_their_variance(y, log_scale):
    s = 10.0**log_scale
    integral = compiled("cauchy")(y, s)
    width = [y + sign * s * 10.0**k for k in range(0, 5) for sign in (-1, 1)]
    breaks = sorted({-12.0, 12.0, y, *[w for w in width if abs(w) < 12]})
    expected = reference(lambda u: mpmath.exp(-u * u / 2) / (1 + ((u - y) / s) ** 2), breaks)
    check(moments(integral), expected, integral.error)


@pytest.mark.parametrize(("y", "s"), [(0.0, 1.0), (1.001, 0.37), (-3.0, 2.5), (0.2, 5.0), (6.0, 1.0)])
def test_jumps_and_bounded_support(y, s):
    integral = compiled("box")(y, s)
    expected = reference(lambda u: mpmath.exp(-u * u / 2), [y - s, y, y + s])
    check(moments(integral), expected, integral.error)


def test_peaks_beside_panel_ends_are_not_fooled():
    """A peak far narrower than the gap between a panel's end and its first inner point, just inside the neighbour."""
    for y in np.add.outer([-0.5, 0.0, 0.5, 1.0, 8.0], [1e-3, 1e-5, 1e-7]).ravel():
        integral = compiled("laplace")(y, 1e-8)
        assert float(integral.log_z) == pytest.approx(np.log(2e-8) - 0.5 * y**2, rel=1e-9)


def test_nothing_to_find_is_flagged_and_never_nan():
    for y, s in ((np.nan, 1.0), (np.inf, 1.0), (1.0, np.nan)):
        integral = compiled("gaussian")(y, s)
        assert float(integral.log_z) == -np.inf
        assert float(integral.error) == np.inf
        assert (np.asarray(integral.log_weights) == -np.inf).all()
        assert np.isfinite(integral.nodes).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(("edge", "matters"), [(0.0, True), (5.0, True), (8.0, True), (16.0, False), (1e6, False)])
def test_a_factor_that_is_not_known_somewhere_makes_the_integral_unknown_if_it_matters(value, edge, matters):
    # Beyond 12 deviations the normal density is below exp(−80) of all there is.
    integral = unknown_beyond(edge, value)
    if matters:
        assert integral.log_z == -np.inf and integral.error == np.inf
    else:
        assert float(integral.log_z) == pytest.approx(LOG_ROOT_2PI, abs=1e-12)


@jax.jit
def unknown_beyond(edge, value):
    """A normal density times 1, up to an edge."""
    return integrate(lambda u: jnp.where(u > edge, value, 0.0), lambda u: -0.5 * u**2)


def test_landmarks_find_what_the_grid_cannot_see():
    def spike(u):
        return jnp.logaddexp(-0.5 * u**2, 10.0 - 0.5 * ((u - 0.7123) / 1e-7) ** 2)

    blind, told = jax.jit(lambda: (integrate(one, spike), integrate(one, spike, landmarks=jnp.array([0.7123]))))()
    exact = LOG_ROOT_2PI + np.log1p(1e-7 * np.exp(10))
    assert abs(float(blind.log_z) - exact) > 1e-4
    assert float(told.log_z) == pytest.approx(exact, abs=1e-10)


def test_log_z_can_be_differentiated():
    slope = jax.jit(jax.grad(lambda tau: integrate(one, lambda u: -0.5 * tau * u**2).log_z))(2.0)
    assert float(slope) == pytest.approx(-0.25, rel=1e-12)
