"""Table factors, stored together by shape: a graph of a million factors is a few arrays.

Impossible states are added so that tables share a few shapes: every shape is compiled once, for seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from cavity._core import checks

Derived = TypeVar("Derived")
#: the number of states that variables with so many states are given
Levels = dict[int, int]

#: entries of tables that are worth reading to save one shape: some hundred sweeps of them take as long as compiling it
WORTH = 2**16


class Tables(NamedTuple):
    """Factors of one shape.

    scopes: (n, m), the numbers of their variables. log_values: (n, K₁, …, K_m), axis j belonging to variable j of the
    scope; −inf where the weight is zero. numbers: (n,), their places in the graph's own order.
    """

    scopes: np.ndarray
    log_values: np.ndarray
    numbers: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """(K₁, …, K_m)."""
        return self.log_values.shape[1:]

    def at(self, states: np.ndarray) -> np.ndarray:
        """Log weight of every factor for one state of each variable of the graph."""
        return self.log_values[(np.arange(len(self.scopes)), *states[self.scopes].T)]


class LogTable(NamedTuple):
    """One factor."""

    scope: tuple[int, ...]
    log_values: np.ndarray

    def over(self, scope: Sequence[int]) -> np.ndarray:
        """Its values with one axis for each variable of a larger scope, of length 1 where they do not depend on it."""
        states = dict(zip(self.scope, self.log_values.shape, strict=True))
        order = np.argsort([scope.index(variable) for variable in self.scope])
        return self.log_values.transpose(order).reshape([states.get(variable, 1) for variable in scope])


@dataclass(frozen=True, eq=False)
class FactorTables:
    """All factors of a graph at one moment, and the numbers of states they were made for: a value that never changes.

    by_shape: one entry per shape, in order of first appearance. A graph that is given another factor or variable has
    another value; copies of a graph, with other evidence, share one.
    """

    cardinalities: np.ndarray
    by_shape: tuple[Tables, ...]
    _derived: dict[Any, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def joined(cls, cardinalities: np.ndarray, parts: Sequence[Tables]) -> FactorTables:
        """Tables that are already checked, those of one shape together."""
        shapes: dict[tuple[int, ...], list[Tables]] = {}
        for part in parts:
            shapes.setdefault(part.shape, []).append(part)
        by_shape: list[Tables] = []
        for own in shapes.values():
            by_shape.append(own[0] if len(own) == 1 else Tables(*map(np.concatenate, zip(*own, strict=True))))
            for array in by_shape[-1]:
                array.flags.writeable = False
        return cls(cardinalities, tuple(by_shape))

    def derive(self, work: Callable[[FactorTables], Derived]) -> Derived:
        """work(self), worked out once and kept for as long as the tables are: they do not change, so it stays true."""
        if work not in self._derived:
            self._derived[work] = work(self)
        return self._derived[work]

    def __len__(self) -> int:
        return sum(len(own.scopes) for own in self.by_shape)

    def __iter__(self) -> Iterator[LogTable]:
        """One by one, in the order in which they were added."""
        where = np.zeros((len(self), 2), np.int64)
        for g, own in enumerate(self.by_shape):
            where[own.numbers] = np.stack([np.full(len(own.numbers), g), np.arange(len(own.numbers))], axis=1)
        for g, row in where:
            yield LogTable(tuple(self.by_shape[g].scopes[row].tolist()), self.by_shape[g].log_values[row])


def log_weights(name: str, values: Any, log: bool) -> np.ndarray:
    """Log weights, a new array, from weights (or from logarithms): not negative, not NaN, not infinite."""
    found = checks.real_numbers(name, values)
    bad = np.isnan(found) | (found == np.inf) | (False if log else found < 0)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        wanted = "logarithms of weights" if log else "weights of at least 0"
        raise ValueError(f"{name} must hold {wanted}; found {found[place]} at index {place}.")
    if log:
        return found
    with np.errstate(divide="ignore"):
        return np.log(found, out=found)


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
