"""Max-product: exact on trees, a lower bound elsewhere, by comparison with all states."""

import numpy as np
import pytest
from small_graphs import grid_edges, joint_table, random_graph, spin_graph

import cavity as cv

CHAIN = [(0, 1), (1, 2), (1, 3), (3, 4), (3, 5), (5, 6)]


def best_of(graph):
    table = joint_table(graph)
    return np.array(np.unravel_index(np.argmax(table), table.shape)), table.max(), table


@pytest.mark.parametrize("schedule", [None, cv.Parallel()], ids=["in order", "parallel"])
def test_exact_on_a_tree(schedule):
    rng = np.random.default_rng(0)
    graph = spin_graph(CHAIN, 2 * rng.normal(size=6), rng.normal(size=7)).given({4: 1})
    states, weight, table = best_of(graph)
    found = cv.max_product(graph, cv.EP(schedule=schedule))
    assert found.status == "converged"
    assert found.states.tolist() == states.tolist()
    assert found.log_weight == pytest.approx(weight, abs=1e-12)
    for variable in range(7):
        axes = tuple(k for k in range(7) if k != variable)
        np.testing.assert_allclose(found.max_marginals[variable], np.exp(table.max(axis=axes) - weight), atol=1e-12)


def test_mixed_cardinalities_and_zeros_on_a_tree():
    rng = np.random.default_rng(3)
    graph = cv.DiscreteGraph([3, 2, 4, 1, 2])
    for scope in ([0, 1], [1, 2], [1, 3, 4]):
        weights = rng.gamma(1.0, size=graph.cardinalities[scope])
        weights.flat[1] = 0.0
        graph.add_factor(scope, weights)
    found = cv.max_product(graph)
    states, weight, _ = best_of(graph)
    assert found.states.tolist() == states.tolist()
    assert found.log_weight == pytest.approx(weight, abs=1e-12)


def test_ties_are_broken_together():
    """Neighbours must differ and nothing else is said: every variable alone finds both states equally good."""
    graph = cv.DiscreteGraph([2] * 7)
    for pair in CHAIN:
        graph.add_factor(pair, [[0.0, 1.0], [1.0, 0.0]])
    found = cv.max_product(graph)
    assert found.log_weight == 0.0
    assert all(found.states[a] != found.states[b] for a, b in CHAIN)


def test_grids_are_solved_mostly_and_never_overstated():
    rng = np.random.default_rng(1)
    edges, right = grid_edges(3, 3), 0
    for _ in range(20):
        graph = spin_graph(edges, rng.normal(size=12), rng.normal(size=9))
        weight = best_of(graph)[1]
        found = cv.max_product(graph)
        assert found.log_weight <= weight + 1e-10
        right += found.log_weight > weight - 1e-10
    assert right >= 17


def test_the_weight_is_that_of_the_states():
    graph = random_graph(np.random.default_rng(19), variables=7, factors=9, zeros=0.1)
    found = cv.max_product(graph)
    assert found.log_weight == pytest.approx(joint_table(graph)[tuple(found.states)], abs=1e-12)
