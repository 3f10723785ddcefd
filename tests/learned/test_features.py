"""Random features against the kernels they stand for, in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cavity.families import Beta, Dirichlet, Gaussian, Product
from cavity.learned.feature_regression import Waves, message_moments, two_stages, waves


def messages(count, seed=0):
    rng = np.random.default_rng(seed)
    m, v = rng.normal(0, 3, count), rng.gamma(3.0, 4.0, count)
    return m, v, jnp.stack([jnp.asarray(m / v), jnp.asarray(1 / v)], axis=1)


def test_points_have_the_gaussian_kernel():
    u = np.random.default_rng(0).normal(size=(30, 2))
    features = waves(jax.random.key(0), 20_000, jnp.array([1.0, 2.0])).of(jnp.asarray(u))
    gap = ((u[:, None] - u[None]) / [1.0, 2.0]) ** 2
    np.testing.assert_allclose(features @ features.T, np.exp(-0.5 * gap.sum(-1)), atol=0.03)


def test_embeddings_have_the_expected_product_kernel():
    """Supplement B.3: √(s²/(v + v' + s²)) exp(−½ (m − m')²/(v + v' + s²))."""
    m, v, eta = messages(40)
    features = waves(jax.random.key(1), 20_000, jnp.array([np.sqrt(3.0)])).embed(message_moments(Gaussian(), eta))
    total = v[:, None] + v[None] + 3.0
    kernel = np.sqrt(3.0 / total) * np.exp(-0.5 * (m[:, None] - m[None]) ** 2 / total)
    np.testing.assert_allclose(features @ features.T, kernel, atol=0.03)


def test_two_stages_have_the_kernel_on_embeddings():
    m, v, eta = messages(30)
    total = v[:, None] + v[None] + 3.0
    product = np.sqrt(3.0 / total) * np.exp(-0.5 * (m[:, None] - m[None]) ** 2 / total)
    gap = np.diag(product)[:, None] + np.diag(product)[None] - 2 * product
    stages = two_stages(jax.random.key(2), 4_000, 8_000, jnp.array([np.sqrt(3.0)]), 0.3)
    features = stages.of(Gaussian(), eta)
    np.testing.assert_allclose(features @ features.T, np.exp(-0.5 * gap / 0.09), atol=0.08)


def test_moment_matched_messages_are_gaussians():
    """Phases of 0 and −π/2 give the real and the imaginary part of the characteristic function."""
    family = Product((Beta(), Gaussian()))
    messages = message_moments(family, jnp.array([[2.0, 3.0, 1.0, 2.0]]))
    np.testing.assert_allclose(messages.means, [[0.4, 0.5]])
    np.testing.assert_allclose(messages.variances, [[0.04, 0.5]])
    found = Waves(jnp.array([[1.5, -0.7]] * 2), jnp.array([0.0, -np.pi / 2])).embed(messages)[0]
    exact = np.exp(1j * (1.5 * 0.4 - 0.7 * 0.5) - 0.5 * (1.5**2 * 0.04 + 0.7**2 * 0.5))
    np.testing.assert_allclose(found, [exact.real, exact.imag], rtol=1e-12)


def test_messages_of_vectors_have_no_embedding():
    with pytest.raises(TypeError, match="mean embeddings are of numbers; Dirichlet is of vectors"):
        message_moments(Dirichlet(3), jnp.ones((1, 3)))
