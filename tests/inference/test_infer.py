"""`infer` as users meet it: callbacks, time, interruption, warm starts, stacks of problems, honest endings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import draw_clutter

import cavity as cv

X = draw_clutter(0, 20)
TERM = cv.factors.Gaussian(variance=1.0)


def test_callback_sees_every_sweep():
    seen = []
    solution = cv.infer(cv.models.clutter(X), callback=lambda s: seen.append((s.sweeps, str(s.status), s.mean)))
    assert [int(sweep) for sweep, _, _ in seen] == list(range(1, int(solution.sweeps) + 1))
    assert {status for _, status, _ in seen[:-1]} == {"running"} and seen[-1][1] == "converged"
    np.testing.assert_allclose(seen[-1][2], solution.mean)
    unwatched = cv.infer(cv.models.clutter(X))
    assert unwatched.sweeps == solution.sweeps
    np.testing.assert_array_equal(unwatched.sites[0], solution.sites[0])


def test_interruption_keeps_the_last_complete_sweep():
    def interrupt(solution):
        if solution.sweeps == 2:
            raise KeyboardInterrupt

    solution = cv.infer(cv.models.clutter(X), callback=interrupt)
    two = cv.infer(cv.models.clutter(X), cv.EP(max_sweeps=2))
    assert solution.status == "interrupted" and not solution.converged
    np.testing.assert_allclose(solution.sites[0], two.sites[0], rtol=1e-12)
    resumed = cv.infer(cv.models.clutter(X), init=solution)
    assert resumed.converged


def test_an_unwatched_run_hands_back_what_it_has(monkeypatch):
    """An interruption during the second chunk finds the first one's state."""
    from cavity.inference.methods import sweeps as module

    real, calls = module.advance_in_place, []

    def advance(*arguments, **named):
        calls.append(None)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **named)

    monkeypatch.setattr(module, "advance_in_place", advance)
    solution = cv.infer(cv.models.clutter(X), cv.EP(damping=0.1))
    assert solution.status == "interrupted" and solution.sweeps == 1


def test_an_interruption_while_a_chunk_runs_keeps_that_chunk(monkeypatch):
    from cavity.inference.methods import sweeps as module

    real, calls = module.jax.block_until_ready, []

    def block(tree):
        calls.append(None)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return real(tree)

    monkeypatch.setattr(module.jax, "block_until_ready", block)
    solution = cv.infer(cv.models.clutter(X), cv.EP(damping=0.1))
    assert solution.status == "interrupted" and solution.sweeps == 1
    again = cv.infer(cv.models.clutter(X), cv.EP(damping=0.1, max_sweeps=int(solution.sweeps)))
    np.testing.assert_allclose(solution.sites[0], again.sites[0], rtol=1e-12)


def test_time_budget_stops_after_a_sweep():
    solution = cv.infer(cv.models.clutter(X), cv.EP(damping=0.01, max_sweeps=10_000), max_seconds=1e-6)
    assert solution.status == "time_budget" and solution.sweeps == 1
    assert len(solution.residuals) == 1


def test_warm_start_at_the_fixed_point_stays_there():
    first = cv.infer(cv.models.clutter(X), cv.EP(tol=1e-10))
    for init in (first, first.sites):
        again = cv.infer(cv.models.clutter(X), cv.EP(tol=1e-9), init=init)
        assert again.converged and again.sweeps == 1
        np.testing.assert_allclose(again.log_evidence, first.log_evidence, rtol=1e-11)


@pytest.mark.parametrize(
    ("init", "word"),
    [
        ((np.zeros((3, 2)),), "shape"),
        ((np.full((20, 2), np.nan),), "finite"),
        (np.zeros((20, 2)), "one array per group"),
    ],
)
def test_bad_warm_starts_are_refused(init, word):
    with pytest.raises((TypeError, ValueError), match=word):
        cv.infer(cv.models.clutter(X), init=init)


def test_works_outside_and_inside_a_double_precision_scope():
    with jax.enable_x64(False):
        outside = cv.infer(cv.models.clutter(X))
        assert isinstance(outside.mean, np.ndarray | np.float64) and np.asarray(outside.mean).dtype == np.float64
        assert jnp.ones(2).dtype == jnp.float32
    inside = cv.infer(cv.models.clutter(X))
    np.testing.assert_array_equal(outside.q, inside.q)


@pytest.mark.parametrize("scope", [True, False])
def test_vmap_over_problems(scope):
    stack = np.stack([draw_clutter(seed, 15) for seed in range(6)])
    with jax.enable_x64(scope):
        together = jax.vmap(lambda x: cv.infer(cv.models.clutter(x, w=0.4), cv.EP()))(stack)
        for row, x in enumerate(stack):
            alone = cv.infer(cv.models.clutter(x, w=0.4), cv.EP())
            assert together.status[row] == alone.status and bool(together.converged[row]) == alone.converged
            assert int(together.sweeps[row]) == alone.sweeps
            # A run that wanders does so chaotically: only fixed points can be compared.
            if alone.converged:
                np.testing.assert_allclose(together.mean[row], alone.mean, rtol=1e-9)
                np.testing.assert_allclose(together.log_evidence[row], alone.log_evidence, rtol=1e-9)
        assert np.sum(together.converged) >= 4


