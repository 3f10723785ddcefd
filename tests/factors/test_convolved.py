"""Factors of a latent that is known up to noise."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cavity.factors import GaussianConvolved, Probit, Step, StudentT, Tempered
from cavity.factors.wrappers import add_noise_variance
from cavity.families import Gaussian

FAMILY = Gaussian()


@pytest.mark.parametrize(("y", "power"), [(0.4, 1.0), (5.0, 1.0), (5.0, 0.5)])
def test_moments_of_what_the_factor_says_of_the_spanned_part(y, power):
    """Integrated over f given g, with the power inside, then over g. At y = 5 the message is negative.

    Smooth functions that vanish at both ends: the trapezoidal rule is exact to rounding.
    """
    m, v, r = 0.3, 0.8, 0.5
    found = jax.jit(lambda c: GaussianConvolved(StudentT(1.0, 3.0)).tilted(FAMILY, c, (y, r), power))(
        FAMILY.from_mean(m, v)
    )
    grid, step = np.linspace(-12.0, 12.0, 601, retstep=True)
    given_g = stats.norm.pdf(grid, grid[:, None], np.sqrt(r))
    said = given_g @ stats.t.pdf(y - grid, 3.0) ** power * step
    z, first, second = (np.sum(grid**n * said * stats.norm.pdf(grid, m, np.sqrt(v))) * step for n in range(3))
    mean, variance = first / z, second / z - (first / z) ** 2
    tau = 1 / variance - 1 / v
    assert (tau < 0) == (y == 5.0)
    np.testing.assert_allclose(found.log_z, np.log(z), rtol=1e-9)
    np.testing.assert_allclose(found.site, [mean / variance - m / v, tau], rtol=1e-7)


def test_without_noise_it_is_the_factor():
    cavity = FAMILY.from_mean(0.7, 1.3)
    plain = jax.jit(lambda c: Probit(0.1).tilted(FAMILY, c, 1.0, 0.5))(cavity)
    found = jax.jit(lambda c: GaussianConvolved(Probit(0.1)).tilted(FAMILY, c, (1.0, 0.0), 0.5))(cavity)
    for ours, theirs in zip(found, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)


@settings(max_examples=30, deadline=None)
@given(st.floats(-4, 4), st.floats(-6, 3), st.floats(-8, 3), st.sampled_from([-1.0, 1.0]))
def test_the_message_keeps_the_tilted_distribution_proper(mean, log_variance, log_residual, y):
    """q over g after the message is what conditioning g on a Gaussian message about f gives, without cancelling."""
    cavity, residual = FAMILY.from_mean(mean, 10.0**log_variance), 10.0**log_residual
    found = blurred_step(cavity, y, residual)
    assert np.isfinite(found.site).all() and float((cavity + found.site)[1]) > 0
    v = 10.0**log_variance
    # Variance v + v² d₂ of g, from the derivatives of log Z alone.
    np.testing.assert_allclose(1 / (cavity + found.site)[1], v + v**2 * found.stats[1], rtol=1e-9)


@jax.jit
def blurred_step(cavity, y, residual):
    return GaussianConvolved(Step(0.1)).tilted(FAMILY, cavity, (y, residual), 1.0)


def test_log_density_integrates_the_noise_out():
    """Probit of variance r more: Φ(y g/√(1 + r)); without noise the factor's own."""
    density = jax.jit(jax.vmap(GaussianConvolved(Probit()).log_density))
    g, r = np.array([-1.2, 0.4, 2.0]), np.array([0.0, 0.7, 3.0])
    exact = [mp.log(mp.ncdf(a / mp.sqrt(1 + b))) for a, b in zip(g, r, strict=True)]
    np.testing.assert_allclose(density(g, (np.ones(3), r)), np.array(exact, float), rtol=1e-12)


def test_expected_log_is_the_slope_in_the_power():
    cavity, data = FAMILY.from_mean(0.4, 0.9), (1.0, 0.6)
    factor = GaussianConvolved(Step(0.1))

    @jax.jit
    def both(cavity):
        tilted = factor.tilted(FAMILY, cavity, data, 1.0)
        return factor.expected_log(FAMILY, cavity, data, tilted)

    log_z = jax.jit(lambda p: factor.tilted(FAMILY, cavity, data, p).log_z)
    slope = (log_z(jnp.asarray(1 + 1e-5)) - log_z(jnp.asarray(1 - 1e-5))) / 2e-5
    np.testing.assert_allclose(both(cavity), slope, rtol=1e-8)


def test_a_flat_message_stays_flat():
    np.testing.assert_array_equal(
        add_noise_variance(np.array([[0.3, 0.0], [0.0, 0.0]]), np.array([2.0, 5.0])), [[0.3, 0], [0, 0]]
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.ones(2), r"data of GaussianConvolved must be a pair \(data, residual\); found ndarray"),
        (((np.ones(2), np.ones(2)), np.array([1.0, -0.5])), "residual must not be negative; found -0.5"),
        (((np.zeros(2), np.ones(2)), np.ones(2)), r"data of Step must be labels −1 or \+1; found 0.0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(data, message):
    with pytest.raises(ValueError, match=message):
        GaussianConvolved(Tempered(Step())).validate(data)
