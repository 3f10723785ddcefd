"""What exact inference starts from: the tables of a graph as weights, with its evidence in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cavity.discrete.exact.clique_tree import Scope
from cavity.discrete.exact.conditional_tables import Weighted, scaled, weighted
from cavity.discrete.exact.evaluation import Weights
from cavity.discrete.exact.junction_tree import fixed_states, free_states, sliced
from cavity.discrete.exact.tree_messages import Contradiction
from cavity.discrete.graph import DiscreteGraph
from cavity.discrete.tables import Tables


class Prepared(NamedTuple):
    """Tables over the free variables.

    children: the variables that they are distributions of, −1 where a table is none. states: of the free variables.
    log_constant: log of what the tables were divided by and of the factors without free variables.
    """

    scopes: tuple[Scope, ...]
    children: tuple[int, ...]
    inputs: list[Weights]
    states: dict[int, int]
    log_constant: float


class Source(NamedTuple):
    """A factor as weights, the log of what it was divided by, and the variable it is a distribution of, or −1."""

    scope: Scope
    log_values: np.ndarray
    weights: Weights
    log_scale: float
    child: int


def prepared(graph: DiscreteGraph) -> Prepared:
    """The tables of a graph with its evidence in."""
    fixed = fixed_states(graph)
    found: list[tuple[Scope, int, Weights]] = []
    constants: list[float] = []
    for source in sources(graph):
        scope, table = sliced(source.scope, source.weights.table, fixed)
        if scope:
            # What is left of the distribution of an observed variable is one no more.
            child = -1 if source.child in fixed else source.child
            found.append((scope, child, source.weights._replace(table=table)))
            constants.append(source.log_scale)
        else:
            constants.append(float(sliced(source.scope, source.log_values, fixed)[1]))
    if -math.inf in constants:
        raise Contradiction
    scopes, children, inputs = zip(*found, strict=True) if found else ((), (), ())
    return Prepared(scopes, children, list(inputs), free_states(graph, fixed), math.fsum(constants))


def sources(graph: DiscreteGraph) -> list[Source]:
    """All factors as weights in their own order, then the likelihoods in the order of their variables."""
    memo = graph.factors.memo
    if "sources" not in memo:
        groups = graph.tables()
        found: dict[int, Source] = {}
        for own, part in zip(groups, weighted(groups), strict=True):
            found.update(zip(own.numbers.tolist(), each_source(own, part), strict=True))
        memo["sources"] = [found[number] for number in range(len(found))]
    soft = (Tables(np.array([[v]]), graph.likelihoods[v][None], np.zeros(1)) for v in sorted(graph.likelihoods))
    return [*memo["sources"], *(source for own in soft for source in each_source(own, scaled(own)))]


def each_source(own: Tables, part: Weighted) -> Iterator[Source]:
    """The tables of one shape one by one."""
    columns = (part.lowest, part.largest, part.log_scale, part.child, own.scopes)
    rows = zip(*(column.tolist() for column in columns), own.log_values, part.weights, strict=True)
    for lowest, largest, log_scale, child, scope, log_values, weights in rows:
        yield Source(tuple(scope), log_values, Weights(weights, lowest, largest), log_scale, child)
