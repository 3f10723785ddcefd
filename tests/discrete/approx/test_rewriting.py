"""Tables made alike: fewer shapes, the same answers as by summing over all states of the graph as it is."""

import numpy as np
import pytest
from small_graphs import enumerated, joint_table

import cavity as cv
from cavity.discrete.approx.approximate import pad_states
from cavity.discrete.tables import WORTH, levels

CARDINALITIES = [5, 2, 3, 4, 2, 3]
TREE = [(0, 1), (2, 1), (3, 2), (2, 4), (5, 4)]


def graph_of(scopes, seed=0):
    rng = np.random.default_rng(seed)
    graph = cv.DiscreteGraph(CARDINALITIES)
    for scope in scopes:
        graph.add_factor(scope, rng.gamma(1.0, size=graph.cardinalities[list(scope)]))
    graph.add_factor([3], rng.gamma(1.0, size=4))
    return graph


def test_small_tables_become_one_shape():
    shapes = {own.shape for own in pad_states(graph_of(TREE)).factors.by_shape if len(own.shape) > 1}
    assert shapes == {(5, 5)}


def test_tables_that_would_grow_too_much_keep_their_shapes():
    many = WORTH // 10
    assert levels([((2, 2), many), ((3, 3), many)], [2, 3]) == {2: 3, 3: 3}
    assert levels([((2, 2), many), ((5, 5), many)], [2, 5]) == {2: 2, 5: 5}
    assert levels([((2,) * 10, 1), ((2, 4), 1)], [2, 4]) == {2: 2, 4: 4}


def test_one_number_of_states_changes_nothing():
    graph = cv.DiscreteGraph([3, 3])
    graph.add_factor([0, 1], np.ones((3, 3)))
    assert pad_states(graph) is graph


def test_the_distribution_is_the_same():
    graph = graph_of(TREE).given({4: 1}, likelihoods={0: [1.0, 2.0, 0.0, 1.0, 3.0]})
    wider = joint_table(pad_states(graph))
    own = tuple(slice(k) for k in CARDINALITIES)
    np.testing.assert_array_equal(wider[own], joint_table(graph))
    inside = np.zeros(wider.shape, bool)
    inside[own] = True
    assert (wider[~inside] == -np.inf).all()


@pytest.mark.parametrize(
    "schedule", [None, cv.Parallel(), graph_of(TREE).tree_by_tree()], ids=["default", "parallel", "tree by tree"]
)
def test_answers_have_the_users_states(schedule):
    graph = graph_of(TREE).given({4: 1}, likelihoods={0: [1.0, 2.0, 0.0, 1.0, 3.0]})
    log_z, marginals = enumerated(graph)
    found = cv.infer(graph, cv.EP(schedule=schedule))
    assert abs(found.log_evidence - log_z) < 1e-12
    for own, true in zip(found.marginals, marginals, strict=True):
        np.testing.assert_allclose(own, true, atol=1e-12)
    assert found.pair(3, 2).shape == (4, 3)
    np.testing.assert_allclose(found.pair(3, 2).sum(axis=1), marginals[3], atol=1e-10)
    np.testing.assert_allclose(found.pair(2, 3), found.pair(3, 2).T)


def test_one_sweep_tree_by_tree_is_exact():
    """Though the tables had four shapes: they are one group."""
    graph = graph_of(TREE)
    found = cv.infer(graph, cv.EP(schedule=graph.tree_by_tree(), max_sweeps=1))
    assert abs(found.log_evidence - enumerated(graph)[0]) < 1e-12


def test_clusters_of_different_sizes():
    graph = graph_of([*TREE, (0, 3)], seed=1)
    log_z, marginals = enumerated(graph)
    found = cv.infer(graph.approximate(cv.Clusters([[0, 1], [2, 3]]), groups=[[1, 5]]), cv.EP())
    assert abs(found.log_evidence - log_z) < 1e-12
    for own, true in zip(found.marginals, marginals, strict=True):
        np.testing.assert_allclose(own, true, atol=1e-12)
    assert found.pair(1, 0).shape == (2, 5)
    assert found.pair(0, 3).shape == (5, 4)


def test_most_probable_states_are_the_users():
    graph = graph_of(TREE, seed=2)
    table = joint_table(graph)
    found = cv.max_product(graph)
    assert found.states.tolist() == list(np.unravel_index(np.argmax(table), table.shape))
    assert [len(own) for own in found.max_marginals] == CARDINALITIES


def test_evidence_after_a_factor_was_added():
    graph = graph_of(TREE)
    cv.infer(graph, cv.EP())
    graph.add_factor([5], [1.0, 2.0, 3.0])
    given = graph.given({0: 4})
    assert abs(cv.infer(given, cv.EP()).log_evidence - enumerated(given)[0]) < 1e-12
