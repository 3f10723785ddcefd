"""Truncated standard normals against 450-digit tables, and the properties they must have everywhere."""

import csv
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cavity._numerics import normal
from cavity._numerics.normal import Interval, OneSided, log_interval, log_ndtr, mills

# Compiled, because that is how they are used and because a compiler may undo what protects digits.
one_sided, interval = jax.jit(normal.one_sided), jax.jit(normal.interval)

TABLE = Path(__file__).parents[1] / "tables" / "normal.csv"
INPUTS = {"one_sided": 1, "interval": 2}


def table(kind):
    """The inputs (one row each) and the true values (one row per field) of one kind of row."""
    with TABLE.open(newline="") as file:
        rows = [[float(v) for v in row[1:] if v] for row in csv.reader(file) if row[0] == kind]
    columns = np.array(rows).T
    return columns[: INPUTS[kind]], columns[INPUTS[kind] :]


def relative_error(found, true):
    """|found/true − 1|; 0 where the true value is zero, infinite or below the normal range and so is what was found."""
    found = np.asarray(found)
    representable = (np.abs(true) > 1e-300) & np.isfinite(true)
    same = np.where(np.isfinite(true), np.abs(found) <= 1e-299, found == true)
    quotient = np.divide(found, true, out=np.ones_like(true), where=representable)
    error = np.where(representable, np.abs(quotient - 1), np.where(same, 0.0, np.inf))
    return np.where(np.isnan(error), np.inf, error)


@pytest.mark.parametrize("field", OneSided._fields)
def test_one_sided_against_table(field):
    (z,), true = table("one_sided")
    found = getattr(one_sided(z), field)
    bound = 1e-12 if field in ("shrink", "odds") else 1e-13
    assert relative_error(found, true[OneSided._fields.index(field)]).max() < bound


def test_log_ndtr_and_mills_are_the_fields():
    (z,), true = table("one_sided")
    assert z.min() == -1e8
    assert z.max() == 1e8
    assert relative_error(jax.jit(log_ndtr)(z), true[0]).max() < 1e-14
    assert relative_error(jax.jit(mills)(z), true[1]).max() < 1e-14


@pytest.mark.parametrize("field", Interval._fields)
def test_interval_against_table(field):
    (a, b), true = table("interval")
    found = getattr(interval(a, b), field)
    assert relative_error(found, true[Interval._fields.index(field)]).max() < 1e-13


def test_the_logarithm_alone_against_table():
    (a, b), true = table("interval")
    a, b = np.clip(a, -1e100, 1e100), np.clip(b, -1e100, 1e100)
    found, (slope, _, _) = log_interval(a, b, b - a), jax.vmap(jax.grad(log_interval, (0, 1, 2)))(a, b, b - a)
    assert relative_error(found, true[0]).max() < 1e-13
    assert np.isfinite(slope).all()


def test_values_at_infinity():
    below, above = (one_sided(z) for z in (-jnp.inf, jnp.inf))
    assert [float(v) for v in below] == [-np.inf, np.inf, 0, 1, np.inf, 0]
    assert [float(v) for v in above] == [0, 0, 1, 0, 0, np.inf]
    whole = interval(-jnp.inf, jnp.inf)
    assert [float(v) for v in whole] == [0, 0, np.inf, np.inf, 1, 0]


def test_an_empty_interval_has_no_mass():
    empty = interval(2.0, 2.0)
    assert empty.log_z == -np.inf
    assert empty.variance == 0
    assert empty.mean == 2.0


def test_width_carries_the_digits_that_rounded_bounds_lose():
    width = 1e-7 / 3
    rounded, known = interval(1e6, 1e6 + width), interval(1e6, 1e6 + width, width)
    # ∫₀ʷ exp(−a u) du with a w = 1/30: the variance is w²/12 (1 − (a w)²/20 + …)
    expected = width**2 / 12 * (1 - (1e6 * width) ** 2 / 20)
    assert abs(known.variance / expected - 1) < 1e-7
    assert abs(rounded.variance / expected - 1) > 1e-4


