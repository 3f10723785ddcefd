"""Bases of a Gaussian process: inducing inputs and random features."""

import jax
import numpy as np
import pytest

from cavity.kernels import RBF, Constant, InducingInputs, Linear, Matern, Polynomial, RandomFeatures, Spanned, White

RNG = np.random.default_rng(5)
X = RNG.normal(size=(12, 3))
Z = RNG.normal(size=(5, 3))


@pytest.mark.parametrize("kernel", [2.0 * RBF([1.0, 0.7, 2.0]), Matern(1.2, 0.5) + Linear(0.3) + White(0.2)])
def test_inducing_inputs_span_the_nystrom_matrix(kernel):
    rows, residual = InducingInputs(Z)(kernel, X)
    inner, cross = np.asarray(kernel(Z)), np.asarray(kernel(X, Z))
    np.testing.assert_allclose(rows @ rows.T, cross @ np.linalg.solve(inner, cross.T), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(residual, np.diag(kernel(X)) - np.sum(np.square(rows), axis=1), atol=1e-12)


def test_a_point_no_inducing_input_reaches_keeps_its_prior_variance():
    rows, residual = InducingInputs(Z)(RBF(0.5), np.full((1, 3), 1e3))
    assert 0 < np.sum(np.square(rows)) <= 1e-19 and residual == pytest.approx([1.0], abs=1e-15)


def test_inducing_inputs_that_repeat_are_no_trouble():
    rows, residual = InducingInputs(np.vstack([Z, Z]))(RBF(1.0), X)
    plain, left = InducingInputs(Z)(RBF(1.0), X)
    np.testing.assert_allclose(rows @ rows.T, plain @ plain.T, atol=1e-8)
    np.testing.assert_allclose(residual, left, atol=1e-8)


@pytest.mark.parametrize("kind", ["inducing", "features"])
def test_pullback_equals_differences(kind):
    kernel = Constant(1.7) * RBF([0.9, 1.4, 1.1]) + Linear(0.4)
    basis = InducingInputs(Z) if kind == "inducing" else RandomFeatures.draw(kernel, 3, 10, jax.random.key(1))
    rows, residual = basis(kernel, X)
    pull = Spanned(RNG.normal(size=rows.shape), RNG.normal(size=residual.shape))

    def total(theta, points):
        found = (InducingInputs(points) if kind == "inducing" else basis)(kernel.with_theta(theta), X)
        return np.sum(pull.rows * np.asarray(found.rows)) + np.sum(pull.residual * np.asarray(found.residual))

    theta, moved = basis.pullback(kernel, X, pull)
    for i, step in enumerate(1e-5 * np.eye(kernel.theta.size)):
        slope = (total(kernel.theta + step, Z) - total(kernel.theta - step, Z)) / 2e-5
        assert theta[i] == pytest.approx(slope, rel=1e-6, abs=1e-7)
    if kind == "inducing":
        for place in [(0, 0), (3, 2)]:
            step = np.zeros_like(Z)
            step[place] = 1e-5
            slope = (total(kernel.theta, Z + step) - total(kernel.theta, Z - step)) / 2e-5
            assert moved.inputs[place] == pytest.approx(slope, rel=1e-6, abs=1e-7)


def root_mean_square_errors(kernel, points, count, draws, make):
    exact = np.asarray(kernel(points))
    errors = []
    for seed in range(draws):
        rows = make(seed, count)
        errors.append(np.mean((rows @ rows.T - exact) ** 2))
    return np.sqrt(np.mean(errors))


@pytest.mark.parametrize("kernel", [RBF(2.0), Matern(2.0, 1.5), Matern(2.0, 0.5)])
def test_the_error_of_the_gram_matrix_falls_with_the_root_of_the_features(kernel):
    """And orthogonal frequencies beat independent ones, which are drawn here by NumPy."""
    points = RNG.normal(size=(20, 8))

    def orthogonal(seed, count):
        return np.asarray(RandomFeatures.draw(kernel, 8, count, jax.random.key(seed))(kernel, points).rows)

    def independent(seed, count):
        rng = np.random.default_rng(seed)
        w = rng.normal(size=(count // 2, 8)) / 2.0
        if isinstance(kernel, Matern):
            w = w / np.sqrt(rng.chisquare(2 * kernel.nu, size=(count // 2, 1)) / (2 * kernel.nu))
        angles = points @ w.T
        return np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(count // 2)

    few, many = (root_mean_square_errors(kernel, points, count, 60, orthogonal) for count in (32, 512))
    assert 2.8 < few / many < 5.7  # √16 = 4
    plain = root_mean_square_errors(kernel, points, 512, 60, independent)
    assert many < 0.97 * plain


def test_features_are_one_draw_whatever_the_length_scale():
    """cos and sin of xᵀw/ℓ: the Gram matrix has the kernel's own diagonal, and theta moves it without a new draw."""
    basis = RandomFeatures.draw(RBF(1.0), 3, 40, jax.random.key(2))
    near, far = (np.asarray(basis(RBF(scale), X).rows) for scale in (0.5, 1e6))
    np.testing.assert_allclose(np.sum(near**2, axis=1), 1.0, rtol=1e-13)
    np.testing.assert_allclose(far @ far.T, np.ones((12, 12)), atol=1e-8)
    again = RandomFeatures.draw(RBF(7.0), 3, 40, jax.random.key(2))
    np.testing.assert_array_equal(again.frequencies[0], basis.frequencies[0])


def test_bad_input_is_refused_in_one_sentence():
    key = jax.random.key(0)
    with pytest.raises(ValueError, match=r"random features need a kernel made of RBF.* found Polynomial"):
        RandomFeatures.draw(RBF() + Polynomial(2), 3, 10, key)
    with pytest.raises(ValueError, match="found Product"):
        RandomFeatures.draw(RBF() * RBF(), 3, 10, key)
    with pytest.raises(ValueError, match="count must be at least 4, two a stationary kernel; found 3"):
        RandomFeatures.draw(RBF() + Matern(), 3, 3, key)
    with pytest.raises(ValueError, match="one array of 2 columns for each of the 1 stationary parts"):
        RandomFeatures.draw(RBF(), 3, 10, key)(RBF(), X[:, :2])
    with pytest.raises(ValueError, match="inputs must have 3 columns, as X has; found 2"):
        InducingInputs(Z[:, :2])(RBF(), X)
    with pytest.raises(ValueError, match="inputs must be finite"):
        InducingInputs(np.full((2, 3), np.nan))(RBF(), X)
