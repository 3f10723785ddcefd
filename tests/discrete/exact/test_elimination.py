"""Elimination orders: known widths, the bookkeeping against a plain count, what is given up."""

import math

import numpy as np
import pytest

from cavity.discrete.exact._clique_tree import Elimination, eliminate, elimination_order, min_fill, missing_pairs


def graph_of(edges: list[tuple[int, int]], n: int) -> list[set[int]]:
    neighbours: list[set[int]] = [set() for _ in range(n)]
    for a, b in edges:
        neighbours[a].add(b)
        neighbours[b].add(a)
    return neighbours


def grid(rows: int, columns: int) -> list[set[int]]:
    number = np.arange(rows * columns).reshape(rows, columns)
    pairs = [*zip(number[:-1].ravel(), number[1:].ravel(), strict=True)]
    pairs += [*zip(number[:, :-1].ravel(), number[:, 1:].ravel(), strict=True)]
    return graph_of([(int(a), int(b)) for a, b in pairs], rows * columns)


def random_graph(seed: int, n: int = 14) -> list[set[int]]:
    rng = np.random.default_rng(seed)
    chosen = np.argwhere(np.triu(rng.random((n, n)) < rng.uniform(0.1, 0.5), 1))
    return graph_of([(int(a), int(b)) for a, b in chosen], n)


def replayed(neighbours: list[set[int]], order: list[int]) -> list[tuple[int, set[int], list[int]]]:
    """Vertex, its neighbours and the missing pairs of all that are left, counted anew at each step."""
    left = [set(own) for own in neighbours]
    alive, steps = set(range(len(left))), []
    for vertex in order:
        steps.append((vertex, set(left[vertex]), {v: missing_pairs(left, v) for v in alive}))
        alive.remove(vertex)
        for u in left[vertex]:
            left[u] |= left[vertex] - {u}
            left[u].discard(vertex)
    return steps


@pytest.mark.parametrize("seed", range(20))
def test_kept_counts_are_those_counted_anew(seed: int):
    neighbours = random_graph(seed)
    cards = np.random.default_rng(seed).integers(2, 5, len(neighbours))
    found = eliminate(neighbours, np.log2(cards).tolist(), min_fill)
    assert sorted(found.order) == list(range(len(neighbours)))
    sizes, filled = [], 0
    for (vertex, around, fills), separator in zip(replayed(neighbours, found.order), found.separators, strict=True):
        assert around == separator
        assert fills[vertex] == min(fills.values())
        filled += fills[vertex]
        sizes.append(math.prod(cards[[vertex, *around]].tolist()))
    assert filled == found.filled
    np.testing.assert_allclose(found.total, sum(sizes))
    np.testing.assert_allclose(2.0**found.log2_largest, max(sizes))


@pytest.mark.parametrize(
    ("neighbours", "width"),
    [
        (graph_of([(k, k + 1) for k in range(499)], 500), 1),
        (graph_of([(0, k) for k in range(1, 3000)], 3000), 1),
        (graph_of([(k, (k + 1) % 50) for k in range(50)], 50), 2),
        (graph_of([(a, b) for a in range(9) for b in range(a)], 9), 8),
        (grid(4, 4), 4),
        (graph_of([], 5), 0),
        ([], 0),
    ],
    ids=["chain", "star", "ring", "complete", "grid", "no edges", "nothing"],
)
def test_known_widths(neighbours: list[set[int]], width: int):
    assert elimination_order(neighbours, [2] * len(neighbours)).width == width


def test_a_large_grid_gets_the_order_of_its_rows():
    """Min-fill finds width 25 here; rows one after another have width 18, the true one."""
    found = elimination_order(grid(18, 18), [2] * 324)
    assert found.width == 18 and found.complete


def test_a_thousand_variables():
    found = elimination_order(grid(10, 100), [2] * 1000)
    assert found.width <= 12


def test_ties_of_fill_go_to_the_smaller_table():
    """A square: all vertices add one edge; the one with the smallest table of three goes first."""
    found = eliminate(graph_of([(0, 1), (1, 2), (2, 3), (3, 0)], 4), np.log2([5, 3, 2, 3]).tolist(), min_fill)
    assert found.order[0] == 2


def test_min_weight_wins_where_its_tables_are_smaller():
    """The order kept is never larger than min-fill's."""
    for seed in range(20):
        neighbours = random_graph(seed)
        cards = np.random.default_rng(seed + 100).integers(2, 9, len(neighbours))
        kept = elimination_order(neighbours, cards)
        assert kept.total <= eliminate(neighbours, np.log2(cards).tolist(), min_fill).total * (1 + 1e-12)


def test_gives_up_past_the_limit():
    found: Elimination = elimination_order(grid(30, 30), [2] * 900, log2_largest=12.0)
    assert not found.complete
    assert found.log2_largest > 12.0
