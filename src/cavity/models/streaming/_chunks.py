"""The rows of a stream: arrays, memory maps or batches of anything that can be iterated, in chunks of one size.

A source hands out its rows in one order, from any row on, and says whether it can do so again. Batches are pairs (X, y)
or triples (X, y, weights); how the rows are cut into batches does not matter: small ones are put together, and compiled
programs see them checked, as features.
"""

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from cavity._core.checks import LARGEST, number_array, real_numbers
from cavity.kernels.basis import Spanned

#: rows of a batch that are looked at together, so that a batch may be a memory map of any length
PIECE = 16384


class Piece(NamedTuple):
    """Some rows of a batch. batch: its number, None for arrays. first: the place of their first in it."""

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
        batches: (X, y) or (X, y, weights) as arrays or memory maps; something that can be iterated again, such as a
            list of batches; a function without arguments that returns an iterator; or an iterator, which is read once.
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


#: rows of a chunk, more where there are many features: the work on q must stay below that on the rows
CHUNK_ROWS, ROWS_PER_FEATURE = 4096, 4


class Chunk(NamedTuple):
    """Rows that are visited by one call of a compiled program.

    number: of the chunk. X: (rows, features). y: (models, rows), what each model observes. weights: (rows,).
    inputs: what the features were made of, by which rows are known again: features may round otherwise next time.
    residual: the variance that features leave of a row's latent; None where they leave none.
    """

    number: int
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    inputs: np.ndarray
    residual: np.ndarray | None = None

    def data(self, model: int) -> Any:
        """What a model observes, with the residuals where there are any."""
        return self.y[model] if self.residual is None else (self.y[model], self.residual)

    def checksum(self) -> int:
        """A number that other rows, or these in another order, would most likely not have."""
        found = 0
        for part in (self.inputs, self.y, self.weights):
            found = zlib.crc32(np.ascontiguousarray(part).data, found)
        return found


