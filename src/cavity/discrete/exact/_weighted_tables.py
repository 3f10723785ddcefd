"""A program of exact inference run in weights instead of logarithms: faster, where nothing can underflow.

Every table knows bounds of its entries: the smallest that is not zero and the largest. A product of tables has no
entry, zeros apart, below the product of the lower bounds: while that stays above 1e-250 nothing is lost. Where it does
not, as with strong couplings, this way is given up and the messages of `junction_tree` are used.

Tables that are conditional distributions are found by their numbers: Σ_v t(v, parents) is the same for all parents.
Whatever depends on v alone from below is then irrelevant to the rest: a child that is not observed, directly or
through its own children, sums to one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cavity.discrete.exact._clique_tree import SAFE, Scope
from cavity.discrete.exact._program import Program
from cavity.discrete.graph import Contradiction, TableGraph, slice_table, split_variables
from cavity.discrete.tables import FactorTables, Tables

#: bounds past this are measured instead
LOOSE = 1e-30


class BoundedTable(NamedTuple):
    """A table of weights whose entries, zeros apart, lie between the bounds; log_scale: of what it was divided by."""

    table: np.ndarray
    lowest: float
    largest: float
    log_scale: float = 0.0


#: stands where a table was that is not needed any more
NOTHING = BoundedTable(np.empty(0), 1.0, 1.0)


class Summed(NamedTuple):
    """Marginals of the free variables, and the log of the sum over all their states."""

    marginals: dict[int, np.ndarray]
    log_sum: float


class FreeTables(NamedTuple):
    """Tables over the free variables.

    children: the variables that they are distributions of, −1 where a table is none. states: of the free variables.
    log_constant: log of what the tables were divided by and of the factors without free variables.
    """

    scopes: tuple[Scope, ...]
    children: tuple[int, ...]
    inputs: list[BoundedTable]
    states: dict[int, int]
    log_constant: float


class Source(NamedTuple):
    """A factor as weights, the log of what it was divided by, and the variable it is a distribution of, or −1."""

    scope: Scope
    log_values: np.ndarray
    weights: BoundedTable
    log_scale: float
    child: int


def free_tables(graph: TableGraph) -> FreeTables:
    """The tables of a graph with its evidence in."""
    fixed, states = split_variables(graph)
    found: list[tuple[Scope, int, BoundedTable]] = []
    constants: list[float] = []
    for source in sources(graph):
        scope, table = slice_table(source.scope, source.weights.table, fixed)
        if scope:
            # What is left of the distribution of an observed variable is one no more.
            child = -1 if source.child in fixed else source.child
            found.append((scope, child, source.weights._replace(table=table)))
            constants.append(source.log_scale)
        else:
            constants.append(float(slice_table(source.scope, source.log_values, fixed)[1]))
    if -math.inf in constants:
        raise Contradiction
    scopes, children, inputs = zip(*found, strict=True) if found else ((), (), ())
    return FreeTables(scopes, children, list(inputs), states, math.fsum(constants))


def sources(graph: TableGraph) -> list[Source]:
    """All factors as weights in their own order, then the likelihoods in the order of their variables."""
    soft = (Tables(np.array([[v]]), graph.likelihoods[v][None], np.zeros(1)) for v in sorted(graph.likelihoods))
    own = graph.factors.derive(factor_sources)
    return [*own, *(source for likelihood in soft for source in each_source(likelihood, scale_tables(likelihood)))]


def factor_sources(factors: FactorTables) -> list[Source]:
    """All factors as weights, in their own order."""
    found: dict[int, Source] = {}
    for own, part in zip(factors.by_shape, find_conditionals(factors.by_shape), strict=True):
        found.update(zip(own.numbers.tolist(), each_source(own, part), strict=True))
    return [found[number] for number in range(len(found))]


def each_source(own: Tables, part: WeightTables) -> Iterator[Source]:
    """The tables of one shape one by one."""
    columns = (part.lowest, part.largest, part.log_scale, part.child, own.scopes)
    rows = zip(*(column.tolist() for column in columns), own.log_values, part.weights, strict=True)
    for lowest, largest, log_scale, child, scope, log_values, weights in rows:
        yield Source(tuple(scope), log_values, BoundedTable(weights, lowest, largest), log_scale, child)


class WeightTables(NamedTuple):
    """Tables of one shape as weights t / exp(log_scale).

    lowest: smallest entry that is not zero, largest: largest one, of every table. child: the variable that the table
    sums to one over for every state of the others, −1 where there is none.
    """

    weights: np.ndarray
    log_scale: np.ndarray
    lowest: np.ndarray
    largest: np.ndarray
    child: np.ndarray


def find_conditionals(groups: Sequence[Tables]) -> list[WeightTables]:
    """All tables as weights. A variable is the child of one table at most: of a table that could be the distribution of
    several variables, the first is taken that no other table is the only one for.
    """
    found = [scale_tables(own) for own in groups]
    sums = [common_sums(own, part.weights) for own, part in zip(groups, found, strict=True)]
    taken = {-1}
    for several in (False, True):
        for own, part, sum_over in zip(groups, found, sums, strict=True):
            fits = sum_over > 0.0
            for row in np.flatnonzero((fits.sum(axis=1) > 1) if several else (fits.sum(axis=1) == 1)).tolist():
                child = next((v for v in own.scopes[row][fits[row]].tolist() if v not in taken), -1)
                part.child[row] = child
                taken.add(child)
    for own, part, sum_over in zip(groups, found, sums, strict=True):
        rows, axis = np.nonzero(own.scopes == part.child[:, None])
        scale = sum_over[rows, axis]
        part.weights[rows] /= scale.reshape(-1, *[1] * len(own.shape))
        part.log_scale[rows] += np.log(scale)
        part.lowest[rows] /= scale
        part.largest[rows] /= scale
    return found


def scale_tables(own: Tables) -> WeightTables:
    """Weights with largest entry 1; a table of zeros stays one."""
    axes = tuple(range(1, own.log_values.ndim))
    top = own.log_values.max(axis=axes)
    top = np.where(top == -np.inf, 0.0, top)
    shifted = own.log_values - np.expand_dims(top, axes)
    # The lowest of the logarithms: a weight may itself have become zero.
    bottom = np.min(shifted, axis=axes, where=shifted > -np.inf, initial=0.0)
    return WeightTables(np.exp(shifted), top, np.exp(bottom), np.ones(len(top)), np.full(len(top), -1))


def common_sums(own: Tables, weights: np.ndarray) -> np.ndarray:
    """(n, m): the sum of table i over variable j where it is, to rounding, the same for all states of the others; else
    0.
    """
    found = np.zeros(own.scopes.shape)
    for j, states in enumerate(own.shape):
        sums = weights.sum(axis=j + 1).reshape(len(weights), -1)
        high, low = sums.max(axis=1), sums.min(axis=1)
        equal = high - low <= 4 * states * np.finfo(float).eps * high
        found[:, j] = np.where(equal, sums.mean(axis=1), 0.0)
    return found


def evaluate(program: Program, free: FreeTables) -> Summed | None:
    """All marginals, or None where a product could underflow."""
    tables, log_sum = list(free.inputs), 0.0
    for number, step in enumerate(program.steps):
        if number == program.upward:
            log_sum = log_product(tables, program.scalars)
        used = [tables[t] for t in step.inputs]
        low = math.prod([own.lowest for own in used])
        if low < SAFE:
            return None
        high = step.terms * math.prod([own.largest for own in used])
        total = math.fsum([own.log_scale for own in used])
        made = step.value([own.table for own in used])
        if low < LOOSE or high > 1.0 / LOOSE:
            high = float(made.max())
            if high == 0.0:
                raise Contradiction
            made = made / high
            total += math.log(high)
            low, high = float(np.min(made, where=made > 0.0, initial=1.0)), 1.0
        tables.append(BoundedTable(made, low, high, total))
        for t in program.dropped[number]:
            tables[t] = NOTHING
    if len(program.steps) == program.upward:
        log_sum = log_product(tables, program.scalars)
    log_sum = log_sum + program.log_count + free.log_constant
    return Summed(normalise_marginals(program, tables, free.states), log_sum)


def log_product(tables: Sequence[BoundedTable], scalars: Sequence[int]) -> float:
    """Log of the product of tables without variables."""
    values = [float(tables[t].table) for t in scalars]
    if 0.0 in values:
        raise Contradiction
    return math.fsum([*map(math.log, values), *(tables[t].log_scale for t in scalars)])


def normalise_marginals(
    program: Program, tables: Sequence[BoundedTable], states: dict[int, int]
) -> dict[int, np.ndarray]:
    """Marginals that sum to one, all of one length at a time."""
    found: dict[int, np.ndarray] = {}
    for length in set(states.values()):
        own = [v for v, count in states.items() if count == length]
        places = [program.marginals[v] for v in own]
        rows = np.array([np.ones(length) if place is None else tables[place].table for place in places])
        rows /= rows.sum(axis=1, keepdims=True)
        found.update(zip(own, rows, strict=True))
    return found
