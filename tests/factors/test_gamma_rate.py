"""The compound gamma against scipy's double integrals, its limits, and where it is weak."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, stats

from cavity.factors import GammaRate
from cavity.factors.gamma_variables import Draw
from cavity.families import Gamma, GammaWithUniform, Product

FAMILY = Product((GammaWithUniform(), GammaWithUniform()))


@jax.jit
def tilt(cavity, shape):
    return GammaRate().tilted(FAMILY, cavity, Draw(shape, jnp.ones(())), 1.0)


@pytest.mark.parametrize(
    ("value", "rate", "shape"),
    [((2.0, 1.0), (3.0, 2.0), 2.5), ((5.0, 0.7), (2.0, 4.0), 0.6), ((1.5, 6.0), (9.0, 2.0), 4.0)],
)
def test_against_double_integrals(value, rate, shape):
    cavity = jnp.array([*value, *rate])
    found = tilt(cavity, jnp.asarray(shape))

    def ask(g):
        def density(u, t):
            x, r = np.exp(u), np.exp(t)
            log_p = stats.gamma.logpdf(x, value[0], scale=1 / value[1]) + stats.gamma.logpdf(
                r, rate[0], scale=1 / rate[1]
            )
            return g(x, r) * np.exp(log_p + stats.gamma.logpdf(x, shape, scale=1 / r) + u + t)

        u, t = np.linspace(-28, 7, 1401), np.linspace(-12, 6, 1201)
        return integrate.trapezoid(integrate.trapezoid(density(u[None, :], t[:, None]), u, axis=1), t)

    total = ask(lambda x, r: 1.0)
    logs = [ask(lambda x, r: np.log(x)), -ask(lambda x, r: x), ask(lambda x, r: np.log(r)), -ask(lambda x, r: r)]
    assert float(found.log_z) == pytest.approx(np.log(total), abs=1e-9)
    np.testing.assert_allclose(found.stats, np.array(logs) / total, rtol=1e-8)
    np.testing.assert_allclose(FAMILY.moments(cavity + found.site), np.array(logs) / total, rtol=1e-8)


def test_an_observed_number_is_an_exact_message():
    found = GammaRate().tilted(Gamma(), jnp.array([3.0, 2.0]), Draw(jnp.asarray(2.5), jnp.asarray(1.3)), 1.0)
    np.testing.assert_array_equal(found.site, [2.5, 1.3])
    density = lambda r: stats.gamma.pdf(r, 3.0, scale=0.5) * stats.gamma.pdf(1.3, 2.5, scale=1 / r)  # noqa: E731
    assert float(found.log_z) == pytest.approx(np.log(integrate.quad(density, 0, np.inf, epsabs=1e-13)[0]), abs=1e-9)


def test_a_narrow_variable_is_an_observed_number():
    found = tilt(jnp.array([1.3e12, 1e12, 3.0, 2.0]), jnp.asarray(2.5))
    np.testing.assert_allclose(found.site[2:], [2.5, 1.3], rtol=1e-9)


def test_nothing_known():
    found = tilt(jnp.array([1.0, 0.0, 3.0, 2.0]), jnp.asarray(2.5))
    limit = tilt(jnp.array([1.0, 1e-13, 3.0, 2.0]), jnp.asarray(2.5))
    assert float(found.log_z) == 0.0
    np.testing.assert_allclose(found.site[:2], limit.site[:2], rtol=1e-6)
    np.testing.assert_array_equal(found.site[2:], 0.0)
    assert float(-found.stats[1]) == pytest.approx(2.5 * 2.0 / (3.0 - 1.0), rel=1e-12)
    np.testing.assert_array_equal(tilt(jnp.array([1.0, 0.0, 1.0, 2.0]), jnp.asarray(2.5)).site, 0.0)
    assert float(tilt(jnp.array([0.3, 1.0, 3.0, 2.0]), jnp.asarray(0.6)).log_z) == np.inf


def exact_steps(value, rate, shape):
    """The increments of both in 40 digits."""
    with mp.workdps(40):
        (a, b), (c, d), s = map(mp.mpf, value), map(mp.mpf, rate), mp.mpf(shape)
        new = a + s - 1
        density = lambda t: mp.exp((c + s) * t - d * mp.exp(t) - new * mp.log1p(mp.exp(t) / b))  # noqa: E731
        middle = mp.findroot(lambda t: c + s - d * mp.exp(t) - new * mp.exp(t) / (b + mp.exp(t)), mp.log(c / d))
        width = 1 / mp.sqrt(c)
        places = [middle + width * k for k in (-60, -30, -15, -8, -4, -2, 0, 2, 4, 8, 15)]
        scale = density(middle)
        ask = lambda g: mp.quad(lambda t: density(t) / scale * g(t), places)  # noqa: E731
        total = ask(lambda t: 1)
        pairs = [
            (
                mp.digamma(new) - ask(lambda t: mp.log(b + mp.exp(t))) / total,
                new * ask(lambda t: 1 / (b + mp.exp(t))) / total,
            ),
            (ask(lambda t: t) / total, ask(mp.exp) / total),
        ]
        steps = []
        for (log_mean, mean), (old, old_rate) in zip(pairs, ((a, b), (c, d)), strict=True):
            k = mp.findroot(lambda k, m=mean, n=log_mean: mp.log(k) - mp.digamma(k) - mp.log(m) + n, old + 0.3)
            steps += [float(k - old), float(k / mean - old_rate)]
        return steps


@pytest.mark.parametrize(
    ("value", "rate", "shape"),
    [((1e6, 1e6), (3.0, 2.0), 2.5), ((3.0, 2.0), (1e6, 1e6), 2.5), ((1e5, 1e6), (1e6, 1e5), 1.000001)],
)
def test_weak_messages_keep_their_digits(value, rate, shape):
    found = tilt(jnp.array([*value, *rate]), jnp.asarray(shape))
    np.testing.assert_allclose(found.site, exact_steps(value, rate, shape), rtol=1e-8)
