"""Numbers of states made alike, so that tables share a few shapes: every shape is compiled once, for seconds."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cavity.discrete.tables import Tables, TableStore
from cavity.discrete.variables import Variables

if TYPE_CHECKING:
    from cavity.discrete.graph import DiscreteGraph

#: entries of tables that are worth reading to save one shape: some hundred sweeps of them take as long as compiling it
WORTH = 2**16

#: the number of states that variables with so many states are given
Levels = dict[int, int]


class Rounded(NamedTuple):
    """cardinalities: of all variables. factors: the tables in these."""

    cardinalities: np.ndarray
    factors: TableStore


def rounded(graph: DiscreteGraph) -> DiscreteGraph:
    """The same distribution with impossible states added to some variables; the graph itself if that gains nothing.

    Axes of every table are in order of their lengths, so that (2, 3) and (3, 2) are one shape. The variables have
    numbers, no names.
    """
    if len(np.unique(graph.cardinalities)) < 2:
        return graph
    memo = graph.factors.memo
    if "rounded" not in memo:
        memo["rounded"] = all_rounded(graph)
    cardinalities, factors = memo["rounded"]
    found = copy.copy(graph)
    found.variables, found.factors = Variables(cardinalities), factors
    found.likelihoods = {
        number: np.pad(own, (0, int(cardinalities[number]) - len(own))) for number, own in graph.likelihoods.items()
    }
    return found


def all_rounded(graph: DiscreteGraph) -> Rounded:
    """The tables with new numbers of states, and one more table for every variable that was given states."""
    groups = graph.tables()
    level = levels([(own.shape, len(own.scopes)) for own in groups], np.unique(graph.cardinalities).tolist())
    cards = graph.cardinalities
    wider = np.array([level[k] for k in cards.tolist()], np.int64)
    store = TableStore()
    for own in groups:
        fuller = filled(own, level)
        store.add(fuller.scopes, fuller.log_values, fuller.numbers)
    for k in np.unique(cards[wider > cards]).tolist():
        own = np.flatnonzero(cards == k)
        impossible = np.where(np.arange(level[k]) < k, 0.0, -np.inf)
        store.add(own[:, None], np.tile(impossible, (len(own), 1)))
    return Rounded(wider, store)


def filled(tables: Tables, level: Levels) -> Tables:
    """The tables with impossible states added, and the axes in order of their lengths."""
    wider = [level[k] for k in tables.shape]
    padding = [(0, 0), *((0, new - old) for old, new in zip(tables.shape, wider, strict=True))]
    log_values = np.pad(tables.log_values, padding, constant_values=-np.inf)
    order = np.argsort(wider, kind="stable")
    return Tables(tables.scopes[:, order], log_values.transpose(0, *(1 + order)), tables.numbers)


def levels(shapes: list[tuple[tuple[int, ...], int]], kinds: list[int], worth: int = WORTH) -> Levels:
    """Which numbers of states become which: neighbours are made one, the cheapest first, as long as that pays.

    shapes: of the tables, with how many there are. The cost is the number of entries, and `worth` for every shape.
    """

    def cost(level: Levels) -> int:
        seen: dict[tuple[int, ...], int] = {}
        for shape, count in shapes:
            new = tuple(sorted(level[k] for k in shape))
            if len(new) > 1:
                seen[new] = seen.get(new, 0) + count
        # In whole numbers that do not overflow.
        return sum(count * int(np.prod(new, dtype=object)) for new, count in seen.items()) + worth * len(seen)

    tried = [{k: k for k in kinds}]
    while len(tops := sorted(set(tried[-1].values()))) > 1:
        merged = [{k: up if now == low else now for k, now in tried[-1].items()} for low, up in pairwise(tops)]
        tried.append(min(merged, key=cost))
    return min(tried, key=cost)
