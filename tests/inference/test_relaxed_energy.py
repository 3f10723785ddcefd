"""The relaxed energies against sums over a grid of two latents, and at fixed points of a plain relaxed EP."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

import cavity as cv
from cavity.inference.relaxed_energy import relaxed_dual, relaxed_primal

NOISE, C = 0.1, 0.01
LABELS = np.array([1.0, -1.0])
K = np.array([[4.0, 3.0], [3.0, 5.0]])
PROBLEM = cv.models.latent_gaussian(LABELS, cv.factors.Probit(NOISE), kernel_matrix=K).problem()

LINE = np.linspace(-16.0, 16.0, 401)


def log_likelihood(f, label):
    return np.log(NOISE + (1 - 2 * NOISE) * ndtr(label * f))


def print_penalty(eta, c):
    """c |eta|₁ for the features (x, x²) of print."""
    return c * np.sum(np.abs(eta) @ [1.0, 0.5])


class Grid:
    """Two latents on a grid; densities are arrays, integrals are sums."""

    def __init__(self):
        axis = np.linspace(-22.0, 22.0, 441)
        self.latents = np.meshgrid(axis, axis, indexing="ij")
        self.cell = (axis[1] - axis[0]) ** 2
        inverse = np.linalg.inv(K)
        square = sum(inverse[i, j] * self.latents[i] * self.latents[j] for i in range(2) for j in range(2))
        self.prior = np.exp(-0.5 * square) / (2 * np.pi * np.sqrt(np.linalg.det(K)))
        self.terms = [np.exp(log_likelihood(f, y)) for f, y in zip(self.latents, LABELS, strict=True)]

    def exponential(self, naturals):
        """exp(Σ nuⱼ fⱼ − tauⱼ fⱼ²/2), given (nuⱼ, tauⱼ) for some latents j."""
        return np.exp(sum(eta[0] * self.latents[j] - 0.5 * eta[1] * self.latents[j] ** 2 for j, eta in naturals))

    def integral(self, values):
        return np.sum(values) * self.cell

    def dual(self, sites, eta, c):
        """(25): every relaxed q-term, less one that is not relaxed."""
        q = self.prior * self.exponential(enumerate(sites))
        value = -np.log(self.integral(q)) + print_penalty(eta, c)
        for i in range(2):
            r = self.exponential([(i, eta[i])])
            cavity = self.prior * self.exponential([(1 - i, sites[1 - i])])
            value += np.log(self.integral(q * r)) - np.log(self.integral(self.terms[i] * cavity * r))
        return value

    def averaged_dual(self, sites, eta):
        """(25) without penalty in the other reading: the q-terms averaged, (n − 1)/n each."""
        without = self.dual(sites, eta, 0.0)
        q = self.prior * self.exponential(enumerate(sites))
        relaxed = sum(np.log(self.integral(q * self.exponential([(i, eta[i])]))) for i in range(2))
        return without + np.log(self.integral(q)) - 0.5 * relaxed

    def primal(self, sites, eta, c):
        """(6) from normalised densities, its integrals as they are printed; the q-terms read as in the dual."""
        q = self.prior * self.exponential(enumerate(sites))
        q = q / self.integral(q)
        value = self.integral(q * np.log(q / self.prior)) + print_penalty(eta, c)
        for i in range(2):
            r = self.exponential([(i, eta[i])])
            tilted = self.terms[i] * self.prior * self.exponential([(1 - i, sites[1 - i])])
            tilted = tilted / self.integral(tilted)
            z, z_q = self.integral(tilted * r), self.integral(q * r)
            value += self.integral(tilted * r * np.log(tilted / (z * self.terms[i] * self.prior))) / z
            value -= self.integral(q * r * np.log(q / (z_q * self.prior))) / z_q
        return value


def slopes(function, at, step=1e-4):
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        moved = np.zeros_like(at)
        moved[place] = step
        found[place] = (function(at + moved) - function(at - moved)) / (2 * step)
    return found


@pytest.mark.parametrize("energy", [relaxed_dual, relaxed_primal])
def test_values_and_slopes_against_sums_over_a_grid(energy):
    """At arbitrary sites, one of them negative, and arbitrary relaxations."""
    sites, strengths, means = np.array([[0.5, 0.3], [-0.4, -0.05]]), np.array([0.2, 0.1]), np.array([1.5, -2.0])
    eta, grid = np.stack([strengths * means, strengths], axis=1), Grid()
    by_sums = grid.dual if energy is relaxed_dual else grid.primal
    found = energy(PROBLEM, sites, strengths, means, C)
    assert float(found.value) == pytest.approx(by_sums(sites, eta, C), abs=1e-10)
    np.testing.assert_allclose(
        found.gradient_sites, slopes(lambda moved: by_sums(moved, eta, C), sites), rtol=1e-5, atol=1e-7
    )
    np.testing.assert_allclose(
        found.gradient_relaxations, slopes(lambda moved: by_sums(sites, moved, 0.0), eta), rtol=1e-5, atol=1e-7
    )


def tilted(label, cavity):
    """(log ∫ t exp(cavity·T), mean, variance, E[log t]) by a sum."""
    logs = log_likelihood(LINE, label) + cavity[0] * LINE - 0.5 * cavity[1] * LINE**2
    mass = np.exp(logs - logs.max())
    total = mass.sum()
    mean = mass @ LINE / total
    expected = mass @ log_likelihood(LINE, label) / total
    return np.log(total * (LINE[1] - LINE[0])) + logs.max(), mean, mass @ (LINE - mean) ** 2 / total, expected


def relaxed_ep(c, searching=40, settling=100):
    """Relaxed EP of the two latents: b by a search about its last value, then b held until the sites stand still."""
    sites, b = np.zeros((2, 2)), np.zeros(2)
    for sweep in range(searching + settling):
        for i in range(2):
            mean, variance = moments_of_q(sites)
            cavity = np.array([mean[i], 1.0]) / variance[i] - sites[i]
            site_mean = sites[i, 0] / sites[i, 1] if sites[i, 1] != 0 else 0.0

            def cost(strength, i=i, cavity=cavity, m=site_mean):
                nu, tau = relaxed = cavity + strength * np.array([m, 1.0])
                log_z, mean, variance, expected = tilted(LABELS[i], relaxed)
                # KL to the moment match: E[log t + relaxed·T] − log ∫ + ½ log(2πe v).
                linear = nu * mean - 0.5 * tau * (variance + mean**2)
                kl = expected + linear - log_z + 0.5 * np.log(2 * np.pi * np.e * variance)
                return kl + c * (0.5 * strength / cavity[1] + abs(strength * m) / np.sqrt(cavity[1]))

            if sweep < searching and sites[i, 1] != 0:
                bounds = (0.0, max(2 * b[i], 0.5 * cavity[1]))
                search = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-7})
                b[i] = search.x if search.fun < cost(0.0) else 0.0
            relaxed = cavity + b[i] * np.array([site_mean, 1.0])
            _, mean_i, variance_i, _ = tilted(LABELS[i], relaxed)
            sites[i] = np.array([mean_i, 1.0]) / variance_i - relaxed
    return sites, b


def moments_of_q(sites):
    covariance = np.linalg.inv(np.linalg.inv(K) + np.diag(sites[:, 1]))
    return covariance @ sites[:, 0], np.diag(covariance)


def statistics(mean, variance):
    return np.stack([mean, -0.5 * (variance + mean**2)], axis=1)


def test_a_relaxed_fixed_point_is_not_stationary():
    """The claim under (7) is that zero gradients of (25) are the fixed points. Stationary is the part in eta alone.

    In eta the slope vanishes without its penalty, so that with it c (1, ½) is left; in the sites the slope is what the
    relaxation moves q's moments by; and primal and dual differ.
    """
    sites, b = relaxed_ep(C)
    assert np.all(b > 0.05)
    library = cv.infer(PROBLEM, cv.RelaxedEP(C))
    assert library.status == "converged_relaxed"
    np.testing.assert_allclose(library.strengths[0], b, rtol=1e-4)
    np.testing.assert_allclose(library.sites[0], sites, rtol=1e-4)
    means = sites[:, 0] / sites[:, 1]
    dual, primal = relaxed_dual(PROBLEM, sites, b, means, C), relaxed_primal(PROBLEM, sites, b, means, C)
    assert np.abs(dual.gradient_relaxations).max() < 1e-8
    mean, variance = moments_of_q(sites)
    precision = 1 / variance + b
    relaxed_mean = (mean / variance + b * means) / precision
    moved = statistics(relaxed_mean, 1 / precision) - statistics(mean, variance)
    np.testing.assert_allclose(dual.gradient_sites, moved, atol=1e-8)
    assert np.abs(dual.gradient_sites).max() > 0.1
    assert abs(float(primal.value - dual.value) + np.sum(sites * moved)) < 1e-8
    assert abs(float(primal.value - dual.value)) > 0.01
    # The other reading of print: the slope in eta does not even vanish without the penalty.
    eta, grid = np.stack([b * means, b], axis=1), Grid()
    averaged = slopes(lambda moved: grid.averaged_dual(sites, moved), eta)
    np.testing.assert_allclose(averaged, -0.5 * statistics(relaxed_mean, 1 / precision), atol=1e-7)
    assert np.abs(averaged).max() > 0.1


def test_nor_is_one_whose_relaxation_is_a_scaled_message():
    """(18) of the separate appendix, ηᵢ = η τᵢ; where it acts, the dual has a slope in the sites."""
    found = cv.infer(PROBLEM, cv.RelaxedEP(C, form="message", tol=1e-10))
    assert found.status == "converged_relaxed" and np.all(found.strengths[0] > 0.01)
    nu, tau = found.sites[0].T
    dual = relaxed_dual(PROBLEM, found.sites[0], found.strengths[0] * tau, nu / tau, C)
    assert np.abs(dual.gradient_relaxations).max() < 1e-6
    assert np.abs(dual.gradient_sites).max() > 0.05


def test_without_relaxation_it_is_the_energy_of_ep():
    """A penalty too dear to relax leaves EP's fixed point, stationary in the sites, where both energies agree."""
    solution = cv.infer(PROBLEM, cv.EP(tol=1e-11))
    sites, b = relaxed_ep(1.0, searching=5, settling=40)
    assert np.all(b == 0.0)
    np.testing.assert_allclose(sites, solution.sites[0], atol=1e-9)
    for energy in (relaxed_dual, relaxed_primal):
        found = energy(PROBLEM, solution.sites[0], np.zeros(2), np.zeros(2), 1.0)
        assert float(found.value) == pytest.approx(-solution.log_evidence, abs=1e-9)
        if energy is relaxed_dual:
            assert np.abs(found.gradient_sites).max() < 1e-9


def test_what_has_no_relaxed_energy_is_refused():
    with pytest.raises(TypeError, match="scalar Gaussian"):
        relaxed_dual(cv.models.mixture_weights(np.ones((3, 2))), np.zeros((3, 2)), np.zeros(3), np.zeros(3), C)
    with pytest.raises(ValueError, match="shapes"):
        relaxed_dual(PROBLEM, np.zeros((3, 2)), np.zeros(3), np.zeros(3), C)
