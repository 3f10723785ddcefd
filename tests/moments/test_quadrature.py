"""Quadrature against closed forms and mpmath."""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cavity.factors import Clutter, Probit, from_log_density
from cavity.families import (
    Beta,
    Categorical,
    DiagonalGaussian,
    Dirichlet,
    FullGaussian,
    Gamma,
    Gaussian,
    SphericalGaussian,
)
from cavity.moments import Quadrature

KEY = jax.random.key(0)
KINDS = {
    "laplace": lambda x, d: -jnp.abs(x - d[0]) / d[1],
    "student": lambda x, d: -2.0 * jnp.log1p(((x - d[0]) / d[1]) ** 2 / 3.0),
    "triangle": lambda x, d: jnp.log(jnp.maximum(1.0 - jnp.abs(x - d[0]) / d[1], 0.0)),
    "gaussian": lambda x, d: -0.5 * ((x - d[0]) / d[1]) ** 2,
    "counts": lambda x, d: d[0] * jnp.log(x) + d[1] * jnp.log1p(-x),
    "rates": lambda x, d: d[0] * jnp.log(x) - d[1] * x,
}


@functools.cache
def tilt(kind, family, power=1.0):
    factor = Probit() if kind == "probit" else from_log_density(KINDS[kind])
    return jax.jit(jax.vmap(lambda eta, d: Quadrature().tilt(None, factor, family, eta, d, power, KEY)))


def one(kind, family, eta, data):
    tilted, info = tilt(kind, family)(jnp.asarray(eta)[None], jnp.asarray(data)[None])
    return jax.tree.map(lambda a: np.asarray(a[0]), (tilted, info))


def assert_no_nan(*trees):
    for leaf in jax.tree.leaves(trees):
        assert not np.isnan(leaf).any()


def test_probit_equals_its_closed_form():
    sd, z = (a.ravel() for a in np.meshgrid(np.logspace(-4, 4, 9), np.linspace(-30, 30, 31)))
    variance = sd**2
    eta = Gaussian().from_mean(z * np.sqrt(1 + variance), variance)
    found, info = tilt("probit", Gaussian())(eta, jnp.ones(sd.size))
    exact = jax.jit(jax.vmap(lambda e: Probit().tilted(Gaussian(), e, 1.0, 1.0)))(eta)
    assert_no_nan(found, info)
    assert float(info["error"].max()) < 1e-10
    np.testing.assert_allclose(found.log_z, exact.log_z, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.stats[:, 0] * sd, exact.stats[:, 0] * sd, atol=1e-9)
    np.testing.assert_allclose(eta[:, 1] + found.site[:, 1], eta[:, 1] + exact.site[:, 1], rtol=1e-9)
    strong = np.asarray(exact.site[:, 1]) * variance > 1e-8
    np.testing.assert_allclose(found.site[strong], exact.site[strong], rtol=1e-8)
    # Weaker sites as well, as far as the density of the cavity's tail does not underflow.
    weak = ~strong & (sd <= 1) & (np.asarray(exact.site[:, 1]) > 1e-100)
    np.testing.assert_allclose(found.site[weak, 1], exact.site[weak, 1], rtol=1e-6)


DENSITIES = {
    "laplace": lambda x, y, s: mpmath.exp(-abs(x - y) / s),
    "student": lambda x, y, s: (1 + ((x - y) / s) ** 2 / 3) ** -2,
    "triangle": lambda x, y, s: max(1 - abs(x - y) / s, mpmath.mpf(0)),
}


@pytest.mark.parametrize("kind", list(DENSITIES))
@settings(max_examples=5, deadline=None)
@given(y=st.floats(-5, 5), log_scale=st.floats(-2, 1), mean=st.floats(-3, 3), log_sd=st.floats(-1, 1))
def test_kinks_heavy_tails_and_bounded_support(kind, y, log_scale, mean, log_sd):
    s, sd = 10.0**log_scale, 10.0**log_sd
    if kind == "triangle" and abs(y - mean) > s + 6 * sd:
        y = mean  # support that the cavity does not reach is another test
    found, info = one(kind, Gaussian(), Gaussian().from_mean(mean, sd**2), [y, s])
    mpmath.mp.dps = 30
    marks = [mean + k * sd for k in (-14, -5, -2, 0, 2, 5, 14)] + [y + k * s for k in (-30, -5, -1, 0, 1, 5, 30)]
    # An exponential flank moves the cavity's mass by sd²/s: the reference must look there too.
    marks += [mean + sign * sd**2 / s + k * sd for sign in (-1, 1) for k in (-5, -3, -2, -1, 0, 1, 2, 3, 5)]
    ends = (y - s, y + s) if kind == "triangle" else (mean - 40 * sd, mean + 40 * sd)
    breaks = sorted({min(max(m, ends[0]), ends[1]) for m in [*marks, *ends]})

    def density(x):
        return DENSITIES[kind](x, y, s) * mpmath.npdf(x, mean, sd)

    total = mpmath.quad(density, breaks)
    first = mpmath.quad(lambda x: x * density(x), breaks) / total
    variance = mpmath.quad(lambda x: (x - first) ** 2 * density(x), breaks) / total
    assert_no_nan(found, info)
    assert abs(float(found.log_z - mpmath.log(total))) < 1e-8 * max(1.0, abs(float(found.log_z)))
    assert abs(mean + sd**2 * found.stats[0] - float(first)) < 1e-8 * sd
    assert 1 / (1 / sd**2 + found.site[1]) == pytest.approx(float(variance), rel=1e-8)


def test_a_sharp_likelihood_far_away():
    found, _ = one("gaussian", Gaussian(), Gaussian().from_mean(0.0, 1.0), [50.0, 1e-3])
    np.testing.assert_allclose(found.site, [50e6, 1e6], rtol=1e-8)
    total = 1 + 1e-6
    assert found.log_z == pytest.approx(np.log(1e-3) - 0.5 * (np.log(total) + 2500 / total), rel=1e-9)


