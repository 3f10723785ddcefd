"""Where the rows of a stream come from: arrays, memory maps, batches from whatever can be iterated.

A source hands out its rows in one order, from any row on, and says whether it can do so again. Batches are pairs (X, y)
or triples (X, y, weights); how the rows are cut into batches does not matter.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

#: rows of a batch that are looked at together, so that a batch may be a memory map of any length
PIECE = 16384


class Piece(NamedTuple):
    """Some rows of a batch as they came. batch: its number, None for arrays. first: the place of their first in it."""

    batch: int | None
    first: int
    X: Any
    y: Any
    weights: Any

    @property
    def name(self) -> str:
        """What the rows belong to, for a sentence."""
        return "X" if self.batch is None else f"batch {self.batch}"

    def place(self, row: int) -> str:
        """Where one of these rows is, for a sentence."""
        own = f"row {self.first + row}"
        return own if self.batch is None else f"batch {self.batch}, {own}"


@dataclasses.dataclass(frozen=True)
class Arrays:
    """All rows in arrays or memory maps, which are read in slices."""

    batch: tuple[Any, ...]
    again = True

    def read(self, start: int) -> Iterator[Piece]:
        """The rows from row `start` on."""
        refuse_shorter(rows_of(self.batch[0]), start)
        return pieces(None, self.batch, start)


@dataclasses.dataclass(frozen=True)
class Batches:
    """Batches from `fresh()`, an iterator over all of them. again: whether it can be called again."""

    fresh: Callable[[], Iterable[Any]]
    again: bool

    def read(self, start: int) -> Iterator[Piece]:
        """The rows from row `start` on; batches before it are taken and let go."""
        passed = 0
        for number, batch in enumerate(self.fresh()):
            if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
                raise ValueError(f"batch {number} must be a pair (X, y) or a triple (X, y, weights).")
            length = rows_of(batch[0])
            if length == 0:
                raise ValueError(f"batch {number} is empty: it has no rows.")
            if passed + length > start:
                yield from pieces(number, tuple(batch), max(start - passed, 0))
            passed += length
        refuse_shorter(passed, start)


Source = Arrays | Batches


def source_of(batches: Any) -> Source:
    """The source a user means.

    Args:
        batches: (X, y) or (X, y, weights) as arrays or memory maps; something that can be iterated anew, such as a list
            of batches; a function without arguments that returns an iterator; or an iterator, which is read once.
    """
    if isinstance(batches, tuple) and len(batches) in (2, 3) and hasattr(batches[0], "shape"):
        if rows_of(batches[0]) == 0:
            raise ValueError("X is empty: it has no rows.")
        return Arrays(batches)
    if callable(batches):
        made: Any = batches
        return Batches(made, again=True)
    if not isinstance(batches, Iterable) or isinstance(batches, str | bytes | np.ndarray):
        raise TypeError(
            "batches must be (X, y), an iterable of such pairs, or a function that returns an iterator of them; "
            f"found {type(batches).__name__}."
        )
    once = iter(batches) is batches
    return Batches(lambda: iter(batches), again=not once)


def refuse_shorter(rows: int, start: int) -> None:
    """Refuse a source that ends before the row from which it is to be read."""
    if rows < start:
        raise ValueError(f"batches must give the same rows every time; found {rows}, once at least {start}.")


def pieces(number: int | None, batch: tuple[Any, ...], start: int) -> Iterator[Piece]:
    """A batch from row `start` on, in pieces."""
    X, y = batch[:2]
    weights = batch[2] if len(batch) == 3 else None
    length = rows_of(X)
    for name, values in (("y", y), ("weights", weights)):
        if values is not None and rows_of(values) != length:
            whose = "" if number is None else f" of batch {number}"
            raise ValueError(f"{name}{whose} must have one entry per row of X, {length}; found {rows_of(values)}.")
    X, y, weights = (positional(values) for values in (X, y, weights))
    for first in range(start, length, PIECE):
        own = slice(first, first + PIECE)
        yield Piece(number, first, X[own], y[own], None if weights is None else weights[own])


def rows_of(values: Any) -> int:
    """How many rows there are; a sparse matrix has a shape and no length."""
    return int(values.shape[0]) if hasattr(values, "shape") and len(values.shape) else len(values)


def positional(values: Any) -> Any:
    """What can be cut by position: a data frame or series by its `iloc`."""
    return getattr(values, "iloc", values)
