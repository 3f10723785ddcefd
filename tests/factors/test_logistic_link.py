"""The logistic link against scipy's quadrature, 40 digits, and its limits."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, stats

from cavity.factors import Logistic, LogisticLink
from cavity.families import Beta, Gaussian, GaussianWithUniform, Product

FAMILY = Product((Beta(), GaussianWithUniform()))


@jax.jit
def tilt(cavity):
    return LogisticLink().tilted(FAMILY, cavity, None, 1.0)


def pack(a, b, mean, variance):
    return jnp.array([a, b, mean / variance, 1.0 / variance])


@pytest.mark.parametrize(
    "case", [(2.0, 1.0, 0.3, 1.5), (3.0, 5.0, -1.0, 0.4), (0.6, 0.8, 0.5, 2.0), (9.0, 4.0, -3.0, 1.0)]
)
def test_against_quadrature(case):
    a, b, m, v = case
    cavity = pack(*case)
    found = tilt(cavity)

    def ask(g):
        density = lambda z: stats.beta.pdf(1 / (1 + np.exp(-z)), a, b) * stats.norm.pdf(z, m, v**0.5)  # noqa: E731
        places = [m - 5 * v**0.5, m, m + 5 * v**0.5]
        return integrate.quad(
            lambda z: g(z) * density(z), m - 14 * v**0.5, m + 14 * v**0.5, points=places, epsabs=1e-14
        )[0]

    total = ask(lambda z: 1.0)
    mean = ask(lambda z: z) / total
    variance = ask(lambda z: (z - mean) ** 2) / total
    logs = [ask(lambda z, s=s: -np.logaddexp(0.0, s * z)) / total for s in (-1.0, 1.0)]
    assert float(found.log_z) == pytest.approx(np.log(total), abs=1e-9)
    np.testing.assert_allclose(found.stats[:2], logs, rtol=1e-9)
    np.testing.assert_allclose(Beta().moments((cavity + found.site)[:2]), logs, rtol=1e-9)
    np.testing.assert_allclose(found.stats[2:], [(mean - m) / v, (variance - v) / v**2], atol=1e-8)
    np.testing.assert_allclose(Gaussian().coordinates((cavity + found.site)[2:]), (mean, variance), rtol=1e-8)


def test_a_flat_probability_says_nothing():
    found = tilt(pack(1.0, 1.0, 0.3, 1.5))
    np.testing.assert_allclose(found.site[2:], 0.0, atol=1e-15)
    assert float(found.log_z) == pytest.approx(0.0, abs=1e-14)


def test_an_observed_coin_makes_it_the_logistic_likelihood():
    found = tilt(pack(2.0, 1.0, 0.3, 1.5))
    direct = Logistic().tilted(Gaussian(), pack(2.0, 1.0, 0.3, 1.5)[2:], jnp.asarray(1.0), 1.0)
    np.testing.assert_allclose(found.site[2:], direct.site, rtol=1e-10)
    assert float(found.log_z) == pytest.approx(float(direct.log_z) + np.log(2.0), abs=1e-12)


def test_unknown_log_odds():
    """Nothing known of z: the limit of wider and wider cavities, whose density N(0; 0, v) is taken out."""
    found, limit = tilt(jnp.array([3.0, 2.5, 0.0, 0.0])), tilt(pack(3.0, 2.5, 0.0, 1e10))
    np.testing.assert_allclose(found.site, limit.site, atol=1e-8)
    assert float(found.log_z) == pytest.approx(float(limit.log_z) + 0.5 * np.log(2 * np.pi * 1e10), abs=1e-8)
    np.testing.assert_allclose(found.stats[:2], limit.stats[:2], rtol=1e-8)
    heavy = tilt(jnp.array([3.0, 1.0, 0.0, 0.0]))
    np.testing.assert_allclose(heavy.site, 0.0)
    assert float(heavy.log_z) == np.inf


def exact_steps(a, b, m, v, start):
    """Beta increments and (nu, tau) in 40 digits."""
    with mp.workdps(40):
        a, b, m, v = (mp.mpf(value) for value in (a, b, m, v))
        log_p, log_q = (lambda z: -mp.log(1 + mp.exp(-z))), (lambda z: -mp.log(1 + mp.exp(z)))
        slope = lambda z: (a - 1) / (1 + mp.exp(z)) - (b - 1) / (1 + mp.exp(-z)) - (z - m) / v  # noqa: E731
        mode = mp.findroot(slope, mp.log(a / b) if a + b > 100 else m)
        width = 1 / mp.sqrt((a + b - 2) / (2 + mp.exp(mode) + mp.exp(-mode)) + 1 / v)
        top = (a - 1) * log_p(mode) + (b - 1) * log_q(mode) - (mode - m) ** 2 / (2 * v)
        log_f = lambda z: (a - 1) * log_p(z) + (b - 1) * log_q(z) - (z - m) ** 2 / (2 * v) - top  # noqa: E731
        places = [mode + width * k for k in (-25, -10, -5, -2, 0, 2, 5, 10, 25)]
        ask = lambda g: mp.quad(lambda z: mp.exp(log_f(z)) * g(z), places)  # noqa: E731
        total = ask(lambda z: 1)
        mean, logs = ask(lambda z: z) / total, (ask(log_p) / total, ask(log_q) / total)
        variance = ask(lambda z: (z - mean) ** 2) / total
        equations = lambda x, y: [  # noqa: E731
            mp.digamma(x) - mp.digamma(x + y) - logs[0],
            mp.digamma(y) - mp.digamma(x + y) - logs[1],
        ]
        x, y = mp.findroot(equations, (a + 1.000001 * mp.mpf(start[0]), b + 1.000001 * mp.mpf(start[1])))
        return [float(value) for value in (x - a, y - b, mean / variance - m / v, 1 / variance - 1 / v)]


@pytest.mark.parametrize(
    "case", [(1e6, 2e6, -0.5, 4.0), (2e3, 1e3, 0.5, 1e-6), (1.5, 1.2, 2.0, 1e-6), (30.0, 40.0, 0.2, 1e4)]
)
def test_weak_and_strong_messages_keep_their_digits(case):
    """Either side a million times surer than the other."""
    found = tilt(pack(*case))
    expected = exact_steps(*case, [float(value) for value in found.site[:2]])
    np.testing.assert_allclose(found.site, expected, rtol=1e-8)


def test_other_families_are_refused():
    assert LogisticLink().tilted(Product((GaussianWithUniform(), Beta())), jnp.ones(4), None, 1.0) is NotImplemented
    assert LogisticLink().tilted(FAMILY, jnp.ones(4), None, 0.5) is NotImplemented
