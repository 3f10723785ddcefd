"""natural(moments(eta)) gives eta back up to the rounding that the map itself amplifies."""

import jax
import numpy as np
import pytest
from support import Compiled

from cavity.families import (
    Beta,
    Categorical,
    DiagonalGaussian,
    Dirichlet,
    FullGaussian,
    Gamma,
    Gaussian,
    SphericalGaussian,
)

EPS = np.finfo(float).eps


def condition(family, eta):
    """Componentwise relative condition number of mu → eta: row sums of |diag(1/eta) J⁻¹ diag(mu)|, J = ∂mu/∂eta."""
    mu = np.asarray(family.moments(eta))
    jacobian = np.asarray(jax.jit(jax.vmap(jax.jacfwd(family.part.moments)))(eta))
    scaled = jacobian * eta[:, None, :] / mu[:, :, None]
    return np.max(np.sum(np.abs(np.linalg.inv(scaled)), axis=-1), axis=-1)


def error(family, eta):
    back = np.asarray(family.natural(family.moments(eta)))
    return np.max(np.abs(back / eta - 1), axis=-1)


def shapes(rng, rows, components):
    """A third each: every scale mixed within a vector, one scale per vector, one dominant shape."""
    mixed = 10 ** rng.uniform(-6, 8, (rows, components))
    common = 10 ** (rng.uniform(-5, 7, (rows, 1)) + rng.uniform(-1, 1, (rows, components)))
    dominant = np.where(
        np.arange(components) == 0, 10 ** rng.uniform(4, 8, (rows, 1)), 10 ** rng.uniform(-6, -2, mixed.shape)
    )
    return np.concatenate([mixed, common, dominant])


@pytest.mark.parametrize(("components", "rows"), [(2, 1000), (3, 1000), (10, 300)])
def test_dirichlet(components, rows):
    eta = shapes(np.random.default_rng(components), rows, components)
    family = Compiled(Beta() if components == 2 else Dirichlet(components))
    assert np.all(error(family, eta) <= 100 * EPS * condition(family, eta))


def test_dirichlet_of_a_thousand_components():
    eta = shapes(np.random.default_rng(0), 10, 1000)
    family = Compiled(Dirichlet(1000))
    back = np.asarray(family.natural(family.moments(eta)))
    # The worst direction is the common scale, with condition number about Σ a / K.
    scale = 100 * EPS * (10 + np.sum(eta, axis=-1, keepdims=True) / 1000)
    assert np.all(np.abs(back / eta - 1) <= scale)


def test_gamma():
    rng = np.random.default_rng(1)
    eta = np.stack([10 ** rng.uniform(-6, 8, 2000), 10 ** rng.uniform(-8, 8, 2000)], axis=-1)
    family = Compiled(Gamma())
    assert np.all(error(family, eta) <= 100 * EPS * condition(family, eta))


@pytest.mark.parametrize(
    "family", [Gaussian(), SphericalGaussian(3), DiagonalGaussian(3)], ids=lambda f: type(f).__name__
)
def test_gaussian(family):
    family, rng = Compiled(family), np.random.default_rng(2)
    d = family.event_shape[0] if family.event_shape else 1
    tau = 10 ** rng.uniform(-12, 12, (1000, family.size - d))
    eta = np.concatenate([tau * rng.standard_normal((1000, d)) * 10 ** rng.uniform(-3, 6, (1000, d)), tau], axis=-1)
    # With more than twelve digits of E[x²] taken by the mean, the variance is lost before `natural` is asked.
    eta = eta[np.max(eta[:, :d] ** 2 / tau, axis=-1) < 1e12 * np.min(tau, axis=-1) / np.max(tau, axis=-1)]
    assert len(eta) > 100
    assert np.all(error(family, eta) <= 100 * EPS * condition(family, eta))


def test_full_gaussian():
    rng = np.random.default_rng(3)
    family = Compiled(FullGaussian(3))
    for mean_size in (1e-1, 1e1, 1e3):
        root = rng.standard_normal((50, 3, 3)) * 10 ** rng.uniform(-1, 1, (50, 1, 3))
        spread = root @ np.swapaxes(root, -1, -2) + 1e-3 * np.eye(3)
        eta = np.asarray(family.from_mean(mean_size * rng.standard_normal((50, 3)), spread))
        back = np.asarray(family.natural(family.moments(eta)))
        # A redundant (symmetric) parameterisation has no square Jacobian; the two inversions of the covariance and the
        # cancellation E[xxᵀ] − mmᵀ amplify by cond(V) and by |m|²/min eig V.
        low, high = np.linalg.eigvalsh(spread)[:, 0], np.linalg.eigvalsh(spread)[:, -1]
        mean_square = np.sum(np.asarray(family.mean(eta)) ** 2, axis=-1)
        cond = (high + mean_square) / low
        gap = np.linalg.norm(back - eta, axis=-1) / np.linalg.norm(eta, axis=-1)
        assert np.all(gap <= 100 * EPS * cond)


def test_categorical_keeps_exact_zeros():
    family = Compiled(Categorical(4))
    p = np.array([[0.1, 0.0, 0.4, 0.5], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 1.0, 0.0], [1e-300, 0.5, 0.5, 0.0]])
    eta = family.natural(p)
    np.testing.assert_array_equal(np.asarray(family.moments(eta)) == 0, p == 0)
    np.testing.assert_allclose(family.moments(eta), p, rtol=1e-13)


@pytest.mark.parametrize(
    ("family", "mu"),
    [(Beta(), [-0.5, -0.5]), (Dirichlet(3), [-0.1, -1.0, 0.2]), (Gamma(), [1.0, -2.0])],
    ids=["beta", "dirichlet", "gamma"],
)
def test_moments_that_no_member_has_are_refused(family, mu):
    family = Compiled(family)
    assert not np.any(family.is_proper(family.natural(np.array(mu))))
