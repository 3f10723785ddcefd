"""Spanning trees: chosen by mutual information or given, rooted in the middle, and the subtrees that scopes span."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from scipy.special import logsumexp

from cavity.discrete.graph import TableGraph
from cavity.discrete.tables import Tables


class Rooted(NamedTuple):
    """A forest. parent: of every variable, −1 for roots; depth: 0 for roots."""

    parent: np.ndarray
    depth: np.ndarray


class Span(NamedTuple):
    """A subtree: its top (−1 above all roots), the variable below each edge, and the number of each edge's parent node.

    Node 0 is the top and node e + 1 the variable below edge e; parents come before children.
    """

    top: int
    nodes: list[int]
    parents: list[int]


class Walk(NamedTuple):
    """The path between two variables: up to its top (−1 above all roots), then down.

    nodes: the variable below each edge; upward: whether the edge is walked from it to its parent; peak: an edge at top.
    """

    top: int
    nodes: list[int]
    upward: list[bool]
    peak: int


def pair_information(graph: TableGraph) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of variables that share a factor, and the mutual information of each.

    Of the normalised product of what is known of the pair alone: its factors, larger ones summed over their other
    variables, and the factors of its two variables.
    """
    cards = graph.cardinalities
    starts = np.cumsum(cards) - cards
    flat = graph.flat_unary()
    own = [flat[start : start + k] for start, k in zip(starts, cards, strict=True)]
    found: dict[tuple[int, int], np.ndarray] = {}
    for group in graph.tables():
        slots = range(len(group.shape))
        for i, j in ((i, j) for i in slots for j in slots if i < j):
            rest = tuple(k + 1 for k in slots if k not in (i, j))
            for scope, table in zip(group.scopes, sum_out(group, rest, own), strict=True):
                a, b = int(scope[i]), int(scope[j])
                key, values = ((a, b), table) if a < b else ((b, a), table.T)
                found[key] = found[key] + values if key in found else values
    pairs = np.array(list(found), np.int64).reshape(-1, 2)
    joint = (table + own[a][:, None] + own[b] for (a, b), table in found.items())
    return pairs, np.array([mutual_information(table) for table in joint])


def sum_out(group: Tables, rest: tuple[int, ...], own: list[np.ndarray]) -> np.ndarray:
    """Log tables of a group summed over some of their variables, weighted by what each says alone."""
    tables = group.log_values
    if not rest:
        return tables
    weighted = tables.copy()
    for axis in rest:
        shape = [1] * tables.ndim
        shape[axis] = tables.shape[axis]
        for number, scope in enumerate(group.scopes):
            weighted[number] = weighted[number] + own[scope[axis - 1]].reshape(shape[1:])
    return np.asarray(logsumexp(weighted, axis=rest))


def mutual_information(log_joint: np.ndarray) -> float:
    """Of the normalised table; 0 where nothing is possible."""
    total = logsumexp(log_joint)
    if total == -np.inf:
        return 0.0
    p = np.exp(log_joint - total)
    independent = p.sum(1, keepdims=True) * p.sum(0)
    seen = p > 0
    return max(0.0, float(np.sum(p[seen] * np.log(p[seen] / independent[seen]))))


def maximal_tree(count: int, pairs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Edges of the spanning forest with the largest sum of weights, which are not negative."""
    if not len(pairs):
        return pairs
    # A weight of 0 would be no edge to SciPy, and the smallest sum of negative weights is the largest of weights.
    matrix = coo_array((-1.0 - weights, (pairs[:, 0], pairs[:, 1])), shape=(count, count)).tocsr()
    tree = minimum_spanning_tree(matrix).tocoo()
    return np.stack([tree.row, tree.col], axis=1).astype(np.int64)


def root_forest(count: int, edges: np.ndarray) -> Rooted:
    """The forest with every tree hung up at its middle, so that it is as shallow as it can be."""
    ends = np.concatenate([edges, edges[:, ::-1]])
    matrix = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count)).tocsr()
    components, label = connected_components(matrix, directed=False)
    if len(edges) != count - components:
        raise ValueError("the edges of the tree close a loop.")
    parent, depth = np.full(count, -1), np.zeros(count, np.int64)
    first = np.unique(label, return_index=True)[1]
    alone = np.bincount(label, minlength=components) == 1
    for start in first[~alone]:
        end = breadth_first_order(matrix, start, directed=False)[0][-1]
        order, before = breadth_first_order(matrix, end, directed=False)
        path = [int(order[-1])]
        while path[-1] != end:
            path.append(int(before[path[-1]]))
        order, before = breadth_first_order(matrix, path[len(path) // 2], directed=False)
        for node in order[1:]:
            parent[node] = before[node]
            depth[node] = depth[before[node]] + 1
    return Rooted(parent, depth)


def span(tree: Rooted, scope: np.ndarray) -> Span:
    """The smallest subtree that holds the variables of a scope."""
    parent, depth = tree.parent, tree.depth
    ends, held = set(scope.tolist()), set(scope.tolist())
    # The deepest ends climb until one node is left; those of different trees meet above all roots.
    while len(ends) > 1:
        deepest = max(ends, key=lambda node: -1 if node < 0 else depth[node])
        ends.remove(deepest)
        above = int(parent[deepest])
        ends.add(above)
        held.add(above)
    (top,) = ends
    below = sorted(held - {top}, key=lambda node: depth[node])
    place = {top: 0} | {node: number + 1 for number, node in enumerate(below)}
    return Span(int(top), below, [place[int(parent[node])] for node in below])


def walk(tree: Rooted, first: int, last: int) -> Walk:
    """The path from one variable to another."""
    up: list[int] = []
    down: list[int] = []
    while first != last:
        # Above all roots there is nothing deeper.
        if last < 0 or (first >= 0 and tree.depth[first] >= tree.depth[last]):
            up.append(first)
            first = int(tree.parent[first])
        else:
            down.append(last)
            last = int(tree.parent[last])
    return Walk(first, [*up, *down[::-1]], [True] * len(up) + [False] * len(down), max(len(up) - 1, 0))


def preorder(tree: Rooted) -> np.ndarray:
    """The place of every variable when the forest is walked, everything below a variable right after it."""
    below: dict[int, list[int]] = {}
    for variable, parent in enumerate(tree.parent.tolist()):
        below.setdefault(parent, []).append(variable)
    place, waiting, number = np.zeros(len(tree.parent), np.int64), below.get(-1, [])[::-1], 0
    while waiting:
        variable = waiting.pop()
        place[variable] = number
        number += 1
        waiting.extend(reversed(below.get(variable, [])))
    return place
