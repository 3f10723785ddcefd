"""Densities: normalisation, scipy, products and ratios, sampling, divergences, batches, double precision."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import integrate, stats
from support import Compiled

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

COVARIANCE = np.array([[2.0, 0.3], [0.3, 0.5]])
SCIPY = {
    "gaussian": (Gaussian(), Gaussian().from_mean(1.5, 0.3), stats.norm(1.5, np.sqrt(0.3))),
    "beta": (Beta(), Beta().from_shapes(2.5, 0.8), stats.beta(2.5, 0.8)),
    "gamma": (Gamma(), Gamma().from_shape_rate(1.7, 0.6), stats.gamma(1.7, scale=1 / 0.6)),
    "dirichlet": (Dirichlet(3), Dirichlet(3).from_concentration([0.6, 2, 5]), stats.dirichlet([0.6, 2, 5])),
    "spherical": (
        SphericalGaussian(2),
        SphericalGaussian(2).from_mean([1.0, 2.0], 0.7),
        stats.multivariate_normal([1, 2], 0.7),
    ),
    "diagonal": (
        DiagonalGaussian(2),
        DiagonalGaussian(2).from_mean([1.0, 2.0], [0.7, 3.0]),
        stats.multivariate_normal([1, 2], np.diag([0.7, 3.0])),
    ),
    "full": (
        FullGaussian(2),
        FullGaussian(2).from_mean([1.0, 2.0], COVARIANCE),
        stats.multivariate_normal([1, 2], COVARIANCE),
    ),
}


@pytest.mark.parametrize("name", SCIPY)
def test_log_density_entropy_mean_and_covariance_match_scipy(name):
    family, eta, reference = SCIPY[name]
    family = Compiled(family)
    x = reference.rvs(size=20, random_state=0)
    logpdf = np.array([np.squeeze(reference.logpdf(v)) for v in x])
    np.testing.assert_allclose(family.log_density(eta, x), logpdf, rtol=1e-10)
    np.testing.assert_allclose(family.entropy(eta), reference.entropy(), rtol=1e-10)
    vector = name in ("spherical", "diagonal", "full")
    np.testing.assert_allclose(family.mean(eta), reference.mean if vector else reference.mean(), rtol=1e-12)
    spread = reference.cov if vector else reference.cov() if name == "dirichlet" else reference.var()
    np.testing.assert_allclose(family.covariance(eta), spread, rtol=1e-10)


@pytest.mark.parametrize(
    ("family", "eta", "low", "high"),
    [(Gaussian(), [1.2, 0.7], -np.inf, np.inf), (Beta(), [2.5, 0.8], 0, 1), (Gamma(), [0.7, 0.6], 0, np.inf)],
    ids=["gaussian", "beta", "gamma"],
)
def test_density_integrates_to_one_and_to_its_moments(family, eta, low, high):
    eta = np.array(eta)
    density = jax.jit(lambda x: jax.numpy.exp(family.log_density(eta, x)))
    moment = jax.jit(lambda x: family.statistics(x) * jax.numpy.exp(family.log_density(eta, x)))
    assert integrate.quad(lambda x: float(density(x)), low, high, epsabs=1e-11)[0] == pytest.approx(1, abs=1e-8)
    for k in range(2):
        total = integrate.quad(lambda x, k=k: float(moment(x)[k]), low, high, epsabs=1e-10)[0]
        assert total == pytest.approx(float(family.moments(eta)[k]), rel=1e-7)


def test_support():
    assert float(Beta().log_density(np.array([1.0, 1.0]), 0.0)) == pytest.approx(0)
    assert float(Beta().log_density(np.array([2.0, 2.0]), 1.5)) == -np.inf
    assert float(Gamma().log_density(np.array([1.0, 2.0]), 0.0)) == pytest.approx(np.log(2))
    assert float(Gamma().log_density(np.array([2.0, 2.0]), -1.0)) == -np.inf
    assert float(Dirichlet(2).log_density(np.array([2.0, 2.0]), np.array([-0.5, 1.5]))) == -np.inf


@functools.cache
def draws(family, eta):
    """20,000 values of the member with these parameters (a tuple), drawn once."""
    return family.sample(jax.random.key(1), np.array(eta), (20_000,))


def test_product_ratio_and_power_of_densities(member):
    family, eta, other = member
    x = jax.tree.map(lambda leaf: leaf[:50], draws(family, tuple(eta)))
    one, two = family.log_density(eta, x), family.log_density(other, x)
    for combined, expected in (
        (family.product(eta, other), one + two),
        (family.ratio(family.product(eta, other), other), one),
        (family.power(eta, 0.7), 0.7 * one),
    ):
        gap = np.asarray(family.log_density(combined, x) - expected)
        np.testing.assert_allclose(gap, gap[0], atol=1e-11)


def test_draws_have_the_expected_statistics(member):
    family, eta, _ = member
    values = np.asarray(family.statistics(draws(family, tuple(eta))))
    error = values.std(axis=0) / np.sqrt(len(values))
    assert np.all(np.abs(values.mean(axis=0) - family.moments(eta)) <= 5 * error)


def test_moments_are_the_gradient_of_the_log_partition(member):
    family, eta, _ = member
    mu = np.asarray(family.moments(eta))
    slope = np.asarray(jax.jit(jax.grad(family.part.log_partition))(eta))[: len(mu)]
    np.testing.assert_allclose(slope, mu, rtol=1e-12)


def test_kl_and_distance_against_sums_over_draws(member):
    family, eta, other = member
    x = draws(family, tuple(eta))
    log_ratio = np.asarray(family.log_density(eta, x) - family.log_density(other, x))
    assert abs(log_ratio.mean() - float(family.kl(eta, other))) < 5 * log_ratio.std() / np.sqrt(len(log_ratio))
    assert float(family.kl(eta, eta)) == 0
    # Not 0: processors that fuse products and sums round the two equal terms of a difference apart.
    assert float(family.distance(eta, eta)) < 1e-15
    assert float(family.distance(eta, other)) > 0


def test_distance_is_a_number_of_standard_deviations():
    eta, other = np.array([2.5, 0.8]), np.array([2.6, 0.7])
    for family in (Compiled(Beta()), Compiled(Gamma())):
        spread = np.sqrt(np.diag(np.asarray(jax.jit(jax.jacfwd(family.part.moments))(eta))))
        spread = np.where(spread > 0, spread, np.sqrt(2.5) / 0.8)  # ∂(−a/β)/∂β is the variance of x
        expected = np.max(np.abs(family.moments(eta) - family.moments(other)) / spread)
        assert float(family.distance(eta, other)) == pytest.approx(float(expected), rel=1e-12)
    assert float(Gaussian().distance(np.array([2.0, 4.0]), np.array([3.0, 4.0]))) == pytest.approx(0.5)


def test_distance_of_large_equal_means_has_no_noise():
    # sd 2⁻²⁰ at mean 2²⁰: the two means agree exactly, their rounded quotients or products would not.
    eta = np.array([2.0**60, 2.0**40]) * (1 + 2.0**-40)
    assert float(Gaussian().distance(eta, eta * (1 + 2.0**-10))) == pytest.approx(np.log1p(2.0**-10), rel=1e-9)


@pytest.mark.parametrize(
    ("family", "good", "bad"),
    [
        (Gaussian(), [0.0, 1.0], [0.0, 0.0]),
        (DiagonalGaussian(2), [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, -1.0]),
        (FullGaussian(2), [0.0, 0.0, 1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 2.0, 2.0, 1.0]),
        (Beta(), [1.0, 1.0], [1.0, 0.0]),
        (Gamma(), [1.0, 1.0], [1.0, -1.0]),
        (Dirichlet(3), [1.0, 1.0, 1.0], [1.0, np.nan, 1.0]),
        (Categorical(2), [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 2.0]),
        (Categorical(2), [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0]),
    ],
)
def test_improper_members_are_recognised(family, good, bad):
    family, good, bad = Compiled(family), np.array(good), np.array(bad)
    assert bool(family.is_proper(good))
    assert not bool(family.is_proper(bad))
    assert float(family.distance(good, bad)) == np.inf
    assert float(family.distance(bad, good)) == np.inf


def test_batches_equal_single_calls(member):
    family, eta, other = member
    batch, rivals = np.stack([[eta, other], [other, eta]]), np.stack([[other, other], [eta, eta]])
    for name in ("log_partition", "moments", "mean", "covariance", "entropy", "is_proper"):
        many = jax.tree.leaves(getattr(family, name)(batch))
        single = jax.tree.leaves(getattr(family, name)(other))
        for a, b in zip(many, single, strict=True):
            assert a.shape[:2] == (2, 2)
            np.testing.assert_allclose(a[0, 1], b, rtol=1e-13)
    for name in ("kl", "distance", "product"):
        np.testing.assert_allclose(
            getattr(family, name)(batch, rivals)[0, 0], getattr(family, name)(eta, other), rtol=1e-13
        )
    mu = family.moments(batch)
    np.testing.assert_allclose(family.moments(family.natural(mu)), mu, rtol=1e-11)
    drawn = jax.tree.leaves(jax.eval_shape(lambda key: family.sample(key, batch, (5,)), jax.random.key(0)))
    assert all(leaf.shape[:3] == (5, 2, 2) for leaf in drawn)


def test_float64_numpy_comes_back_outside_the_scope(member):
    family, eta, other = member[0].part, *member[1:]
    inside = {name: getattr(family, name)(eta) for name in ("log_partition", "moments", "entropy")}
    inside |= {"kl": family.kl(eta, other), "natural": family.natural(family.moments(eta))}
    with jax.enable_x64(False):
        outside = {name: getattr(family, name)(eta) for name in ("log_partition", "moments", "entropy")}
        outside |= {"kl": family.kl(eta, other), "natural": family.natural(family.moments(eta))}
    for name, value in outside.items():
        assert isinstance(value, np.ndarray | np.float64)
        assert value.dtype == np.float64
        np.testing.assert_allclose(value, inside[name], rtol=1e-13, atol=1e-15)


def test_draws_outside_the_scope_are_float64():
    with jax.enable_x64(False):
        drawn = Gaussian().sample(jax.random.key(0), np.array([0.3, 2.0]), (3,))
    assert isinstance(drawn, np.ndarray)
    assert drawn.dtype == np.float64


shape = st.floats(-6, 8).map(lambda e: 10**e)


@hypothesis_settings(max_examples=100, deadline=None)
@given(st.tuples(shape, shape), st.tuples(shape, shape), st.floats(1e-12, 1))
def test_divergence_is_never_negative_and_grows_along_a_line(eta, other, fraction):
    eta, other = np.array(eta), np.array(other)
    # not eta + …: a small `other` would lose digits beside a large eta
    between = (1 - fraction) * eta + fraction * other
    for family in map(Compiled, (Beta(), Gamma(), Gaussian())):
        near, far = float(family.kl(eta, between)), float(family.kl(eta, other))
        # `between` is rounded and so a little off the line; between neighbours the root of a divergence is a distance.
        off = sum(float(family.kl(eta, eta * (1 + 2**-51 * np.array(way)))) for way in ((1, 1), (1, -1)))
        assert near >= 0
        assert np.sqrt(near) <= np.sqrt(far) * (1 + 1e-9) + np.sqrt(off)
        # Not 0: processors that fuse products and sums round the two equal terms of a difference apart.
    assert float(family.distance(eta, eta)) < 1e-15
