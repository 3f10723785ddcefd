"""Exact inference in networks of conditional distributions: what nobody asks about is left out, and nothing else is."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from small_graphs import enumerated, joint_table

from cavity.discrete import DiscreteGraph
from cavity.discrete.exact import _program as planning
from cavity.discrete.exact._clique_tree import clique_tree
from cavity.discrete.exact._program import Program, plan_program
from cavity.discrete.exact._weighted_tables import find_conditionals, free_tables
from cavity.discrete.exact.junction_tree import exact_discrete


def program(graph: DiscreteGraph) -> Program:
    start = free_tables(graph)
    return plan_program(start.scopes, start.children, tuple(start.states.items()), math.inf)[1]


def conditional(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A distribution of the first axis for all others, in one of several guises."""
    kind = rng.integers(4)
    if kind == 0 and shape[0] > 1:  # deterministic
        return np.moveaxis(np.eye(shape[0])[rng.integers(shape[0], size=shape[1:])], -1, 0)
    if kind == 1 and len(shape) == 2 and shape[0] == shape[1]:  # of either variable
        return np.full(shape, 0.3 / shape[0]) + 0.7 * np.eye(shape[0])
    weights = rng.gamma(0.7, size=shape)
    return weights / weights.sum(axis=0) * (5 * rng.random() if kind == 2 else 1.0)


def random_network(seed: int) -> DiscreteGraph:
    """Mostly a Bayesian network; some variables without a table, some tables that are no distributions, some that point
    in a circle; evidence and likelihoods.
    """
    rng = np.random.default_rng(seed)
    cards = rng.integers(1, 4, rng.integers(1, 9))
    graph = DiscreteGraph(cards)
    for v in rng.permutation(len(cards)):
        if rng.random() < 0.15:
            continue
        parents = rng.permutation(v)[: rng.integers(4)]
        if rng.random() < 0.1:
            parents = np.array([u for u in rng.permutation(len(cards))[:2] if u != v], int)
        scope = np.array([v, *parents], int)
        shape = tuple(cards[scope].tolist())
        table = conditional(rng, shape) if rng.random() < 0.85 else rng.random(shape) * (rng.random(shape) > 0.1)
        axes = rng.permutation(len(scope))
        graph.add_factor(scope[axes], table.transpose(axes))
    often = rng.choice([0.0, 0.15, 0.3])
    seen = {v: int(rng.integers(cards[v])) for v in range(len(cards)) if rng.random() < often}
    return graph.given(seen, likelihoods={v: rng.random(cards[v]) for v in range(len(cards)) if rng.random() < 0.1})


@pytest.mark.parametrize("small", [planning.SMALL, 4], ids=["at once", "two at a time"])
def test_equals_enumeration(small: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(planning, "SMALL", small)
    monkeypatch.setattr(planning, "FEW", 2 if small == 4 else planning.FEW)
    plan_program.cache_clear()
    for seed in range(200):
        graph = random_network(seed)
        if logsumexp(joint_table(graph)) == -np.inf:
            with pytest.raises(ValueError, match="probability zero"):
                exact_discrete(graph)
            continue
        log_z, marginals = enumerated(graph)
        found = exact_discrete(graph)
        np.testing.assert_allclose(found.log_evidence, log_z, rtol=0, atol=1e-12, err_msg=str(seed))
        for own, wanted in zip(found.marginals, marginals, strict=True):
            np.testing.assert_allclose(own, wanted, rtol=1e-12, atol=1e-300, err_msg=str(seed))
    plan_program.cache_clear()


def two_layers(causes: int, effects: int, parents: int) -> DiscreteGraph:
    """Causes, and effects that each have some of them as parents."""
    rng = np.random.default_rng(0)
    graph = DiscreteGraph([2] * (causes + effects))
    for v in range(causes + effects):
        above = rng.permutation(causes)[: parents if v >= causes else 0]
        weights = rng.random((2,) * (1 + len(above)))
        graph.add_factor([v, *above], weights / weights.sum(axis=0))
    return graph


def test_effects_that_nobody_saw_cost_nothing():
    """All causes together would be a table of 2^20 entries."""
    graph = two_layers(20, 60, 4)
    unseen, seen = program(graph), program(graph.given({20: 1, 21: 0}))
    assert unseen.entries < 1000 and seen.entries < 5000
    assert unseen.upward == 0 and not unseen.scalars
    assert abs(exact_discrete(graph).log_evidence) < 1e-13


def test_a_program_serves_again():
    graph = two_layers(6, 6, 3)
    exact_discrete(graph.given({7: 0}))
    before = plan_program.cache_info().misses, clique_tree.cache_info().misses
    again = exact_discrete(graph.given({7: 1}))
    assert (plan_program.cache_info().misses, clique_tree.cache_info().misses) == before
    np.testing.assert_allclose(again.log_evidence, enumerated(graph.given({7: 1}))[0], rtol=0, atol=1e-13)
    graph.add_factor([0, 7], [[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_allclose(exact_discrete(graph).log_evidence, enumerated(graph)[0], rtol=0, atol=1e-13)


def test_each_variable_is_the_child_of_one_table():
    """The symmetric table could belong to either end; the first end has a table of its own already."""
    graph = DiscreteGraph([2, 2, 2])
    graph.add_factor([0, 1], [[0.9, 0.1], [0.1, 0.9]])
    graph.add_factor([0], [0.3, 0.7])
    graph.add_factor([1, 2], [[0.2, 0.5], [0.3, 0.5]])
    groups = graph.factors.by_shape
    children = {own.shape: part.child.tolist() for own, part in zip(groups, find_conditionals(groups), strict=True)}
    assert children == {(2, 2): [1, -1], (2,): [0]}


def test_rows_that_miss_one_by_rounding_of_a_file_are_kept():
    """Rows that sum to 1 and to 1 − 1e-7 are different: the leaf says a little about its parent."""
    graph = DiscreteGraph([2, 2])
    graph.add_factor([0], [0.5, 0.5])
    graph.add_factor([1, 0], [[0.3, 0.2], [0.7, 0.7999999]])
    found = exact_discrete(graph)
    np.testing.assert_allclose(found.marginals[0], np.array([1.0, 0.9999999]) / 1.9999999, rtol=1e-14)
