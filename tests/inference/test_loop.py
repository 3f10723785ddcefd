"""The loop against independent recomputations: the thesis's printed updates, exact answers, limit cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import draw_clutter, normal

import cavity as cv


def thesis_ep(x, sweeps, w=0.5, prior_variance=100.0):
    """Equations (3.43)–(3.62) as printed, in means and variances, with nothing shared with the library."""
    n = len(x)
    precision, mean, scale = np.zeros(n), np.zeros(n), np.ones(n)
    m, v = 0.0, prior_variance
    log_zs = []
    for _ in range(sweeps):
        for i in range(n):
            v_old = 1.0 / (1.0 / v - precision[i])
            m_old = m + v_old * precision[i] * (m - mean[i])
            signal = (1 - w) * normal(x[i], m_old, v_old + 1)
            z = signal + w * normal(x[i], 0.0, 10.0)
            r = signal / z
            m = m_old + v_old * r * (x[i] - m_old) / (v_old + 1)
            v = v_old - r * v_old**2 / (v_old + 1) + r * (1 - r) * v_old**2 * (x[i] - m_old) ** 2 / (v_old + 1) ** 2
            precision[i] = 1.0 / v - 1.0 / v_old
            v_i = 1.0 / precision[i]
            mean[i] = m_old + (v_i + v_old) / v_old * (m - m_old)
            # s_i = Z / (√(2π v_i) N(m_i; m, v_i + v)), squared under the root so that negative v_i pass (3.59).
            total = v_i + v_old
            scale[i] = z * np.sqrt(total / v_i) * np.exp(0.5 * (mean[i] - m_old) ** 2 / total)
            log_zs.append(np.log(z))
    b = m**2 / v - np.sum(mean**2 * precision)
    evidence = 0.5 * np.log(v / prior_variance) + 0.5 * b + np.sum(np.log(scale))
    return m, v, evidence, log_zs


@pytest.mark.parametrize("n", [5, 20, 60])
def test_adf_is_one_pass_of_the_printed_updates(n):
    x = draw_clutter(n, n)
    mean, variance, evidence, log_zs = thesis_ep(x, sweeps=1)
    adf = cv.infer(cv.models.clutter(x), cv.ADF())
    np.testing.assert_allclose([adf.mean, adf.covariance], [mean, variance], rtol=1e-12)
    np.testing.assert_allclose(adf.log_evidence, np.sum(log_zs), rtol=1e-12)
    np.testing.assert_allclose(evidence, np.sum(log_zs), rtol=1e-9)
    assert adf.status == "single_pass" and not adf.converged


def test_one_sweep_of_ep_from_flat_sites_is_adf():
    problem = cv.models.clutter(draw_clutter(3, 30))
    adf, ep = cv.infer(problem, cv.ADF()), cv.infer(problem, cv.EP(max_sweeps=1))
    np.testing.assert_allclose(ep.sites[0], adf.sites[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(ep.log_evidence, adf.log_evidence, rtol=1e-12)
    assert ep.status == "max_sweeps"


def test_ep_is_the_printed_algorithm_at_convergence():
    x = draw_clutter(11, 20)
    mean, variance, evidence, _ = thesis_ep(x, sweeps=60)
    ep = cv.infer(cv.models.clutter(x), cv.EP(tol=1e-12))
    assert ep.converged
    np.testing.assert_allclose([ep.mean, ep.covariance, ep.log_evidence], [mean, variance, evidence], rtol=1e-9)


METHODS = [cv.ADF(), cv.EP(), cv.EP(schedule=cv.Parallel()), cv.PowerEP(0.5), cv.RestrictedEP(), cv.EP(damping=0.5)]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.name}-{type(m.schedule).__name__}-{m.damping}")
def test_gaussian_factors_are_exact(method):
    y = np.array([1.0, -2.0, 0.5, 3.0, 10.0])
    problem = cv.models.posterior(cv.factors.Gaussian(variance=2.5), y, prior_mean=-1.0, prior_variance=4.0)
    solution = cv.infer(problem, method)
    precision = 1 / 4.0 + 5 / 2.5
    mean = (-1.0 / 4.0 + y.sum() / 2.5) / precision
    covariance = 2.5 * np.eye(5) + 4.0
    gap = y + 1.0
    evidence = -0.5 * (gap @ np.linalg.solve(covariance, gap) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    # A damped run stops within its tolerance of the fixed point, the others are there after one visit.
    rtol = 1e-12 if method.damping == 1.0 else 1e-7
    np.testing.assert_allclose([solution.mean, solution.covariance], [mean, 1 / precision], rtol=rtol)
    np.testing.assert_allclose(solution.log_evidence, evidence, rtol=rtol)
    assert solution.status == "converged"


@pytest.mark.parametrize("method", [cv.EP(tol=1e-12), cv.PowerEP(0.5, tol=1e-12)], ids=lambda m: m.name)
def test_multiplicity_three_equals_three_equal_factors(method):
    x = np.array([0.5, 2.2, 1.4])
    factor = cv.factors.Clutter(w=0.3, clutter_variance=10.0)
    merged = cv.models.posterior(factor, x, 0.0, 25.0, multiplicity=np.array([3.0, 1.0, 2.0]))
    repeated = cv.models.posterior(factor, np.repeat(x, [3, 1, 2]), 0.0, 25.0)
    a, b = cv.infer(merged, method), cv.infer(repeated, method)
    assert a.converged and b.converged
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-10)
    np.testing.assert_allclose(a.covariance, b.covariance, rtol=1e-10)
    np.testing.assert_allclose(a.log_evidence, b.log_evidence, rtol=1e-10)


@pytest.mark.parametrize("factor", [cv.factors.Probit(), cv.factors.Logistic(), cv.factors.Gaussian(0.3)])
@pytest.mark.parametrize("copies", [1, 3, 1000])
def test_copies_converge_as_fast_as_single_factors(factor, copies):
    """The copies of a site share no more of a step than what their answers to each other ask for."""
    x = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0])
    K = np.exp(-0.5 * (np.arange(6)[:, None] - np.arange(6)) ** 2)
    found = cv.infer(cv.models.latent_gaussian(x, factor, kernel_matrix=K, multiplicity=np.full(6, float(copies))))
    assert found.status == "converged" and found.sweeps <= (45 if copies > 3 else 20)


def test_a_gaussian_that_counts_a_million_times():
    """Against the closed form; the copies move together in a few sweeps."""
    problem = cv.models.latent_gaussian(
        np.array([2.0]), cv.factors.Gaussian(1.0), kernel_matrix=np.array([[1.0]]), multiplicity=np.array([1e6])
    )
    found = cv.infer(problem)
    assert found.status == "converged" and found.sweeps <= 20
    np.testing.assert_allclose(found.mean, 2e6 / (1e6 + 1), rtol=1e-9)


def test_no_factor_is_integrated_against_an_improper_cavity_on_the_way_to_the_step_of_its_copies():
    """Two points that many copies pull apart: most of a full step would leave q without a normaliser."""
    seen = []

    def log_z(mean, variance, y):
        jax.debug.callback(lambda value: seen.extend(np.ravel(value).tolist()), variance)
        wide = 1.0 + variance
        signal, background = -0.5 * ((mean - y) ** 2 / wide + jnp.log(wide)), -0.05 * y**2 - 0.5 * np.log(10.0)
        return jnp.logaddexp(signal, background)

    points, factor = np.array([2.5, -3.0]), cv.factors.from_log_z(log_z)
    problem = cv.models.posterior(factor, points, 0.0, 100.0, multiplicity=np.array([100.0, 40.0]))
    assert cv.infer(problem, cv.EP(max_sweeps=30)).converged
    jax.effects_barrier()
    assert len(seen) > 50 and all(variance > 0 for variance in seen)


def test_multiplicity_zero_removes_a_factor():
    x = np.array([0.5, 2.2, 1.4])
    factor = cv.factors.Clutter(w=0.3, clutter_variance=10.0)
    with_zero = cv.models.posterior(factor, x, 0.0, 25.0, multiplicity=np.array([1.0, 0.0, 1.0]))
    without = cv.models.posterior(factor, x[[0, 2]], 0.0, 25.0)
    a, b = cv.infer(with_zero), cv.infer(without)
    assert a.converged and b.converged
    np.testing.assert_allclose([a.mean, a.log_evidence], [b.mean, b.log_evidence], rtol=1e-7)
    nothing = cv.infer(cv.models.posterior(factor, x, 0.0, 25.0, multiplicity=np.zeros(3)))
    assert nothing.converged
    np.testing.assert_allclose([nothing.mean, nothing.covariance, nothing.log_evidence], [0.0, 25.0, 0.0], atol=1e-12)


def test_two_groups_of_different_families():
    """θ (Gaussian) and w (Dirichlet) in one q: each group sees its own part; the whole is the two runs side by side."""
    x = draw_clutter(5, 12)
    densities = np.random.default_rng(0).uniform(0.1, 2.0, (15, 3))
    location, weights = cv.models.clutter(x), cv.models.mixture_weights(densities)
    family = cv.families.Product((cv.families.Gaussian(), cv.families.Dirichlet(3)))
    groups = tuple(
        cv.SiteGroup(g.factor, g.data, g.family, g.moments, scope=scope)
        for g, scope in zip(location.groups + weights.groups, [(0, 2), (2, 5)], strict=True)
    )
    prior = np.concatenate([location.prior, weights.prior])
    joint = cv.infer(cv.Problem(prior, groups, type(location.posterior)(family)))
    alone = cv.infer(location), cv.infer(weights)
    assert joint.converged
    np.testing.assert_allclose(joint.q, np.concatenate([alone[0].q, alone[1].q]), rtol=1e-7)
    np.testing.assert_allclose(joint.log_evidence, alone[0].log_evidence + alone[1].log_evidence, rtol=1e-9)
    assert [own.shape for own in joint.sites] == [(12, 2), (15, 3)]


def test_two_groups_coupled_through_the_same_variable():
    """Clutter observations and a truncation act on one θ; checked against a grid."""
    x = draw_clutter(8, 15)
    clutter = cv.models.clutter(x)
    bound = cv.models.truncation(0.0, 100.0, lower=1.5)
    solution = cv.infer(cv.Problem(clutter.prior, clutter.groups + bound.groups, clutter.posterior))
    grid = np.linspace(1.5, 60.0, 400_001)
    log_joint = -0.5 * grid**2 / 100 - 0.5 * np.log(200 * np.pi)
    for value in x:
        log_joint += np.log(0.5 * normal(value, grid, 1.0) + 0.5 * normal(value, 0.0, 10.0))
    mass = np.exp(log_joint - log_joint.max())
    total = np.trapezoid(mass, grid)
    assert solution.converged
    assert abs(solution.mean - np.trapezoid(mass * grid, grid) / total) < 0.03
    assert abs(solution.log_evidence - (np.log(total) + log_joint.max())) < 0.05


def test_orders_of_several_groups():
    x = draw_clutter(21, 4, w=0.1)
    clutter, bound = cv.models.clutter(x), cv.models.truncation(0.0, 100.0, lower=-5.0)
    problem = cv.Problem(clutter.prior, clutter.groups + bound.groups, clutter.posterior)
    ordered = cv.infer(problem, cv.EP(schedule=cv.Order(((3, 2, 1, 0), (0,))), tol=1e-10))
    plain = cv.infer(problem, cv.EP(tol=1e-10))
    assert ordered.converged
    np.testing.assert_allclose(ordered.q, plain.q, rtol=1e-8)
    with pytest.raises(ValueError, match="one order per group"):
        cv.infer(problem, cv.EP(schedule=cv.Order((3, 2, 1, 0))))


def test_evidence_of_a_fixed_point_is_stationary_in_the_sites():
    """At convergence log evidence is the EP energy, whose gradient in every site vanishes (recomputed by hand)."""
    x = draw_clutter(21, 8)
    solution = cv.infer(cv.models.clutter(x), cv.EP(tol=1e-12))
    family = cv.families.Gaussian()
    prior = jnp.asarray(solution.problem.prior)

    def energy(sites):
        q = prior + jnp.sum(sites, axis=0)
        cavity = q - sites
        mean, variance = cavity[:, 0] / cavity[:, 1], 1 / cavity[:, 1]
        signal = jnp.exp(-0.5 * (x - mean) ** 2 / (variance + 1)) / jnp.sqrt(2 * jnp.pi * (variance + 1))
        background = jnp.exp(-0.05 * x**2) / jnp.sqrt(20 * jnp.pi)
        log_z = jnp.log(0.5 * signal + 0.5 * background)
        terms = log_z + family.log_partition(cavity) - family.log_partition(q)
        return family.log_partition(q) - family.log_partition(prior) + jnp.sum(terms)

    sites = jnp.asarray(solution.sites[0])
    np.testing.assert_allclose(energy(sites), solution.log_evidence, rtol=1e-12)
    assert np.abs(np.asarray(jax.grad(energy)(sites))).max() < 1e-8
