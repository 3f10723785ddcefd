"""A Gaussian of unknown precision against brute-force quadrature, in its limits, and where it is weak."""

from functools import partial

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from cavity.factors import GaussianPrecision, Linear
from cavity.factors.linear import Relation
from cavity.families import Gamma, Gaussian, GaussianWithUniform, Product

THREE = Product((GaussianWithUniform(), GaussianWithUniform(), Gamma()))
TWO = Product((GaussianWithUniform(), Gamma()))


@partial(jax.jit, static_argnums=0)
def tilt(family, cavity, known):
    return GaussianPrecision().tilted(family, cavity, known, 1.0)


def pack(*pairs, shape, rate):
    """Natural parameters of Gaussians (mean, variance) and a Gamma; None is flat."""
    ends = [(0.0, 0.0) if pair is None else (pair[0] / pair[1], 1.0 / pair[1]) for pair in pairs]
    return jnp.array([*np.ravel(ends), shape, rate])


def by_grid(first, second, shape, rate):
    """log Z and (mean, variance) of x and of the mean, (E log τ, E τ): a trapezoidal rule in all three."""
    (m, v), (n, w) = first, second
    x = np.linspace(m - 9 * v**0.5, m + 9 * v**0.5, 241)[:, None, None]
    y = np.linspace(n - 9 * w**0.5, n + 9 * w**0.5, 241)[None, :, None]
    t = np.linspace(-9.0, 4.0, 161)[None, None, :]
    log_f = stats.norm.logpdf(x, m, v**0.5) + stats.norm.logpdf(y, n, w**0.5)
    log_f = log_f + stats.gamma.logpdf(np.exp(t), shape, scale=1 / rate) + t
    log_f = log_f + stats.norm.logpdf(x, y, np.exp(-t / 2))
    f = np.exp(log_f) * (x[1, 0, 0] - x[0, 0, 0]) * (y[0, 1, 0] - y[0, 0, 0]) * (t[0, 0, 1] - t[0, 0, 0])
    total = f.sum()
    share = f / total
    means = (share * x).sum(), (share * y).sum()
    spreads = (share * (x - means[0]) ** 2).sum(), (share * (y - means[1]) ** 2).sum()
    return np.log(total), means, spreads, ((share * t).sum(), (share * np.exp(t)).sum())


@pytest.mark.parametrize(
    ("first", "second", "shape", "rate"),
    [((1.0, 2.0), (-0.5, 1.0), 3.0, 3.5), ((4.0, 0.5), (-1.0, 0.8), 5.0, 5.0), ((0.2, 3.0), (0.1, 0.5), 8.0, 40.0)],
)
def test_three_variables_against_a_grid(first, second, shape, rate):
    cavity = pack(first, second, shape=shape, rate=rate)
    found = tilt(THREE, cavity, jnp.zeros(()))
    log_z, means, spreads, logs = by_grid(first, second, shape, rate)
    assert float(found.log_z) == pytest.approx(log_z, abs=1e-9)
    q = cavity + found.site
    np.testing.assert_allclose(found.stats[4:] * np.array([1, -1]), logs, rtol=1e-8)
    np.testing.assert_allclose(Gamma().moments(q[4:]), found.stats[4:], rtol=1e-10)
    for slot, (mean, variance) in enumerate((first, second)):
        eta, slopes = q[2 * slot : 2 * slot + 2], found.stats[2 * slot : 2 * slot + 2]
        assert float(eta[0] / eta[1]) == pytest.approx(means[slot], rel=1e-8)
        assert float(1 / eta[1]) == pytest.approx(spreads[slot], rel=1e-8)
        assert float(slopes[0]) == pytest.approx((means[slot] - mean) / variance, abs=1e-8)
        assert float(slopes[1]) == pytest.approx((spreads[slot] - variance) / variance**2, abs=1e-8)


def test_constants_are_variables_that_are_known():
    """An observed x, or a known mean, is the limit of a narrow Gaussian; with both, the message is the factor."""
    narrow, wide = (0.7, 1e-14), (-0.4, 1.5)
    three = tilt(THREE, pack(narrow, wide, shape=2.0, rate=1.3), jnp.zeros(()))
    two = tilt(TWO, pack(wide, shape=2.0, rate=1.3), jnp.asarray(0.7))
    np.testing.assert_allclose(two.site, three.site[2:], rtol=1e-9)
    np.testing.assert_allclose(two.log_z, three.log_z, rtol=1e-12)
    both = tilt(THREE, pack(narrow, (-0.4, 1e-14), shape=2.0, rate=1.3), jnp.zeros(()))
    one = tilt(Gamma(), jnp.array([2.0, 1.3]), jnp.asarray(1.1))
    np.testing.assert_allclose(one.site, [0.5, 0.605], rtol=1e-15)
    np.testing.assert_allclose(both.site[4:], one.site, rtol=1e-9)
    np.testing.assert_allclose(one.log_z, stats.t.logpdf(1.1, 4.0, scale=np.sqrt(1.3 / 2.0)), rtol=1e-12)


