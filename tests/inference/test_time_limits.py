"""`max_seconds` holds in every part of a run, each kept busy with a problem that it does not finish soon."""

import time
import warnings

import jax
import numpy as np
import pytest

import cavity as cv
from cavity.inference.methods import ladder
from cavity.inference.methods.base import Limits
from cavity.inference.methods.convergent import newton

#: what a run may take beside its bound once everything is compiled: a sweep, and what a busy machine adds
SLACK = 5.0


@pytest.fixture(scope="module")
def overlapping():
    """Rows of two classes all over each other: EP leaves sites out, and inner problems lie on a border."""
    rng = np.random.default_rng(0)
    X = np.sqrt(0.5) * rng.random((150, 2))
    y = np.where(rng.random(150) < 0.5, 1.0, -1.0)
    return cv.models.latent_gaussian(y, cv.factors.Step(0.05), X=X, kernel=cv.kernels.RBF(0.1)).problem()


def timed(run):
    began = time.perf_counter()
    return run(), time.perf_counter() - began


@pytest.mark.parametrize(
    "method", [cv.EP(damping=1e-3, max_sweeps=10**6), cv.ConvergentEP(tol=1e-300), cv.Auto(tol=1e-300)], ids=str
)
def test_a_method_ends_when_its_time_is_over(overlapping, method):
    cv.infer(overlapping, method, max_seconds=0.5)  # compiled
    found, seconds = timed(lambda: cv.infer(overlapping, method, max_seconds=0.5))
    assert found.status == "time_budget" and seconds < 0.5 + SLACK
    assert np.isfinite(found.mean).all()


@pytest.mark.parametrize("method", [cv.EP(), cv.ConvergentEP(), cv.Auto()], ids=str)
def test_a_bound_that_is_over_at_once_leaves_one_step(overlapping, method):
    found = cv.infer(overlapping, method, max_seconds=1e-9)
    assert found.status == "time_budget" and found.sweeps == 1


def test_newton_steps_end_when_the_time_is_over(overlapping):
    sites = cv.infer(overlapping, cv.EP(max_sweeps=5)).sites
    with jax.enable_x64(True):
        late = Limits(deadline=time.perf_counter())
        assert newton(overlapping, cv.EP(), sites, jax.random.key(0), late) is None


def test_an_inner_problem_in_portions_is_the_same(overlapping):
    """A deadline makes the host look between two turns; what is computed stays the same."""
    alone = cv.infer(overlapping, cv.ConvergentEP(max_sweeps=3))
    watched = cv.infer(overlapping, cv.ConvergentEP(max_sweeps=3), max_seconds=1e6)
    np.testing.assert_allclose(watched.sites[0], alone.sites[0], rtol=1e-9, atol=1e-12)
    assert watched.sweeps == alone.sweeps == 3


def test_auto_gives_the_double_loop_up_after_so_many_turns(overlapping, monkeypatch):
    monkeypatch.setattr(ladder, "INNER_TURNS", 10)
    found = cv.infer(overlapping, cv.Auto())
    loops = [own for own in found.attempts if own.method.startswith("ConvergentEP")]
    assert loops and all(own.sweeps <= 10 for own in loops if own.reason)


@pytest.mark.parametrize(
    "model",
    [
        cv.GPClassifier(likelihood="probit", label_noise="auto", restarts=50, max_seconds=0.2),
        cv.GPRegressor(restarts=50, max_seconds=0.2),
        cv.BayesPointMachine(likelihood="probit", prior_variance="auto", label_noise="auto", max_seconds=1e-6),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_search_of_an_estimator_ends_when_its_time_is_over(model):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.5 * rng.normal(size=60)
    y = y if isinstance(model, cv.GPRegressor) else y > 0
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(X, y)  # compiled
        _, seconds = timed(lambda: model.fit(X, y))
    assert any("ended by max_seconds" in str(own.message) for own in said)
    assert seconds < 0.2 + SLACK
    assert model.status_ in ("converged", "time_budget") and np.isfinite(model.predict(X[:3]).astype(float)).all()


def test_a_bound_that_is_no_time_is_refused():
    with pytest.raises(ValueError, match="max_seconds"):
        cv.GPRegressor(max_seconds=-1.0).fit([[0.0], [1.0]], [0.0, 1.0])
