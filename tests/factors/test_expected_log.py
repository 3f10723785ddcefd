"""E[log t] under t × cavity against ∂ log Z/∂power, which another rule integrates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cavity import factors
from cavity.families import Beta, Gaussian

FAMILY = Gaussian()
RNG = np.random.default_rng(5)
#: means and variances from far inside one label to far inside the other, narrow and wide against the edge
MEANS = np.sign(RNG.normal(size=300)) * np.exp(RNG.uniform(-3, 5, 300))
VARIANCES = np.exp(RNG.uniform(-6, 10, 300))


def both(factor, data):
    """(by the factor's own form, by the derivative in the power)."""

    def one(mean, variance):
        cavity = FAMILY.from_mean(mean, variance)

        def log_z(power):
            return factor.tilted(FAMILY, cavity, data, power).log_z

        own = factor.expected_log(FAMILY, cavity, data, factor.tilted(FAMILY, cavity, data, 1.0))
        return own, jax.jvp(log_z, (jnp.ones(()),), (jnp.ones(()),))[1]

    return jax.jit(jax.vmap(one))(MEANS, VARIANCES)


@pytest.mark.parametrize(
    ("factor", "data"),
    [
        (factors.Probit(), 1.0),
        (factors.Probit(0.1), -1.0),
        (factors.Logistic(), -1.0),
        (factors.Logistic(0.01), 1.0),
        (factors.Poisson(), 7.0),
        (factors.Poisson(), 0.0),
        (factors.StudentT(0.3, 2.0), 1.5),
        (factors.Step(0.2), 1.0),
        (factors.OrdinalProbit([-1.0, 2.0]), 0),
        (factors.OrdinalProbit([-1.0, 2.0]), 1),
        (factors.OrdinalProbit([-1.0, 2.0], 0.5), 2),
        (factors.OrdinalProbit([-40.0, 25.0], 2.0), 1),
        (factors.OrdinalProbit([-1e3, 25.0]), 1),
        (factors.OrdinalProbit([0.1, 0.11]), 1),
    ],
    ids=str,
)
def test_over_many_cavities(factor, data):
    own, reference = both(factor, data)
    np.testing.assert_allclose(own, reference, rtol=1e-7, atol=1e-8)


def test_other_families_have_none():
    for factor in (
        factors.Probit(),
        factors.Logistic(),
        factors.Poisson(),
        factors.StudentT(1.0, 4.0),
        factors.Step(0.1),
        factors.OrdinalProbit([0.0]),
    ):
        assert factor.expected_log(Beta(), jnp.ones(2), 1.0, None) is NotImplemented