@pytest.mark.parametrize("scope", [True, False])
def test_vmap_over_parameters(scope):
    ratios = np.array([0.1, 0.35, 0.6])
    with jax.enable_x64(scope):
        together = jax.vmap(lambda w: cv.infer(cv.models.clutter(X, w=w)))(ratios)
        alone = [cv.infer(cv.models.clutter(X, w=w)) for w in ratios]
    np.testing.assert_allclose(together.log_evidence, [s.log_evidence for s in alone], rtol=1e-9)


def test_jit_returns_the_whole_solution():
    alone = cv.infer(cv.models.clutter(X))
    solution = jax.jit(lambda x: cv.infer(cv.models.clutter(x)))(X)
    assert bool(solution.converged) and solution.status == "converged"
    np.testing.assert_allclose(solution.q, alone.q, rtol=1e-10)


def test_starting_from_flat_sites_is_not_starting_from_anywhere():
    """Also where a factor has no mass at all, so that its site has no scale."""
    factor = cv.factors.from_log_density(lambda theta, y: jnp.where(y > 0, -(theta**2), -jnp.inf))
    problem = cv.models.posterior(factor, np.array([1.0, -1.0]))
    plain, flat = cv.infer(problem), cv.infer(problem, init=(np.zeros((2, 2)),))
    assert plain.status == flat.status == "nonfinite_factor"
    np.testing.assert_allclose(flat.log_evidence, plain.log_evidence, rtol=1e-10)


def test_jit_of_vmap_compiles_once():
    traces = []

    @jax.jit
    @jax.vmap
    def run(x):
        traces.append(None)
        return cv.infer(cv.models.clutter(x), cv.EP()).mean

    for seed in range(3):
        run(np.stack([draw_clutter(seed, 10), draw_clutter(seed + 50, 10)]))
    assert len(traces) == 1


def test_new_data_of_the_same_shape_does_not_compile_again():
    from cavity.inference._loop import advance_in_place as advance

    cv.infer(cv.models.clutter(draw_clutter(1, 17), w=0.3))
    before = advance._cache_size()
    cv.infer(cv.models.clutter(draw_clutter(2, 17), w=0.6, prior_variance=50.0))
    assert advance._cache_size() == before


def test_a_factor_that_is_not_finite_is_reported():
    factor = cv.factors.from_log_density(lambda theta, y: jnp.where(y > 0, -(theta**2), jnp.nan))
    solution = cv.infer(cv.models.posterior(factor, np.array([1.0, -1.0])))
    assert solution.status == "nonfinite_factor" and np.isfinite(solution.mean)
    assert np.all(solution.sites[0][1] == 0) and solution.nonfinite >= 1


def test_improper_cavities_are_counted_not_hidden():
    """The first site is forced so negative that removing the others would leave nothing proper."""
    problem = cv.models.clutter(np.array([0.0, 0.5, 3.0]))
    init = np.array([[0.0, -5.0], [0.0, 6.0], [0.0, 0.5]])
    solution = cv.infer(problem, cv.EP(schedule=cv.Order((1,)), max_sweeps=3), init=(init,))
    assert solution.skipped >= 1 and not solution.converged
    assert solution.status == "sites_skipped" and np.isfinite(solution.log_evidence)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: cv.infer(cv.models.clutter(X), "EP"), "method"),
        (lambda: cv.infer(cv.models.clutter(X), max_seconds=0.0), "max_seconds"),
        (lambda: cv.infer(cv.Problem(np.array([0.0, -1.0]), *_parts(X))), "prior"),
        (lambda: cv.infer(3), "problem"),
        (lambda: cv.infer(cv.models.clutter(X), max_seconds="3"), "max_seconds"),
        (lambda: cv.infer(cv.models.clutter(X), key=3), "key"),
        (lambda: cv.EP(schedule="parallel"), "schedule"),
        (lambda: cv.EP(projection="cowell"), "projection"),
        (lambda: cv.infer(cv.models.posterior(cv.factors.Gaussian(-1.0), X)), "variance"),
        (lambda: cv.infer(cv.models.posterior(cv.factors.Clutter(1.5, 10.0), X)), "w must"),
        (lambda: cv.infer(cv.models.posterior(cv.factors.Truncation(), (X, X))), "Truncation"),
        (lambda: cv.infer(cv.models.posterior(TERM, X, moments="quadrature")), "moments"),
        (lambda: cv.infer(cv.models.posterior(TERM, X, prior=3)), "prior"),
        (lambda: cv.infer(cv.models.posterior(TERM, X, prior=(cv.families.Gaussian(), [0.0, 1.0, 1.0]))), "prior"),
        (lambda: cv.models.posterior(TERM, X, multiplicity=np.full(20, 0.5)).validate(), "multiplicity"),
        (lambda: cv.models.posterior(TERM, X, multiplicity=np.ones(3)).validate(), "multiplicity"),
    ],
)
def test_bad_calls_are_named(call, word):
    with pytest.raises((TypeError, ValueError), match=word):
        call()


def _parts(x):
    problem = cv.models.clutter(x)
    return problem.groups, problem.posterior


def test_sampling_and_density_of_the_posterior():
    solution = cv.infer(cv.models.clutter(X))
    draws = solution.sample(jax.random.key(0), 20_000)
    assert abs(draws.mean() - solution.mean) < 5 * np.sqrt(solution.covariance / 20_000)
    grid = np.linspace(-10, 10, 4001)
    np.testing.assert_allclose(np.trapezoid(np.exp(solution.log_density(grid)), grid), 1.0, rtol=1e-10)
    assert "converged after" in str(solution)
    with pytest.raises(AttributeError, match="concentration"):
        _ = solution.concentration
