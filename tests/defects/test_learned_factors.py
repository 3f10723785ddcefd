"""Learned factors and simulators.

Each test states the right answer of a known defect and fails today; whoever mends the defect takes the mark off.
"""

import pickle

import numpy as np
import pytest

import cavity as cv
from cavity import learned

#: a tolerance and a number of draws that keep runs short
QUICK = {"tol_kl": 0.1, "draws": 1024}


def run(factor, y, mean=0.0, variance=1.0, method=None):
    """(solution, mean, variance) of x ~ N(mean, variance), where z = program(x) and y = z + N(0, 0.1) is observed."""
    graph = cv.FactorGraph()
    x, z = graph.gaussian(mean, variance), graph.gaussian()
    graph.add(factor, x, z)
    graph.linear(z, variance=0.1, out=y)
    solution = cv.infer(graph, cv.EP() if method is None else method)
    marginal = solution.marginals[x]
    return solution, float(marginal.mean), float(marginal.variance)


def exact(slope, shift, noise, y, mean=0.0, variance=1.0):
    """The posterior mean and variance where the program is slope·x + shift + N(0, noise)."""
    gain = slope * variance / (slope**2 * variance + noise + 0.1)
    return mean + gain * (y - slope * mean - shift), variance * (1.0 - gain * slope)


def error_of(program, make=learned.every_time):
    """The exception a run with this program ends in, or None."""
    try:
        run(make(program, ["x"], ["z"], draws=512), 3.0, method=cv.EP(max_sweeps=1))
    except BaseException as error:
        return error
    return None


def noisy_in_place(rng, x):
    """x + N(0, 0.25), written over x."""
    x += 0.5 * rng.normal(size=len(x))
    return x


def rising(rng, x):
    """2x + 1 + N(0, 1)."""
    return 2.0 * x + 1.0 + rng.normal(size=len(x))


def falling(rng, x):
    """−3x + N(0, 1)."""
    return -3.0 * x + rng.normal(size=len(x))


def pair(rng, x, w):
    """A program of two inputs."""
    return x + w + rng.normal(size=len(x))


@pytest.fixture(scope="module")
def used():
    """A learned factor that has served a model."""
    factor = learned.just_in_time(rising, ["x"], ["z"], **QUICK)
    solution, mean, variance = run(factor, 7.0, 3.0, 0.1)
    right = exact(2.0, 1.0, 1.0, 7.0, 3.0, 0.1)
    assert solution.converged and (mean, variance) == pytest.approx(right, abs=0.05)
    return factor


def test_a_program_that_changes_its_inputs_in_place_is_handed_copies():
    _, *found = run(learned.every_time(noisy_in_place, ["x"], ["z"]), 3.0)
    assert found == pytest.approx(exact(1.0, 0.0, 0.25, 3.0), abs=0.1)


def test_what_was_learned_of_another_program_does_not_pass_for_converged(used, tmp_path):
    used.save(tmp_path / "rising.npz")
    mean, variance = exact(-3.0, 0.0, 1.0, 7.0, 3.0, 0.1)
    try:
        factor = learned.load(tmp_path / "rising.npz", falling, inputs=["x"], outputs=["z"], **QUICK)
        solution, found, _ = run(factor, 7.0, 3.0, 0.1)
    except ValueError as error:
        assert "program" in str(error) or "rising.npz" in str(error)  # noqa: PT017
    else:
        assert not solution.converged or abs(found - mean) < 0.5 * np.sqrt(variance), (found, mean)


def test_what_was_learned_of_a_program_of_other_inputs_is_refused(used, tmp_path):
    used.save(tmp_path / "rising.npz")

    def used_again():
        factor = learned.load(tmp_path / "rising.npz", pair, inputs=["x", "w"], outputs=["z"], **QUICK)
        graph = cv.FactorGraph()
        x, w, z = graph.gaussian(0.0, 1.0), graph.gaussian(0.0, 1.0), graph.gaussian()
        graph.add(factor, x, w, z)
        graph.linear(z, variance=0.1, out=1.0)
        cv.infer(graph, cv.EP())

    with pytest.raises((TypeError, ValueError)):
        used_again()


def fails(rng, x):
    raise RuntimeError("no licence")


FAILURES = {
    "raises": (fails, "no licence"),
    "not a number": (lambda rng, x: x * np.nan, "nan"),
    "wrong shape": (lambda rng, x: x[:3], "shape"),
}


@pytest.mark.parametrize(("program", "word"), FAILURES.values(), ids=FAILURES)
@pytest.mark.filterwarnings("ignore")
def test_a_program_that_fails_every_time_is_told_as_one_that_is_learned(program, word):
    assert isinstance(error_of(program, learned.just_in_time), learned.SamplerError)
    found = error_of(program)
    assert isinstance(found, learned.SamplerError) and word in str(found), repr(found)[:200]


def interrupted(rng, x):
    raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore")
def test_an_interruption_inside_a_program_stays_one():
    found = error_of(interrupted)
    assert found is None or isinstance(found, KeyboardInterrupt), repr(found)[:200]


@pytest.mark.parametrize("dtype", [str, object, complex])
def test_outputs_of_a_program_that_are_no_numbers_are_refused(dtype):
    def program(rng, x):
        return np.array([object() for _ in x]) if dtype is object else x.astype(dtype)

    found = error_of(program, learned.just_in_time)
    assert isinstance(found, learned.SamplerError), repr(found)[:200]


def test_the_double_loop_asks_a_fresh_program_or_refuses_it():
    asked = []

    def program(rng, x):
        asked.append(len(x))
        return rising(rng, x)

    try:
        run(learned.just_in_time(program, ["x"], ["z"], **QUICK), 3.0, method=cv.ConvergentEP(max_sweeps=1))
    except (TypeError, ValueError) as error:
        assert "ConvergentEP" in str(error)  # noqa: PT017
    else:
        assert asked


def test_masked_outputs_of_a_program_are_refused():
    def program(rng, x):
        return np.ma.array(x, mask=np.arange(len(x)) % 2 == 0)

    found = error_of(program)
    assert isinstance(found, RuntimeError | ValueError), repr(found)


def test_a_used_learned_factor_is_pickled(used):
    again = pickle.loads(pickle.dumps(used))
    assert again.report().labels == used.report().labels
