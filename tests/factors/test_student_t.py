"""The Student-t factor against 40-digit sums: outliers with two modes, few and many degrees of freedom."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cavity.factors import Gaussian as GaussianFactor
from cavity.factors import StudentT
from cavity.families import Beta, Gaussian

FAMILY = Gaussian()


@jax.jit
@jax.vmap
def tilt(scale, df, cavity, y, power):
    return StudentT(scale, df).tilted(FAMILY, cavity, y, power)


def test_against_table(likelihoods):
    rows = likelihoods("student_t")
    errors = rows.errors(tilt(rows.a, rows.b, rows.cavity, rows.y, rows.power)).max(axis=0)
    assert np.all(errors < 1e-11), errors


def test_an_outlier_has_a_negative_site_and_the_limit_is_gaussian():
    cavity = FAMILY.from_mean(0.0, 1.0)
    one = jnp.ones(2)
    outlier, gaussian = tilt(one, jnp.array([4.0, 1e13]), jnp.stack([cavity] * 2), jnp.array([4.0, 4.0]), one).site
    assert outlier[1] < 0
    np.testing.assert_allclose(gaussian, GaussianFactor(1.0).tilted(FAMILY, cavity, 4.0, 1.0).site, rtol=1e-11)


@pytest.mark.parametrize("df", [4.0, 5.0, 1e5])
def test_a_wide_cavity_sees_the_variance_of_the_likelihood(df):
    """Far out in the mixture's tail, where components are as wide as the cavity, lies what little is left of it."""
    y, scale = -3.0, 0.1
    site = tilt(
        *(jnp.atleast_1d(x) for x in (scale, df)), FAMILY.from_mean(y, 1e20)[None], jnp.atleast_1d(y), jnp.ones(1)
    )
    variance = stats.t.var(df, scale=scale)
    np.testing.assert_allclose(site.site[0], np.array([y, 1.0]) / variance, rtol=1e-10)


def test_derivatives_in_scale_and_df_against_differences():
    cavities = FAMILY.from_mean(np.array([-9.0, 0.2, 3.0]), 2.0)

    def log_z(scale, df):
        fill = jnp.ones(3)
        return tilt(scale * fill, df * fill, cavities, 0.5 * fill, fill).log_z

    def difference(function, at, step):
        near, far = function(at + step) - function(at - step), function(at + 2 * step) - function(at - 2 * step)
        return (8 * near - far) / (12 * step)

    slopes = jax.jit(jax.jacfwd(log_z, argnums=(0, 1)))(0.7, 3.0)
    np.testing.assert_allclose(slopes[0], difference(lambda s: log_z(s, 3.0), 0.7, 1e-3), rtol=1e-8)
    np.testing.assert_allclose(slopes[1], difference(lambda d: log_z(0.7, d), 3.0, 3e-3), rtol=1e-8)


def test_log_density_and_predictions_against_scipy():
    x = np.array([-30.0, 0.1, 2.0])
    log_density = jax.jit(lambda df: StudentT(0.4, df).log_density(x, 1.5))
    for df in (0.7, 5.0, 1e6):
        np.testing.assert_allclose(log_density(df), stats.t.logpdf(1.5 - x, df, scale=0.4), rtol=1e-11)
    found = StudentT(0.4, 5.0).predict(x, 0.3)
    np.testing.assert_allclose(found["mean"], x)
    np.testing.assert_allclose(found["variance"], 0.3 + stats.t.var(5.0, scale=0.4), rtol=1e-14)
    assert np.all(StudentT(0.4, 2.0).predict(x, 0.3)["variance"] == np.inf)


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match=r"df must be positive; found 0.0"):
        StudentT(1.0, 0.0).validate(np.array([1.0]))
    with pytest.raises(ValueError, match=r"scale must be positive; found -2.0"):
        StudentT(-2.0, 3.0).validate(np.array([1.0]))
    assert StudentT(1.0, 4.0).tilted(Beta(), jnp.ones(2), 1.0, 1.0) is NotImplemented
