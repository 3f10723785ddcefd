"""The tree approximation: q a spanning tree, factors on its edges exact, all others sites (thesis 4.2.2).

The tree is chosen by mutual information or given, and rooted in the middle. Scopes of other factors span subtrees.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from scipy.special import logsumexp

from cavity._core.precision import float64
from cavity.discrete.graph import TableGraph
from cavity.discrete.tables import Tables, levels, pad_tables
from cavity.factors.table import OnPath, OnTree, Table
from cavity.families.subtree import Path, Subtree
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.schedule import EveryNth, InOrder
from cavity.moments.base import ClosedForm
from cavity.posteriors.tree import PathWires, TreePosterior, TreePrior, Wires

#: nodes of one level that are handled at once
WIDTH = 16
#: rows of levels are filled up to a multiple of this, or of more where a quarter more is the price at most
FEW_ROWS = 8
#: entries of the tables on all edges for all joint states of one factor, beyond which it is refused
LARGEST_PASSES = 2**24

#: blocks of sites a sweep visits one after another
BLOCKS = 32

#: entries of tables that are worth passing messages for to save one shape
WORTH = 2**8

#: edges of all paths, filled up, up to which they are kept together
LITTLE = 50_000


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
    own = graph.unary_weights()
    found: dict[tuple[int, int], np.ndarray] = {}
    for group in graph.factors.by_shape:
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
    weighted = group.log_values
    for axis in rest:
        alone = np.stack([own[variable] for variable in group.scopes[:, axis - 1]])
        weighted = weighted + np.expand_dims(alone, tuple(k for k in range(1, weighted.ndim) if k != axis))
    return np.asarray(logsumexp(weighted, axis=rest)) if rest else weighted


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


@float64
def on_tree(graph: TableGraph, edges: Any = None) -> Problem:
    """The problem of tree EP; edges: of the tree, by default the one of maximal mutual information."""
    count, cards = len(graph.variables), graph.cardinalities
    for group in graph.factors.by_shape:
        # Already known before the tree is: so many variables span as many edges, less one.
        if len(group.shape) > 2:
            check_passes(group.shape, len(group.shape) - 1, cards)
    if edges is None:
        edges = maximal_tree(count, *pair_information(graph))
    tree = root_forest(count, np.asarray(edges, np.int64).reshape(-1, 2))
    states = int(cards.max(initial=1))
    tables = own_tables(graph, tree, states)
    groups, wires = off_tree(graph, tree, states)
    zero = tables == -np.inf
    prior = TreePrior(
        jnp.asarray(np.where(zero, 0.0, tables)),
        jnp.asarray(zero.astype(float)),
        jnp.asarray(np.append(np.where(tree.parent < 0, count, tree.parent), [count, count + 1])),
        jnp.asarray(level_rows(tree)),
        tuple(wires),
        jnp.asarray(graph.log_constant),
    )
    # One after another where they are few; else in blocks of paths that lie far apart.
    sites = sum(group.size for group in groups)
    schedule = EveryNth(BLOCKS) if sites > 4 * BLOCKS else InOrder()
    return Problem(prior, tuple(groups), TreePosterior(states), schedule=schedule)


def own_tables(graph: TableGraph, tree: Rooted, states: int) -> np.ndarray:
    """Log tables of the nodes from the factors the tree holds exactly."""
    cards = graph.cardinalities
    possible = np.arange(states) < cards[:, None]
    above = np.vstack([possible, np.arange(states)[None] < 1])[tree.parent]  # −1 is the node above the roots
    tables = np.where(above[:, :, None] & possible[:, None, :], 0.0, -np.inf)
    flat, starts = graph.flat_unary(), np.cumsum(cards) - cards
    for k in np.unique(cards):
        own = np.flatnonzero(cards == k)
        tables[own, :, :k] += flat[starts[own][:, None] + np.arange(k)][:, None, :]
    for group in graph.factors.by_shape:
        for (a, b), table in zip(group.scopes, group.log_values, strict=True) if len(group.shape) == 2 else ():
            if tree.parent[b] == a:
                tables[b, : table.shape[0], : table.shape[1]] += table
            elif tree.parent[a] == b:
                tables[a, : table.shape[1], : table.shape[0]] += table.T
    # What fills up a shorter path or a smaller subtree copies its parent.
    copy = np.where(np.eye(states) > 0, 0.0, -np.inf)[None]
    root = np.full((1, states, states), -np.inf)
    root[0, 0, 0] = 0.0
    return np.concatenate([tables, root, copy])


def off_tree(graph: TableGraph, tree: Rooted, states: int) -> tuple[list[SiteGroup], list[Wires | PathWires]]:
    """Groups of the factors the tree does not hold: of two variables on paths, of more on the subtrees they span."""
    paths: list[tuple[np.ndarray, Walk]] = []
    spans: dict[tuple[Any, int], list[tuple[np.ndarray, Any, Span]]] = {}
    larger = [(group.shape, len(group.scopes)) for group in graph.factors.by_shape if len(group.shape) > 2]
    level = levels(larger, np.unique(graph.cardinalities).tolist(), WORTH)
    for group in graph.factors.by_shape:
        for scope, table in zip(group.scopes, group.log_values, strict=True) if len(group.shape) > 1 else ():
            if len(scope) > 2:
                own = span(tree, scope)
                check_passes(table.shape, power_of_four(len(own.nodes)), graph.cardinalities)
                wider = pad_tables(Tables(scope[None], table[None], np.zeros(1, int)), level)
                kind = (wider.shape, power_of_four(len(own.nodes)))
                spans.setdefault(kind, []).append((wider.log_values[0], wider.scopes[0], own))
            elif tree.parent[scope[0]] != scope[1] and tree.parent[scope[1]] != scope[0]:
                paths.append((table, walk(tree, int(scope[0]), int(scope[1]))))
    if not paths and not spans:
        # The tree holds everything; a site that says nothing gives the loop something to visit.
        paths.append((np.zeros((1, 1)), Walk(int(tree.parent[0]), [0], [False], 0)))
    place = preorder(tree)
    paths.sort(key=lambda own: place[own[1].nodes[own[1].peak]])
    count, groups, wires = len(tree.parent), [], []
    for edges, own in by_length(paths).items():
        data, own_wires = lay_paths(own, edges, count, states)
        groups.append(SiteGroup(Table(), data, Path(edges, states), ClosedForm(), scope=len(wires)))
        wires.append(own_wires)
    for (_, edges), own in spans.items():
        data, own_wires = lay_subtrees(own, edges, count)
        groups.append(SiteGroup(Table(), data, Subtree(edges, states), ClosedForm(), scope=len(wires)))
        wires.append(own_wires)
    return groups, wires


def power_of_four(edges: int) -> int:
    """The next power of four: few sizes are compiled."""
    return 4 ** math.ceil(math.log(edges, 4) - 1e-9)


def by_length(paths: list[tuple[np.ndarray, Walk]]) -> dict[int, list[tuple[np.ndarray, Walk]]]:
    """The paths by their number of edges, rounded; all in one where that costs little."""
    lengths = [power_of_four(len(own.nodes)) for _, own in paths]
    if len(paths) * (longest := max(lengths, default=1)) <= LITTLE:
        lengths = [longest] * len(paths)
    found: dict[int, list[tuple[np.ndarray, Walk]]] = {}
    for length, own in zip(lengths, paths, strict=True):
        found.setdefault(length, []).append(own)
    return found


def lay_paths(paths: list[tuple[np.ndarray, Walk]], edges: int, count: int, states: int) -> tuple[OnPath, PathWires]:
    """Data and wires of paths, filled up with edges that stand for nothing."""
    nodes, held = np.full((len(paths), edges), count + 1), np.zeros((len(paths), edges), bool)
    upward, tables = np.zeros((len(paths), edges), bool), np.zeros((len(paths), states, states))
    for number, (table, own) in enumerate(paths):
        length = len(own.nodes)
        nodes[number, :length], upward[number, :length], held[number, :length] = own.nodes, own.upward, True
        tables[number, : table.shape[0], : table.shape[1]] = table
    top = np.array([count if own.top < 0 else own.top for _, own in paths])
    peak = np.array([own.peak for _, own in paths])
    return OnPath(tables, held), PathWires(*(jnp.asarray(own) for own in (nodes, upward, top, peak)))


def check_passes(shape: tuple[int, ...], edges: int, cardinalities: np.ndarray) -> None:
    """Refuse a factor for which the messages of all its joint states would not fit."""
    joint = math.prod(shape)
    if joint * edges * int(cardinalities.max()) ** 2 > LARGEST_PASSES:
        raise ValueError(
            f"a tree holds factors of few joint states, for each of which messages pass through it; one over "
            f'{len(shape)} variables has {joint}. Use the form "disconnected" or cavity.exact.'
        )


def lay_subtrees(spans: list[tuple[np.ndarray, Any, Span]], edges: int, count: int) -> tuple[OnTree, Wires]:
    """Data and wires of subtrees, filled up with edges that stand for nothing."""
    nodes, parents = np.full((len(spans), edges), count + 1), np.zeros((len(spans), edges))
    top, places = np.zeros(len(spans), np.int64), np.zeros((len(spans), len(spans[0][1])), np.int64)
    for number, (_, scope, own) in enumerate(spans):
        nodes[number, : len(own.nodes)], parents[number, : len(own.nodes)] = own.nodes, own.parents
        top[number] = count if own.top < 0 else own.top
        place = {own.top: 0} | {node: k + 1 for k, node in enumerate(own.nodes)}
        places[number] = [place[int(variable)] for variable in scope]
    data = OnTree(np.stack([table for table, _, _ in spans]), places, nodes <= count)
    return data, Wires(*(jnp.asarray(own) for own in (nodes, top, parents)))


def level_rows(tree: Rooted) -> np.ndarray:
    """The variables from the deepest level to the roots, in rows within one level, filled up with the last node.

    Their number and width are rounded up: graphs of one size have trees of many shapes, and few are compiled.
    """
    count = len(tree.parent)
    rows = []
    for level in range(int(tree.depth.max(initial=0)), -1, -1):
        own = np.flatnonzero(tree.depth == level)
        filled = np.full(-(-len(own) // WIDTH) * WIDTH, count + 1)
        filled[: len(own)] = own
        rows.append(filled.reshape(-1, WIDTH))
    width = min(WIDTH, power_of_four(int(np.bincount(tree.depth).max(initial=1))))
    found = np.concatenate(rows)[:, :width]
    step = max(FEW_ROWS, 2 ** (len(found).bit_length() - 3))
    return np.concatenate([np.full((-len(found) % step, width), count + 1), found])
