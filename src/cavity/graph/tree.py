"""The tree approximation: q a spanning tree, factors on its edges exact, all others sites (thesis 4.2.2)."""

import math
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from cavity.factors.table import OnTree, Table
from cavity.families.tree import Subtree
from cavity.graph.spanning import Rooted, Span, maximal_tree, pair_information, rooted, span
from cavity.inference.problem import Problem, SiteGroup
from cavity.moments.closed_form import ClosedForm
from cavity.numerics.precision import float64
from cavity.posteriors.tree import Tree, TreePrior, Wires

if TYPE_CHECKING:
    from cavity.graph.discrete import DiscreteGraph

#: nodes of one level that are handled at once
WIDTH = 64


@float64
def on_tree(graph: "DiscreteGraph", edges: Any = None) -> Problem:
    """The problem of tree EP; edges: of the tree, by default the one of maximal mutual information."""
    count, cards = len(graph.variables), graph.cardinalities
    if edges is None:
        edges = maximal_tree(count, *pair_information(graph))
    tree = rooted(count, np.asarray(edges, np.int64).reshape(-1, 2))
    states = int(cards.max(initial=1))
    tables, log_constant = own_tables(graph, tree, states)
    wires, groups = [], []
    for (_, edge_count), (log_values, spans) in off_tree(graph, tree).items():
        nodes, top, parents, places = laid_out(spans, edge_count, count)
        family = Subtree(edge_count, states)
        data = OnTree(np.stack(log_values), places)
        groups.append(SiteGroup(Table(), data, family, ClosedForm(), scope=len(wires)))
        wires.append(Wires(jnp.asarray(nodes), jnp.asarray(top), jnp.asarray(parents)))
    zero = tables == -np.inf
    prior = TreePrior(
        jnp.asarray(np.where(zero, 0.0, tables)),
        jnp.asarray(zero.astype(float)),
        jnp.asarray(np.append(np.where(tree.parent < 0, count, tree.parent), [count, count + 1])),
        jnp.asarray(level_rows(tree)),
        tuple(wires),
        jnp.asarray(log_constant),
    )
    return Problem(prior, tuple(groups), Tree(states))


def own_tables(graph: "DiscreteGraph", tree: Rooted, states: int) -> tuple[np.ndarray, float]:
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
    neither = np.full((1, states, states), -np.log(states))
    root = np.full((1, states, states), -np.inf)
    root[0, 0, 0] = 0.0
    return np.concatenate([tables, root, neither]), log_constant


#: log tables and, for each, its subtree and its scope
Sites = tuple[list[np.ndarray], list[tuple[Span, Any]]]


def off_tree(graph: "DiscreteGraph", tree: Rooted) -> dict[tuple[Any, int], Sites]:
    """Factors the tree does not hold, by the shape of their table and the edges they get: powers of four, so few."""
    found: dict[tuple[Any, int], Sites] = {}
    for group in graph.tables():
        if len(group.shape) < 2:
            continue
        for scope, table in zip(group.scopes, group.log_values, strict=True):
            if len(scope) == 2 and (tree.parent[scope[0]] == scope[1] or tree.parent[scope[1]] == scope[0]):
                continue
            own = span(tree, scope)
            edges = 4 ** math.ceil(math.log(len(own.nodes), 4) - 1e-9)
            logs, spans = found.setdefault((group.shape, edges), ([], []))
            logs.append(table)
            spans.append((own, scope))
    if not found:
        # The tree holds everything; a site that says nothing gives the loop something to visit.
        scope = np.zeros(1, np.int64)
        found[(int(graph.cardinalities[0]),), 1] = ([np.zeros(graph.cardinalities[0])], [(above(tree, 0), scope)])
    return found


def above(tree: Rooted, variable: int) -> Span:
    """The edge above one variable."""
    return Span(int(tree.parent[variable]), [variable], [0])


def laid_out(spans: list[tuple[Span, Any]], edges: int, count: int) -> tuple[np.ndarray, ...]:
    """Nodes, tops, parents and the places of the scopes' variables, filled up with edges that stand for nothing."""
    nodes, parents = np.full((len(spans), edges), count + 1), np.zeros((len(spans), edges))
    top, places = np.zeros(len(spans), np.int64), np.zeros((len(spans), len(spans[0][1])), np.int64)
    for number, (own, scope) in enumerate(spans):
        nodes[number, : len(own.nodes)], parents[number, : len(own.nodes)] = own.nodes, own.parents
        top[number] = count if own.top < 0 else own.top
        place = {own.top: 0} | {node: k + 1 for k, node in enumerate(own.nodes)}
        places[number] = [place[int(variable)] for variable in scope]
    return nodes, top, parents, places


def level_rows(tree: Rooted) -> np.ndarray:
    """The variables from the deepest level to the roots, in rows within one level, filled up with the last node."""
    count = len(tree.parent)
    rows = []
    for level in range(int(tree.depth.max(initial=0)), -1, -1):
        own = np.flatnonzero(tree.depth == level)
        filled = np.full(-(-len(own) // WIDTH) * WIDTH, count + 1)
        filled[: len(own)] = own
        rows.append(filled.reshape(-1, WIDTH))
    width = min(WIDTH, int(np.bincount(tree.depth).max(initial=1)))
    return np.concatenate(rows)[:, :width]