def test_no_mass_and_improper_cavities_are_flagged_not_nan():
    for eta, y in (([0.0, 1.0], np.nan), ([0.0, -1.0], 0.0), ([np.nan, 1.0], 0.0)):
        found, info = one("gaussian", Gaussian(), eta, [y, 1.0])
        assert_no_nan(found, info)
        assert found.log_z == -np.inf
        assert info["error"] == np.inf
        assert (found.site == 0).all()


@pytest.mark.parametrize(
    "shapes", [(1.0, 1.0), (1e-6, 1.0), (1e-6, 1e-6), (0.5, 0.5), (1e-3, 50.0), (3.0, 4.0), (1e4, 2e4), (1e-6, 1e6)]
)
@pytest.mark.parametrize("counts", [(1.0, 0.0), (3.0, 2.0), (0.0, 0.0)])
def test_beta_with_binomial_counts(shapes, counts):
    found, info = one("counts", Beta(), np.array(shapes), np.array(counts))
    mpmath.mp.dps = 40
    exact = mpmath.log(mpmath.beta(shapes[0] + counts[0], shapes[1] + counts[1]) / mpmath.beta(*shapes))
    assert found.log_z == pytest.approx(float(exact), rel=1e-8, abs=1e-10)
    scale = max(1.0, shapes[0] + counts[0], shapes[1] + counts[1])
    np.testing.assert_allclose(found.site, counts, atol=1e-9 * scale)
    assert info["error"] < 1e-8


@pytest.mark.parametrize("eta", [(1.0, 1.0), (1e-6, 1.0), (1e-3, 1e3), (5.0, 0.1), (1e4, 3.0), (1e8, 1e4)])
@pytest.mark.parametrize("data", [(1.0, 1.0), (7.0, 20.0), (0.0, 1.0)])
def test_gamma_with_poisson_counts(eta, data):
    found, _ = one("rates", Gamma(), np.array(eta), np.array(data))
    a, b = eta
    mpmath.mp.dps = 40
    exact = mpmath.loggamma(mpmath.mpf(a) + data[0]) - (mpmath.mpf(a) + data[0]) * mpmath.log(mpmath.mpf(b) + data[1])
    exact += mpmath.mpf(a) * mpmath.log(b) - mpmath.loggamma(a)
    assert found.log_z == pytest.approx(float(exact), rel=1e-8)
    np.testing.assert_allclose(found.site, data, atol=1e-9 * max(1.0, a, b))


def test_dirichlet_of_two_keeps_both_ends():
    factor, family = from_log_density(lambda x, d: d @ jnp.log(x)), Dirichlet(2, "mean_square")
    run = jax.jit(lambda e, d: Quadrature().tilt(None, factor, family, e, d, 1.0, KEY)[0])
    for shapes in ([1e-6, 2.0], [2.0, 1e-6], [1e-6, 1e-6]):
        np.testing.assert_allclose(run(jnp.array(shapes), jnp.array([2.0, 1.0])).site, [2.0, 1.0], atol=1e-9)


@pytest.mark.parametrize(("kind", "dimension"), [(FullGaussian, 3), (DiagonalGaussian, 2), (SphericalGaussian, 2)])
def test_vectors_equal_the_clutter_closed_form(kind, dimension):
    family = kind(dimension)
    spread = {FullGaussian: np.eye(dimension) + 0.5, DiagonalGaussian: np.linspace(0.5, 2, dimension)}.get(kind, 2.0)
    eta = family.from_mean(np.arange(dimension) - 0.5, spread)
    factor, x = Clutter(0.3, 10.0), jnp.full(dimension, 1.5)
    found, info = jax.jit(lambda e: Quadrature().tilt(None, factor, family, e, x, 1.0, KEY))(eta)
    exact = factor.tilted(family, eta, x, 1.0)
    assert float(info["error"]) < 1e-4
    for a, b in zip(found, exact, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_a_sharp_correlated_likelihood_far_away_in_two_dimensions():
    precision = 1e5 * np.array([[2.0, 1.9], [1.9, 2.0]])
    factor = from_log_density(lambda x, y: -0.5 * (x - y) @ precision @ (x - y))
    y, family = jnp.array([40.0, -30.0]), FullGaussian(2)
    eta = family.from_mean(np.zeros(2), np.eye(2))
    found, _ = jax.jit(lambda e: Quadrature().tilt(None, factor, family, e, y, 1.0, KEY))(eta)
    np.testing.assert_allclose(family.precision(found.site), precision, rtol=1e-8)
    np.testing.assert_allclose(family.nu(found.site), precision @ y, rtol=1e-8)


def test_what_it_cannot_do_is_said_in_words():
    factor = Probit()
    with pytest.raises(TypeError, match=r"up to 3 dimensions; FullGaussian has 4. Use cavity.Importance"):
        Quadrature().tilt(None, factor, FullGaussian(4), jnp.zeros(20), 1.0, 1.0, KEY)
    with pytest.raises(TypeError, match="Enumeration"):
        Quadrature().evaluations(Categorical(3))
    with pytest.raises(TypeError, match="Dirichlet"):
        Quadrature().evaluations(Dirichlet(3))
    with pytest.raises(ValueError, match="order must be"):
        Quadrature(order=10)
    with pytest.raises(TypeError, match="landmarks must be a function"):
        Quadrature(landmarks=3.0)


def test_evaluations_grow_with_the_dimension():
    counts = [Quadrature().evaluations(f) for f in (Gaussian(), FullGaussian(3))]
    assert counts[0] < 1e4 < counts[1] < 1e5
