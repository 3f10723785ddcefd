"""Parallel sweeps in columns are the sweeps of the general loop, and a textbook's, number by number."""

import dataclasses

import numpy as np
import pytest
from scipy.special import logsumexp
from small_graphs import SPINS, grid_edges, random_graph, spin_graph

import cavity as cv
from cavity.families.categorical import Categorical

METHODS = {
    "plain": cv.EP(schedule=cv.Parallel(), max_sweeps=30, tol=1e-10),
    "damped": cv.EP(schedule=cv.Parallel(), damping=0.6, max_sweeps=30, tol=1e-10),
    "fractional": cv.PowerEP(power=0.5, schedule=cv.Parallel(), max_sweeps=30, tol=1e-10),
}


def agree(graph, method):
    problem = graph.problem()
    fast, slow = cv.infer(problem, method), cv.infer(dataclasses.replace(problem, sweep_kernel=None), method)
    assert (fast.status, int(fast.sweeps), int(fast.evaluations)) == (
        slow.status,
        int(slow.sweeps),
        int(slow.evaluations),
    )
    np.testing.assert_allclose(fast.residuals, slow.residuals, rtol=1e-9, atol=1e-13)
    for own, other in zip(fast.mean, slow.mean, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-12)
    assert fast.log_evidence == pytest.approx(slow.log_evidence, rel=1e-12, abs=1e-10)
    return fast


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_mixed_tables_with_zeros(method):
    """Several groups, states 1 to 3, scopes of two and three, some weights exactly zero."""
    rng = np.random.default_rng(19)
    graph = random_graph(rng, variables=7, factors=9, zeros=0.1)
    agree(graph, method)


@pytest.mark.parametrize("strength", [2.0, 400.0], ids=["summed as weights", "too strong for weights"])
@pytest.mark.parametrize("evidence", [{}, {0: 1, 7: 0}], ids=["free", "observed"])
def test_strong_grid(evidence, strength):
    rng = np.random.default_rng(6)
    edges = grid_edges(3, 4)
    graph = spin_graph(edges, strength * rng.normal(size=len(edges)), rng.normal(size=12)).given(evidence)
    agree(graph, METHODS["plain"])


def test_weights_that_underflow_beside_others():
    """A field of 900 leaves weights of exp(−1800), below any number; the marginals of a tree are still exact."""
    graph = spin_graph([(0, 1), (1, 2)], [3.0, -2.0], [900.0, 0.1, -0.2])
    found = cv.infer(graph, cv.EP(schedule=cv.Parallel(), tol=1e-12))
    near, far = np.exp(3.0 + 0.1), np.exp(-3.0 - 0.1)
    last = [np.exp(-2.0 - 0.2) + 0.0, np.exp(2.0 + 0.2)], [np.exp(2.0 - 0.2), np.exp(-2.0 + 0.2)]
    joint = np.array([[near * last[0][0], near * last[0][1]], [far * last[1][0], far * last[1][1]]])
    joint /= joint.sum()
    np.testing.assert_allclose(found.marginals[1], joint.sum(axis=1), atol=1e-13)
    np.testing.assert_allclose(found.marginals[2], joint.sum(axis=0), atol=1e-13)


def test_impossible_through_a_loop():
    """Three variables that all must differ from each other, of two states: nothing to say, and no false claim."""
    graph = cv.DiscreteGraph([2, 2, 2])
    for pair in [(0, 1), (1, 2), (0, 2)]:
        graph.add_factor(pair, [[0.0, 1.0], [1.0, 0.0]])
    found = cv.infer(graph.given({}), cv.EP(schedule=cv.Parallel()))
    assert np.all(np.isfinite(found.marginals))


def test_one_sweep_is_the_textbook_s():
    """The messages of one flooding sweep, from plain sums of exponentials."""
    rng = np.random.default_rng(7)
    edges = grid_edges(2, 3)
    couplings, fields = rng.normal(size=len(edges)), rng.normal(size=6)
    found = cv.infer(spin_graph(edges, couplings, fields), cv.EP(schedule=cv.Parallel(), max_sweeps=2, tol=1e-14))
    log_fields = fields[:, None] * SPINS
    messages = {(k, end): np.zeros(2) for k in range(len(edges)) for end in (0, 1)}
    for _ in range(2):
        q = log_fields.copy()
        for (k, end), message in messages.items():
            q[edges[k][end]] += message
        for k, edge in enumerate(edges):
            table = couplings[k] * np.outer(SPINS, SPINS)
            cavities = [q[edge[end]] - messages[k, end] for end in (0, 1)]
            messages[k, 0] = logsumexp(table + cavities[1], axis=1)
            messages[k, 1] = logsumexp(table.T + cavities[0], axis=1)
    q = log_fields.copy()
    for (k, end), message in messages.items():
        q[edges[k][end]] += message
    expected = np.exp(q - logsumexp(q, axis=1, keepdims=True))
    np.testing.assert_allclose(found.marginals, expected, atol=1e-13)


def test_distance_of_categoricals():
    """|p − q| / sqrt(p (1 − p)), the largest: two states by log odds, more by sums; impossible states too."""
    rng = np.random.default_rng(8)
    for states in (2, 3, 5):
        family = Categorical(states)
        p, q = rng.dirichlet(np.full(states, 0.5), size=(2, 50))
        expected = np.max(np.abs(p - q) / np.sqrt(p * (1 - p)), axis=1)
        found = family.distance(family.from_probabilities(p), family.from_probabilities(q))
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    two = Categorical(2)
    sure, even = two.from_probabilities([1.0, 0.0]), two.from_probabilities([0.8, 0.2])
    assert two.distance(sure, sure) == 0
    assert two.distance(even, sure) == pytest.approx(0.2 / 0.4)
    assert two.distance(sure, even) > 1e100


def test_distance_near_certainty():
    """A relative change of 1e-9 of an odds of 1e-200 is seen."""
    two = Categorical(2)
    odds = np.log(1e-200)
    first, second = np.array([odds, 0.0, 0.0, 0.0]), np.array([odds + 1e-9, 0.0, 0.0, 0.0])
    assert two.distance(first, second) == pytest.approx(1e-9 * 1e-100, rel=1e-5)
