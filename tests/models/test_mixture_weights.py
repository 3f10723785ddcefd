"""Mixture weights: exact answers by dynamic programming, the thesis's comparison, zeros, many components."""

from functools import partial

import jax
import numpy as np
import pytest
from scipy import special, stats

import cavity as cv
from cavity.baselines import laplace, variational_bayes
from cavity.exact_inference import exact


def draw(seed: int, n: int = 50) -> np.ndarray:
    """Densities of the thesis's example: N(0, 3) and N(1, 3) mixed half and half (3.114–3.115)."""
    rng = np.random.default_rng(seed)
    x = np.sqrt(3.0) * rng.standard_normal(n) + (rng.random(n) < 0.5)
    return np.stack([stats.norm.pdf(x, mean, np.sqrt(3.0)) for mean in (0.0, 1.0)], axis=1)


@partial(jax.jit, static_argnames="method")
def infer_stack(stack, method):
    return jax.vmap(lambda table: cv.infer(cv.models.mixture_weights(table), method))(stack)


@pytest.fixture(scope="module")
def comparison():
    with jax.enable_x64(True):
        tables = np.stack([draw(seed) for seed in range(20)])
        problems = [cv.models.mixture_weights(table) for table in tables]
        truth = np.array([exact(problem).log_evidence for problem in problems])
        solutions = {"ep": infer_stack(tables, cv.EP()), "cowell": infer_stack(tables, cv.EP(projection=cv.Cowell()))}
        errors = {name: np.abs(solution.log_evidence - truth) for name, solution in solutions.items()}
        for name, method in (("laplace", laplace), ("variational", variational_bayes)):
            errors[name] = np.abs([method(problem).log_evidence for problem in problems] - truth)
    return solutions, errors


def test_ep_beats_laplace_and_variational_bayes(comparison):
    """20 sets: median evidence error at least 30 and 200 times smaller; the Cowell shortcut within a factor 3."""
    solutions, errors = comparison
    assert all(np.all(solution.converged) for solution in solutions.values())
    median = {name: np.median(gap) for name, gap in errors.items()}
    assert median["laplace"] >= 30 * median["ep"], median
    assert median["variational"] >= 200 * median["ep"], median
    assert 1 / 3 <= median["cowell"] / median["ep"] <= 3, median


def test_the_shortcut_evaluates_fewer_factors_than_laplace(comparison):
    """Chapter 6: EP with the shortcut is faster than Laplace's method, whose mode EM climbs to."""
    rival = [laplace(cv.models.mixture_weights(draw(seed))).evaluations for seed in range(10)]
    assert 5 * 50 * np.max(comparison[0]["cowell"].sweeps) < min(rival)


def test_one_step_is_the_printed_update():
    """ADF by (3.94) solved with SciPy's own digamma and root finder."""
    from scipy import optimize

    table = draw(3, n=6)
    a, log_evidence = np.ones(2), 0.0
    for row in table:
        target = special.digamma(a) - special.digamma(a.sum()) + row / (row @ a) - 1 / a.sum()
        log_evidence += np.log(row @ a / a.sum())
        solve = optimize.root(
            lambda log_a, t=target: special.digamma(np.exp(log_a)) - special.digamma(np.exp(log_a).sum()) - t,
            np.log(a),
            tol=1e-14,
        )
        a = np.exp(solve.x)
    adf = cv.infer(cv.models.mixture_weights(table), cv.ADF())
    np.testing.assert_allclose(adf.concentration, a, rtol=1e-9)
    np.testing.assert_allclose(adf.log_evidence, log_evidence, rtol=1e-11)


def test_cowell_keeps_mean_and_total_square():
    """At its fixed point q has the tilted E[w] and Σ E[w²], integrated here by Gauss–Jacobi quadrature."""
    table = draw(5, n=12)
    solution = cv.infer(cv.models.mixture_weights(table), cv.EP(projection=cv.Cowell(), tol=1e-11))
    a = solution.concentration
    for row, site in zip(table, solution.sites[0], strict=True):
        cavity = a - site
        nodes, weights = special.roots_jacobi(40, cavity[1] - 1, cavity[0] - 1)
        w = np.stack([(1 + nodes) / 2, (1 - nodes) / 2], axis=1)
        mass = weights * (w @ row)
        mass /= mass.sum()
        np.testing.assert_allclose(mass @ w, a / a.sum(), rtol=1e-9)
        square = np.sum(a * (a + 1)) / (a.sum() * (a.sum() + 1))
        np.testing.assert_allclose(np.sum(mass @ w**2), square, rtol=1e-9)


