"""Programs are made quickly at first and optimised when they are used for long; the answers do not depend on it."""

import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cavity as cv
from cavity._core import tiers
from cavity._core.tiers import VARIABLE, tiered_jit


@pytest.fixture(autouse=True)
def _tiers_on(monkeypatch):
    """As users have it: the suite itself tells XLA how to compile, which turns the tiers off."""
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def compiled():
    """The names of the functions whose programs were compiled, in order."""
    names, on = [], [True]

    def listen(event, seconds, **about):
        if on and event.endswith("backend_compile_duration"):
            names.append(about.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    on.clear()


def wait_for_optimising():
    for thread in threading.enumerate():
        if thread.name == tiers.THREAD:
            thread.join(60)


@tiered_jit(static_argnames=("times",), donate_argnames=("x",))
def fold(x, scale, times=1):
    for _ in range(times):
        x = jax.tree.map(lambda leaf: jnp.tanh(leaf @ leaf) * scale, x)
    return x


def matrices(seed=0):
    return {"one": jnp.asarray(np.random.default_rng(seed).normal(size=(7, 7)))}


def folded(x, scale, times):
    for _ in range(times):
        x = np.tanh(x @ x) * scale
    return x


def test_a_program_is_made_quickly_first_and_optimised_after_use(monkeypatch, compiled):
    monkeypatch.setattr(tiers, "USED", 0.0)
    expected = folded(np.asarray(matrices()["one"]), 0.5, 3)
    fold(matrices(), 0.5, times=3)
    assert compiled.count("jit(fold)") == 1
    fold(matrices(), 0.5, times=3)  # the first use that is not compiling
    wait_for_optimising()
    assert compiled.count("jit(fold)") == 2
    for _ in range(3):
        np.testing.assert_allclose(fold(matrices(), 0.5, times=3)["one"], expected, rtol=1e-13)
    assert compiled.count("jit(fold)") == 2  # the optimised one was found, not made again


def test_static_arguments_may_be_given_by_position_and_tell_programs_apart(monkeypatch):
    monkeypatch.setattr(tiers, "USED", 0.0)
    for _ in range(4):
        for times in (1, 2):
            np.testing.assert_allclose(
                fold(matrices(1), 0.5, times)["one"], folded(np.asarray(matrices(1)["one"]), 0.5, times), rtol=1e-13
            )
        wait_for_optimising()


@pytest.mark.parametrize("wanted", ["optimised", "quick"])
def test_one_tier_can_be_asked_for(monkeypatch, compiled, wanted):
    monkeypatch.setenv(VARIABLE, wanted)
    monkeypatch.setattr(tiers, "USED", 0.0)

    def double(x):
        return x + x

    function = tiered_jit(double)
    x = jnp.arange(3.0)
    compiled.clear()
    for _ in range(4):
        function(x)
    wait_for_optimising()
    assert compiled == ["jit(double)"]
    (used,) = (getattr(function, name) for name in ("optimised", "quick") if name == wanted)
    assert used._cache_size() == 1


def test_other_words_are_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, "fast")
    with pytest.raises(ValueError, match="CAVITY_COMPILE must be one of tiered, optimised, quick; found 'fast'"):
        cv.infer(cv.models.clutter([0.3, 1.8]), cv.EP())


def test_flags_of_the_user_that_say_how_to_optimise_hold(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=1")
    assert tiers.choice() == "optimised"
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=1")
    assert tiers.choice() == "tiered"


def test_where_optimising_fails_the_first_code_stays(monkeypatch, caplog):
    monkeypatch.setattr(tiers, "USED", 0.0)
    function = tiered_jit(lambda x: 2.0 * x)

    def fail(*args, **kwargs):
        raise RuntimeError("no memory")

    monkeypatch.setattr(function, "optimised", type("Broken", (), {"lower": staticmethod(fail)}))
    for _ in range(3):
        assert function(jnp.ones(())) == 2.0
        wait_for_optimising()
    assert sum("optimising" in record.message for record in caplog.records) == 1


def problems():
    """Names and models whose programs differ in kind."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12, 2))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=12) > 0, 1.0, -1.0)
    kernel = cv.models.latent_gaussian(y, cv.factors.Probit(), X=X, kernel=cv.kernels.RBF(1.0))
    weights = cv.models.latent_gaussian(y, cv.factors.Logistic(), X=X)
    graph = cv.FactorGraph()
    mean, precision = graph.gaussian(0.0, 10.0), graph.gamma(2.0, 1.0)
    graph.normal(mean, precision, out=rng.normal(2.0, 0.7, 4))
    return {"clutter": cv.models.clutter([0.3, 1.8, -3.0]), "kernel": kernel, "weights": weights, "graph": graph}


@pytest.mark.parametrize("name", ["clutter", "kernel", "weights", "graph"])
def test_the_answer_does_not_depend_on_the_tier(monkeypatch, name):
    found = {}
    for wanted in ("quick", "optimised"):
        monkeypatch.setenv(VARIABLE, wanted)
        found[wanted] = [cv.infer(problems()[name], cv.EP()) for _ in range(2)]
    for one, again in found.values():  # on one tier the same bits
        assert one.log_evidence == again.log_evidence
        np.testing.assert_array_equal(one.sites[0], again.sites[0])
    quick, optimised = found["quick"][0], found["optimised"][0]
    assert quick.status == optimised.status == "converged"
    assert quick.log_evidence == pytest.approx(optimised.log_evidence, abs=1e-9)
    for one, other in zip(quick.sites, optimised.sites, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_a_run_may_change_its_tier_halfway(monkeypatch):
    """With a listener every sweep is a call; the optimised program takes over between two of them."""
    monkeypatch.setattr(tiers, "USED", 0.0)
    problem = problems()["clutter"]

    def wait(solution):
        wait_for_optimising()

    first = cv.infer(problem, cv.EP(damping=0.3), callback=wait)
    monkeypatch.setenv(VARIABLE, "optimised")
    assert first.status == "converged"
    assert first.log_evidence == pytest.approx(cv.infer(problem, cv.EP(damping=0.3)).log_evidence, abs=1e-9)


def test_infer_inside_transformations_gives_the_same_answer():
    x = np.array([0.3, 1.8, 2.1])

    def evidence(x):
        return cv.infer(cv.models.clutter(x), cv.EP()).log_evidence

    outside = float(evidence(x))
    assert float(jax.jit(evidence)(jnp.asarray(x))) == pytest.approx(outside, abs=1e-12)
    np.testing.assert_allclose(jax.vmap(evidence)(jnp.stack([x, x])), outside, atol=1e-12)
    _, slope = jax.jvp(evidence, (jnp.asarray(x),), (jnp.array([1.0, 0.0, 0.0]),))
    step = 1e-5
    moved = [float(evidence(x + np.array([sign * step, 0.0, 0.0]))) for sign in (1, -1)]
    assert float(slope) == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-5)


def test_a_process_that_ends_while_a_program_is_optimised_ends_well():
    program = """
import cavity as cv, cavity._core.tiers as tiers, threading
tiers.USED = 0.0
for n in (3, 4, 5):
    for _ in range(3):
        cv.infer(cv.models.clutter([0.3 * k for k in range(n)]), cv.EP())
print(sum(thread.name == tiers.THREAD for thread in threading.enumerate()) > 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")
