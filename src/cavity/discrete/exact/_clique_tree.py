"""Elimination orders, and the junction tree of one by scopes alone: cliques, and which factors each of them holds.

Eliminating a variable joins its neighbours to each other; the table over it and them is what exact inference stores.
The best order is hard to find, so greedy orders are tried and the one with the smallest tables is kept.

All tables have their axes in the order of elimination: the variables that a clique sums out come first, those of the
separator towards its parent last, and a message fits into another clique by axes of length 1 alone.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

#: bytes of a table entry
ENTRY = 8
#: trees kept for graphs that are asked about again
KEPT = 64

#: sums of exponentials (largest term 1) above this have lost nothing to underflow
SAFE = 1e-250
#: entries of all tables per vertex above which other orders are tried, since smaller tables pay for it
SEARCH_ABOVE = 2_000
#: entries of all tables above which the search goes on with random restarts
RESTART_ABOVE = 10_000_000
#: vertices eliminated in random restarts, all of them together
RESTART_WORK = 10_000

Scope = tuple[int, ...]
#: vertex, edges its elimination would add, log₂ entries of its table → what is eliminated first
Score = Callable[[int, int, float], tuple[float, ...]]


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
    log_cards, absorbed = np.log2(cards), absorbing(order)
    kept = [list(separator) for k, separator in enumerate(order.separators) if k not in absorbed]
    sizes = [2.0 ** min(float(log_cards[separator].sum()), 1000.0) for separator in kept]
    return ENTRY * (messages * sum(sizes) + 4.0 * 2.0 ** min(order.log2_largest, 1000.0))


def absorbing(order: Elimination) -> dict[int, int]:
    """Steps k whose separator is a whole later clique → the step of that clique, which is then no clique of its own.

    The clique of step p is its vertex and separator; it equals the separator of an earlier step k whose first vertex it
    is as soon as the two have the same size. Of several such k one takes it.
    """
    position = {vertex: k for k, vertex in enumerate(order.order)}
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
    takes = absorbing(order)
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
    above = [steps[parent] if parent >= 0 else () for parent in parents]
    cliques = tuple(
        Clique(
            variables=tuple(variable[k] for k in own),
            own=len(owned[index]),
            shape=tuple(counts[k] for k in own),
            parent=parents[index],
            children=tuple(sorted(children[index], key=lambda child: len(borders[child]))),
            held=tuple(held[index]),
            message_shape=tuple(counts[k] if k in borders[index] else 1 for k in above[index]),
        )
        for index, own in enumerate(steps)
    )
    return CliqueTree(cliques, {v: home[step[v]] for v in variable}, order.width)


class Elimination(NamedTuple):
    """An order, and for each of its vertices the neighbours left when it goes.

    filled: number of edges added. log2_largest: log₂ entries of the largest table. total: entries of all tables.
    complete: False where it was given up because the tables grew past what was allowed.
    """

    order: list[int]
    separators: list[set[int]]
    filled: int
    log2_largest: float
    total: float
    complete: bool

    @property
    def width(self) -> int:
        """Variables of the largest clique, less one."""
        return max((len(separator) for separator in self.separators), default=0)


def elimination_order(
    neighbours: Sequence[set[int]], cardinalities: Sequence[int] | np.ndarray, log2_largest: float = math.inf
) -> Elimination:
    """The order with the smallest tables of those tried: min-fill; where its tables are large, min-weight, the order of
    numbering and a breadth-first order; where they still are, random restarts of min-fill. log2_largest: where to give
    up.
    """
    log_cards = np.log2(np.asarray(cardinalities, float)).tolist()
    best = eliminate(neighbours, log_cards, min_fill, log2_largest)
    if best.filled == 0 and best.complete:
        # No edge was added: the graph is chordal, and these are its own cliques.
        return best

    def attempt(score: Score) -> None:
        nonlocal best
        found = eliminate(neighbours, log_cards, score, log2_largest, best.total if best.complete else math.inf)
        if found.complete and (not best.complete or found.total < best.total):
            best = found

    if not best.complete or best.total > SEARCH_ABOVE * len(neighbours):
        attempt(min_weight)
        attempt(in_order(range(len(neighbours))))
        attempt(in_order(breadth_first(neighbours)))
    if not best.complete or best.total > RESTART_ABOVE:
        for seed in range(min(25, RESTART_WORK // len(neighbours))):
            attempt(shuffled_min_fill(seed))
    return best


def min_fill(vertex: int, fill: int, weight: float) -> tuple[float, ...]:
    """Fewest added edges, then the smallest table. Simplicial vertices (no added edge) go first."""
    return fill, weight, vertex


def min_weight(vertex: int, fill: int, weight: float) -> tuple[float, ...]:
    """Simplicial vertices, which cost nothing, then the smallest table."""
    return fill > 0, weight, vertex


def shuffled_min_fill(seed: int) -> Score:
    """Min-fill with ties broken at random."""
    rng = random.Random(seed)
    return lambda vertex, fill, weight: (fill, rng.random(), vertex)


def in_order(order: Sequence[int]) -> Score:
    """The vertices as they come."""
    rank = {vertex: place for place, vertex in enumerate(order)}
    return lambda vertex, fill, weight: (rank[vertex],)


def breadth_first(neighbours: Sequence[set[int]]) -> list[int]:
    """Breadth first from a vertex far out, neighbours of few neighbours first: a front that moves across a grid."""
    order: list[int] = []
    seen: set[int] = set()
    for start in range(len(neighbours)):
        if start in seen:
            continue
        # The last vertex reached from anywhere lies on the border.
        border = reach(neighbours, reach(neighbours, start)[-1])
        seen.update(border)
        order += border
    return order


def reach(neighbours: Sequence[set[int]], start: int) -> list[int]:
    """All vertices connected with `start`, breadth first."""
    found, queue = {start: None}, deque([start])
    while queue:
        for vertex in sorted(neighbours[queue.popleft()], key=lambda v: (len(neighbours[v]), v)):
            if vertex not in found:
                found[vertex] = None
                queue.append(vertex)
    return list(found)


def eliminate(
    neighbours: Sequence[set[int]],
    log_cards: Sequence[float],
    score: Score,
    log2_largest: float = math.inf,
    most: float = math.inf,
) -> Elimination:
    """Eliminate the vertex of least score, again and again; give up past `log2_largest` of one table or `most` of all.

    The number of edges that a vertex would add is kept up to date rather than counted again: a vertex that leaves takes
    its missing pairs along, an edge that is added removes one missing pair of each common neighbour.
    """
    left = [set(own) for own in neighbours]
    fill = [missing_pairs(left, vertex) for vertex in range(len(left))]
    weight = [log_cards[v] + math.fsum(log_cards[u] for u in own) for v, own in enumerate(left)]

    def entry(vertex: int) -> tuple[float, ...]:
        # Rounded: weights are changed step by step, and equal ones must stay ties.
        return (*score(vertex, fill[vertex], round(weight[vertex], 6)), vertex)

    current = [entry(vertex) for vertex in range(len(left))]
    heap = list(current)
    heapq.heapify(heap)
    done = [False] * len(left)
    order: list[int] = []
    separators: list[set[int]] = []
    filled, largest, total = 0, 0.0, 0.0
    while heap:
        top = heapq.heappop(heap)
        vertex = int(top[-1])
        if done[vertex] or top != current[vertex]:
            continue
        done[vertex] = True
        around = left[vertex]
        order.append(vertex)
        separators.append(around)
        size = log_cards[vertex] + math.fsum(log_cards[u] for u in around)
        largest = max(largest, size)
        total += 2.0 ** min(size, 1000.0)
        if size > log2_largest or total > most:
            return Elimination(order, separators, filled, largest, total, complete=False)
        for u in around:
            left[u].remove(vertex)
            fill[u] -= len(left[u]) - len(left[u] & around)
            weight[u] -= log_cards[vertex]
        changed = set(around)
        if len(around) > 1:
            for a, b in combinations(sorted(around), 2):
                if b not in left[a]:
                    common = left[a] & left[b]
                    for c in common:
                        fill[c] -= 1
                    changed |= common
                    fill[a] += len(left[a]) - len(common)
                    fill[b] += len(left[b]) - len(common)
                    weight[a] += log_cards[b]
                    weight[b] += log_cards[a]
                    left[a].add(b)
                    left[b].add(a)
                    filled += 1
        for u in changed:
            current[u] = entry(u)
            heapq.heappush(heap, current[u])
    return Elimination(order, separators, filled, largest, total, complete=True)


def missing_pairs(neighbours: Sequence[set[int]], vertex: int) -> int:
    """Pairs of neighbours that are not neighbours of each other."""
    own = neighbours[vertex]
    joined = sum(len(own & neighbours[u]) for u in own)
    return (len(own) * (len(own) - 1) - joined) // 2