@dataclasses.dataclass
class ChunkReader:
    """Reads a source in chunks.

    features: from an array of inputs to one of features, row by row, or to these and residuals (`Spanned`); None for
        the inputs themselves.
    observed: from y to what the models observe, (models, rows), NaN for an unknown label; None for one model that
        observes y. validate: refuses observations in one sentence.
    row_weights: from y to factors on the weights of the rows; None for none.
    columns, names: of the inputs, as found in the first piece; the others must agree.
    width: the number of features. size: rows of a chunk, which follows from it.
    """

    source: Source
    features: Callable[[np.ndarray], Any] | None = None
    observed: Callable[[np.ndarray], np.ndarray] | None = None
    validate: Callable[[np.ndarray], None] | None = None
    row_weights: Callable[[np.ndarray], np.ndarray] | None = None
    columns: int | None = None
    names: list[str] | None = None
    width: int | None = None
    size: int = dataclasses.field(default_factory=lambda: CHUNK_ROWS)
    leaves_residuals: bool = False
    pending: Iterator[Chunk] | None = None

    def first(self) -> Chunk:
        """The first chunk, which is handed out again by the first pass: what can be read once loses nothing."""
        reading = self.chunks(0)
        found = next(reading, None)
        if found is None:
            raise ValueError("batches is empty: it gave no rows.")
        self.pending = chain([found], reading)
        return found

    def chunks(self, start: int) -> Iterator[Chunk]:
        """The rows from row `start`, where a chunk begins, on, in chunks; the last one may be shorter."""
        pending, self.pending = self.pending, None
        if pending is not None and start == 0:
            return pending
        return self.cut(self.source.read(start), start)

    def cut(self, pieces: Iterator[Piece], start: int) -> Iterator[Chunk]:
        """Rows as they came, in chunks."""
        held: list[tuple[np.ndarray, ...]] = []
        for together in self.groups(pieces):
            held.append(self.tables(together))
            joined = stack_tables(held)
            whole = len(joined[0]) // self.size * self.size
            for first in range(0, whole, self.size):
                yield self.chunk(start + first, tuple(part[first : first + self.size] for part in joined))
            # A copy: whoever hands out batches may fill the same memory again.
            start, held = start + whole, [tuple(part[whole:].copy() for part in joined)]
        if held and len(held[0][0]):
            yield self.chunk(start, held[0])

    def groups(self, pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
        """Pieces that are looked at together: of one kind of label, and with what waits for them a chunk at least."""
        held: list[Piece] = []
        waiting = 0
        for raw in pieces:
            piece = self.checked(raw)
            if held and held[-1].y.dtype.kind != piece.y.dtype.kind:
                yield held
                held = []
            if len(piece.X) < self.size:
                piece = piece._replace(X=piece.X.copy(), y=piece.y.copy(), weights=piece.weights.copy())
            held.append(piece)
            waiting += len(piece.X)
            if waiting >= self.size:
                yield held
                held, waiting = [], waiting % self.size
        if held:
            yield held

    def tables(self, together: list[Piece]) -> tuple[np.ndarray, ...]:
        """The table of several pieces; where it is refused, the piece that is to blame is found and named."""
        if len(together) == 1:
            return self.table(together[0])
        X, y, weights = stack_tables([(piece.X, piece.y, piece.weights) for piece in together])
        try:
            return self.table(together[0]._replace(X=X, y=y, weights=weights))
        except ValueError:
            for piece in together:
                self.table(piece)
            raise

    def chunk(self, start: int, parts: tuple[np.ndarray, ...]) -> Chunk:
        """The chunk that begins with row `start`, of the parts of a table."""
        X, observed, weights, inputs, residual = parts
        return Chunk(start // self.size, X, observed.T, weights, inputs, residual if self.leaves_residuals else None)

    def checked(self, piece: Piece) -> Piece:
        """The piece as arrays, X and weights of float64, if it is of the kind of the first ones."""
        y = np.asarray(piece.y)
        if np.ma.is_masked(piece.y):
            raise ValueError(f"y of {piece.name} must not be masked; leave the rows out.")
        if y.ndim != 1:
            raise ValueError(f"y of {piece.name} must have one dimension; found shape {y.shape}.")
        if self.observed is None and y.dtype.kind not in "biuf":
            raise ValueError(f"y of {piece.name} must hold numbers; found dtype {y.dtype}.")
        X, given = self.inputs(piece), piece.weights
        weights = np.ones(len(X)) if given is None else real_numbers(f"weights of {piece.name}", given)
        return piece._replace(X=X, y=y, weights=weights)

    def table(self, piece: Piece) -> tuple[np.ndarray, ...]:
        """Features, observations (one column per model), weights, inputs, residuals; refused where a row is bad."""
        X, y, weights = piece.X, piece.y, piece.weights
        refuse_nonfinite("X", X, piece)
        try:
            observed = y[None].astype(float) if self.observed is None else self.observed(y)
        except (TypeError, ValueError) as error:
            raise ValueError(f"y of {piece.name} holds what is not a label: {error}.") from None
        if (unknown := ~np.isfinite(observed).all(axis=0)).any():
            row = int(unknown.argmax())
            found = y[row : row + 1].tolist()[0]
            raise ValueError(f"y must hold known labels or finite numbers; found {found!r} in {piece.place(row)}.")
        if self.validate is not None:
            try:
                for own in observed:
                    self.validate(own)
            except ValueError as error:
                raise ValueError(f"{piece.name}: {error}") from None
        if self.row_weights is not None:
            weights = weights * self.row_weights(y)
        if (bad := ~(np.isfinite(weights) & (weights >= 0))).any():
            row = int(bad.argmax())
            raise ValueError(f"weights must be finite and not negative; found {weights[row]} in {piece.place(row)}.")
        residual = np.zeros(len(X))
        if self.features is not None:
            try:
                made = self.features(X)
                if isinstance(made, Spanned):
                    made, residual = made
                    self.leaves_residuals = True
                X, residual = np.asarray(made, float), np.asarray(residual, float)
            except ValueError as error:
                raise ValueError(f"{piece.name}: {error}") from None
            if X.ndim != 2 or len(X) != len(observed.T):
                raise ValueError(f"features must give one row per row of X, {len(y)}; found shape {X.shape}.")
            refuse_nonfinite("features", X, piece)
        width = int(X.shape[1])
        if self.width is None:
            self.width, self.size = width, max(CHUNK_ROWS, 1 << (ROWS_PER_FEATURE * width - 1).bit_length())
        if width != self.width:
            raise ValueError(f"features of {piece.name} have {width} columns; the first rows had {self.width}.")
        return X, observed.T, weights, piece.X, residual

    def inputs(self, piece: Piece) -> np.ndarray:
        """The rows of X as an array of numbers, if they are like the first ones."""
        names = getattr(piece.X, "columns", None)
        names = None if names is None or not all(isinstance(name, str) for name in names) else list(names)
        X: Any = piece.X.toarray() if hasattr(piece.X, "toarray") else number_array(f"X of {piece.name}", piece.X)
        if X.ndim != 2 or X.shape[1] == 0:
            raise ValueError(f"X of {piece.name} must be a table of numbers; found shape {X.shape}.")
        X = X.astype(np.float64, copy=False)
        if self.columns is None:
            self.columns, self.names = X.shape[1], names
        if X.shape[1] != self.columns:
            raise ValueError(f"X of {piece.name} has {X.shape[1]} columns; the first rows had {self.columns}.")
        if names != self.names:
            raise ValueError(f"X of {piece.name} has the columns {names}; the first rows had {self.names}.")
        return X


def refuse_nonfinite(what: str, table: np.ndarray, piece: Piece) -> None:
    """Name the first row with a number that is not finite, or too large to be squared."""
    if table.max() <= LARGEST and table.min() >= -LARGEST:
        return
    row, column = np.argwhere(~(np.abs(table) <= LARGEST))[0]
    raise ValueError(
        f"{what} must hold finite numbers between ±{LARGEST:g}; found {table[row, column]} in {piece.place(int(row))}."
    )


def stack_tables(held: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Tables stacked, one below the other."""
    return held[0] if len(held) == 1 else tuple(np.concatenate(parts) for parts in zip(*held, strict=True))
