"""Cavities of the kernel form where something is left of the sites of a latent: factors exp(a f) have exact answers.

Their sites are (a, 0): whatever their number, nothing shows of it in the variances.
"""

import dataclasses

import numpy as np
import pytest

import cavity as cv

K = np.array([[1.0, 0.5], [0.5, 2.0]])
SLOPES = np.array([1.0, -0.7])
TILT = cv.factors.from_log_density(lambda f, slope: slope * f)


def leave_one_out(shift, precision, y=0.0):
    """log E exp(aᵢ fᵢ) under the prior times exp(shift·f − ½ precision f²) without the last factor of latent i."""
    found = []
    for i, slope in enumerate(SLOPES):
        covariance = np.linalg.inv(np.linalg.inv(K) + np.diag(precision))
        mean = (covariance @ (shift - slope * np.eye(2)[i]))[i]
        found.append(slope * mean + 0.5 * slope**2 * covariance[i, i])
    return found


@pytest.mark.parametrize("method", [cv.EP(), cv.PowerEP(0.5)], ids=str)
@pytest.mark.parametrize("multiplicity", [None, [2.0, 3.0]])
def test_sites_without_precision_are_deleted_one_copy_or_power_at_a_time(method, multiplicity):
    model = cv.models.latent_gaussian(SLOPES, TILT, kernel_matrix=K, moments=cv.Quadrature(), multiplicity=multiplicity)
    solution = cv.infer(model, method)
    shift = SLOPES * (1.0 if multiplicity is None else np.array(multiplicity))
    assert solution.converged
    np.testing.assert_allclose(solution.mean, K @ shift, atol=1e-7)
    np.testing.assert_allclose(float(solution.log_evidence), 0.5 * shift @ K @ shift, rtol=1e-10)
    np.testing.assert_allclose(solution.loo_log_predictive[0], leave_one_out(shift, np.zeros(2)), atol=1e-7)


def test_a_site_is_deleted_alone_where_another_group_acts_on_the_same_latent():
    y, noise = np.array([0.3, -2.0]), 1e-6
    observed = cv.models.latent_gaussian(y, cv.factors.Gaussian(noise), kernel_matrix=K).problem()
    (group,) = observed.groups
    tilts = cv.SiteGroup(TILT, SLOPES, group.family, cv.Quadrature())
    solution = cv.infer(dataclasses.replace(observed, groups=(group, tilts)), cv.EP())
    covariance = K + noise * np.eye(2)
    gain = K @ np.linalg.inv(covariance)
    mean, spread = gain @ y, K - gain @ K
    exact = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    assert solution.converged
    np.testing.assert_allclose(
        float(solution.log_evidence), exact + SLOPES @ mean + 0.5 * SLOPES @ spread @ SLOPES, rtol=1e-10
    )
    # Without its observation a latent has the prior given the other one, and its slope.
    for i, j in ((0, 1), (1, 0)):
        given = K[j, j] + noise
        other = y[j] + noise * SLOPES[j]
        variance = K[i, i] - K[i, j] ** 2 / given
        predicted = K[i, j] / given * other + variance * SLOPES[i]
        expected = -0.5 * ((y[i] - predicted) ** 2 / (variance + noise) + np.log(2 * np.pi * (variance + noise)))
        np.testing.assert_allclose(solution.loo_log_predictive[0][i], expected, rtol=1e-8)
