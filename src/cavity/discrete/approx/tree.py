"""The tree approximation: q a spanning tree, factors on its edges exact, all others sites (thesis 4.2.2)."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.discrete.approx.rewriting import levels, pad_tables
from cavity.discrete.approx.spanning import (
    Rooted,
    Span,
    Walk,
    maximal_tree,
    pair_information,
    preorder,
    root_forest,
    span,
    walk,
)
from cavity.discrete.graph import TableGraph
from cavity.discrete.tables import Tables
from cavity.factors.table import OnPath, OnTree, Table
from cavity.families.subtree import Path, Subtree
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.schedule import EveryNth, InOrder
from cavity.moments.closed_form import ClosedForm
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


@float64
def on_tree(graph: TableGraph, edges: Any = None) -> Problem:
    """The problem of tree EP; edges: of the tree, by default the one of maximal mutual information."""
    count, cards = len(graph.variables), graph.cardinalities
    for group in graph.tables():
        # Already known before the tree is: so many variables span as many edges, less one.
        if len(group.shape) > 2:
            check_passes(group.shape, len(group.shape) - 1, cards)
    if edges is None:
        edges = maximal_tree(count, *pair_information(graph))
    tree = root_forest(count, np.asarray(edges, np.int64).reshape(-1, 2))
    states = int(cards.max(initial=1))
    tables, log_constant = own_tables(graph, tree, states)
    groups, wires = off_tree(graph, tree, states)
    zero = tables == -np.inf
    prior = TreePrior(
        jnp.asarray(np.where(zero, 0.0, tables)),
        jnp.asarray(zero.astype(float)),
        jnp.asarray(np.append(np.where(tree.parent < 0, count, tree.parent), [count, count + 1])),
        jnp.asarray(level_rows(tree)),
        tuple(wires),
        jnp.asarray(log_constant),
    )
    # One after another where they are few; else in blocks of paths that lie far apart.
    sites = sum(group.size for group in groups)
    schedule = EveryNth(BLOCKS) if sites > 4 * BLOCKS else InOrder()
    return Problem(prior, tuple(groups), TreePosterior(states), schedule=schedule)


def own_tables(graph: TableGraph, tree: Rooted, states: int) -> tuple[np.ndarray, float]:
    """Log tables of the nodes from the factors the tree holds exactly, and the log of constant factors."""
    cards = graph.cardinalities
    possible = np.arange(states) < cards[:, None]
    above = np.vstack([possible, np.arange(states)[None] < 1])[tree.parent]  # −1 is the node above the roots
    tables = np.where(above[:, :, None] & possible[:, None, :], 0.0, -np.inf)
    flat, starts = graph.flat_unary(), np.cumsum(cards) - cards
    for k in np.unique(cards):
        own = np.flatnonzero(cards == k)
        tables[own, :, :k] += flat[starts[own][:, None] + np.arange(k)][:, None, :]
    log_constant = 0.0
    for group in graph.tables():
        if not group.shape:
            log_constant += float(group.log_values.sum())
        if len(group.shape) != 2:
            continue
        for scope, table in zip(group.scopes, group.log_values, strict=True):
            a, b = scope
            if tree.parent[b] == a:
                tables[b, : table.shape[0], : table.shape[1]] += table
            elif tree.parent[a] == b:
                tables[a, : table.shape[1], : table.shape[0]] += table.T
    # What fills up a shorter path or a smaller subtree copies its parent.
    copy = np.where(np.eye(states) > 0, 0.0, -np.inf)[None]
    root = np.full((1, states, states), -np.inf)
    root[0, 0, 0] = 0.0
    return np.concatenate([tables, root, copy]), log_constant


def off_tree(graph: TableGraph, tree: Rooted, states: int) -> tuple[list[SiteGroup], list[Wires | PathWires]]:
    """Groups of the factors the tree does not hold: of two variables on paths, of more on the subtrees they span."""
    paths: list[tuple[np.ndarray, Walk]] = []
    spans: dict[tuple[Any, int], list[tuple[np.ndarray, Any, Span]]] = {}
    larger = [(group.shape, len(group.scopes)) for group in graph.tables() if len(group.shape) > 2]
    level = levels(larger, np.unique(graph.cardinalities).tolist(), WORTH)
    for group in graph.tables():
        if len(group.shape) < 2:
            continue
        for scope, table in zip(group.scopes, group.log_values, strict=True):
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
    longest = max((power_of_four(len(own.nodes)) for _, own in paths), default=1)
    if len(paths) * longest <= LITTLE:
        return {longest: paths} if paths else {}
    found: dict[int, list[tuple[np.ndarray, Walk]]] = {}
    for table, own in paths:
        found.setdefault(power_of_four(len(own.nodes)), []).append((table, own))
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
