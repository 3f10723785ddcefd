"""The fixed rule on likelihoods whose integrals are known, wherever the mass sits."""

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.recentred_rule import LogLikelihoodDerivatives, falling_root, follow


def gaussian(y, s):
    """log N(f; y, s) up to its constant."""
    return lambda f: LogLikelihoodDerivatives(-0.5 * (f - y) ** 2 / s, -(f - y) / s, jnp.full_like(f, -1 / s))


@jax.jit
@jax.vmap
def tilt_gaussian(y, s, power, mean, variance):
    centres = jnp.stack([(mean / variance + power * y / s) / (1 / variance + power / s), mean])
    scales = jnp.stack([1 / jnp.sqrt(1 / variance + power / s), jnp.sqrt(variance)])
    return follow(gaussian(y, s), power, mean, variance, centres, scales)


def test_a_gaussian_likelihood_weak_and_strong():
    """exp(−(f − y)²/2s)^p under N(m, v): log Z = −½ log(1 + pv/s) − ½ (m − y)²/(v + s/p), the site is (y, 1) p/s."""
    s = np.array([1e-8, 1e-3, 1.0, 1e3, 1e8, 1e12, 2.0])
    power = np.array([1.0, 0.5, 1.0, 2.0, 1.0, 1.0, 0.0])
    y, mean, variance = np.linspace(-2.0, 5.0, 7), np.linspace(3.0, -1.0, 7), np.full(7, 0.8)
    found = tilt_gaussian(y, s, power, mean, variance)
    precision, gap = power / s, mean - y
    total = 1 + variance * precision
    np.testing.assert_allclose(
        found.log_z, -0.5 * np.log1p(variance * precision) - 0.5 * precision * gap**2 / total, rtol=1e-11
    )
    np.testing.assert_allclose(found.d1, -precision * gap / total, rtol=1e-11)
    np.testing.assert_allclose(found.bend / found.ratio, precision, rtol=1e-9)
    np.testing.assert_allclose(found.pull / found.ratio, precision * y, rtol=1e-9)
    np.testing.assert_allclose(found.rise, precision / total - (precision * gap / total) ** 2, rtol=1e-9)
    np.testing.assert_allclose(found.lift, found.d1 + mean * np.asarray(found.rise), rtol=1e-9)
    np.testing.assert_allclose(found.ratio, 1 / total, rtol=1e-11)


def test_two_separate_peaks():
    """exp(α f²/2) turned off far away has two modes; here the sum of two Gaussians of known weights."""
    places, narrow, variance = jnp.array([-7.0, 5.0]), 1e-3, 4.0

    def peaks(f):
        parts = -0.5 * (f[..., None] - places) ** 2 / narrow
        value = jax.scipy.special.logsumexp(parts, axis=-1)
        share, pull = jnp.exp(parts - value[..., None]), -(f[..., None] - places) / narrow
        first = jnp.sum(share * pull, axis=-1)
        return LogLikelihoodDerivatives(value, first, jnp.sum(share * pull**2, axis=-1) - 1 / narrow - first**2)

    centres, scales = jnp.append(places, 0.5), jnp.array([0.03, 0.03, 2.0])
    found = jax.jit(lambda mean: follow(peaks, 1, mean, jnp.asarray(variance), centres, scales))(0.5)
    total = variance + narrow
    log_parts = 0.5 * np.log(narrow / total) - 0.5 * (0.5 - np.asarray(places)) ** 2 / total
    shares = np.exp(log_parts) / np.exp(log_parts).sum()
    slopes = (np.asarray(places) - 0.5) / total
    np.testing.assert_allclose(found.log_z, np.log(np.exp(log_parts).sum()), rtol=1e-12)
    np.testing.assert_allclose(found.d1, shares @ slopes, rtol=1e-11)
    np.testing.assert_allclose(-found.bend, shares @ slopes**2 - (shares @ slopes) ** 2 - 1 / total, rtol=1e-10)


def test_falling_root_is_elementwise():
    found = jax.jit(lambda target: falling_root(lambda f: target - f**3, jnp.zeros(3), jnp.full(3, 1e6)))(
        np.array([1e-3, 1.0, 8e6])
    )
    np.testing.assert_allclose(found, [0.1, 1.0, 200.0], atol=1e-11)
