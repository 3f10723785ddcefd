"""Power EP for classification with kernels: against plain NumPy, at its variational limit, and as once printed."""

import numpy as np
import pytest
from rank_one_ep import cavity_of, posterior_from_sites, powered, powered_step, rank_one_ep, step
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr

import cavity as cv

SIZE, NOISE = 5, 0.2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(SIZE, 2))
K = 4.0 * np.exp(-0.5 * np.sum((X[:, None] - X[None]) ** 2, axis=2))
Y = np.where(RNG.random(SIZE) < 0.5, 1.0, -1.0)


def infer(likelihood, method):
    return cv.infer(cv.models.latent_gaussian(Y, likelihood, kernel_matrix=K), method)


def gap(first, mean, variance):
    """The largest difference of means, in standard deviations, and of log variances."""
    return max(np.max(np.abs(first.mean - mean) / np.sqrt(variance)), np.max(np.abs(np.log(first.variance / variance))))


def test_power_one_is_ep():
    powered_one, ep = infer(cv.factors.Step(NOISE), cv.PowerEP(1.0, tol=1e-11)), rank_one_ep(K, step(Y, NOISE))
    assert powered_one.converged and ep.converged
    np.testing.assert_allclose(powered_one.sites[0], np.stack([ep.nu, ep.tau], axis=1), atol=1e-8)
    assert powered_one.log_evidence == pytest.approx(ep.log_evidence, abs=1e-8)


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_powered_deletion_scaling_and_evidence(power):
    plain = rank_one_ep(K, powered_step(Y, NOISE, power), tol=1e-12, power=power)
    found = infer(cv.factors.Step(NOISE), cv.PowerEP(power, tol=1e-11))
    assert plain.converged and found.converged
    np.testing.assert_allclose(found.sites[0], np.stack([plain.nu, plain.tau], axis=1), atol=1e-8)
    np.testing.assert_allclose(found.covariance, plain.covariance, atol=1e-8)
    assert found.log_evidence == pytest.approx(plain.log_evidence, abs=1e-8)
    ep = rank_one_ep(K, step(Y, NOISE))
    assert gap(found, ep.mean, ep.variance) > 0.01 and abs(found.log_evidence - ep.log_evidence) > 0.05


def printed_power_ep(power, sweeps=200):
    """(5.64)–(5.74) with (41) and (42) of the appendix: the whole site is deleted; m, v and the change of a sweep."""
    m, precision = np.zeros(SIZE), np.zeros(SIZE)
    low, high = NOISE**power, (1 - NOISE) ** power
    change = np.inf
    for _ in range(sweeps):
        before = precision.copy()
        for i in range(SIZE):
            A, h = posterior_from_sites(K, m * precision, precision)
            centre, spread = cavity_of(h[i], A[i, i], m[i] * precision[i], precision[i])  # (5.64), (5.74)
            z = Y[i] * centre / np.sqrt(spread)
            density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
            alpha = Y[i] / np.sqrt(spread) * (high - low) * density / (low + (high - low) * ndtr(z))  # (41)
            v = spread * (1 / (alpha * (centre + spread * alpha)) - 1)  # (5.69)
            m[i] = centre + (v + spread) * alpha  # (5.70)
            precision[i] = 1 / (power * v)  # (42)
        change = np.max(np.abs(precision - before))
    return m, precision, change


def power_mismatch(nu, tau, power):
    """How far q is from the moments of term^u × q / site^u."""
    A, h = posterior_from_sites(K, nu, tau)
    largest = 0.0
    for i in range(SIZE):
        mean, variance = cavity_of(h[i], A[i, i], power * nu[i], power * tau[i])
        _, d1, d2 = powered_step(Y, NOISE, power)(i, mean, variance)
        shift = abs(mean + variance * d1 - h[i]) / np.sqrt(A[i, i])
        largest = max(largest, shift, abs(np.log((variance + variance**2 * d2) / A[i, i])))
    return largest


def test_the_printed_appendix_has_another_fixed_point():
    """It is EP at u = 1. At u = 0.8 and 0.5 it settles where Power EP's moments do not agree."""
    ep = rank_one_ep(K, step(Y, NOISE))
    m, precision, change = printed_power_ep(1.0)
    assert change < 1e-12
    np.testing.assert_allclose(precision, ep.tau, atol=1e-9)
    for power, least in ((0.8, 0.01), (0.5, 0.02)):
        m, precision, change = printed_power_ep(power)
        assert change < 1e-12
        right = rank_one_ep(K, powered_step(Y, NOISE, power), tol=1e-12, power=power)
        assert power_mismatch(right.nu, right.tau, power) < 1e-10
        assert power_mismatch(m * precision, precision, power) > least
        A, h = posterior_from_sites(K, m * precision, precision)
        assert gap(right, h, np.diag(A)) > least


