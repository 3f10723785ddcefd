"""Auto: EP where it works and nothing else, a fixed point where it does not, and a true account of both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hard_clutter import HARD, scalar_mismatch
from support import draw_clutter

import cavity as cv
from cavity.inference.methods import convergent, ladder
from cavity.inference.methods.ladder import is_hopeless

EASY = cv.models.clutter(draw_clutter(0, 20))


def test_where_ep_works_it_is_ep():
    plain, auto = cv.infer(EASY, cv.EP()), cv.infer(EASY)
    np.testing.assert_array_equal(auto.sites[0], plain.sites[0])
    assert auto.sweeps == plain.sweeps and [attempt.reason for attempt in auto.attempts] == [""]
    assert str(auto.method) == "EP" and auto.attempts[0].status == "converged"


@pytest.mark.parametrize("problem", HARD)
def test_where_ep_fails_it_finds_a_fixed_point_and_says_how(problem):
    solution = cv.infer(problem)
    assert solution.status == "converged" and scalar_mismatch(problem, solution) <= 1e-7
    *left, last = solution.attempts
    assert last.reason == "" and all(attempt.reason for attempt in left)
    assert solution.sweeps == sum(attempt.sweeps for attempt in solution.attempts)
    assert all(attempt.reason in str(solution) for attempt in left)


def only_sweeps(monkeypatch):
    """The ladder without Newton's method and the double loop."""
    monkeypatch.setattr(ladder, "can_solve", lambda problem: False)


def test_other_fixed_points_are_named_as_such(monkeypatch):
    only_sweeps(monkeypatch)
    problem = next(problem for problem in HARD if not cv.infer(problem, cv.EP(damping=0.5)).converged)
    monkeypatch.setattr(ladder, "WEIGHTS", ())
    solution = cv.infer(problem)
    assert solution.status == "converged_restricted" and scalar_mismatch(problem, solution) > 1e-4
    refused = cv.infer(problem, cv.Auto(compromise=False))
    assert not refused.converged and np.isfinite(refused.log_evidence)
    mismatches = [attempt.mismatch for attempt in refused.attempts if np.isfinite(attempt.mismatch)]
    assert float(refused.mismatch) == min(mismatches)


def test_nothing_is_climbed_where_nobody_waits_or_nothing_is_integrated():
    problem = HARD[0]

    def interrupt(solution):
        if solution.sweeps >= 3:
            raise KeyboardInterrupt

    stopped = cv.infer(problem, callback=interrupt)
    assert stopped.status == "interrupted" and len(stopped.attempts) == 1 and stopped.sweeps == 3
    late = cv.infer(problem, max_seconds=1e-9)
    assert late.status == "time_budget" and len(late.attempts) == 1
    broken = cv.factors.from_log_density(lambda theta, y: jnp.where(y > 0, -(theta**2), jnp.nan))
    lost = cv.infer(cv.models.posterior(broken, np.array([1.0, -1.0])))
    assert lost.status == "nonfinite_factor" and len(lost.attempts) == 1


def test_a_watched_run_makes_the_same_sweeps():
    """Patience is a matter of sweeps, not of the clock or of who listens."""
    unwatched, watched = cv.infer(HARD[0]), cv.infer(HARD[0], callback=lambda _: None)
    assert [attempt[:3] for attempt in watched.attempts] == [attempt[:3] for attempt in unwatched.attempts]
    assert len(watched.attempts) > 1 and watched.mean == unwatched.mean


def test_an_interrupted_rung_ends_the_climb(monkeypatch):
    """In the double loop as in sweeps; what is handed back is the best state of EP's own."""
    monkeypatch.setattr(ladder.LadderRun, "polish", lambda self, solution: None)
    monkeypatch.setattr(convergent, "newton", lambda *args: None)

    def interrupt(solution):
        if isinstance(solution.method, convergent.DoubleLoop):
            raise KeyboardInterrupt

    problem = next(problem for problem in HARD if not cv.infer(problem, cv.EP(damping=0.5)).converged)
    stopped = cv.infer(problem, callback=interrupt)
    assert stopped.status == "interrupted" and stopped.attempts[-1].method.startswith("ConvergentEP")
    assert isinstance(stopped.method, cv.Method) and np.isfinite(stopped.log_evidence)


def test_callbacks_count_sweeps_over_all_rungs():
    seen = []
    solution = cv.infer(HARD[0], callback=lambda s: seen.append((int(s.sweeps), str(s.status))))
    sweeps = [number for number, _ in seen]
    assert sweeps == sorted(sweeps) and seen[-1] == (int(solution.sweeps), "converged")
    assert {status for _, status in seen[:-1]} == {"running"}


def test_inside_vmap_it_is_its_first_rung():
    stack = np.stack([draw_clutter(0, 20), draw_clutter(3, 20)])
    with jax.enable_x64(True):
        many = jax.vmap(lambda x: cv.infer(cv.models.clutter(x)))(stack)
        plain = jax.vmap(lambda x: cv.infer(cv.models.clutter(x), cv.EP()))(stack)
    np.testing.assert_array_equal(many.sites[0], plain.sites[0])


def test_patience():
    tol = 1e-8
    assert not is_hopeless(0.5 ** np.arange(30.0), tol)
    assert not is_hopeless(np.ones(10), tol)
    assert is_hopeless(np.ones(40), tol)
    assert is_hopeless(0.99 ** np.arange(40.0), tol)
    assert is_hopeless(np.full(40, np.inf), tol)
    assert is_hopeless(1.0 + 0.5 * np.sin(np.arange(60.0)), tol)


def test_what_it_refuses():
    with pytest.raises(ValueError, match="tol must be positive"):
        cv.Auto(tol=0)
    with pytest.raises(TypeError, match="method must be made by"):
        cv.infer(EASY, "auto")
