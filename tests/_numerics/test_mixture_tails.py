"""A floor plus a multiple of a likelihood, against mpmath on a likelihood whose integral is known."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np

from cavity.factors.binary import Levels, mixed, shares
from cavity.families.gaussian import Tilt, as_tilted

LEVELS = [(0.0, 1.0), (1e-9, 0.999), (0.3, 0.4), (0.49, 1e-3)]


def gaussian(mean, variance):
    """exp(−f²/2) under N(m, v): Z = exp(−m²/2S)/√S with S = 1 + v."""
    total = 1 + variance
    square = mean**2 / total**2
    d1, bend = -mean / total, 1 / total
    rise = bend - square
    log_z = -0.5 * mean**2 / total - 0.5 * jnp.log1p(variance)
    return Tilt(log_z, d1, bend, rise, jnp.zeros_like(mean), d1 + mean * rise, 1 / total)


def test_against_mpmath():
    cases = [(m, v, low, weight) for m in (-45.0, -6.0, 0.3, 2.0) for v in (1e-6, 0.7, 1e4) for low, weight in LEVELS]
    mean, variance, low, weight = np.array(cases).T
    found = jax.jit(lambda m, v, a, b: mixed(gaussian(m, v), v, Levels(a, b, 1 - a - b)))(mean, variance, low, weight)
    exact = []
    with mp.workdps(500):
        for m, v, a, b in (map(mp.mpf, case) for case in cases):
            total = 1 + v
            clean = mp.exp(-m * m / (2 * total)) / mp.sqrt(total)
            z, first, second = a + b * clean, -b * clean * m / total, b * clean * (m * m / total**2 - 1 / total)
            d1, d2 = first / z, second / z - (first / z) ** 2
            exact.append(
                [float(x) for x in (mp.log(z), d1, -d2, -second / z, d1 - m * d2, d1 - m * second / z, 1 + v * d2)]
            )
    exact = np.array(exact)
    # pull is zero for the clean likelihood, whose site is centred at 0: measured against d1 there.
    size = np.maximum(np.abs(exact), np.where(np.arange(7) == 4, np.abs(exact[:, 1:2]), 0))
    errors = np.abs(np.stack(found, axis=1) - exact) / np.maximum(size, 1e-300)
    assert np.all(errors.max(axis=0) < 1e-11), errors.max(axis=0)


def test_shares_add_up_and_stay_exact_when_tiny():
    log_z0 = np.array([-1e16, -600.0, -30.0, -1e-3, 0.0])
    found = jax.jit(lambda x: shares(x, Levels(jnp.array(1e-6), jnp.array(1 - 2e-6), jnp.array(1e-6))))(log_z0)
    np.testing.assert_allclose(found.part + found.floor, 1, rtol=1e-15)
    np.testing.assert_allclose(found.part[1], (1 - 2e-6) * np.exp(-600.0) / 1e-6, rtol=1e-12)
    np.testing.assert_allclose(found.log_z[-1], np.log1p(-1e-6), rtol=1e-15)
    assert found.part[0] == 0


def test_derivatives_exist_at_no_floor():
    slope = jax.jit(
        jax.vmap(jax.grad(lambda low, x: shares(x, Levels(low, 1 - 2 * low, low)).log_z), in_axes=(None, 0))
    )
    log_z0 = np.array([-2.0, -20.0, -1e-9])
    np.testing.assert_allclose(slope(0.0, log_z0), np.exp(-log_z0) - 2, rtol=1e-12)


def test_mirrored_changes_what_is_odd():
    tilt = gaussian(jnp.array(0.7), jnp.array(2.0))
    flipped, known = as_tilted(tilt, -1.0), as_tilted(gaussian(jnp.array(-0.7), jnp.array(2.0)))
    for found, wanted in zip(flipped, known, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-15)
