"""Random features against the kernels they stand for, in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import hyp1f1

from cavity.families import Beta, Gamma, Gaussian, Product
from cavity.learned.features import characteristic, embed, mean_and_variance, two_stages, waves


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
    features = embed(waves(jax.random.key(1), 20_000, jnp.array([np.sqrt(3.0)])), Gaussian(), eta)
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


@pytest.mark.parametrize("shapes", [(1.0, 2.0), (0.05, 3.0), (40.0, 900.0), (0.3, 0.2)])
def test_beta_by_its_characteristic_function(shapes):
    """₁F₁(a; a + b; iω), whose imaginary argument scipy sums for real ω only through its series in iω."""
    a, b = shapes
    w = np.array([0.3, 2.0, 9.0])
    terms = np.arange(120)
    ratio = np.cumprod(np.concatenate([[1.0], (a + terms[:-1]) / (a + b + terms[:-1]) / (terms[:-1] + 1)]))
    exact = ((1j * w[:, None]) ** terms * ratio).sum(axis=1)
    assert np.isclose(hyp1f1(a, a + b, 0.5), (0.5**terms * ratio).sum())  # the series is the right one
    np.testing.assert_allclose(characteristic(Beta(), jnp.array(shapes), jnp.asarray(w), True), exact, atol=1e-7)


def test_gamma_by_its_characteristic_function():
    draws = np.random.default_rng(3).gamma(2.5, 1 / 1.7, 400_000)
    w = np.array([0.5, 3.0])
    found = characteristic(Gamma(), jnp.array([2.5, 1.7]), jnp.asarray(w), True)
    np.testing.assert_allclose(found, np.exp(1j * w[:, None] * draws).mean(axis=1), atol=5e-3)


def test_moment_matched_messages_are_gaussians():
    eta = jnp.array([2.0, 3.0])
    mean, variance = 0.4, 0.04
    w = jnp.array([1.5])
    found = characteristic(Beta(), eta, w, False)
    np.testing.assert_allclose(found, np.exp(1.5j * mean - 0.5 * 1.5**2 * variance), rtol=1e-12)
    family = Product((Beta(), Gaussian()))
    means, variances = mean_and_variance(family, jnp.array([[2.0, 3.0, 1.0, 2.0]]))
    np.testing.assert_allclose(means, [[0.4, 0.5]])
    np.testing.assert_allclose(variances, [[0.04, 0.5]])
