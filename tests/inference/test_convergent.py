"""The double loop: it goes downhill, ends at fixed points of EP where sweeps do not, for Gaussians and categoricals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hard_clutter import HARD, scalar_mismatch

import cavity as cv
from cavity.inference._double_loop import TURNS, begin_inner, compiled_turns
from cavity.inference._newton import marginals_of
from cavity.posteriors.shared import Shared


@pytest.mark.parametrize("problem", HARD)
def test_gaussian_fixed_points_where_sweeps_fail(problem):
    solution = cv.infer(problem, cv.ConvergentEP())
    assert solution.status == "converged"
    assert scalar_mismatch(problem, solution) <= 1e-7
    assert solution.energy().value == pytest.approx(-solution.log_evidence, abs=1e-8)


def test_plain_ep_fails_on_some_of_them():
    assert not all(cv.infer(problem, cv.EP()).converged for problem in HARD)


def test_small_steps_are_slow_and_promise_nothing():
    """Far more sweeps on the set that full steps solve; on the two they do not, half and tenth steps fail too."""
    runs = {d: [cv.infer(problem, cv.EP(damping=d, max_sweeps=500)) for problem in HARD] for d in (1.0, 0.5, 0.1)}
    assert all([run.converged for run in own] == [False, False, True] for own in runs.values())
    full, half, tenth = (own[2].sweeps for own in runs.values())
    assert half > 2 * full and tenth > 10 * full


def energies(problem, power, steps):
    key = jax.random.key(0)
    sites = tuple(jnp.zeros((group.size, group.family.size)) for group in problem.groups)
    gamma = marginals_of(problem, problem.posterior.flat(problem.prior))
    found = []
    for _ in range(steps):
        inner = compiled_turns(problem, power, gamma, begin_inner(sites, gamma), key, TURNS)
        held = [np.asarray(group.multiplicities) for group in problem.groups]
        partitions = [
            jax.vmap(group.family.log_partition)(own) for group, own in zip(problem.groups, gamma, strict=True)
        ]
        surrogate = sum(count @ np.asarray(own) for count, own in zip(held, partitions, strict=True)) / power
        found.append(float(problem.posterior.log_partition(problem.prior) - inner.value + surrogate))
        sites, gamma = inner.sites, inner.marginals
    return np.array(found), sites


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_the_energy_never_rises(power):
    found, _ = energies(HARD[0], power, 25)
    assert np.all(np.diff(found) <= 1e-9 * np.abs(found[:-1]))
    settled = cv.infer(HARD[0], cv.ConvergentEP(power=power))
    assert settled.converged and found[-1] >= -float(settled.log_evidence) - 1e-6


@pytest.mark.parametrize("seed", [0, 1])
def test_an_inner_maximum_on_the_border_of_proper_cavities(seed):
    """A wide prior over labels: steps that end anywhere on the border let the energy rise, and never arrive."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=16)
    kernel = 81.0 * np.exp(-0.5 * (x[:, None] - x) ** 2)
    labels = np.where(rng.random(16) < 0.2, -1.0, 1.0) * np.where(np.sin(2 * x) > 0, 1.0, -1.0)
    problem = cv.models.latent_gaussian(labels, cv.factors.Probit(), kernel_matrix=kernel).problem()
    found, _ = energies(problem, 1.0, 12)
    assert np.all(np.diff(found) < 0)
    settled, plain = cv.infer(problem, cv.ConvergentEP()), cv.infer(problem, cv.EP())
    assert settled.converged and plain.converged
    assert settled.log_evidence == pytest.approx(plain.log_evidence, abs=1e-8)


def test_power_solutions_are_those_of_power_ep():
    problem = HARD[1]
    swept, found = cv.infer(problem, cv.PowerEP(0.5)), cv.infer(problem, cv.ConvergentEP(power=0.5))
    assert swept.converged and found.converged and str(found.method) == "ConvergentEP(0.5)"
    np.testing.assert_allclose(found.mean, swept.mean, atol=1e-6)
    assert found.log_evidence == pytest.approx(swept.log_evidence, abs=1e-7)


TRIANGLE = cv.families.Product((cv.families.Categorical(2),) * 3)


def wanting_to_differ(x, data):
    pair, field, strength = data
    chosen = (2.0 * jnp.stack(x) - 1.0)[pair]
    return -strength * chosen[0] * chosen[1] + field * chosen[0]


FRUSTRATED = cv.factors.from_log_density(wanting_to_differ)


def triangle(strength):
    """Three binary variables, each pair wanting to differ: loopy belief propagation on a frustrated cycle."""
    pairs, fields = np.array([[0, 1], [1, 2], [2, 0]]), np.array([0.3, -0.1, 0.05])
    group = cv.SiteGroup(FRUSTRATED, (pairs, fields, np.full(3, strength)), TRIANGLE, cv.Enumeration())
    return cv.Problem(np.zeros(TRIANGLE.size), (group,), Shared(TRIANGLE)), pairs, fields


def test_categorical_fixed_points():
    """The beliefs match all tilted marginals, summed here by hand; where sweeps settle they are the same."""
    for strength in (0.4, 2.0):
        problem, pairs, fields = triangle(strength)
        solution = cv.infer(problem, cv.ConvergentEP())
        assert solution.status == "converged"
        weights = solution.sites[0].reshape(3, 3, 4)[:, :, :2]
        belief = np.exp(weights.sum(axis=0))
        belief /= belief.sum(axis=1, keepdims=True)
        for i, (pair, field) in enumerate(zip(pairs, fields, strict=True)):
            cavity = np.exp(weights.sum(axis=0) - weights[i])
            tilted = np.zeros((3, 2))
            for states in itertools.product((0, 1), repeat=3):
                spins = 2.0 * np.array(states) - 1
                mass = np.exp(-strength * spins[pair[0]] * spins[pair[1]] + field * spins[pair[0]])
                mass *= np.prod([cavity[k, state] for k, state in enumerate(states)])
                for k, state in enumerate(states):
                    tilted[k, state] += mass
            np.testing.assert_allclose(tilted / tilted.sum(axis=1, keepdims=True), belief, atol=1e-7)
        swept = cv.infer(problem, cv.EP(damping=0.5))
        if swept.converged and strength < 1:
            np.testing.assert_allclose(TRIANGLE.moments(solution.q), TRIANGLE.moments(swept.q), atol=1e-7)


def test_limits_and_callbacks():
    seen = []
    problem = HARD[2]
    solution = cv.infer(problem, cv.ConvergentEP(), callback=lambda s: seen.append(str(s.status)))
    assert seen[-1] == "converged" and set(seen[:-1]) <= {"running"} and len(seen) == solution.sweeps
    one = cv.infer(problem, cv.ConvergentEP(max_sweeps=2, tol=1e-300))
    assert one.status == "max_sweeps" and one.sweeps == 2

    def interrupt(solution):
        raise KeyboardInterrupt

    stopped = cv.infer(problem, cv.ConvergentEP(tol=1e-300), callback=interrupt)
    assert stopped.status == "interrupted" and stopped.sweeps == 1
    with pytest.raises(TypeError, match="driven from the host"):
        jax.vmap(lambda x: cv.infer(cv.models.clutter(x), cv.ConvergentEP()).mean)(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="power must be"):
        cv.ConvergentEP(power=0)
