"""Messages as vectors: round trips, zero for "says nothing", and Fisher information against differences of KL."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cavity.families import Beta, Categorical, Dirichlet, FullGaussian, Gamma, Gaussian, Product, SphericalGaussian
from cavity.learned.gp_state import sensitivity
from cavity.learned.message_coordinates import changes, coordinates, displace_all, divergence, parts_of

CASES = {
    "gaussian": (Gaussian(), [0.6, 2.0], [1.0, 3.0]),
    "gamma": (Gamma(), [2.0, 0.7], [3.1, 1.9]),
    "beta": (Beta(), [2.0, 0.7], [3.1, 1.9]),
    "dirichlet": (Dirichlet(3), [2.0, 0.7, 1.2], [3.1, 1.9, 1.3]),
    "categorical": (Categorical(3), [0.2, -0.4, 0.0, 0.0, 0.0, 0.0], [0.5, 0.1, -0.3, 0.0, 0.0, 0.0]),
    "vector": (FullGaussian(2), [0.3, -0.2, 2.0, 0.5, 0.5, 1.0], [0.6, 0.1, 3.0, 0.8, 0.8, 2.5]),
}
CASES["product"] = (
    Product((Beta(), Gaussian())),
    CASES["beta"][1] + CASES["gaussian"][1],
    CASES["beta"][2] + CASES["gaussian"][2],
)


@pytest.mark.parametrize("name", CASES)
def test_a_change_takes_the_cavity_to_the_projection(name):
    family, cavity, projected = CASES[name]
    cavity, projected = jnp.array(cavity), jnp.array(projected)
    step = changes(family, cavity, projected)
    arrived = displace_all(family, cavity, step)
    assert float(divergence(family, projected, arrived)) == pytest.approx(0.0, abs=1e-13)
    np.testing.assert_allclose(displace_all(family, cavity, jnp.zeros_like(step)), cavity, rtol=1e-12)
    np.testing.assert_allclose(changes(family, cavity, cavity), 0.0, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_sensitivity_is_the_curvature_of_the_divergence(name):
    family, cavity, projected = CASES[name]
    cavity, projected = jnp.array(cavity), jnp.array(projected)
    step = changes(family, cavity, projected)
    found = sensitivity(family, cavity, step)
    h = 1e-4
    for k in range(len(step)):
        away = jnp.zeros_like(step).at[k].set(h)
        moved = [
            divergence(family, projected, displace_all(family, cavity, step + side * away)) for side in (1.0, -1.0)
        ]
        assert float(found[k]) == pytest.approx(float(moved[0] + moved[1]) / h**2, rel=1e-4)


def test_places_are_finite_for_extreme_messages():
    family = Product((Beta(), Gaussian(), Gamma()))
    eta = jnp.array([1e-6, 1e6, 1e9, 1e6, 1e-8, 1e8])
    assert jnp.isfinite(coordinates(family, eta)).all()
    assert len(coordinates(family, eta)) == 6


def test_families_that_cannot_be_learned_are_named():
    with pytest.raises(TypeError, match="SphericalGaussian cannot be learned"):
        parts_of(Product((Gaussian(), SphericalGaussian(2))))


def test_all_of_it_is_traceable():
    family, cavity, projected = CASES["product"]
    batch = jnp.stack([jnp.array(cavity)] * 3)
    steps = jax.jit(jax.vmap(lambda a, b: changes(family, a, b)))(batch, jnp.stack([jnp.array(projected)] * 3))
    assert steps.shape == (3, 4)