def test_one_observation_of_a_known_component_is_conjugate():
    table = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.0], [3.0, 0.0, 0.0]])
    solution = cv.infer(cv.models.mixture_weights(table, prior=[0.5, 1.0, 2.0]))
    np.testing.assert_allclose(solution.concentration, [2.5, 2.0, 2.0], rtol=1e-9)
    expected = np.log(0.5 / 3.5 * 1.0 / 4.5 * 1.5 / 5.5 * 1.0 * 0.5 * 3.0)
    np.testing.assert_allclose(solution.log_evidence, expected, rtol=1e-9)


@pytest.mark.parametrize("components", [3, 4])
def test_several_components_against_the_exact_answer(components):
    rng = np.random.default_rng(components)
    table = rng.gamma(1.0, size=(20, components))
    problem = cv.models.mixture_weights(table, prior=0.7)
    solution, truth = cv.infer(problem), exact(problem)
    assert solution.converged
    for rival in (laplace(problem), variational_bayes(problem)):
        assert abs(solution.log_evidence - truth.log_evidence) < abs(rival.log_evidence - truth.log_evidence)
        assert np.abs(solution.mean - truth.mean).max() < np.abs(rival.mean - truth.mean).max()


def test_fixed_point_keeps_the_expected_logarithms():
    """E[log w] of q and of every tilted distribution, the latter by SciPy's adaptive quadrature."""
    from scipy import integrate

    table = draw(5, n=8)
    solution = cv.infer(cv.models.mixture_weights(table))
    a = solution.concentration
    want = special.digamma(a) - special.digamma(a.sum())
    for row, site in zip(table, solution.sites[0], strict=True):
        c = a - site

        def tilted(w, row=row, c=c):
            return (row[0] * w + row[1] * (1 - w)) * w ** (c[0] - 1) * (1 - w) ** (c[1] - 1)

        total = integrate.quad(tilted, 0, 1, epsabs=0, epsrel=1e-11, limit=200)[0]
        for k, log_w in enumerate((np.log, lambda w: np.log1p(-w))):
            value = integrate.quad(lambda w, g=log_w: g(w) * tilted(w), 0, 1, epsabs=0, epsrel=1e-10, limit=200)[0]
            np.testing.assert_allclose(value / total, want[k], rtol=1e-7)


def test_a_thousand_components():
    rng = np.random.default_rng(0)
    table = rng.gamma(0.3, size=(30, 1000)) + 1e-12
    solution = cv.infer(cv.models.mixture_weights(table, prior=0.01))
    assert solution.converged and np.isfinite(solution.log_evidence)
    np.testing.assert_allclose(solution.mean.sum(), 1.0, rtol=1e-12)


def test_densities_are_only_a_scale():
    """Multiplying a row by a constant adds its logarithm to the evidence and changes nothing else; 1e-300 included."""
    table = draw(1, n=10)
    plain = cv.infer(cv.models.mixture_weights(table))
    scaled = cv.infer(cv.models.mixture_weights(table * 1e-290))
    np.testing.assert_allclose(scaled.concentration, plain.concentration, rtol=1e-12)
    np.testing.assert_allclose(scaled.log_evidence, plain.log_evidence + 10 * np.log(1e-290), rtol=1e-12)


def test_power_ep_by_quadrature_and_the_error_without():
    problem = cv.models.mixture_weights(draw(2, n=6))
    with pytest.raises(cv.factors.MissingClosedForm, match="Dirichlet with power 1"):
        cv.infer(problem, cv.PowerEP(0.5))
    by_quadrature = cv.infer(problem.with_moments(cv.Quadrature()), cv.EP())
    closed = cv.infer(problem)
    np.testing.assert_allclose(by_quadrature.concentration, closed.concentration, rtol=1e-6)
    assert cv.infer(problem.with_moments(cv.Quadrature()), cv.PowerEP(0.5, tol=1e-7)).converged


def test_restricted_sites_are_not_negative():
    solution = cv.infer(cv.models.mixture_weights(draw(4, n=30)), cv.RestrictedEP())
    assert solution.converged and (solution.sites[0] >= 0).all()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"densities": np.ones(3)}, "densities"),
        ({"densities": np.ones((3, 1))}, "densities"),
        ({"densities": np.zeros((0, 2))}, "densities"),
        ({"densities": [[1.0, np.nan]]}, "densities"),
        ({"densities": [[1.0, -0.5]]}, "densities"),
        ({"densities": [[1.0, 1.0], [0.0, 0.0]]}, "densities"),
        ({"densities": np.ones((3, 2)), "prior": 0.0}, "prior"),
        ({"densities": np.ones((3, 2)), "prior": [1.0, 1.0, 1.0]}, "prior"),
    ],
)
def test_bad_input_is_named(arguments, word):
    with pytest.raises(ValueError, match=f"^{word} "):
        cv.models.mixture_weights(**arguments)
