"""Factors raised to a power of each site's own."""

import jax
import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from cavity.factors import Step, StudentT, Tempered, Truncation
from cavity.families import Gaussian

FAMILY = Gaussian()


def test_a_step_with_a_weight_against_integration():
    """Tilted moments of t^(power · w) for w of each site's own."""
    weights, power = np.array([0.3, 1.0, 2.5]), 0.5
    cavity = FAMILY.from_mean(-0.6, 1.4)
    factor = Tempered(Step(0.1))
    found = jax.jit(jax.vmap(lambda w: factor.tilted(FAMILY, cavity, (1.0, w), power)))(weights)
    for k, weight in enumerate(weights):

        def mass(f, order, weight=weight):
            level = mp.mpf(0.9) if f > 0 else mp.mpf(0.1)
            return f**order * mp.npdf(f, mp.mpf(-0.6), mp.sqrt(mp.mpf(1.4))) * level ** (power * mp.mpf(weight))

        total, first = (mp.quad(lambda f, n=n: mass(f, n), [-12, -6, -2, 0, 2, 6, 12]) for n in (0, 1))
        np.testing.assert_allclose(found.log_z[k], float(mp.log(total)), rtol=1e-12)
        np.testing.assert_allclose(found.stats[k, 0], float((first / total + 0.6) / 1.4), rtol=1e-12)


def test_log_density_scales_and_an_indicator_stays():
    log_density = jax.jit(Tempered(StudentT(1.0, 4.0)).log_density)(0.3, (1.0, 0.25))
    np.testing.assert_allclose(log_density, 0.25 * stats.t.logpdf(0.7, 4.0), rtol=1e-13)
    cavity = FAMILY.from_mean(0.5, 2.0)
    plain = jax.jit(lambda c: Truncation().tilted(FAMILY, c, (0.0, 1.0), 1.0))(cavity)
    tempered = jax.jit(lambda c, w: Tempered(Truncation()).tilted(FAMILY, c, ((0.0, 1.0), w), 1.0))(cavity, 0.4)
    np.testing.assert_array_equal(tempered.site, plain.site)


def test_weights_are_traced_and_differentiable():
    cavity = FAMILY.from_mean(0.5, 2.0)
    log_z = jax.jit(lambda w: Tempered(Step(0.1)).tilted(FAMILY, cavity, (-1.0, w), 1.0).log_z)
    step = 1e-4
    slope = jax.jit(lambda w: jax.jvp(log_z, (w,), (1.0,))[1])(0.7)
    near, far = log_z(0.7 + step) - log_z(0.7 - step), log_z(0.7 + 2 * step) - log_z(0.7 - 2 * step)
    np.testing.assert_allclose(slope, (8 * near - far) / (12 * step), rtol=1e-9)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.ones(2), r"data of Tempered must be a pair \(data, exponent\); found ndarray"),
        ((np.ones(2), np.array([1.0, -0.5])), "exponent must not be negative; found -0.5"),
        ((np.zeros(2), np.ones(2)), r"data of Step must be labels −1 or \+1; found 0.0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(data, message):
    with pytest.raises(ValueError, match=message):
        Tempered(Step()).validate(data)


def test_predictions_are_those_of_the_factor():
    found = jax.jit(Tempered(Step(0.1)).predict)(0.3, 1.0)
    np.testing.assert_allclose(found["noisy_probability"], 0.1 + 0.8 * stats.norm.cdf(0.3), rtol=1e-13)
