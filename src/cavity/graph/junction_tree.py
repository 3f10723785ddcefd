"""The junction tree of a discrete graph: cliques of an elimination order, each with the factors it holds.

Observed variables and variables with one state are sliced out of the tables first, which makes the tree narrower.
All tables have their axes in the order of elimination: the variables that a clique sums out come first, those of the
separator towards its parent last, and a message fits into another clique by axes of length 1 alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cavity.graph.discrete import DiscreteGraph
from cavity.graph.elimination import Elimination, elimination_order

#: bytes of a table entry
ENTRY = 8


@dataclass(frozen=True, eq=False)
class Clique:
    """A clique of the tree.

    variables: in the order of elimination. own: how many of them, the first, are summed out here. parent: −1 at a root.
    factors: log tables with one axis a variable of the clique, of length 1 where the factor does not depend on it.
    message_shape: the message to the parent, seen as a table of the parent.
    """

    variables: tuple[int, ...]
    own: int
    shape: tuple[int, ...]
    parent: int
    children: tuple[int, ...]
    factors: tuple[np.ndarray, ...]
    message_shape: tuple[int, ...]

    @property
    def separator(self) -> tuple[int, ...]:
        """The variables shared with the parent."""
        return self.variables[self.own :]

    @property
    def separator_shape(self) -> tuple[int, ...]:
        """Shape of the message to the parent."""
        return self.shape[self.own :]


@dataclass(frozen=True, eq=False)
class JunctionTree:
    """Cliques, children before parents; the tree is a forest where the graph is not connected.

    home: the clique that sums a variable out. fixed: state of each variable that is observed or has one state.
    log_constant: log of the factors without free variables. width: of the elimination order.
    """

    cliques: tuple[Clique, ...]
    home: dict[int, int]
    fixed: dict[int, int]
    log_constant: float
    width: int

    @property
    def table_size(self) -> int:
        """Entries of the largest clique table."""
        return max((math.prod(clique.shape) for clique in self.cliques), default=1)

    def path(self, start: int, end: int) -> list[int]:
        """Cliques from one to another through the tree; empty where they are not connected."""
        up, down = [start], [end]
        # Parents come later than children: whichever is the lower of the two moves up.
        while up[-1] != down[-1]:
            side = up if up[-1] < down[-1] else down
            parent = self.cliques[side[-1]].parent
            if parent < 0:
                return []
            side.append(parent)
        return up + down[-2::-1]


class Reduced(NamedTuple):
    """The graph without the variables that are fixed: free variables, factors over them, log of the rest."""

    free: list[int]
    fixed: dict[int, int]
    factors: list[tuple[tuple[int, ...], np.ndarray]]
    log_constant: float


def reduced(graph: DiscreteGraph) -> Reduced:
    """Slice observed variables and variables with one state out of every table."""
    fixed = {int(v): 0 for v in np.flatnonzero(graph.cardinalities == 1)} | graph.evidence
    factors: list[tuple[tuple[int, ...], np.ndarray]] = []
    constants: list[float] = []
    tables = [*graph, *(((number,), weights) for number, weights in graph.likelihoods.items())]
    for scope, values in tables:
        if any(v in fixed for v in scope):
            values = values[tuple(fixed.get(v, slice(None)) for v in scope)]
            scope = tuple(v for v in scope if v not in fixed)
        if scope:
            factors.append((scope, values))
        else:
            constants.append(float(values))
    free = [v for v in range(len(graph.variables)) if v not in fixed]
    return Reduced(free, fixed, factors, math.fsum(constants) if -math.inf not in constants else -math.inf)


def junction_tree(graph: DiscreteGraph, *, memory: float = math.inf, messages: int = 2) -> JunctionTree:
    """The junction tree of a graph with its evidence in.

    memory: bytes that the tables of inference may take, with so many messages an edge; beyond it, ValueError.
    """
    problem = reduced(graph)
    place = {v: k for k, v in enumerate(problem.free)}
    neighbours: list[set[int]] = [set() for _ in problem.free]
    for scope, _ in problem.factors:
        numbers = [place[v] for v in scope]
        for number in numbers:
            neighbours[number].update(numbers)
    for number, own in enumerate(neighbours):
        own.discard(number)
    cards = graph.cardinalities[problem.free]
    order = elimination_order(neighbours, cards, math.log2(max(memory / ENTRY, 1.0)))
    needed = bytes_needed(order, cards, messages)
    if needed > memory:
        raise ValueError(
            f"exact inference needs {'' if order.complete else 'more than '}{needed:.3g} bytes (width {order.width}, "
            f"largest table 2^{order.log2_largest:.4g} entries); the limit is memory={memory:.3g}."
        )
    return assemble(problem, order, dict(zip(problem.free, cards.tolist(), strict=True)))


def bytes_needed(order: Elimination, cards: np.ndarray, messages: int) -> float:
    """Messages of all separators, and the largest table with three working copies.

    Cliques inside another one are left out, as they are in the tree.
    """
    log_cards = np.log2(cards)
    kept = 0.0
    position = {vertex: k for k, vertex in enumerate(order.order)}
    absorbed = absorbing(order, position)
    for k, separator in enumerate(order.separators):
        if k not in absorbed:
            kept += 2.0 ** min(float(log_cards[list(separator)].sum()), 1000.0)
    return ENTRY * (messages * kept + 4.0 * 2.0 ** min(order.log2_largest, 1000.0))


def absorbing(order: Elimination, position: dict[int, int]) -> dict[int, int]:
    """Steps k whose separator is a whole later clique → the step of that clique, which is then no clique of its own.

    The clique of step p is its vertex and separator; it equals the separator of an earlier step k whose first vertex it
    is as soon as the two have the same size. Of several such k one takes it.
    """
    taken: dict[int, int] = {}
    used: set[int] = set()
    for k, separator in enumerate(order.separators):
        p = min((position.get(v, len(position)) for v in separator), default=-1)
        if 0 <= p < len(position) and p not in used and len(separator) == len(order.separators[p]) + 1:
            taken[k] = p
            used.add(p)
    return taken


def assemble(problem: Reduced, order: Elimination, cards: dict[int, int]) -> JunctionTree:
    """The tree of the maximal cliques of an order, with each factor where its first variable is summed out."""
    position = {vertex: k for k, vertex in enumerate(order.order)}
    takes = absorbing(order, position)
    # Steps chained by absorption share a clique, numbered by the last of its steps: children before parents.
    last: dict[int, int] = {}
    for k in reversed(range(len(order.order))):
        last[k] = last[takes[k]] if k in takes else k
    number = {step: index for index, step in enumerate(sorted(set(last.values())))}
    home = [number[last[k]] for k in range(len(order.order))]
    owned: list[list[int]] = [[] for _ in number]
    for k in range(len(order.order)):
        owned[home[k]].append(k)
    scopes = [(*own, *sorted(position[v] for v in order.separators[own[-1]])) for own in owned]
    parents = [home[scope[len(own)]] if len(scope) > len(own) else -1 for own, scope in zip(owned, scopes, strict=True)]
    children: list[list[int]] = [[] for _ in number]
    for index, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(index)

    variable = [problem.free[vertex] for vertex in order.order]
    step = {v: k for k, v in enumerate(variable)}
    states = [cards[v] for v in variable]
    held: list[list[np.ndarray]] = [[] for _ in number]
    for scope, values in problem.factors:
        steps = [step[v] for v in scope]
        index = home[min(steps)]
        held[index].append(values.transpose(np.argsort(steps)).reshape(shape_within(scopes[index], steps, states)))
    cliques = tuple(
        Clique(
            variables=tuple(variable[k] for k in scope),
            own=len(owned[index]),
            shape=tuple(states[k] for k in scope),
            parent=parents[index],
            children=tuple(sorted(children[index], key=lambda child: len(scopes[child]) - len(owned[child]))),
            factors=tuple(sorted(held[index], key=growing)),
            message_shape=shape_within(scopes[parents[index]], scope[len(owned[index]) :], states)
            if parents[index] >= 0
            else (),
        )
        for index, scope in enumerate(scopes)
    )
    return JunctionTree(cliques, {v: home[step[v]] for v in variable}, problem.fixed, problem.log_constant, order.width)


def shape_within(clique: Sequence[int], scope: Sequence[int], states: list[int]) -> tuple[int, ...]:
    """Shape of a table over `scope` with one axis a variable of `clique`."""
    inside = set(scope)
    return tuple(states[k] if k in inside else 1 for k in clique)


def growing(table: np.ndarray) -> tuple[int, tuple[bool, ...]]:
    """Key for multiplying tables: small ones first, of these the ones with the last axes, so that a product grows by
    leading axes and NumPy's inner loops stay long.
    """
    return table.size, tuple(length == 1 for length in table.shape[::-1])
