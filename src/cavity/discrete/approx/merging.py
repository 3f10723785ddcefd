"""Joining: factors into one (grouped terms, thesis 4.2.1), variables into one (clusters, 4.2.3)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cavity.discrete.tables import Table

if TYPE_CHECKING:
    from cavity.discrete.graph import DiscreteGraph
    from cavity.discrete.queries import Clustering


def spread(table: Table, scope: tuple[int, ...], cardinalities: np.ndarray) -> np.ndarray:
    """The log table with the axes of a larger scope, of length 1 where it does not depend on the variable."""
    order = np.argsort([scope.index(variable) for variable in table.scope])
    moved = np.transpose(table.log_values, order)
    return moved.reshape([int(cardinalities[v]) if v in table.scope else 1 for v in scope])


def product(tables: list[Table], cardinalities: np.ndarray, largest: int) -> Table:
    """One table for several factors, over the union of their scopes."""
    scope = tuple(sorted({variable for table in tables for variable in table.scope}))
    size = math.prod(cardinalities[list(scope)].tolist())
    if size > largest:
        raise ValueError(
            f"joining {len(tables)} factors over {len(scope)} variables takes {size} entries, more than {largest}."
        )
    total = np.zeros([int(cardinalities[variable]) for variable in scope])
    for table in tables:
        total = total + spread(table, scope, cardinalities)
    return Table(scope, total)


def grouped(graph: DiscreteGraph, groups: tuple[tuple[int, ...], ...], largest: int) -> DiscreteGraph:
    """The graph with the factors of each group made one; all others as they were."""
    factors = list(graph)
    joined = {number for own in groups for number in own}
    found = graph.without_factors()
    for number, table in enumerate(factors):
        if number not in joined:
            found.add_factor(table.scope, table.log_values, log=True)
    for own in groups:
        table = product([factors[number] for number in own], graph.cardinalities, largest)
        found.add_factor(table.scope, table.log_values, log=True)
    return found


def clustered(graph: DiscreteGraph, clustering: Clustering, largest: int) -> DiscreteGraph:
    """The graph of the clusters: each is one variable, whose states are the joint states of its members.

    A factor inside one cluster becomes a factor of that variable alone, and so is held exactly.
    """
    cards = graph.cardinalities
    found = type(graph)([math.prod(cards[list(own)].tolist()) for own in clustering.members])
    unary = np.split(graph.flat_unary(), np.cumsum(cards)[:-1]) if len(cards) else []
    tables = [Table((number,), own) for number, own in enumerate(unary)]
    tables += [table for table in graph if len(table.scope) != 1]
    for table in tables:
        touched = tuple(sorted({clustering.cluster[variable] for variable in table.scope}))
        scope = tuple(variable for number in touched for variable in clustering.members[number])
        size = math.prod(cards[list(scope)].tolist())
        if size > largest:
            raise ValueError(f"a factor over {len(touched)} clusters takes {size} entries, more than {largest}.")
        whole = np.broadcast_to(spread(table, scope, cards), [int(cards[v]) for v in scope])
        shape = [int(found.cardinalities[number]) for number in touched]
        found.add_factor(touched, whole.reshape(shape), log=True)
    return found
