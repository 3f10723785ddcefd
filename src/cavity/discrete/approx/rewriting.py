"""Graphs rewritten before inference: factors joined, variables joined, numbers of states made alike.

Joining factors (grouped terms, thesis 4.2.1) or variables (clusters, 4.2.3) makes an approximation better. Impossible
states are added so that tables share a few shapes: every shape is compiled once, for seconds.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import numpy as np

from cavity.discrete.graph import TableGraph
from cavity.discrete.tables import FactorTables, LogTable, Tables
from cavity.discrete.variables import Variables

#: entries of tables that are worth reading to save one shape: some hundred sweeps of them take as long as compiling it
WORTH = 2**16

#: the number of states that variables with so many states are given
Levels = dict[int, int]


@dataclasses.dataclass(frozen=True)
class Clustering:
    """members: the variables of every cluster, in the order of its axes. cluster, axis: of every variable."""

    members: tuple[tuple[int, ...], ...]
    cluster: np.ndarray
    axis: np.ndarray
    cardinalities: np.ndarray

    @classmethod
    def of(cls, graph: TableGraph, clusters: list[tuple[int, ...]]) -> Clustering:
        """The clusters, then the variables that are in none, each alone."""
        held = {variable for own in clusters for variable in own}
        alone = [(number,) for number in range(len(graph.variables)) if number not in held]
        members = (*clusters, *alone)
        cluster, axis = np.zeros(len(graph.variables), np.int64), np.zeros(len(graph.variables), np.int64)
        for number, own in enumerate(members):
            cluster[list(own)], axis[list(own)] = number, range(len(own))
        return cls(members, cluster, axis, graph.cardinalities)


def expand_axes(table: LogTable, scope: tuple[int, ...], cardinalities: np.ndarray) -> np.ndarray:
    """The log table with the axes of a larger scope, of length 1 where it does not depend on the variable."""
    order = np.argsort([scope.index(variable) for variable in table.scope])
    moved = np.transpose(table.log_values, order)
    return moved.reshape([int(cardinalities[v]) if v in table.scope else 1 for v in scope])


def join_tables(tables: list[LogTable], cardinalities: np.ndarray, largest: int) -> LogTable:
    """One table for several factors, over the union of their scopes."""
    scope = tuple(sorted({variable for table in tables for variable in table.scope}))
    size = math.prod(cardinalities[list(scope)].tolist())
    if size > largest:
        raise ValueError(
            f"joining {len(tables)} factors over {len(scope)} variables takes {size} entries, more than {largest}."
        )
    total = np.zeros([int(cardinalities[variable]) for variable in scope])
    for table in tables:
        total = total + expand_axes(table, scope, cardinalities)
    return LogTable(scope, total)


def join_factors(graph: TableGraph, groups: tuple[tuple[int, ...], ...], largest: int) -> TableGraph:
    """The graph with the factors of each group made one; all others as they were."""
    factors = list(graph)
    joined = {number for own in groups for number in own}
    found = TableGraph.assemble(
        graph.variables.copy(), FactorTables(graph.cardinalities, ()), graph.evidence, graph.likelihoods
    )
    for number, table in enumerate(factors):
        if number not in joined:
            found.add_factor(table.scope, table.log_values, log=True)
    for own in groups:
        table = join_tables([factors[number] for number in own], graph.cardinalities, largest)
        found.add_factor(table.scope, table.log_values, log=True)
    return found


def join_variables(graph: TableGraph, clustering: Clustering, largest: int) -> TableGraph:
    """The graph of the clusters: each is one variable, whose states are the joint states of its members.

    A factor inside one cluster becomes a factor of that variable alone, and so is held exactly.
    """
    cards = graph.cardinalities
    found = TableGraph([math.prod(cards[list(own)].tolist()) for own in clustering.members])
    unary = np.split(graph.flat_unary(), np.cumsum(cards)[:-1]) if len(cards) else []
    tables = [LogTable((number,), own) for number, own in enumerate(unary)]
    tables += [table for table in graph if len(table.scope) != 1]
    for table in tables:
        touched = tuple(sorted({clustering.cluster[variable] for variable in table.scope}))
        scope = tuple(variable for number in touched for variable in clustering.members[number])
        size = math.prod(cards[list(scope)].tolist())
        if size > largest:
            raise ValueError(f"a factor over {len(touched)} clusters takes {size} entries, more than {largest}.")
        whole = np.broadcast_to(expand_axes(table, scope, cards), [int(cards[v]) for v in scope])
        shape = [int(found.cardinalities[number]) for number in touched]
        found.add_factor(touched, whole.reshape(shape), log=True)
    return found


def pad_states(graph: TableGraph) -> TableGraph:
    """The same distribution with impossible states added to some variables; the graph itself if that gains nothing.

    Axes of every table are in order of their lengths, so that (2, 3) and (3, 2) are one shape. The variables have
    numbers, no names.
    """
    if len(np.unique(graph.cardinalities)) < 2:
        return graph
    factors = graph.factors.derive(padded_tables)
    likelihoods = {
        v: np.pad(own, (0, int(factors.cardinalities[v]) - len(own))) for v, own in graph.likelihoods.items()
    }
    return TableGraph.assemble(Variables(factors.cardinalities), factors, graph.evidence, likelihoods)


def padded_tables(factors: FactorTables) -> FactorTables:
    """The tables with new numbers of states, and one more table for every variable that was given states."""
    cards = factors.cardinalities
    shapes = [(own.shape, len(own.scopes)) for own in factors.by_shape]
    level = levels(shapes, np.unique(cards).tolist())
    wider = np.array([level[k] for k in cards.tolist()], np.int64)
    parts, count = [pad_tables(own, level) for own in factors.by_shape], len(factors)
    for k in np.unique(cards[wider > cards]).tolist():
        own = np.flatnonzero(cards == k)
        impossible = np.where(np.arange(level[k]) < k, 0.0, -np.inf)
        parts.append(Tables(own[:, None], np.tile(impossible, (len(own), 1)), np.arange(count, count + len(own))))
        count += len(own)
    return FactorTables.joined(wider, parts)


def pad_tables(tables: Tables, level: Levels) -> Tables:
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
