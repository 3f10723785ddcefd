"""Steps of shapes against mpmath: also steps a billionth of the shape."""

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from cavity._numerics.gamma_functions import log_gamma_step, log_minus_digamma_step
from cavity._numerics.inverses import dirichlet_shape_step, gamma_shape_step

SHAPES = [1e-3, 0.7, 9.9, 11.0, 250.0, 1e6, 1e9]


@pytest.mark.parametrize("a", SHAPES)
@pytest.mark.parametrize("relative", [-0.6, -1e-9, 1e-9, 1e-4, 3.0])
def test_differences_and_their_inverse(a, relative):
    step = relative * a
    with mp.workdps(60):
        x, d = mp.mpf(a), mp.mpf(step)
        phi = lambda t: mp.log(t) - mp.digamma(t)  # noqa: E731
        change, rise = float(phi(x + d) - phi(x)), float(mp.loggamma(x + d) - mp.loggamma(x))
    assert float(log_minus_digamma_step(jnp.asarray(a), jnp.asarray(step))) == pytest.approx(change, rel=1e-12)
    found = gamma_shape_step(jnp.asarray(a), jnp.asarray(change), 0.99 * jnp.asarray(step))
    assert float(found) == pytest.approx(step, rel=1e-11)
    assert float(log_gamma_step(jnp.asarray(a), jnp.asarray(step))) == pytest.approx(rise, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize(
    ("a", "steps"),
    [
        ([2.0, 3.0], [1.0, 0.0]),
        ([1e6, 2e6], [0.3, -0.2]),
        ([1e6, 2.0], [0.7, 1e-6]),
        ([0.01, 5.0, 300.0], [1e-8, 1e-6, -2e-5]),
        ([4e4, 5e4, 6e4], [-2.0, 0.5, 1.0]),
    ],
)
def test_dirichlet_steps(a, steps):
    with mp.workdps(60):
        old, new = [mp.mpf(v) for v in a], [mp.mpf(v) + mp.mpf(d) for v, d in zip(a, steps, strict=True)]
        logs = lambda s: [mp.digamma(v) - mp.digamma(mp.fsum(s)) for v in s]  # noqa: E731
        change = [float(after - before) for after, before in zip(logs(new), logs(old), strict=True)]
    found = dirichlet_shape_step(jnp.asarray(a), jnp.asarray(change), 0.99 * jnp.asarray(steps))
    np.testing.assert_allclose(found, steps, rtol=1e-8, atol=1e-9 * np.max(np.abs(steps)))
