"""What is proposed can be run, costs what it says, and gains in the order in which it is proposed."""

import math

import numpy as np
import pytest
from small_graphs import enumerated, grid_edges, spin_graph

import cavity as cv


def grid(rng, strength=1.0):
    edges = grid_edges(4, 4)
    return spin_graph(edges, strength * rng.normal(size=24), 0.3 * rng.normal(size=16))


def test_what_is_proposed_for_a_grid():
    graph = grid(np.random.default_rng(0))
    found = {own.name: own for own in graph.suggest()}
    assert set(found) == {"disconnected", "tree", "grouped loops", "exact"}
    assert found["disconnected"].held == 0.0 and found["exact"].held == 1.0
    # 24 pair tables of 4 entries, each read for both variables.
    assert found["disconnected"].cost == 24 * 4 * 2
    assert 0.5 < found["tree"].held < 1.0
    groups = found["grouped loops"].approximation.groups
    flat = [number for group in groups for number in group]
    assert len(set(flat)) == len(flat) and all(len(group) >= 3 for group in groups)
    scopes = [own.scope for own in graph]
    for group in groups:
        ends = [v for number in group for v in scopes[number]]
        assert all(ends.count(v) == 2 for v in ends)
    # A loop of k edges sums over 2^k states for each of its k variables, a single edge over 4 for both of its two.
    sums = sum(2 ** len(group) * len(group) for group in groups) + (24 - len(flat)) * 8
    assert found["grouped loops"].cost >= sums > 1.5 * found["disconnected"].cost
    assert next(own.name for own in graph.suggest()) == "exact"
    assert "times belief propagation's" in str(found["tree"]) and "cavity.exact" in str(found["exact"])


def test_only_what_can_be_afforded():
    graph = grid(np.random.default_rng(0))
    assert [own.name for own in graph.suggest(cost=1.0)] == ["disconnected"]
    assert "exact" not in [own.name for own in graph.suggest(cost=250.0)]


def test_a_tree_is_held_whole():
    graph = spin_graph([(0, 1), (1, 2), (1, 3)], [1.0, -1.0, 0.5], np.zeros(4))
    found = {own.name: own for own in graph.suggest()}
    assert found["tree"].held == pytest.approx(1.0)
    assert "grouped loops" not in found


def test_more_held_means_less_error():
    """Geometric mean of the error over random grids falls in the order in which approximations are proposed."""
    rng, errors = np.random.default_rng(2), {}
    for _ in range(8):
        graph = grid(rng, 0.7)
        truth = np.array(enumerated(graph)[1])
        for own in graph.suggest():
            if own.approximation is not None:
                found = cv.infer(own.approximation, cv.EP(max_sweeps=500))
                if found.converged:
                    errors.setdefault(own.name, []).append(math.log(np.abs(found.marginals - truth).mean()))
    mean = {name: np.mean(own) for name, own in errors.items()}
    assert mean["tree"] < mean["disconnected"] - 1.0
    assert mean["grouped loops"] < mean["disconnected"]
