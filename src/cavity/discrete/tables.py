"""Table factors, stored together by shape: a graph of a million factors is a few arrays."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np


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


class Table(NamedTuple):
    """One factor."""

    scope: tuple[int, ...]
    log_values: np.ndarray


class TableStore:
    """Tables as they were added, and by shape."""

    def __init__(self) -> None:
        self._parts: list[Tables] = []
        self._count = 0
        #: what others have worked out from the tables, until one is added
        self.memo: dict[Any, Any] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, scopes: np.ndarray, log_values: np.ndarray, numbers: np.ndarray | None = None) -> None:
        """Factors of one shape, already checked.

        numbers: their places in the graph's own order, where that is not one after another; whoever gives them
        leaves none out in the end.
        """
        if numbers is None:
            numbers = np.arange(self._count, self._count + len(scopes))
        self._parts.append(Tables(scopes, log_values, numbers))
        self._count += len(scopes)
        self.memo.clear()

    def by_shape(self) -> tuple[Tables, ...]:
        """All factors, one entry a shape, in order of first appearance."""
        shapes: dict[tuple[int, ...], list[Tables]] = {}
        for part in self._parts:
            shapes.setdefault(part.shape, []).append(part)
        joined = tuple(
            Tables(*(np.concatenate(column) for column in zip(*own, strict=True))) for own in shapes.values()
        )
        self._parts = list(joined)
        return joined

    def __iter__(self) -> Iterator[Table]:
        """One by one, in the order in which they were added."""
        groups = self.by_shape()
        where = np.zeros((self._count, 2), np.int64)
        for g, own in enumerate(groups):
            where[own.numbers] = np.stack([np.full(len(own.numbers), g), np.arange(len(own.numbers))], axis=1)
        for g, row in where:
            yield Table(tuple(groups[g].scopes[row].tolist()), groups[g].log_values[row])


def log_weights(name: str, values: Any, log: bool) -> np.ndarray:
    """Log weights from weights (or from logarithms): not negative, not NaN, not infinite."""
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers; found {type(values).__name__}.") from None
    bad = np.isnan(found) | (found == np.inf) | (False if log else found < 0)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        wanted = "logarithms of weights" if log else "weights of at least 0"
        raise ValueError(f"{name} must hold {wanted}; found {found[place]} at index {place}.")
    if log:
        return found
    with np.errstate(divide="ignore"):
        return np.log(found)
