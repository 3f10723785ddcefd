"""The public parts of the loop against `infer`, which is driven another way: from the host, in chunks of sweeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import draw_clutter

import cavity as cv
from cavity import stepping


def classifier(n=12):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 2))
    y = np.where(X[:, 0] > 0.2, 1.0, -1.0)
    return cv.models.latent_gaussian(y, cv.factors.Probit(), X=X, kernel=cv.kernels.RBF())


def small_loop():
    graph = cv.DiscreteGraph([2, 2, 2])
    for scope in ((0, 1), (1, 2), (0, 2)):
        graph.add_factor(scope, np.array([[1.0, 2.0], [3.0, 1.0]]))
    return graph.approximate("disconnected").problem()


CASES = {
    "EP": (lambda: cv.models.clutter(draw_clutter(3, 30)), cv.EP),
    "ADF": (lambda: cv.models.clutter(draw_clutter(3, 30)), lambda max_sweeps: cv.ADF()),
    "shuffled": (lambda: cv.models.clutter(draw_clutter(3, 30)), lambda **k: cv.EP(schedule=cv.Shuffled(), **k)),
    "worst first": (
        lambda: cv.models.clutter(draw_clutter(3, 30)),
        lambda **k: cv.EP(schedule=cv.LargestMismatchFirst(), **k),
    ),
    "PowerEP": (lambda: cv.models.clutter(draw_clutter(3, 30)), lambda **k: cv.PowerEP(0.5, **k)),
    "RelaxedEP": (lambda: cv.models.clutter(draw_clutter(3, 30)), lambda **k: cv.RelaxedEP(0.1, **k)),
    "GP": (classifier, cv.EP),
    "belief propagation": (small_loop, lambda **k: cv.EP(schedule=cv.Parallel(), **k)),
}


def run(problem, method, sweeps, sites=None):
    state, infos = stepping.init(problem, method, sites), []
    for _ in range(sweeps):
        state, info = stepping.step(problem, method, state)
        infos.append(info)
    return state, infos


@pytest.mark.parametrize("name", CASES)
def test_steps_are_the_sweeps_of_infer(name):
    make, method = CASES[name]
    problem, sweeps = make(), 1 if name == "ADF" else 4
    method = method(max_sweeps=sweeps)
    state, infos = run(problem, method, sweeps)
    known = cv.infer(problem, method)
    assert int(state.sweep) == known.sweeps == sweeps
    for own, other in zip(state.sites, known.sites, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose([info.mismatch for info in infos], known.residuals, rtol=1e-9, atol=1e-15)
    solution = stepping.finish(problem, method, state, stepping.measure(problem, method, state))
    assert solution.status == known.status
    np.testing.assert_allclose(solution.log_evidence, known.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(solution.mismatch, known.mismatch, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(solution.residuals, known.residuals, rtol=1e-9, atol=1e-15)


def test_given_sites_are_where_the_steps_begin():
    problem, method = cv.models.clutter(draw_clutter(3, 30)), cv.EP()
    first, _ = run(problem, method, 2)
    again, _ = run(problem, method, 2, first.sites)
    whole, _ = run(problem, method, 4)
    np.testing.assert_allclose(again.sites[0], whole.sites[0], rtol=1e-12, atol=1e-14)


def test_the_counts_of_a_step_are_its_own():
    problem, method = cv.models.clutter(draw_clutter(3, 30)), cv.EP()
    state, infos = run(problem, method, 3)
    assert [int(info.counts.tilts[0]) for info in infos] == [30, 30, 30]
    assert int(state.counts.tilts[0]) == 90
    skipped = sum(int(info.counts.improper_cavity) for info in infos)
    assert int(state.counts.improper_cavity) == skipped


def test_a_measurement_changes_nothing_and_says_whether_it_is_a_fixed_point():
    problem, method = cv.models.clutter(draw_clutter(11, 20)), cv.EP(tol=1e-8)
    state, _ = run(problem, method, 1)
    early = stepping.measure(problem, method, state)
    assert early.largest > method.tol
    assert stepping.finish(problem, method, state, early).status == "max_sweeps"
    state, _ = run(problem, method, 60, state.sites)
    late = stepping.measure(problem, method, state)
    assert late.largest <= method.tol
    assert stepping.finish(problem, method, state, late).converged


def test_a_loop_of_ones_own_can_be_compiled_and_mapped():
    method = cv.EP()

    def loop(problem):
        state = stepping.init(problem, method)
        state = jax.lax.fori_loop(0, 3, lambda _, state: stepping.step(problem, method, state)[0], state)
        return state.q, stepping.measure(problem, method, state).largest

    problems = [cv.models.clutter(draw_clutter(seed, 10)) for seed in (1, 2)]
    with jax.enable_x64(True):
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *problems)
        mapped = jax.jit(jax.vmap(loop))(stacked)
    for place, problem in enumerate(problems):
        state, _ = run(problem, method, 3)
        for own, other in zip(jax.tree.leaves(mapped[0]), jax.tree.leaves(state.q), strict=True):
            np.testing.assert_allclose(own[place], other, rtol=1e-11, atol=1e-13)


def test_the_caller_may_change_the_method_between_two_sweeps_without_compiling():
    problem = cv.models.clutter(draw_clutter(3, 30))
    state, _ = run(problem, cv.EP(damping=0.5), 1)
    before = stepping._step._cache_size()
    for damping in (0.3, 0.7):
        state, _ = stepping.step(problem, cv.EP(damping=damping), state)
    assert stepping._step._cache_size() == before


@pytest.mark.parametrize("method", [cv.ConvergentEP(), cv.Auto(), "EP"])
def test_methods_that_are_not_made_of_sweeps_are_refused(method):
    with pytest.raises(TypeError, match="made of sweeps"):
        stepping.init(cv.models.clutter([0.1, 2.0]), method)
