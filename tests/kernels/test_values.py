"""Kernels give the numbers scikit-learn's give, and stay exact where expanded squares cancel."""

import jax
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk
from sklearn.metrics.pairwise import polynomial_kernel

from cavity.kernels import RBF, Constant, Linear, Matern, Polynomial, White

RNG = np.random.default_rng(5)
X, Z = RNG.standard_normal((9, 3)), RNG.standard_normal((4, 3))
ARD = [0.5, 2.0, 7.0]

PAIRS = {
    "rbf": (RBF(0.8), sk.RBF(0.8)),
    "rbf_ard": (RBF(ARD), sk.RBF(ARD)),
    "matern_1": (Matern(1.3, 0.5), sk.Matern(1.3, nu=0.5)),
    "matern_3": (Matern(1.3, 1.5), sk.Matern(1.3, nu=1.5)),
    "matern_5_ard": (Matern(ARD, 2.5), sk.Matern(ARD, nu=2.5)),
    "linear": (Linear() + 0.49, sk.DotProduct(0.7)),
    "composed": (
        2.0 * RBF(0.8) * Linear(0.3) + White(0.1) + 3.0,
        sk.ConstantKernel(2.0) * sk.RBF(0.8) * sk.ConstantKernel(0.3) * sk.DotProduct(0.0, sigma_0_bounds="fixed")
        + sk.WhiteKernel(0.1)
        + sk.ConstantKernel(3.0),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_matrices_are_those_of_scikit_learn(name):
    ours, theirs = PAIRS[name]
    K = ours(X)
    np.testing.assert_allclose(K, theirs(X), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(ours(X, Z), theirs(X, Z), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(ours.diagonal(X), theirs.diag(X), rtol=1e-13)
    np.testing.assert_array_equal(K, np.transpose(K))


def test_polynomials_are_those_of_scikit_learn():
    kernel = Polynomial(3, offset=0.7, scale=0.2)
    np.testing.assert_allclose(kernel(X, Z), polynomial_kernel(X, Z, 3, 0.2, 0.7), rtol=1e-13)
    np.testing.assert_allclose(kernel.diagonal(X), np.diag(polynomial_kernel(X, X, 3, 0.2, 0.7)), rtol=1e-13)
    homogeneous = Polynomial(2, offset=0.0, offset_bounds="fixed")
    np.testing.assert_allclose(homogeneous(X), (X @ X.T) ** 2, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(homogeneous(X), np.transpose(homogeneous(X)))


@pytest.mark.parametrize("features", [1, 8, 9, 40])
def test_any_number_of_features(features):
    points = RNG.standard_normal((7, features))
    np.testing.assert_allclose(RBF(3.0)(points), sk.RBF(3.0)(points), rtol=1e-13)


def test_close_points_far_from_zero_keep_all_digits():
    # 2⁴⁰ + small multiples of 2⁻¹⁰ are exact in double precision; their squares are not
    steps = RNG.integers(-2000, 2000, (8, 3))
    far = 2.0**40 + steps * 2.0**-10
    np.testing.assert_allclose(RBF(0.5)(far), sk.RBF(0.5)(steps * 2.0**-10), rtol=1e-13)


def test_units_of_the_features_do_not_matter():
    units = np.array([1e12, 1e-12, 1.0])
    np.testing.assert_allclose(Matern(ARD * units)(X * units), sk.Matern(ARD)(X), rtol=1e-12)
    np.testing.assert_allclose(RBF(1e12)(X * 1e12), sk.RBF()(X), rtol=1e-12)
    np.testing.assert_array_equal(RBF()(X * 1e12), np.eye(9))


@pytest.mark.parametrize("kernel", [RBF(0.8), Matern([0.8, 0.3, 0.7], 0.5), 2.0 * Matern(0.8, 2.5)], ids=str)
def test_repeated_points_are_exactly_alike_and_the_matrix_positive(kernel):
    twice = np.concatenate([X, X]) * 50.0 + 1e6
    K = np.asarray(kernel(twice))
    np.testing.assert_array_equal(K[:9, 9:].diagonal(), kernel.diagonal(X))
    np.testing.assert_array_equal(K.diagonal(), kernel.diagonal(twice))
    assert np.linalg.eigvalsh(K).min() > -1e-13


def test_results_are_double_whatever_the_callers_precision():
    with jax.enable_x64(False):
        K = RBF(0.8)(X)
        assert isinstance(K, np.ndarray)
        gradient = RBF(0.8).pullback(X, np.eye(9))
    assert K.dtype == gradient.dtype == np.float64
    np.testing.assert_allclose(K, sk.RBF(0.8)(X), rtol=1e-13)


def test_noise_belongs_to_a_point_and_itself():
    np.testing.assert_array_equal(White(0.3)(X), 0.3 * np.eye(9))
    np.testing.assert_array_equal(White(0.3)(X, X), np.zeros((9, 9)))
    np.testing.assert_array_equal((White(0.3) * Constant(2.0))(X), 0.6 * np.eye(9))
