"""Tables as files have them: plain weights in flat arrays, from the words of a text into a graph and back.

A file of a million factors is checked and stored without a loop over them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cavity.discrete.graph import TableGraph
from cavity.discrete.tables import Tables, log_weights


class Scopes(NamedTuple):
    """lengths: (n,), how many variables every factor has. members: their numbers, one factor after another."""

    lengths: np.ndarray
    members: np.ndarray

    @property
    def owners(self) -> np.ndarray:
        """The factor of every member."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def by_length(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Factors of one length after those of another: their numbers (n,), their scopes (n, length)."""
        starts = np.cumsum(self.lengths) - self.lengths
        for length in np.unique(self.lengths):
            numbers = np.flatnonzero(self.lengths == length)
            yield numbers, self.members[starts[numbers][:, None] + np.arange(length)]

    def sizes(self, cardinalities: np.ndarray) -> np.ndarray:
        """Entries of every table, as floats: exact up to 2⁵³, and no overflow above."""
        sizes = np.ones(len(self.lengths))
        for numbers, rows in self.by_length():
            with np.errstate(over="ignore"):
                sizes[numbers] = cardinalities[rows].astype(np.float64).prod(axis=1)
        return sizes

    def repeated(self) -> int | None:
        """The place in `members` of the first one that its factor has twice."""
        order = np.lexsort((self.members, self.owners))
        members, owners = self.members[order], self.owners[order]
        twice = (members[1:] == members[:-1]) & (owners[1:] == owners[:-1])
        return int(order[1:][twice].min()) if twice.any() else None


def store_tables(
    graph: TableGraph, scopes: Scopes, flat: np.ndarray, starts: np.ndarray, *, first_fastest: bool = False
) -> None:
    """The factors of a graph that has none yet, already checked, by shape, in their own order.

    flat: weights of all of them. starts: where the table of each begins. first_fastest: whether the first variable of
    a scope runs fastest in it, else the last.
    """
    parts = []
    for numbers, rows in scopes.by_length():
        shapes, group = np.unique(graph.cardinalities[rows], axis=0, return_inverse=True)
        group = group.ravel()  # a column in NumPy 2.0
        order = np.argsort(group, kind="stable")
        for own in np.split(order, np.cumsum(np.bincount(group))[:-1]):
            shape, first = tuple(shapes[group[own[0]]].tolist()), starts[numbers[own]]
            stored = shape[::-1] if first_fastest else shape
            size = np.prod(shape, dtype=np.int64)
            if len(own) == 1:  # a table with no equal may be as large as they get: no index as large as itself
                values = flat[first[0] :][:size].reshape(1, *stored)
            else:
                values = flat[first[:, None] + np.arange(size)].reshape(len(own), *stored)
            if first_fastest:
                values = values.transpose(0, *range(len(shape), 0, -1))
            parts.append(Tables(rows[own], log_weights("values", values, log=False), numbers[own]))
    graph.add_tables(sorted(parts, key=lambda part: int(part.numbers[0])))


class PlainTable(NamedTuple):
    """One factor. weights: flat, the last variable of the scope running fastest or, where asked for, the first."""

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    weights: list[float]


def written_tables(graph: TableGraph, *, evidence: bool = False, first_fastest: bool = False) -> list[PlainTable]:
    """Every factor of the graph in its own order, then soft evidence as factors.

    evidence: whether what was observed is added as well, as factors of 0 and 1: then the tables alone have the graph's
    distribution and its Z.
    """
    found: list[PlainTable | None] = [None] * len(graph.factors)
    for own in graph.tables():
        weights = plain_weights(own.log_values, own.numbers)
        if first_fastest:
            weights = weights.transpose(0, *range(len(own.shape), 0, -1))
        rows = weights.reshape(len(weights), -1).tolist()
        for number, scope, row in zip(own.numbers.tolist(), own.scopes.tolist(), rows, strict=True):
            found[number] = PlainTable(tuple(scope), own.shape, row)
    tables = [table for table in found if table is not None]
    for variable, log_likelihood in graph.likelihoods.items():
        row = plain_weights(log_likelihood[None], np.array([len(tables)]))[0]
        tables.append(PlainTable((variable,), row.shape, row.tolist()))
    for variable, state in graph.evidence.items() if evidence else ():
        row = np.eye(int(graph.cardinalities[variable]))[state]
        tables.append(PlainTable((variable,), row.shape, row.tolist()))
    return tables


def plain_weights(log_values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """exp of the logarithms, where doubles can hold it: an entry that became 0 or ∞ would be another model."""
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp(log_values)
    lost = (weights == np.inf) | ((weights == 0) & (log_values > -np.inf))
    if lost.any():
        place = tuple(np.argwhere(lost)[0])
        raise ValueError(
            f"factor {numbers[place[0]]} has an entry exp({log_values[place]:.6g}), which a double cannot hold; "
            "move a constant into another factor."
        )
    return weights
