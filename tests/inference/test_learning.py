"""Moments that learn, against the same moments known from the start: what is unsure waits, and the run goes on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cavity as cv
from cavity import stepping
from cavity.moments import UNSURE, Moments

LABELS = np.array([1.0, -1.0, 1.0, 1.0])
COVARIANCE = np.eye(4) + 0.5


class Revealed(Moments):
    """Exact moments that are not known until `learn` was called so many times."""

    learns = True

    def __init__(self, after):
        self.after, self.batches = after, []

    def init(self, group):
        return {"calls": np.zeros(()), "after": np.asarray(float(self.after))}

    def tilt(self, state, factor, family, cavity, data, power, key):
        tilted, _ = cv.ClosedForm().tilt((), factor, family, cavity, data, power, key)
        return tilted, {UNSURE: state["calls"] < state["after"]}

    def learn(self, state, batch):
        self.batches.append(batch)
        return {"calls": np.asarray(float(len(self.batches))), "after": state["after"]}, bool(batch.unsure.any())


def problem_with(moments=None):
    """The problem alone: a model's is padded for its run, which is another program and rounds differently."""
    return cv.models.latent_gaussian(LABELS, cv.factors.Probit(), kernel_matrix=COVARIANCE, moments=moments).problem()


@pytest.mark.parametrize("after", [1, 3])
def test_a_run_that_learns_ends_where_one_that_knows_does(after):
    found, known = cv.infer(problem_with(Revealed(after)), cv.EP()), cv.infer(problem_with(), cv.EP())
    assert found.status == known.status == "converged"
    assert found.sweeps == known.sweeps + after
    assert (int(found.nonfinite), int(found.unsure)) == (0, after * len(LABELS))
    np.testing.assert_array_equal(found.mean, known.mean)
    assert found.log_evidence == known.log_evidence
    np.testing.assert_array_equal(found.loo_log_predictive[0], known.loo_log_predictive[0])
    np.testing.assert_array_equal(found.energy().value, known.energy().value)


@pytest.mark.parametrize("method", [cv.EP(max_sweeps=5), cv.Auto(max_sweeps=5)], ids=str)
def test_sites_that_stay_unsure_stay_as_they_were(method):
    found = cv.infer(problem_with(Revealed(np.inf)), method)
    assert found.status == "unsure_factor" and not found.converged
    assert int(found.nonfinite) == 0 and int(found.unsure) == 5 * len(LABELS)
    np.testing.assert_array_equal(found.sites[0], np.zeros((4, 2)))
    np.testing.assert_allclose(found.covariance, COVARIANCE, rtol=1e-14)
    assert np.isnan(found.loo_log_predictive[0]).all() and np.isinf(found.site_mismatch[0]).all()


def test_learning_is_handed_all_sites_with_their_cavities():
    moments = Revealed(1)
    found = cv.infer(problem_with(moments), cv.EP())
    first, last = moments.batches[0], moments.batches[-1]
    np.testing.assert_allclose(first.cavities, np.stack([np.zeros(4), 1 / np.diag(COVARIANCE)], axis=1), atol=1e-15)
    np.testing.assert_array_equal(first.data, LABELS)
    assert first.unsure.all() and not last.unsure.any() and last.ended
    variance = np.diag(found.covariance)
    cavities = np.stack([found.mean / variance, 1 / variance], axis=1) - found.sites[0]
    np.testing.assert_allclose(last.cavities, cavities, rtol=1e-7)


def test_learning_compiles_nothing_and_every_state_outlives_the_next(caplog):
    moments, seen = Revealed(3), []
    problem = problem_with(moments)
    cv.infer(problem, cv.EP(), callback=seen.append)
    assert [float(own.moments[0]["calls"]) for own in seen[:4]] == [1.0, 2.0, 3.0, 4.0]
    moments.after, moments.batches = 2, []
    with jax.log_compiles():
        cv.infer(problem, cv.EP(), callback=seen.append)
    assert not [line for line in caplog.messages if "compilation of jit(advance" in line]


def test_your_own_loop_learns_too():
    problem, method = problem_with(Revealed(2)), cv.EP()
    state = stepping.init(problem, method)
    for _ in range(30):
        state, info = stepping.step(problem, method, state)
        report = stepping.measure(problem, method, state)
        state = stepping.learn(problem, method, state, report)
        if info.mismatch <= method.tol:
            break
    found = stepping.finish(problem, method, state, stepping.measure(problem, method, state))
    known = cv.infer(problem_with(), method)
    assert found.status == "converged" and int(found.unsure) == 2 * len(LABELS)
    np.testing.assert_allclose(jnp.asarray(found.mean), known.mean, rtol=1e-9)


def test_what_learns_between_sweeps_is_refused_where_the_host_cannot_come_between():
    with pytest.raises(TypeError, match=r"cannot run inside jax\.vmap or jax\.jit"), jax.enable_x64(True):
        jax.jit(lambda problem: cv.infer(problem, cv.EP()).mean)(problem_with(Revealed(1)))
    with pytest.raises(TypeError, match="ConvergentEP"):
        cv.infer(problem_with(Revealed(1)), cv.ConvergentEP())
