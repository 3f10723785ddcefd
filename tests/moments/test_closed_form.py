"""Closed forms are called, never replaced silently."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cavity._numerics.normal import log_ndtr, one_sided
from cavity.factors import MissingClosedForm, MissingDensity, Probit, from_log_density, from_log_z
from cavity.families import Beta, FullGaussian, Gaussian
from cavity.moments import ClosedForm

KEY = jax.random.key(0)
PROBIT_LOG_Z = from_log_z(lambda m, v, y: log_ndtr(y * m / jnp.sqrt(1.0 + v)))


def test_a_missing_closed_form_lists_what_exists_and_what_to_use():
    with pytest.raises(MissingClosedForm) as caught:
        ClosedForm().tilt(None, PROBIT_LOG_Z, Gaussian(), jnp.array([0.0, 1.0]), 1.0, 0.5, KEY)
    text = str(caught.value)
    for part in ("FromLogZ with Gaussian sites and power 0.5", "power 1 (by", "Quadrature", "Importance"):
        assert part in text
    factor = from_log_density(lambda x, d: x)
    with pytest.raises(MissingClosedForm, match=r"Closed forms that exist: none\."):
        ClosedForm().tilt(None, factor, Beta(), jnp.ones(2), None, 1.0, KEY)


@pytest.mark.parametrize(("mean", "variance", "y"), [(0.3, 0.5, 1.0), (-2.0, 3.0, 1.0), (1.5, 0.2, -1.0)])
def test_log_z_alone_equals_the_explicit_derivatives(mean, variance, y):
    eta = Gaussian().from_mean(mean, variance)
    found, _ = jax.jit(lambda e: ClosedForm().tilt(None, PROBIT_LOG_Z, Gaussian(), e, y, 1.0, KEY))(eta)
    exact = jax.jit(lambda e: Probit().tilted(Gaussian(), e, y, 1.0))(eta)
    for a, b in zip(found, exact, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_log_z_alone_for_vectors():
    family = FullGaussian(2)
    direction = jnp.array([1.0, -2.0])
    factor = from_log_z(lambda m, v, y: log_ndtr(y * (direction @ m) / jnp.sqrt(1.0 + direction @ v @ direction)))
    eta = family.from_mean(np.array([0.4, 0.1]), np.array([[1.0, 0.3], [0.3, 0.5]]))
    found, _ = jax.jit(lambda e: ClosedForm().tilt(None, factor, family, e, 1.0, 1.0, KEY))(eta)
    s = float(np.sqrt(1.0 + direction @ family.covariance(eta) @ direction))
    t = one_sided(direction @ family.mean(eta) / s)
    np.testing.assert_allclose(found.log_z, t.log_z, rtol=1e-12)
    np.testing.assert_allclose(family.nu(found.stats), direction * t.d1 / s, rtol=1e-10)
    np.testing.assert_allclose(family.precision(found.stats), -jnp.outer(direction, direction) * t.b / s**2, rtol=1e-10)


def test_custom_factors_refuse_what_is_not_a_function():
    with pytest.raises(TypeError, match=r"from_log_density needs a function of \(x, data\); found float"):
        from_log_density(1.0)
    with pytest.raises(TypeError, match="from_log_z needs a function"):
        from_log_z("log z")
    with pytest.raises(MissingDensity, match="no log_density"):
        PROBIT_LOG_Z.log_density(0.0, 1.0)
