"""The energy against its formula written out in NumPy with sums and integrals, and its slopes against differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln, log_ndtr, polygamma
from support import draw_clutter, normal

import cavity as cv
from cavity.inference.energy import energy

GRID = np.linspace(-60.0, 60.0, 60_001)
LOGIT = np.linspace(-60.0, 60.0, 20_001)


def gaussian_partition(eta):
    return 0.5 * (eta[0] ** 2 / eta[1] - np.log(eta[1]) + np.log(2 * np.pi))


def dirichlet_partition(shapes):
    return np.sum(gammaln(shapes)) - gammaln(np.sum(shapes))


def grid_sum(log_density, eta):
    """log ∫ t exp(nu x − tau x²/2) dx for log t on the grid."""
    logs = log_density + eta[0] * GRID - 0.5 * eta[1] * GRID**2
    return np.log(np.sum(np.exp(logs - logs.max())) * (GRID[1] - GRID[0])) + logs.max()


class Clutter:
    """Three points, one of them twice, of one location."""

    x, multiplicity, slots = np.array([0.5, 2.2, -3.0]), np.array([2.0, 1.0, 1.0]), [0, 1]

    def problem(self):
        return cv.models.posterior(cv.factors.Clutter(0.4, 10.0), self.x, 0.0, 25.0, multiplicity=self.multiplicity)

    def parts(self, sites, power):
        total = np.array([0.0, 1 / 25.0]) + self.multiplicity @ sites
        terms = [np.log(0.6 * normal(x, GRID, 1.0) + 0.4 * normal(x, 0.0, 10.0)) for x in self.x]
        tilts = [lambda c, term=term: grid_sum(power * term, c) for term in terms]
        return gaussian_partition(total) - gaussian_partition(np.array([0.0, 0.04])), gaussian_partition, tilts


class Process:
    """Noisy probit labels of four dependent latents, one of them twice and one not at all."""

    y, multiplicity, slots = np.array([1.0, -1.0, 1.0, 1.0]), np.array([1.0, 2.0, 1.0, 0.0]), [0, 1]
    K = 2.0 * np.exp(-0.5 * np.subtract.outer([0.0, 0.4, 1.5, 1.9], [0.0, 0.4, 1.5, 1.9]) ** 2)

    def problem(self):
        likelihood = cv.factors.Probit(0.1)
        return cv.models.latent_gaussian(
            self.y, likelihood, kernel_matrix=self.K, multiplicity=self.multiplicity
        ).problem()

    def parts(self, sites, power):
        nu, tau = (self.multiplicity[:, None] * sites).T
        covariance = np.linalg.inv(np.linalg.inv(self.K) + np.diag(tau))
        value = 0.5 * nu @ covariance @ nu - 0.5 * np.linalg.slogdet(np.eye(4) + self.K * tau)[1]
        terms = [np.log(0.1 + 0.8 * np.exp(log_ndtr(y * GRID))) for y in self.y]
        return value, gaussian_partition, [lambda c, term=term: grid_sum(power * term, c) for term in terms]


class Weights:
    """The weight of one of two components: a Beta distribution, integrated over log odds."""

    densities, multiplicity, slots = np.array([[0.4, 2.0], [1.5, 0.3], [0.8, 0.9]]), np.ones(3), [0, 1]

    def problem(self):
        return cv.models.mixture_weights(self.densities, prior=[1.5, 2.0])

    def parts(self, sites, power):
        prior = np.array([1.5, 2.0])
        log_w = np.stack([-np.logaddexp(0.0, -LOGIT), -np.logaddexp(0.0, LOGIT)])

        def tilt(c, row):
            logs = power * np.log(row @ np.exp(log_w)) + c @ log_w  # dw = w (1 − w) d logit
            return np.log(np.sum(np.exp(logs)) * (LOGIT[1] - LOGIT[0]))

        tilts = [lambda c, row=row: tilt(c, row) for row in self.densities]
        total = dirichlet_partition(prior + sites.sum(axis=0)) - dirichlet_partition(prior)
        return total, dirichlet_partition, tilts


class Tables:
    """Two dependent discrete variables held as independent ones; sites have log weights and counts of zeros."""

    tables = np.random.default_rng(0).uniform(0.1, 2.0, (3, 2, 3))
    multiplicity, slots = np.ones(3), [0, 1, 4, 5, 6]
    family = cv.families.Product((cv.families.Categorical(2), cv.families.Categorical(3)))

    def problem(self):
        factor = cv.factors.from_log_density(lambda x, table: jnp.log(table[x[0], x[1]]))
        return cv.models.posterior(factor, self.tables, prior=(self.family, np.zeros(10)), moments=cv.Enumeration())

    def parts(self, sites, power):
        def joint(eta):
            return eta[0:2, None] + eta[4:7]

        def partition(eta):
            return np.log(np.sum(np.exp(joint(eta))))

        tilts = [lambda c, t=t: np.log(np.sum(t**power * np.exp(joint(c)))) for t in self.tables]
        return partition(sites.sum(axis=0)) - np.log(6), partition, tilts


CASES = [(Clutter(), 0.5), (Process(), 1.0), (Weights(), 1.0), (Tables(), 0.5)]
FIXED_POINTS = [(Clutter(), 1.0), (Process(), 1.0), (Weights(), 1.0), (Tables(), 0.5)]


def name(value):
    return str(value) if isinstance(value, float) else type(value).__name__


def by_hand(case, sites, gamma, power):
    """E(eta, gamma) as in the formula; weights of 0 leave their term out."""
    total, partition, tilts = case.parts(sites, power)
    terms = [
        weight / power * (tilt(own - power * site) - partition(own))
        for weight, tilt, own, site in zip(case.multiplicity, tilts, gamma, sites, strict=True)
        if weight > 0
    ]
    return -total - np.sum(terms)


def slopes(function, at, slots, step=1e-5):
    """Central differences in the given columns, one row a site."""
    found = np.zeros((len(at), len(slots)))
    for row in range(len(at)):
        for column, slot in enumerate(slots):
            moved = np.zeros_like(at)
            moved[row, slot] = step
            found[row, column] = (function(at + moved) - function(at - moved)) / (2 * step)
    return found


@pytest.mark.parametrize(("case", "power"), CASES, ids=name)
def test_energy_and_slopes_at_any_state(case, power):
    """Sites and marginals drawn at random, each cavity proper: value and both gradients."""
    rng, size = np.random.default_rng(1), (len(case.multiplicity), 2 if len(case.slots) == 2 else 10)
    sites, gamma = np.zeros(size), np.zeros(size)
    sites[:, case.slots] = rng.uniform(0.05, 0.15, (size[0], len(case.slots)))
    gamma[:, case.slots] = rng.uniform(0.5, 1.5, (size[0], len(case.slots)))
    found = energy(case.problem(), (sites,), (gamma,), power=power)
    assert float(found.value) == pytest.approx(by_hand(case, sites, gamma, power), rel=1e-9)
    by_sites = slopes(lambda moved: by_hand(case, moved, gamma, power), sites, case.slots)
    by_marginals = slopes(lambda moved: by_hand(case, sites, moved, power), gamma, case.slots)
    assert np.abs(by_sites).max() > 1e-2 and np.abs(by_marginals).max() > 1e-2
    np.testing.assert_allclose(found.gradient_sites[0], by_sites, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.gradient_marginals[0], by_marginals, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("case", "power"), FIXED_POINTS, ids=name)
def test_a_fixed_point_is_stationary(case, power):
    """The value is −log evidence, and no slope is longer than the tolerance of the run allows (multiplicities ≤ 2)."""
    solution = cv.infer(case.problem(), cv.PowerEP(power, tol=1e-9))
    found = solution.energy()
    assert solution.converged and solution.power == power
    assert found.value == pytest.approx(-solution.log_evidence, rel=1e-9)
    assert found.norm <= 2 * np.sqrt(1.5) * 1e-9
    assert np.abs(found.gradient_sites[0]).max() < 1e-7


def test_the_norm_is_the_gradient_in_units_of_the_statistics_spread():
    """√(gᵀ C⁻¹ g) near a fixed point, C written out: (x, −x²/2) of a Gaussian and log w of a Dirichlet."""
    problem = cv.models.clutter(draw_clutter(4, 20))
    solution = cv.infer(problem, cv.EP(tol=1e-12))
    found = energy(problem, (solution.sites[0] + 1e-5,))
    total = np.asarray(problem.prior) + np.sum(solution.sites[0] + 1e-5, axis=0)
    m, v = total[0] / total[1], 1 / total[1]
    spread = np.array([[v, -m * v], [-m * v, m * m * v + 0.5 * v * v]])
    lengths = [np.sqrt(g @ np.linalg.solve(spread, g)) for g in np.asarray(found.gradient_sites[0])]
    assert float(found.norm) == pytest.approx(max(lengths), rel=1e-3) and max(lengths) > 1e-6

    problem = Weights().problem()
    solution = cv.infer(problem, cv.PowerEP(1.0, tol=1e-12))
    sites = solution.sites[0] + 1e-5 * np.array([1.0, -0.5])
    found = energy(problem, (sites,))
    shapes = np.array([1.5, 2.0]) + sites.sum(axis=0)
    spread = np.diag(polygamma(1, shapes)) - polygamma(1, shapes.sum())
    lengths = [np.sqrt(g @ np.linalg.solve(spread, g)) for g in np.asarray(found.gradient_sites[0])]
    assert float(found.norm) == pytest.approx(max(lengths), rel=1e-3) and max(lengths) > 1e-6


def test_states_that_are_no_fixed_points_say_so():
    problem = cv.models.clutter(draw_clutter(0, 20))
    one_sweep, restricted = cv.infer(problem, cv.EP(max_sweeps=1)), cv.infer(problem, cv.RestrictedEP())
    assert one_sweep.energy().norm > 1e-2
    assert restricted.status == "converged_restricted" and restricted.energy().norm > 1e-3
    improper = energy(problem, (np.array([[0.0, 1.0], *[[0.0, -0.05]] * 19]),))
    assert np.isnan(improper.value) and np.isinf(improper.norm) and np.isnan(improper.gradient_sites[0][0]).all()


def test_two_groups_and_a_stack_of_solutions():
    clutter = cv.models.clutter(draw_clutter(8, 20))
    bound = cv.models.truncation(0.0, 100.0, lower=1.5)
    both = cv.infer(cv.Problem(clutter.prior, clutter.groups + bound.groups, clutter.posterior))
    found = both.energy()
    assert both.converged and found.value == pytest.approx(-both.log_evidence, rel=1e-9) and found.norm < 1e-7
    assert [own.shape for own in found.gradient_sites] == [(20, 2), (1, 2)]

    sets = np.stack([draw_clutter(seed, 20) for seed in (1, 2, 3)])
    stacked = jax.vmap(lambda x: cv.infer(cv.models.clutter(x)))(sets)
    alone = [cv.infer(cv.models.clutter(x)).energy() for x in sets]
    np.testing.assert_allclose(stacked.energy().value, [each.value for each in alone], rtol=1e-12)
