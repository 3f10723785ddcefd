"""Graphs rewritten before inference: joining factors (grouped terms, thesis 4.2.1) or variables (clusters, 4.2.3)
makes an approximation better.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cavity.discrete.graph import TableGraph
from cavity.discrete.tables import FactorTables, LogTable

#: entries of one joined table beyond which it is refused
LARGEST_TABLE = 2**24


@dataclasses.dataclass(frozen=True)
class Clustering:
    """members: the variables of every cluster, in the order of its axes. cluster, axis: of every variable."""

    members: tuple[tuple[int, ...], ...]
    cluster: np.ndarray
    axis: np.ndarray
    cardinalities: np.ndarray

    @classmethod
    def of(cls, graph: TableGraph, clusters: Sequence[Sequence[Any]]) -> Clustering:
        """The clusters, disjoint sets of variables by number or name; then the variables in none, each alone."""
        found = [tuple(graph.variables.number(variable) for variable in own) for own in clusters]
        flat = [number for own in found for number in own]
        if len(set(flat)) < len(flat):
            twice = next(number for number in flat if flat.count(number) > 1)
            raise ValueError(f"clusters must be disjoint; {graph.variables.name(twice)} is in two.")
        cards, alone = graph.cardinalities, set(range(len(graph.variables))).difference(flat)
        members = (*(own for own in found if own), *((number,) for number in sorted(alone)))
        largest = max((math.prod(cards[list(own)].tolist()) for own in members), default=0)
        if largest > LARGEST_TABLE:
            raise ValueError(f"a cluster has {largest} joint states, more than {LARGEST_TABLE}.")
        cluster, axis = np.zeros((2, len(cards)), np.int64)
        for number, own in enumerate(members):
            cluster[list(own)], axis[list(own)] = number, range(len(own))
        return cls(members, cluster, axis, cards)

    def shape(self, number: int) -> tuple[int, ...]:
        """The numbers of states of the members of a cluster."""
        return tuple(self.cardinalities[list(self.members[number])].tolist())

    def marginal(self, held: Any, variable: int) -> np.ndarray:
        """P(x) of a variable. held: by cluster, the probabilities of its joint states, on the last axis."""
        joint, shape = held[self.cluster[variable]], self.shape(self.cluster[variable])
        others = tuple(k - len(shape) for k in range(len(shape)) if k != self.axis[variable])
        return joint.reshape(*joint.shape[:-1], *shape).sum(others)


def join_factors(graph: TableGraph, groups: tuple[tuple[int, ...], ...]) -> TableGraph:
    """The graph with the factors of each group made one; all others as they were."""
    factors, cards = list(graph), graph.cardinalities
    joined = {number for own in groups for number in own}
    tables = [table for number, table in enumerate(factors) if number not in joined]
    for own in groups:
        scope = tuple(sorted({variable for number in own for variable in factors[number].scope}))
        shape = cards[list(scope)]
        if (size := math.prod(shape.tolist())) > LARGEST_TABLE:
            what = f"joining {len(own)} factors over {len(scope)} variables"
            raise ValueError(f"{what} takes {size} entries, more than {LARGEST_TABLE}.")
        tables.append(LogTable(scope, sum((factors[number].over(scope) for number in own), np.zeros(shape))))
    found = TableGraph.assemble(graph.variables, FactorTables(cards, ()), graph.evidence, graph.likelihoods)
    for table in tables:
        found.add_factor(table.scope, table.log_values, log=True)
    return found


def join_variables(graph: TableGraph, clustering: Clustering) -> TableGraph:
    """The graph of the clusters: each is one variable, whose states are the joint states of its members.

    A factor inside one cluster becomes a factor of that variable alone, and so is held exactly.
    """
    cards = graph.cardinalities
    found = TableGraph([math.prod(cards[list(own)].tolist()) for own in clustering.members])
    tables = [LogTable((number,), own) for number, own in enumerate(graph.unary_weights())]
    tables += [table for table in graph if len(table.scope) != 1]
    for table in tables:
        touched = tuple(sorted({clustering.cluster[variable] for variable in table.scope}))
        scope = tuple(variable for number in touched for variable in clustering.members[number])
        size = math.prod(cards[list(scope)].tolist())
        if size > LARGEST_TABLE:
            raise ValueError(f"a factor over {len(touched)} clusters takes {size} entries, more than {LARGEST_TABLE}.")
        whole = np.broadcast_to(table.over(scope), cards[list(scope)])
        found.add_factor(touched, whole.reshape(found.cardinalities[list(touched)]), log=True)
    return found
