"""Operators share compiled programs, and nothing else: what one knows never answers for another."""

import copy
import pickle

import jax
import numpy as np
import pytest

import cavity as cv
from cavity.factors import Logistic
from cavity.inference import _loop
from cavity.inference.energy import energy
from cavity.learned import JustInTime, Simulator, just_in_time
from cavity.learned.learner import predict_sites

NOISE, ERROR = 0.5, 0.3


def doubled(rng, x):
    """2x + 1, and noise."""
    return 2.0 * x + 1.0 + np.sqrt(NOISE) * rng.normal(size=len(x))


def reversed_(rng, x):
    """−3x, and noise."""
    return -3.0 * x + np.sqrt(NOISE) * rng.normal(size=len(x))


LINES = {doubled: (2.0, 1.0), reversed_: (-3.0, 0.0)}


def conditional(programs, seen):
    """Mean and variance of x ~ N(0, 1), and of every output, given noisy observations of the outputs."""
    slopes, offsets = np.array([LINES[own] for own in programs]).T
    joint = np.concatenate([[1.0], slopes])
    covariance = np.outer(joint, joint) + np.diag([0.0] + [NOISE] * len(programs))
    mean = np.concatenate([[0.0], offsets])
    gain = covariance[:, 1:] @ np.linalg.inv(covariance[1:, 1:] + ERROR * np.eye(len(programs)))
    return mean + gain @ (seen - offsets), np.diag(covariance - gain @ covariance[1:])


def solved(factors, seen):
    """Status and marginals of x and of what the factors draw from it, each seen with noise."""
    graph = cv.FactorGraph()
    found = [graph.gaussian(0.0, 1.0)]
    for factor, number in zip(factors, seen, strict=True):
        found.append(graph.gaussian())
        graph.add(factor, found[0], found[-1])
        graph.linear(found[-1], variance=ERROR, out=number)
    solution = cv.infer(graph, cv.EP())
    return solution.status, np.array(
        [[solution.marginals[own].mean, solution.marginals[own].variance] for own in found]
    )


def is_near(found, programs, seen):
    mean, variance = conditional(programs, np.asarray(seen))
    kl = 0.5 * (found[:, 1] / variance - 1.0 + (found[:, 0] - mean) ** 2 / variance - np.log(found[:, 1] / variance))
    return kl.max() < 0.01


@pytest.fixture(scope="module")
def operators():
    return {own: just_in_time(own, inputs=1, outputs=1, draws=4096) for own in LINES}


@pytest.mark.parametrize(
    "programs", [(doubled, reversed_), (reversed_,), (doubled,)], ids=["one graph", "−3x", "2x + 1"]
)
def test_two_operators_are_never_mixed_up(operators, programs):
    """In one graph, then in two graphs one after the other; each operator goes on with what it knows."""
    assert operators[doubled].moments == operators[reversed_].moments
    seen = [3.0, -2.0][: len(programs)]
    status, found = solved([operators[own] for own in programs], seen)
    assert status == "converged" and is_near(found, programs, seen)
    assert all(operators[own].report().queries > 0 for own in programs)


def test_operators_of_one_program_stay_two():
    """They are equal, and so is what they are about: in a graph each still asks and learns for its own sites."""
    shared, one, other = Simulator(doubled, 1, 1), JustInTime(draws=4096), JustInTime(draws=4096)
    graph = cv.FactorGraph()
    for own, mean in ((one, 0.0), (other, 1.0)):
        graph.add(shared, graph.gaussian(mean, 1.0), graph.gaussian(), moments=own)
    assert one == other and len(graph.problem().groups) == 2
    assert cv.infer(graph, cv.EP()).status == "converged"
    assert one.report().queries > 0 and other.report().queries > 0


def logistic_model(operator):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20, 2))
    y = np.where(rng.random(20) < 1 / (1 + np.exp(-x @ [1.0, -1.0])), 1.0, -1.0)
    return cv.models.latent_gaussian(y, operator, X=x)


def test_a_fresh_operator_compiles_nothing_and_knows_nothing():
    method, programs = cv.EP(schedule=cv.Parallel()), (_loop.advance_anew, _loop.advance_in_place, predict_sites)
    first, fresh = (just_in_time(Logistic(), oracle=cv.Quadrature()) for _ in range(2))
    before = cv.infer(logistic_model(first), method)
    asked, compiled = first.report(), [own._cache_size() for own in programs]
    again = cv.infer(logistic_model(first), method)
    found = cv.infer(logistic_model(fresh), method)
    assert [own._cache_size() for own in programs] == compiled
    # The first has learned meanwhile; the fresh one asks and answers as the first did when it was fresh.
    assert first.report().queries < 2 * asked.queries and again.sweeps < before.sweeps
    assert fresh.report() == pytest.approx(asked, nan_ok=True)
    np.testing.assert_array_equal(found.mean, before.mean)
    # Another tolerance is another program.
    other = just_in_time(Logistic(), oracle=cv.Quadrature(), tol_kl=1e-3)
    assert other.moments != first.moments
    cv.infer(logistic_model(other), method)
    assert [own._cache_size() for own in programs] != compiled


def test_copies_are_equal_and_apart():
    own = JustInTime(cv.Quadrature(), tol_kl=1e-4)
    cv.infer(logistic_model(just_in_time(Logistic())).with_moments(own), cv.EP(schedule=cv.Parallel()))
    for twin in (pickle.loads(pickle.dumps(own)), copy.deepcopy(own)):
        assert twin == own and hash(twin) == hash(own) and twin is not own
        assert twin.report() == pytest.approx(own.report(), nan_ok=True)
        before = own.report().queries
        twin.queries += 1
        assert own.report().queries == before


def test_a_compiled_program_is_not_given_what_is_known_now():
    """It would keep it as constants, and hand them to every operator it serves."""
    operator = just_in_time(Logistic(), oracle=cv.Quadrature())
    problem = logistic_model(operator).problem()
    solution = cv.infer(problem, cv.EP(schedule=cv.Parallel()))
    with pytest.raises(TypeError, match="hand it over as moments"):
        energy(problem, solution.sites)
    with jax.enable_x64(True):
        value = energy(problem, solution.sites, moments=solution.moments).value
    assert float(value) == pytest.approx(-float(solution.log_evidence), abs=1e-8)