def test_shapes_broadcast_and_transformations_agree():
    z = jnp.linspace(-50, 50, 23)
    np.testing.assert_allclose(jax.vmap(mills)(z), one_sided(z).d1, rtol=1e-14)
    grid = interval(z[:, None], z[:, None] + jnp.array([0.1, 2.0, jnp.inf]))
    assert all(v.shape == (23, 3) for v in grid)
    assert interval(-1.0, jnp.inf).mean.shape == ()


def test_derivatives():
    z = jnp.array([-1e6, -40.0, -4.0, -1.0, 0.0, 0.3, 5.0, 30.0, 60.0])
    moments = one_sided(z)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(log_ndtr)))(z), moments.d1, rtol=1e-14)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(jax.grad(log_ndtr))))(z), -moments.b, rtol=1e-12)
    joints = jnp.array([-3.0, 0.0, 3.0])  # where the forms change
    slopes = jax.jit(jax.vmap(jax.grad(lambda z: one_sided(z).d1)))(joints)
    np.testing.assert_allclose(slopes, -one_sided(joints).b, rtol=1e-12)
    inf = np.inf
    a, b = np.array([(-inf, 1.0), (2.0, inf), (-inf, inf), (-0.1, 0.2), (30.0, 30.1), (-5.0, 5.0), (1e5, 2e5)]).T
    # Moving both bounds by −h is moving the mean by h, and the slope of log Z in the mean is E X.
    slope = jax.jit(jax.jacfwd(lambda h: interval(a - h, b - h).log_z))(0.0)
    np.testing.assert_allclose(slope, interval(a, b).mean, rtol=1e-11, atol=1e-15)


anything = st.floats(allow_nan=False)
margin = st.floats(-1e8, 1e8) | st.floats(-50, 50)
width = st.floats(-8, 8).map(lambda e: 10.0**e)
fixed = settings(deadline=None, max_examples=60, derandomize=True)


@fixed
@given(anything, anything)
def test_never_nan(x, y):
    assert not any(np.isnan(v) for v in one_sided(x))
    a, b = sorted((x, y))
    assert np.isinf(a - b) or not any(np.isnan(v) for v in interval(a, b))


@fixed
@given(margin, st.floats(1e-6, 1e6))
def test_mills_falls_and_log_ndtr_rises(z, step):
    below, above = one_sided(z), one_sided(z + step)
    assert below.d1 >= above.d1
    assert below.log_z <= above.log_z
    assert below.shrink <= above.shrink * (1 + 1e-12)
    assert below.odds >= above.odds * (1 - 1e-12)


@fixed
@given(margin)
def test_shrink_is_a_variance_of_a_log_concave_truncation(z):
    moments = one_sided(z)
    assert 0 < moments.shrink <= 1
    assert 0 <= moments.b <= 1
    assert moments.excess >= moments.d1 + z or np.isclose(moments.excess, moments.d1 + z, rtol=1e-12, atol=1e-7)
    # An exponential is the extreme of a log-concave density: its standard deviation is its mean.
    assert moments.shrink <= moments.excess**2 * (1 + 1e-12)


@fixed
@given(margin)
def test_one_sided_is_an_interval_without_a_bound(z):
    half, whole = one_sided(z), interval(-z, jnp.inf)
    pairs = [
        (half.log_z, whole.log_z),
        (half.d1, whole.mean),
        (half.shrink, whole.variance),
        (half.odds, whole.precision_gain),
        (half.excess, whole.above_lower),
    ]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-300)


@fixed
@given(margin, width)
def test_interval_is_symmetric_and_inside_its_bounds(a, w):
    b = a + w
    if not a < b:
        return
    right, left = interval(a, b), interval(-b, -a)
    for one, other in zip(right, (left.log_z, -left.mean, left.below_upper, left.above_lower, *left[4:]), strict=True):
        assert one == other
    assert a <= right.mean <= b
    assert 0 < right.above_lower < b - a
    assert 0 < right.variance <= min(1.0, (b - a) ** 2 / 12) * (1 + 1e-12)
    assert right.precision_gain >= 0
