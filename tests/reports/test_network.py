"""Drawings of graphs: places follow the edges, nothing overlaps, equal graphs give equal files."""

import itertools

import numpy as np
import pytest

from cavity.discrete import DiscreteGraph
from cavity.reports.figures import png
from cavity.reports.network import arranged, layout, least_certain, network_figure, uncertainty


def grid(side):
    """Edges of a square grid."""
    cells = list(itertools.product(range(side), repeat=2))
    return [
        (a, b)
        for a, one in enumerate(cells)
        for b, two in enumerate(cells)
        if a < b and np.abs(np.subtract(one, two)).sum() == 1
    ]


def test_a_grid_has_rows_and_columns():
    edges = grid(4)
    places = layout(16, edges, [1.0] * len(edges), np.full(16, 0.3))
    wanted = np.stack([np.arange(16) % 4, -(np.arange(16) // 4)], axis=1) - [1.5, -1.5]
    found = places - places.mean(axis=0)
    either = min(np.abs(found - wanted).max(), np.abs(found - wanted[:, ::-1] * [-1, -1]).max())
    assert either < 0.35


def test_nodes_do_not_overlap_and_parts_stand_apart():
    star = [(0, leaf) for leaf in range(1, 12)]
    edges = [*star, (12, 13), (13, 14)]
    places = layout(16, edges, [1.0] * len(edges), np.full(16, 0.3))
    distances = np.linalg.norm(places[:, None] - places[None], axis=2) + 10 * np.eye(16)
    assert distances.min() > 0.59
    assert np.isfinite(places).all()
    assert distances[:12, 12:].min() > 0.9 and distances[15, :15].min() > 0.9
    assert layout(0, [], [], np.zeros(0)).shape == (0, 2)


def test_equal_graphs_give_equal_drawings():
    graph = DiscreteGraph([2, 3, 2, 2])
    graph.add_variable(["a", "b"], "cost $x_1^")  # a name is no formula
    for scope in ((0,), (0, 1), (1, 2, 3), (3, 4)):
        graph.add_factor(scope, np.ones(graph.cardinalities[list(scope)]))
    graph.add_factor((), 2.0)
    graph = graph.given({2: 1})
    marginals = [np.full(k, 1 / k) for k in graph.cardinalities]
    assert len(arranged(graph).factors) == 4
    first, second = (png(network_figure(graph, marginals, "title"), dpi=40) for _ in range(2))
    assert first == second and first.startswith(b"\x89PNG\r\n")


def test_the_least_certain_come_first():
    assert uncertainty(np.array([1.0])) == uncertainty(np.array([0.0, 1.0])) == 0.0
    assert uncertainty(np.full(3, 1 / 3)) == pytest.approx(1.0)
    graph = DiscreteGraph([2, 2, 6]).given({1: 0})
    marginals = [np.array([0.9, 0.1]), np.array([1.0, 0.0]), np.full(6, 1 / 6)]
    table = least_certain(graph, marginals, 5)
    assert [row[:2] for row in table.rows] == [("x2", "1.000"), ("x0", "0.469")]
    assert table.rows[0][2].endswith("2 more") and table.rows[1][2] == "0 0.9000, 1 0.1000"
    assert least_certain(graph, marginals, 1).note == "1 more are more certain."


def test_what_is_not_drawn():
    with pytest.raises(ValueError, match="1 to 500 variables"):
        network_figure(DiscreteGraph([2] * 501), [], "title")
