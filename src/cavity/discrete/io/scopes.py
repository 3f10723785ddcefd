"""Scopes of many factors as flat arrays: a file of a million factors is checked and stored without a loop over them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cavity.discrete.graph import DiscreteGraph
from cavity.discrete.tables import log_weights


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


def add_tables(
    graph: DiscreteGraph, scopes: Scopes, flat: np.ndarray, starts: np.ndarray, *, first_fastest: bool = False
) -> None:
    """Factors that are already checked, by shape, in their own order.

    flat: weights of all of them. starts: where the table of each begins. first_fastest: whether the first variable of
    a scope runs fastest in it, else the last.
    """
    before, groups = len(graph.factors), []
    for numbers, rows in scopes.by_length():
        shapes, group = np.unique(graph.cardinalities[rows], axis=0, return_inverse=True)
        group = group.ravel()  # a column in NumPy 2.0
        order = np.argsort(group, kind="stable")
        for own in np.split(order, np.cumsum(np.bincount(group))[:-1]):
            groups.append((numbers[own], rows[own], tuple(shapes[group[own[0]]].tolist())))
    for numbers, rows, shape in sorted(groups, key=lambda group: int(group[0][0])):
        stored = shape[::-1] if first_fastest else shape
        size = np.prod(shape, dtype=np.int64)
        if len(numbers) == 1:  # a table with no equal may be as large as they get: no index as large as itself
            values = flat[starts[numbers[0]] :][:size].reshape(1, *stored)
        else:
            values = flat[starts[numbers][:, None] + np.arange(size)].reshape(len(numbers), *stored)
        if first_fastest:
            values = values.transpose(0, *range(len(shape), 0, -1))
        graph.factors.add(rows, log_weights("values", values, log=False), before + numbers)
