"""Blocked factors against exact arithmetic: site precisions from nothing to 1e10, in blocks that do not divide n."""

import functools

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from cavity._numerics import blocked

EPSILON = np.finfo(float).eps


def kernel(length_scale, n=11):
    X = np.random.default_rng(1).normal(size=(n, 2))
    return 2.0 * np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1) / length_scale**2)


def exact(k, root):
    """B⁻¹, I − B⁻¹ divided by R on both sides, log |B|: 350 digits, rounded at the end."""
    with mp.workdps(350):
        n = len(root)
        r = mp.diag([mp.mpf(value) for value in root])
        b = mp.eye(n) + r * mp.matrix(k.tolist()) * r
        inverse = b**-1
        scaled = r**-1 * (mp.eye(n) - inverse) * r**-1
        as_array = [np.array([[float(m[i, j]) for j in range(n)] for i in range(n)]) for m in (inverse, scaled)]
        return *as_array, float(mp.log(mp.det(b)))


@functools.partial(jax.jit, static_argnames="width")
def computed(k, root, width):
    """The factor, the inverse, and all of its columns."""
    factor = blocked.blocked_cholesky(k, root, width)
    found = blocked.blocked_inverse(factor, width)
    return factor, found, blocked.symmetric_from_columns(found.columns)


@pytest.mark.parametrize("width", [3, 4, 11])
@pytest.mark.parametrize(
    ("length_scale", "low", "high"), [(1.0, -1, 1), (1.0, -30, -5), (1.0, 2, 5), (1.0, -60, 5), (3.0, 1, 4)]
)
def test_factor_and_inverse(width, length_scale, low, high):
    k = kernel(length_scale)
    root = 10 ** np.random.default_rng(2).uniform(low, high, len(k))
    b = np.eye(len(k)) + root[:, None] * k * root
    inverse, covariance, log_det = exact(k, root)
    factor, found, whole = computed(k, root, width)
    whole = np.asarray(whole)
    allowed = 5 * EPSILON * np.linalg.cond(b)
    size = np.sqrt(np.diagonal(inverse))
    assert np.abs((whole - inverse) / size / size[:, None]).max() <= allowed
    np.testing.assert_allclose(np.asarray(found.diagonal), np.diagonal(inverse), rtol=allowed)
    np.testing.assert_allclose(np.asarray(found.complement) / root**2, np.diagonal(covariance), rtol=allowed)
    # Off the diagonal R divides out however small it is: measured by the posterior deviations.
    scaled = np.where(np.eye(len(k)) > 0, covariance, -whole / root / root[:, None])
    spread = np.sqrt(np.diagonal(covariance))
    assert np.abs((scaled - covariance) / spread / spread[:, None]).max() <= allowed
    assert float(np.sum(np.log1p(np.asarray(factor.excess)))) == pytest.approx(log_det, rel=1e-14, abs=allowed)


def test_symmetric_storage():
    matrix = np.random.default_rng(3).normal(size=(10, 10))
    matrix += matrix.T
    columns = tuple(jnp.asarray(matrix[start:, start : start + 4]) for start in (0, 4, 8))
    index = np.array([7, 2, 9])
    vector = np.arange(10.0)
    np.testing.assert_array_equal(jax.jit(blocked.symmetric_from_columns)(columns), matrix)
    np.testing.assert_array_equal(jax.jit(blocked.some_columns)(columns, index), matrix[:, index])
    expected = (matrix - np.diag(np.diagonal(matrix))) @ vector
    np.testing.assert_allclose(jax.jit(blocked.off_diagonal_product)(columns, vector), expected, rtol=1e-14)


def test_what_is_not_positive_definite_is_not_a_number():
    _, found, _ = computed(-2.0 * np.eye(5), np.ones(5), 2)
    assert not np.isfinite(np.asarray(found.diagonal)).any()
