"""A graph in parts against belief propagation written out in NumPy on the whole, and against enumeration on a tree."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from cavity import distributed
from cavity.discrete import DiscreteGraph
from cavity.distributed.graph_fit import cut_graph
from cavity.inference.status import Status


def grid(side: int, seed: int = 0, coupling: float = 0.5) -> DiscreteGraph:
    """Spins on a square grid with random couplings and fields."""
    rng = np.random.default_rng(seed)
    graph = DiscreteGraph([2] * side**2)
    for row, column in itertools.product(range(side), repeat=2):
        here = side * row + column
        graph.add_factor([here], rng.normal(size=2), log=True)
        for there in [here + 1] * (column + 1 < side) + [here + side] * (row + 1 < side):
            strength = coupling * rng.normal()
            graph.add_factor([here, there], [[strength, -strength], [-strength, strength]], log=True)
    return graph


def belief_propagation(graph: DiscreteGraph, sweeps: int = 120):
    """(marginals, Bethe log partition function): sum-product in log weights, all messages at once."""
    factors = list(graph)
    messages = {(a, v): np.zeros(graph.cardinalities[v]) for a, own in enumerate(factors) for v in own.scope}

    def belief(variable, without=None):
        said = [own for (a, v), own in messages.items() if v == variable and a != without]
        return np.sum(said, axis=0) if said else np.zeros(graph.cardinalities[variable])

    def joint(a):
        table = factors[a].log_values.copy()
        for axis, v in enumerate(factors[a].scope):
            shape = [1] * table.ndim
            shape[axis] = -1
            table = table + belief(v, a).reshape(shape)
        return table

    for _ in range(sweeps):
        new = {}
        for (a, v), _old in messages.items():
            axis = factors[a].scope.index(v)
            others = tuple(k for k in range(len(factors[a].scope)) if k != axis)
            said = logsumexp(joint(a), axis=others) - belief(v, a)
            new[a, v] = said - logsumexp(said)
        messages = new
    marginals = [np.exp(belief(v) - logsumexp(belief(v))) for v in range(len(graph.variables))]
    total = 0.0
    for a, own in enumerate(factors):
        table = joint(a)
        p = np.exp(table - logsumexp(table))
        total += np.sum(p * (own.log_values - np.log(p)))
    for v, p in enumerate(marginals):
        degree = sum(v in own.scope for own in factors)
        total += (degree - 1) * np.sum(p * np.log(p))
    return marginals, total


@pytest.fixture(scope="module")
def whole():
    graph = grid(3)
    return graph, *belief_propagation(graph)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_parts_have_the_fixed_point_of_the_whole(client, whole, asynchronous):
    graph, marginals, log_partition = whole
    found = distributed.infer_in_parts(graph, 2, client=client, asynchronous=asynchronous, tol=1e-10)
    assert found.status is Status.CONVERGED and 0 < found.shared < 9
    np.testing.assert_allclose(found.marginals, marginals, atol=1e-8)
    np.testing.assert_allclose(found.log_evidence, log_partition, atol=1e-8)


def test_a_tree_in_parts_is_exact_also_with_evidence_and_zeros(client):
    rng = np.random.default_rng(2)
    graph = DiscreteGraph([2, 3, 2, 3, 2])
    for scope in ([0, 1], [2, 1], [2, 3], [4, 3]):
        table = rng.uniform(0.2, 1, size=(2, 3))
        table[0, 2] *= scope != [2, 3]
        graph.add_factor(scope, table)
    graph.add_factor([3], [0.3, 0.0, 1.0])
    graph.add_factor([1], [1.0, 2.0, 0.5])
    graph = graph.given({4: 1})
    found = distributed.infer_in_parts(graph, [[0, 1], [2, 3]], client=client)
    joint = np.zeros((2, 3, 2, 3, 2))
    for x in itertools.product(*(range(k) for k in joint.shape)):
        weight = np.exp(sum(own.log_values[tuple(x[v] for v in own.scope)] for own in graph))
        joint[x] = weight * (x[4] == 1)
    assert found.converged and found.shared == 1
    np.testing.assert_allclose(found.log_evidence, np.log(joint.sum()), rtol=1e-9)
    for variable, marginal in enumerate(found.marginals):
        exact = joint.sum(tuple(k for k in range(5) if k != variable)) / joint.sum()
        np.testing.assert_allclose(marginal, exact, atol=1e-9)


def test_every_factor_is_in_one_part_and_only_borders_are_shared():
    graph = grid(5)
    cut = cut_graph(graph, 3)
    assert len(cut.plans) == 3
    assert sum(len(scopes) for plan in cut.plans for scopes, _ in plan.tables) == 40
    held = np.zeros(25, int)
    for plan in cut.plans:
        held[plan.variables] += 1
    np.testing.assert_array_equal(np.flatnonzero(held > 1), cut.shared)
    assert sum(int((~plan.shared).sum()) for plan in cut.plans) + len(cut.shared) == 25
    assert len(cut.shared) < 15


def test_a_graph_without_tables_of_several_variables_is_one_part(client):
    graph = DiscreteGraph([2, 3])
    graph.add_factor([1], [1.0, 2.0, 3.0])
    found = distributed.infer_in_parts(graph, 4, client=client)
    np.testing.assert_allclose(found.marginals[1], np.array([1, 2, 3]) / 6)
    np.testing.assert_allclose(found.log_evidence, np.log(12.0))


@pytest.mark.parametrize("parts", [0, [[0]], [[0, 1, 2, 3], [3]], [[0, 1, 2, 9]]])
def test_wrong_parts_are_refused(parts):
    graph = DiscreteGraph([2] * 5)
    graph.add_factors([[0, 1], [1, 2], [2, 3], [3, 4]], np.ones((4, 2, 2)))
    with pytest.raises(ValueError, match="parts must"):
        cut_graph(graph, parts)
