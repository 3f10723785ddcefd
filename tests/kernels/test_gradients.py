"""Gradients in theta against scikit-learn and finite differences, with repeated points among the data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

from cavity.kernels import RBF, Linear, Matern, Polynomial, White
from cavity.kernels.covariances import squared_distances

RNG = np.random.default_rng(8)
X = RNG.standard_normal((8, 3))
X[5] = X[2]
G = RNG.standard_normal((8, 8))
G = G + G.T
ARD = [0.5, 2.0, 7.0]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (RBF(0.8), sk.RBF(0.8)),
        (RBF(ARD), sk.RBF(ARD)),
        (Matern(1.3, 0.5), sk.Matern(1.3, nu=0.5)),
        (Matern(ARD, 0.5), sk.Matern(ARD, nu=0.5)),
        (Matern(ARD, 1.5), sk.Matern(ARD, nu=1.5)),
        (Matern(ARD, 2.5), sk.Matern(ARD, nu=2.5)),
        (
            2.0 * RBF(0.8) + 3.0 * Matern(1.3) + White(0.2),
            sk.ConstantKernel(2.0) * sk.RBF(0.8) + sk.ConstantKernel(3.0) * sk.Matern(1.3) + sk.WhiteKernel(0.2),
        ),
    ],
    ids=["rbf", "rbf_ard", "matern_1", "matern_1_ard", "matern_3_ard", "matern_5_ard", "sum"],
)
def test_pullback_is_scikit_learns_gradient(ours, theirs):
    np.testing.assert_allclose(ours.theta, theirs.theta, rtol=1e-15, atol=1e-15)
    expected = np.einsum("ij,ijp->p", G, theirs(X, eval_gradient=True)[1])
    np.testing.assert_allclose(ours.pullback(X, G), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("nu", [0.5, 1.5])
def test_points_next_to_each_other(nu):
    # with a kink at 0 the slope is 1/distance; what is neglected or lost to rounding must stay near 1e-8
    kernel, theirs = Matern(ARD, nu), sk.Matern(ARD, nu=nu)
    for gap in (1e-5, 1e-8, 1e-10, 1e-15):
        points = X.copy()
        points[6] = points[1] + gap
        expected = np.einsum("ij,ijp->p", G, theirs(points, eval_gradient=True)[1])
        np.testing.assert_allclose(kernel.pullback(points, G), expected, rtol=0, atol=1e-7 if nu == 0.5 else 1e-12)


def test_pullback_of_polynomials_is_the_derivative():
    kernel = Polynomial(3, 0.7, 0.2) * Linear(0.3)
    products = X @ X.T
    inner = 0.2 * products + 0.7
    value = 0.3 * products * inner**2
    expected = [np.sum(G * value * 3 * 0.7), np.sum(G * value * 3 * 0.2 * products), np.sum(G * value * inner)]
    np.testing.assert_allclose(kernel.pullback(X, G), expected, rtol=1e-11)
    assert kernel.names == ("polynomial.offset", "polynomial.scale", "linear.variance")


def test_pullback_agrees_with_finite_differences():
    kernel = 2.0 * Matern([0.5, 2.0, 7.0], 2.5) * RBF(1.1) + Linear(0.4).fix("variance")
    steps = 1e-5 * np.concatenate([np.eye(5), -np.eye(5)])
    values = jax.vmap(lambda theta: jnp.sum(G * kernel.with_theta(theta)(X)))(kernel.theta + steps)
    np.testing.assert_allclose(kernel.pullback(X, G), (values[:5] - values[5:]) / 2e-5, rtol=1e-8, atol=1e-8)


def test_fixed_parameters_have_no_gradient():
    kernel = 2.0 * RBF(ARD).fix("length_scale")
    np.testing.assert_allclose(kernel.pullback(X, G), [np.sum(G * kernel(X))], rtol=1e-12)
    assert kernel.fix().pullback(X, G).shape == (0,)


def test_distances_are_differentiable_in_both_sets_of_points():
    Z, weights = RNG.standard_normal((4, 3)), RNG.standard_normal((8, 4))
    apart = X[:, None, :] - Z[None, :, :]
    w = np.array([0.3, 2.0, 1.1])
    by_x, by_z, by_w = jax.grad(lambda *points: jnp.sum(weights * squared_distances(*points)), (0, 1, 2))(X, Z, w)
    np.testing.assert_allclose(by_x, 2 * w * np.einsum("ij,ijf->if", weights, apart), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(by_z, -2 * w * np.einsum("ij,ijf->jf", weights, apart), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(by_w, np.einsum("ij,ijf->f", weights, apart**2), rtol=1e-12, atol=1e-12)
    change = RNG.standard_normal((8, 3))
    _, forward = jax.jvp(lambda x: squared_distances(x, None, w), (X,), (change,))
    expected = 2 * np.einsum("f,ijf,ijf->ij", w, X[:, None] - X[None], change[:, None] - change[None])
    np.testing.assert_allclose(forward, expected, rtol=1e-11, atol=1e-11)
