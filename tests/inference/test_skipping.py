"""When sweeps that leave sites out are given up, on made-up runs and on real ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hard_clutter import HARD

import cavity as cv
from cavity.inference._skipping import EVERY, MANY, NEWS, Skipping, is_stuck


def given_up(skipped, mismatch):
    """The sweep after which a run is hopeless that leaves out and differs as told, sweep by sweep; None if never."""
    with jax.enable_x64(True):
        seen = Skipping.none()
        for sweep, (visits, largest) in enumerate(zip(np.cumsum(skipped), mismatch, strict=True), 1):
            seen = seen.after(jnp.asarray(sweep), jnp.asarray(visits), (jnp.asarray([largest, np.inf]),))
            if bool(seen.hopeless):
                return sweep
    return None


@pytest.mark.parametrize("each", [1, 3, 500])
def test_a_run_that_comes_no_nearer_is_given_up_when_enough_was_left_out(each):
    windows = max(2, -(-MANY // (EVERY * each)))
    assert given_up([each] * 100, [1.0] * 100) == windows * EVERY


def test_a_run_that_comes_nearer_goes_on():
    assert given_up([5] * 60, 0.9 ** np.arange(60)) is None


def test_a_run_that_skips_now_and_then_goes_on():
    skipped = np.where(np.arange(200) // EVERY % 2 == 0, 5, 0)
    assert given_up(skipped, np.ones(200)) is None


def test_a_run_in_which_variables_become_known_goes_on():
    assert given_up([5] * 60, [NEWS] * 60) is None


@pytest.mark.parametrize(("change", "unsure", "stuck"), [(0.0, False, True), (1e-15, False, False), (0.0, True, False)])
def test_a_sweep_that_changes_nothing_is_the_last_one(change, unsure, stuck):
    before = (jnp.ones((3, 2)), jnp.zeros((4, 1)))
    after = (before[0], before[1].at[2].add(change))
    assert bool(is_stuck(before, after, jnp.asarray(unsure))) is stuck
    lost = jax.tree.map(lambda own: own.at[0].set(jnp.nan), (before, after))
    assert bool(is_stuck(*lost, jnp.asarray(unsure))) is stuck


def test_a_run_that_can_change_no_site_ends_with_that_sweep():
    """exp(x²) is no density times N(0, 1): its site is left out in every sweep."""
    growing = cv.factors.from_log_density(lambda x, data: data * x**2)
    problem = cv.models.posterior(growing, [1.0], prior_variance=1.0)
    found = cv.infer(problem, cv.EP())
    assert not found.converged and found.sweeps == 1


@pytest.fixture(scope="module")
def overlap():
    rng = np.random.default_rng(0)
    X = np.sqrt(0.2) * rng.random((80, 2))
    y = np.where(rng.random(80) < 0.5, 1.0, -1.0)
    return cv.models.latent_gaussian(y, cv.factors.Step(0.05), X=X, kernel=cv.kernels.RBF(0.1))


def test_the_status_is_that_of_the_state_and_a_watched_run_ends_at_the_same_sweep(overlap):
    seen = []
    alone, watched = cv.infer(overlap, cv.EP()), cv.infer(overlap, cv.EP(), callback=seen.append)
    assert alone.status in ("sites_skipped", "stalled") and alone.sweeps == watched.sweeps < 60
    skipped = any(np.isinf(own).any() for own in alone.site_mismatch)
    assert (alone.status == "sites_skipped") == skipped
    assert len(seen) == alone.sweeps


def test_it_is_given_up_inside_a_program_too(overlap):
    with jax.enable_x64(True):
        inside = jax.jit(cv.infer)(overlap.problem(), cv.EP())
        assert int(inside.sweeps) == cv.infer(overlap, cv.EP()).sweeps


def test_runs_of_relaxed_ep_are_never_given_up():
    found = cv.infer(HARD[0], cv.RelaxedEP(1e9, max_sweeps=80))
    assert found.sweeps == 80 or found.converged
