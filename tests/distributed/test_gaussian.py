"""Packed natural parameters against plain linear algebra."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from cavity.distributed import gaussian


def some(seed: int, d: int):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d))
    return rng.normal(size=d), root @ root.T + np.eye(d)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_a_packed_vector_holds_everything_once(d):
    shift, precision = some(0, d)
    vector = gaussian.pack_naturals(shift, precision)
    assert vector.shape == (d + d * (d + 1) // 2,) == (gaussian.packed_size(d),)
    assert gaussian.packed_dimension(vector) == d
    found = gaussian.unpack_naturals(vector)
    np.testing.assert_array_equal(found[0], shift)
    np.testing.assert_array_equal(found[1], precision)


def test_sums_of_packed_vectors_are_products_of_densities():
    (m, P), (k, R) = some(1, 3), some(2, 3)
    product = gaussian.to_moments(gaussian.pack_naturals(P @ m, P) + gaussian.pack_naturals(R @ k, R))
    points = np.random.default_rng(3).normal(size=(4, 3))
    log_product = [
        sum(multivariate_normal(mean, np.linalg.inv(S)).logpdf(x) for mean, S in ((m, P), (k, R))) for x in points
    ]
    log_found = multivariate_normal(product.mean, product.covariance).logpdf(points)
    np.testing.assert_allclose(np.diff(log_product), np.diff(log_found), rtol=1e-9)


def test_the_log_partition_is_the_log_integral():
    shift, precision = some(4, 2)
    # exp(hᵀx − ½ xᵀΛx) = N(x; m, Λ⁻¹) exp(A) (2π)^{d/2}, at any x
    found = gaussian.to_moments(gaussian.pack_naturals(shift, precision))
    x = np.array([0.3, -0.7])
    log_value = shift @ x - 0.5 * x @ precision @ x
    log_density = multivariate_normal(np.linalg.solve(precision, shift), np.linalg.inv(precision)).logpdf(x)
    np.testing.assert_allclose(found.log_partition + np.log(2 * np.pi), log_value - log_density, rtol=1e-12)


def test_moments_and_naturals_are_inverse_to_each_other():
    mean, covariance = some(5, 4)
    found = gaussian.to_moments(gaussian.from_moments(mean, covariance))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9)


def test_an_indefinite_precision_is_improper():
    indefinite = gaussian.pack_naturals(np.zeros(2), np.diag([1.0, -1e-3]))
    assert not gaussian.is_proper(indefinite)
    assert not gaussian.is_proper(np.full(5, np.nan))
    assert gaussian.is_proper(gaussian.pack_naturals(np.zeros(2), np.eye(2)))
    with pytest.raises(ValueError, match="positive definite"):
        gaussian.to_moments(indefinite)
