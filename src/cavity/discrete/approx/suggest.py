"""Which grouping or tree to choose for a given cost: the question that thesis 4.2.4 leaves open, answered by estimates.

The cost of an approximation is known. What it gains is not: it is estimated by the share of the mutual information
between neighbours that some part of the approximation holds jointly. Belief propagation holds none of it, and what it
loses is what comes back around loops.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass

from cavity.discrete.approx.approximate import Approximation, Tree
from cavity.discrete.approx.tree import Rooted, maximal_tree, pair_information, root_forest, span
from cavity.discrete.exact._clique_tree import clique_tree
from cavity.discrete.exact._weighted_tables import free_tables
from cavity.discrete.graph import TableGraph

#: factors on the longest loop that is joined into one group
LONGEST_LOOP = 6
#: joint states of a group, at most
LARGEST_GROUP = 4_096
#: bytes of tables beyond which exact inference is not proposed
MEMORY = 2e9


@dataclass(frozen=True)
class Suggestion:
    """A way to run inference, as `DiscreteGraph.suggest` proposes it.

    Attributes:
        name: of the approximation.
        approximation: for `infer`; None where `cavity.exact` can be afforded.
        cost: entries of tables read per sweep, or in total for exact inference.
        times: the cost relative to that of belief propagation.
        held: share of the mutual information between neighbours that is held jointly, an estimate of what is gained;
            1 for exact inference.

    Examples:
        >>> import cavity as cv
        >>> graph = cv.DiscreteGraph([2, 2])
        >>> graph.add_factor([0, 1], [[2.0, 1.0], [1.0, 2.0]])
        >>> first = graph.suggest()[0]
        >>> first.name, first.cost, first.held
        ('tree', 4.0, 1.0)
    """

    name: str
    approximation: Approximation | None
    cost: float
    times: float
    held: float

    def __str__(self) -> str:
        if self.approximation is None:
            return f"exact: {self.cost:.2g} entries in all; use cavity.exact"
        return (
            f"{self.name}: {self.cost:.2g} entries per sweep, {self.times:.1f} times belief propagation's; "
            f"holds {self.held:.0%} of the mutual information between neighbours"
        )


def suggest(graph: TableGraph, cost: float) -> list[Suggestion]:
    """What can be afforded, the most promising first; belief propagation always."""
    pairs, information = pair_information(graph)
    edges = maximal_tree(len(graph.variables), pairs, information)
    weight = {tuple(sorted(pair)): own for pair, own in zip(pairs.tolist(), information.tolist(), strict=True)}
    total = math.fsum(weight.values())

    def held(jointly: set[tuple[int, ...]]) -> float:
        return min(1.0, math.fsum(weight.get(pair, 0.0) for pair in jointly) / total) if total > 0 else 1.0

    # Every table is read once for each of its variables.
    simple = float(sum(len(own.shape) * own.log_values.size for own in graph.factors.by_shape if len(own.shape) > 1))
    found = []
    tree = root_forest(len(graph.variables), edges)
    own = tree_cost(graph, tree)
    on_tree = {tuple(sorted(edge)) for edge in edges.tolist()}
    found.append(Suggestion("tree", Approximation(graph, Tree(edges)), own, own / simple, held(on_tree)))
    groups = loops(graph, weight)
    if groups:
        factors = list(graph)
        inside = {tuple(sorted(factors[number].scope)) for group in groups for number in group}
        own = simple + sum(group_cost(graph, [factors[number].scope for number in group]) for group in groups)
        found.append(Suggestion("grouped loops", Approximation(graph, None, groups), own, own / simple, held(inside)))
    exact = exact_cost(graph)
    if exact <= cost:
        found.append(Suggestion("exact", None, exact, exact / simple, 1.0))
    always = Suggestion("disconnected", Approximation(graph), simple, 1.0, held(set()))
    return sorted([always, *(own for own in found if own.cost <= cost)], key=lambda own: -own.held)


def tree_cost(graph: TableGraph, tree: Rooted) -> float:
    """Entries of one sweep on a tree: of its edges, and of the subtree that every other factor spans."""
    states, total = int(graph.cardinalities.max(initial=1)), 0.0
    for own in graph.factors.by_shape:
        for scope in own.scopes if len(own.shape) > 1 else ():
            if len(scope) == 2 and (tree.parent[scope[0]] == scope[1] or tree.parent[scope[1]] == scope[0]):
                total += states**2
                continue
            joint = 1 if len(scope) == 2 else math.prod(own.shape)
            total += 4 * joint * len(span(tree, scope).nodes) * states ** (3 if len(scope) == 2 else 2)
    return total


def group_cost(graph: TableGraph, scopes: list[tuple[int, ...]]) -> float:
    """Entries of the messages of a group of factors with these scopes."""
    scope = {variable for own in scopes for variable in own}
    return float(len(scope) * math.prod(graph.cardinalities[sorted(scope)].tolist()))


def exact_cost(graph: TableGraph) -> float:
    """Entries of all cliques of a junction tree, gone through up and down; infinite where they would not fit."""
    start = free_tables(graph)
    try:
        tree = clique_tree(start.scopes, tuple(start.states.items()), MEMORY, messages=2)
    except ValueError:
        return math.inf
    return float(sum(2 * math.prod(clique.shape) for clique in tree.cliques))


def loops(graph: TableGraph, weight: dict[tuple[int, ...], float]) -> tuple[tuple[int, ...], ...]:
    """Disjoint groups of factors that close short loops, the strongest first."""
    by_pair: dict[tuple[int, ...], list[int]] = {}
    for number, own in enumerate(graph):
        if len(own.scope) == 2:
            by_pair.setdefault(tuple(sorted(own.scope)), []).append(number)
    neighbours: dict[int, list[int]] = {}
    for a, b in by_pair:
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    used: set[tuple[int, ...]] = set()
    found = []
    for pair in sorted(by_pair, key=lambda own: -weight.get(own, 0.0)):
        if pair in used:
            continue
        path = shortest(neighbours, pair, used)
        if path is None:
            continue
        loop = [pair, *(tuple(sorted(step)) for step in itertools.pairwise(path))]
        if math.prod(graph.cardinalities[path].tolist()) > LARGEST_GROUP:
            continue
        used.update(loop)
        found.append(tuple(sorted(number for own in loop for number in by_pair[own])))
    return tuple(found)


def shortest(neighbours: dict[int, list[int]], pair: tuple[int, ...], used: set[tuple[int, ...]]) -> list[int] | None:
    """The shortest path between the ends of a pair without the pair itself and without used pairs."""
    start, end = pair
    before, waiting = {start: -1}, deque([(start, 1)])
    while waiting:
        node, length = waiting.popleft()
        for other in neighbours[node]:
            step = tuple(sorted((node, other)))
            if other in before or step == tuple(pair) or step in used:
                continue
            before[other] = node
            if other == end:
                path = [end]
                while path[-1] != start:
                    path.append(before[path[-1]])
                return path
            if length < LONGEST_LOOP - 2:
                waiting.append((other, length + 1))
    return None