TERMS = {
    "probit": (cv.factors.Probit(), lambda i, f: log_ndtr(Y[i] * f)),
    "logistic": (cv.factors.Logistic(), lambda i, f: -np.logaddexp(0.0, -Y[i] * f)),
    "step": (cv.factors.Step(NOISE), None),
}


def plain_power_ep(name, power):
    moments = powered_step(Y, NOISE, power) if name == "step" else powered(TERMS[name][1], power)
    return rank_one_ep(K, moments, tol=1e-10, max_sweeps=2000, power=power)


def variational(name):
    """(mean, variance, bound) of the Gaussian nearest in KL(q ‖ p): the bound over α and site precisions, maximised."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    inverse = np.linalg.inv(K)

    def expected(i, mean, sd):
        if name == "step":  # ∫ q log t has two levels
            return np.log(NOISE) + np.log((1 - NOISE) / NOISE) * ndtr(Y[i] * mean / sd)
        return weights @ TERMS[name][1](i, mean + sd * nodes) / weights.sum()

    def parts(point):
        return K @ point[:SIZE], np.linalg.inv(inverse + np.diag(point[SIZE:]))

    def cost(point):
        mean, covariance = parts(point)
        sd = np.sqrt(np.diag(covariance))
        fit = sum(expected(i, mean[i], sd[i]) for i in range(SIZE))
        log_dets = np.linalg.slogdet(K)[1] - np.linalg.slogdet(covariance)[1]
        return 0.5 * (mean @ inverse @ mean + np.trace(inverse @ covariance) - SIZE + log_dets) - fit

    found = minimize(cost, np.concatenate([0.1 * Y, np.full(SIZE, 0.2)]), method="BFGS", options={"gtol": 1e-7})
    assert np.max(np.abs(found.jac)) < 1e-6
    mean, covariance = parts(found.x)
    return mean, np.diag(covariance), -found.fun


@pytest.mark.parametrize("name", TERMS)
def test_small_powers_approach_the_variational_gaussian(name):
    """The error is of first order in the power, and of second order when extrapolated from two powers."""
    mean, variance, bound = variational(name)
    runs = [plain_power_ep(name, power) for power in (0.4, 0.2, 0.1)]
    assert all(run.converged for run in runs)
    errors = np.array([gap(run, mean, variance) for run in runs])
    np.testing.assert_allclose(errors[1:] / errors[:-1], 0.5, atol=0.06)
    gaps = np.array([run.log_evidence - bound for run in runs])
    assert np.all(gaps > 0)
    np.testing.assert_allclose(gaps[1:] / gaps[:-1], 0.5, atol=0.06)
    at = np.array(
        [np.concatenate([(run.mean - mean) / np.sqrt(variance), np.log(run.variance / variance)]) for run in runs]
    )
    extrapolated = np.max(np.abs(2 * at[1:] - at[:-1]), axis=1)
    assert extrapolated[1] < 0.3 * extrapolated[0] and extrapolated[1] < 0.1 * errors[2]
    found = infer(TERMS[name][0], cv.PowerEP(0.1, max_sweeps=3000, tol=1e-10))
    assert found.converged
    np.testing.assert_allclose(found.mean, runs[2].mean, atol=1e-7)
    assert found.log_evidence == pytest.approx(runs[2].log_evidence, abs=1e-7)


def test_a_step_without_label_noise_has_no_variational_limit():
    """t^u = t: no bound exists (log 0), sites grow without end, the evidence falls by as much at every halving."""
    evidence = [rank_one_ep(K, step(Y), tol=1e-9, max_sweeps=3000, power=power) for power in (0.4, 0.2, 0.1)]
    falls = -np.diff([run.log_evidence for run in evidence])
    assert np.all(falls > 0.3)
    assert np.all(np.diff([run.tau.max() for run in evidence]) > 1.0)
    found = infer(cv.factors.Step(), cv.PowerEP(0.1, max_sweeps=3000, tol=1e-10))
    assert found.log_evidence == pytest.approx(evidence[2].log_evidence, abs=1e-6)