def test_a_large_shape_is_a_known_precision():
    cavity = pack((1.0, 2.0), (-0.5, 1.0), shape=1e13, rate=1e13 / 4)
    found = tilt(THREE, cavity, jnp.asarray(0.3))
    known = Relation(jnp.array([1.0, -1.0]), jnp.asarray(-0.3), jnp.asarray(0.25))
    expected = Linear().tilted(Product((Gaussian(), Gaussian())), cavity[:4], known, 1.0)
    np.testing.assert_allclose(found.log_z, expected.log_z, rtol=1e-12)
    np.testing.assert_allclose(found.site[:4], expected.site, rtol=1e-10)
    np.testing.assert_allclose(found.stats[:4], expected.stats, rtol=1e-10)


def test_flat_cavities():
    """Nothing known of x: log Z = 0, τ and the mean hear nothing; x hears the limit of wider and wider cavities."""
    for flat, near in (
        ((None, (0.4, 0.7)), ((3.0, 1e12), (0.4, 0.7))),
        (((0.4, 0.7), None), ((0.4, 0.7), (3.0, 1e12))),
    ):
        found = tilt(THREE, pack(*flat, shape=3.0, rate=2.0), jnp.asarray(0.2))
        limit = tilt(THREE, pack(*near, shape=3.0, rate=2.0), jnp.asarray(0.2))
        assert float(found.log_z) == 0.0
        np.testing.assert_allclose(found.site, limit.site, atol=1e-9)
        np.testing.assert_allclose(found.stats[:4], 0.0)
    heavy = tilt(THREE, pack(None, (0.4, 0.7), shape=1.0, rate=2.0), jnp.asarray(0.2))
    np.testing.assert_allclose(heavy.site, 0.0)
    assert float(tilt(THREE, pack(None, None, shape=3.0, rate=2.0), jnp.zeros(())).log_z) == np.inf


def exact_steps(mean, variance, other, shape, rate):
    """(nu, tau) of x and the Gamma increments, in 40 digits."""
    with mp.workdps(40):
        m, v, w, a, b = (mp.mpf(value) for value in (mean, variance, other, shape, rate))

        def density(t):
            total = v + w + mp.exp(-t)
            return mp.exp(a * t - b * mp.exp(t) + a * mp.log(b) - mp.loggamma(a) - m * m / (2 * total)) / mp.sqrt(total)

        places = [mp.log(a / b) + k / mp.sqrt(a) for k in (-40, -20, -10, -5, -2, 0, 2, 5, 10)]
        ask = lambda g: mp.quad(lambda t: density(t) * g(t), places)  # noqa: E731
        total = ask(lambda t: 1)
        first, second = (ask(lambda t, k=k: (v + w + mp.exp(-t)) ** -k) / total for k in (1, 2))
        d1, d2 = -m * first, -first + m * m * (second - first**2)
        tau = -d2 / (1 + d2 * v)
        log_mean, expected = ask(lambda t: t) / total, ask(mp.exp) / total
        new = mp.findroot(lambda k: mp.log(k) - mp.digamma(k) - mp.log(expected) + log_mean, a + 0.1)
        return [float(value) for value in (d1 + tau * (m + v * d1), tau, new - a, new / expected - b)]


@pytest.mark.parametrize(
    "case",
    [(1.5, 2.0, 1.0, 1e6, 1e6), (1.5, 2e4, 1.0, 1e6, 1e6), (1.0, 1e6, 1e6, 3.0, 3.0), (2.0, 1e-6, 1.0, 2.0, 1.0)],
)
def test_weak_messages_keep_their_digits(case):
    """Gamma increments a millionth of the cavity and less, precisions a millionth of the cavity's."""
    mean, variance, other, shape, rate = case
    found = tilt(THREE, pack((mean, variance), (0.0, other), shape=shape, rate=rate), jnp.zeros(()))
    expected = exact_steps(*case)
    np.testing.assert_allclose([*found.site[:2], *found.site[4:]], expected, rtol=1e-9)


def test_other_families_and_powers_are_left_to_numerical_rules():
    cavity = jnp.ones(4)
    assert GaussianPrecision().tilted(TWO, cavity, 0.0, 0.5) is NotImplemented
    assert GaussianPrecision().tilted(Product((Gamma(), Gamma())), cavity, 0.0, 1.0) is NotImplemented
