"""The junction tree of an elimination order, by scopes alone: cliques, and which factors each of them holds.

All tables have their axes in the order of elimination: the variables that a clique sums out come first, those of the
separator towards its parent last, and a message fits into another clique by axes of length 1 alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cavity.discrete.exact.elimination import Elimination, elimination_order

#: bytes of a table entry
ENTRY = 8
#: trees kept for graphs that are asked about again
KEPT = 64

Scope = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Clique:
    """A clique of the tree.

    variables: in the order of elimination. own: how many of them, the first, are summed out here. parent: −1 at a root.
    held: numbers of its factors. message_shape: the message to the parent, seen as a table of the parent.
    """

    variables: Scope
    own: int
    shape: tuple[int, ...]
    parent: int
    children: tuple[int, ...]
    held: tuple[int, ...]
    message_shape: tuple[int, ...]

    @property
    def separator(self) -> Scope:
        """The variables shared with the parent."""
        return self.variables[self.own :]


@dataclass(frozen=True, eq=False)
class CliqueTree:
    """Cliques, children before parents; the tree is a forest where the graph is not connected.

    home: the clique that sums a variable out. width: of the elimination order.
    """

    cliques: tuple[Clique, ...]
    home: dict[int, int]
    width: int

    @property
    def table_size(self) -> int:
        """Entries of the largest clique table."""
        return max((math.prod(clique.shape) for clique in self.cliques), default=1)


@lru_cache(KEPT)
def clique_tree(
    scopes: tuple[Scope, ...], states: tuple[tuple[int, int], ...], memory: float, messages: int
) -> CliqueTree:
    """The tree for factors with these scopes over variables with so many states, as pairs.

    memory: bytes that the tables of inference may take, with so many messages per edge; beyond it, ValueError.
    """
    place = {v: k for k, (v, _) in enumerate(states)}
    neighbours: list[set[int]] = [set() for _ in states]
    for scope in scopes:
        numbers = [place[v] for v in scope]
        for number in numbers:
            neighbours[number].update(numbers)
    for number, own in enumerate(neighbours):
        own.discard(number)
    counts = np.array([count for _, count in states])
    order = elimination_order(neighbours, counts, math.log2(max(memory / ENTRY, 1.0)))
    needed = bytes_needed(order, counts, messages)
    if not needed <= memory:
        raise ValueError(
            f"exact inference needs {'' if order.complete else 'more than '}{needed:.3g} bytes (width {order.width}, "
            f"largest table 2^{order.log2_largest:.4g} entries); the limit is memory={memory:.3g}."
        )
    return assemble(scopes, order, states)


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


def assemble(scopes: Sequence[Scope], order: Elimination, states: Sequence[tuple[int, int]]) -> CliqueTree:
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
    steps = [(*own, *sorted(position[v] for v in order.separators[own[-1]])) for own in owned]
    borders = [own[len(summed) :] for own, summed in zip(steps, owned, strict=True)]
    parents = [home[border[0]] if border else -1 for border in borders]
    children: list[list[int]] = [[] for _ in number]
    for index, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(index)
    variable = [states[vertex][0] for vertex in order.order]
    counts = {k: states[vertex][1] for k, vertex in enumerate(order.order)}
    step = {v: k for k, v in enumerate(variable)}
    held: list[list[int]] = [[] for _ in number]
    for place, scope in enumerate(scopes):
        held[home[min(step[v] for v in scope)]].append(place)
    cliques = tuple(
        Clique(
            variables=tuple(variable[k] for k in own),
            own=len(owned[index]),
            shape=tuple(counts[k] for k in own),
            parent=parents[index],
            children=tuple(sorted(children[index], key=lambda child: len(borders[child]))),
            held=tuple(held[index]),
            message_shape=shape_within(steps[parents[index]], borders[index], counts) if borders[index] else (),
        )
        for index, own in enumerate(steps)
    )
    return CliqueTree(cliques, {v: home[step[v]] for v in variable}, order.width)


def shape_within(clique: Sequence[int], scope: Sequence[int], states: Mapping[int, int]) -> tuple[int, ...]:
    """Shape of a table over `scope` with one axis per variable of `clique`."""
    inside = set(scope)
    return tuple(states[v] if v in inside else 1 for v in clique)
