"""A kernel's own features: their products are the kernel, as they are or turned, and what is left out is left over."""

import math

import numpy as np
import pytest

import cavity as cv
from cavity.kernels import RBF, Constant, Linear, Polynomial, Spanned
from cavity.kernels.exact_features import ExactFeatures

RNG = np.random.default_rng(0)
KERNELS = {
    "linear": Linear(0.7),
    "line": Linear(0.7) + Constant(2.0),
    "scaled": 3.0 * Linear(0.7),
    "polynomial": Polynomial(3, offset=0.4, scale=1.3),
    "homogeneous": Polynomial(2, offset=0.0, offset_bounds="fixed"),
    "sum": 2.0 * Polynomial(2) + Linear(0.1),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("count", [60, 4], ids=["more rows", "fewer rows"])
def test_products_of_features_are_the_kernel(name, count):
    kernel, X, new = KERNELS[name], RNG.normal(size=(count, 3)), RNG.normal(size=(5, 3))
    basis = ExactFeatures.of(kernel, X)
    own, other = basis(kernel, X), basis(kernel, new)
    np.testing.assert_allclose(own.rows @ own.rows.T, kernel(X), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(own.residual, 0.0, atol=1e-12)
    np.testing.assert_allclose(own.rows @ other.rows.T, kernel(X, new), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(
        other.rows @ other.rows.T + basis.residual_covariance(kernel, new), kernel(new), rtol=1e-11, atol=1e-11
    )
    np.testing.assert_allclose(np.sum(np.square(other.rows), axis=1) + other.residual, kernel.diagonal(new), rtol=1e-11)


def test_a_polynomial_has_as_many_features_as_monomials():
    assert Polynomial(3).feature_count(4) == math.comb(7, 3)
    assert Polynomial(3).features(np.ones((2, 4)), iter(())).shape == (2, math.comb(7, 3))


def test_kernels_of_infinite_rank_have_no_count_and_are_refused():
    for kernel in (RBF(), RBF() + Linear(), Linear() * Linear()):
        assert kernel.feature_count(2) is None
    with pytest.raises(ValueError, match="made of Linear, Constant and Polynomial by sums"):
        ExactFeatures.of(RBF() + Linear(), np.ones((3, 2)))
    with pytest.raises(ValueError, match="must have 2 features for 3 columns; found 3"):
        ExactFeatures(2)(Linear(), np.ones((3, 3)))


def test_columns_that_depend_on_each_other_are_turned_and_others_are_not():
    X = RNG.normal(size=(30, 3))
    assert ExactFeatures.of(Linear(), X * [1e-10, 1.0, 1e10]).inputs is None
    assert ExactFeatures.of(Linear(), np.column_stack([X, X @ [1.0, 2.0, 3.0]])).inputs is not None


@pytest.mark.parametrize("count", [40, 3], ids=["as they are", "turned"])
def test_the_gradient_of_the_kernel_matrix_is_that_of_the_features(count):
    kernel, X = Constant(1.7) * Linear(0.4) + Constant(0.3), RNG.normal(size=(count, 4))
    basis = ExactFeatures.of(kernel, X)
    assert (basis.inputs is None) == (count == 40)
    weights = RNG.normal(size=(count, count))
    weights = weights + weights.T
    # Σ Gᵢⱼ Kᵢⱼ has the derivative 2 G A in the features A.
    rows = np.asarray(basis(kernel, X).rows)
    theta, _ = basis.pullback(kernel, X, Spanned(2.0 * weights @ rows, np.zeros(count)))
    np.testing.assert_allclose(theta, kernel.pullback(X, weights), rtol=1e-9, atol=1e-9)


def test_a_fit_with_features_is_kept_in_a_file_and_draws_from_the_process(tmp_path):
    X, new = 1e6 * RNG.normal(size=(5, 8)), 1e6 * RNG.normal(size=(3, 8))
    X[4] = X[3] + X[2]  # dependent rows, of more features than rows
    model = cv.GPRegressor("linear", noise=0.1, normalize_y=False, optimize=False).fit(X, np.arange(5.0))
    assert model.approximation_ == "exact, 5 features"
    model.save(tmp_path / "model")
    again = cv.load(tmp_path / "model")
    for own, other in zip(model.predict(new, return_std=True), again.predict(new, return_std=True), strict=True):
        np.testing.assert_array_equal(own, other)
    draws = model.sample_posterior(np.concatenate([new, X[:1]]), 4000, random_state=0)
    mean, deviation = model.predict(np.concatenate([new, X[:1]]), return_std=True)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.06 * deviation.max())
    np.testing.assert_allclose(draws[:3].std(axis=1), deviation[:3], rtol=0.06)
    # At a row that was seen all but the noise is known.
    assert draws[3].std() == pytest.approx(np.sqrt(deviation[3] ** 2 - 0.01), rel=0.06)
