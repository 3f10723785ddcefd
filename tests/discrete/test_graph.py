"""A graph's answers follow every change of it, and copies with other evidence have changes of their own."""

import copy

import numpy as np
import pytest
from small_graphs import enumerated

import cavity as cv

SMALL = np.array([[1.0, 2.0], [3.0, 1.0]])


@pytest.fixture
def asked():
    """A graph of unequal numbers of states that has answered already, exactly and approximately."""
    graph = cv.DiscreteGraph([2, 3])
    graph.add_factor([0, 1], np.arange(1.0, 7.0).reshape(2, 3))
    cv.infer(graph, cv.EP())
    cv.exact(graph)
    return graph


def agrees(graph):
    """Exact inference and, these graphs being trees, belief propagation: as by summing over all states."""
    log_z, marginals = enumerated(graph)
    for found in (cv.exact(graph), cv.infer(graph, cv.EP())):
        assert float(found.log_evidence) == pytest.approx(log_z, abs=1e-12)
        for own, wanted in zip(found.marginals, marginals, strict=True):
            np.testing.assert_allclose(np.asarray(own)[: len(wanted)], wanted, atol=1e-12)


def test_a_variable_and_its_factor_count(asked):
    variable = asked.add_variable(2)
    agrees(asked)
    asked.add_factor([0, variable], SMALL)
    agrees(asked)


@pytest.mark.parametrize("another", [copy.copy, lambda graph: graph.given({0: 1})], ids=["copy", "evidence"])
def test_a_copy_goes_its_own_way(asked, another):
    given = another(asked)
    given.add_factor([1], [1.0, 5.0, 2.0])
    given.add_variable(2, "new")
    asked.add_factor([0], [1.0, 4.0])
    assert [len(graph.factors) for graph in (asked, given)] == [2, 2]
    assert [len(graph.variables) for graph in (asked, given)] == [2, 3]
    agrees(asked)
    agrees(given)


def test_exact_answers_are_of_the_graph_that_was_asked(asked):
    found, table = cv.exact(asked), np.arange(1.0, 7.0).reshape(2, 3)
    asked.add_factor([0], [1.0, 9.0])
    np.testing.assert_allclose(found.pair(0, 1), table / table.sum(), atol=1e-12)


def test_what_was_given_can_be_written_over():
    scopes, values = np.array([[0, 1]]), np.log(SMALL)[None]
    graph = cv.DiscreteGraph([2, 2])
    graph.add_factors(scopes, values, log=True)
    scopes[:], values[:] = 0, 0.0
    agrees(graph)
    with pytest.raises(ValueError, match="read-only"):
        graph.factors.by_shape[0].log_values[:] = 0.0


def test_evidence_shares_what_was_worked_out(asked):
    assert asked.given({0: 1}).factors is asked.given({1: 2}).factors


def test_a_read_graph_can_be_asked_and_extended():
    graph = cv.DiscreteGraph.read("MARKOV 2 2 2 1 2 0 1 4 1 2 3 1\n")
    assert isinstance(graph.given({0: 1}), cv.DiscreteGraph)
    graph.add_factor([graph.add_variable(3, "new"), 0], np.arange(1.0, 7.0).reshape(3, 2))
    agrees(graph)
