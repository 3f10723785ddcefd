"""From what a user has (arrays, dataframes, delayed objects, loaders) to shards: rows and observations in pieces."""

import bisect
from collections.abc import Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed
from distributed import Future

from cavity._core.checks import LARGEST
from cavity.distributed.linear.worker import Shard
from cavity.distributed.worker_pool import Loader, loader_of
from cavity.factors.base import Factor
from cavity.models.latent_gaussian.assembly import LinearRows


def shard_loaders(X: Any, y: Any, factor: Factor, client: Any) -> list[Loader]:
    """How to load and check every shard.

    Args:
        X: a Dask array or dataframe; or a list of shards, each a pair (rows, observations), a function without
            arguments that returns one, a `dask.delayed` object or a future of one.
        y: a Dask array in the same chunks; for a dataframe the name of its column; None for a list.
        factor: the likelihood, which checks the observations.
        client: a Dask collection becomes as many shards as it has workers, neighbouring partitions together.
    """
    if isinstance(X, list | tuple):
        if y is not None:
            raise ValueError("y must be None where X is a list of shards: each holds its own observations.")
        if not X:
            raise ValueError("X must hold at least one shard; found an empty list.")
        return [shard_loader([piece], number, factor) for number, piece in enumerate(X)]
    pieces = partitions(X, y)
    count = min(len(pieces), max(1, len(client.nthreads())))
    groups = np.array_split(np.arange(len(pieces)), count)
    return [shard_loader([pieces[int(i)] for i in own], number, factor) for number, own in enumerate(groups)]


def partitions(X: Any, y: Any) -> list[Delayed]:
    """A Dask collection as pairs (rows, observations), one per partition."""
    if isinstance(X, da.Array):
        rows: Any = X
        if not isinstance(y, da.Array) or X.ndim != 2 or len(X) != len(y) or X.numblocks[1] != 1 or y.numblocks[1:]:
            raise ValueError(
                "X must be a Dask array with all columns in one chunk, and y a Dask vector of the same length; "
                f"found X {getattr(X, 'chunks', None)} and y {getattr(y, 'chunks', type(y).__name__)}."
            )
        observations: Any = y.rechunk(chunks=(rows.chunks[0],))  # type: ignore[arg-type]
        parts = zip(rows.to_delayed()[:, 0], observations.to_delayed(), strict=True)
        return [dask.delayed(tuple)(list(pair)) for pair in parts]
    if hasattr(X, "to_delayed") and hasattr(X, "columns"):
        if not isinstance(y, str) or y not in X.columns:
            raise ValueError(f"y must name a column of the dataframe, one of {list(X.columns)}; found {y!r}.")
        return [dask.delayed(split_frame)(piece, y) for piece in X.to_delayed()]
    raise TypeError(f"X must be a Dask array, a Dask dataframe or a list of shards; found {type(X).__name__}.")


def split_frame(frame: Any, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and observations of one partition of a dataframe."""
    return frame.drop(columns=[label]).to_numpy(), frame[label].to_numpy()


def shard_loader(pieces: Sequence[Any], number: int, factor: Factor) -> Loader:
    """How one shard is loaded: its pieces one after another, checked."""
    for piece in pieces:
        if not (
            isinstance(piece, Delayed | Future) or callable(piece) or (isinstance(piece, tuple) and len(piece) == 2)
        ):
            raise TypeError(
                f"Shard {number} must be a pair (rows, observations), a function that returns one, or a delayed object "
                f"or future of one; found {type(piece).__name__}."
            )
    return loader_of(load_shard, pieces, number, factor)


def load_shard(pieces: Sequence[Any], number: int, factor: Factor) -> Shard:
    """A shard with its rows ready for the linear model; errors name the shard and the row."""
    parts = [check_piece(piece, number) for piece in pieces]
    widths = {X.shape[1] for X, _ in parts}
    if len(widths) > 1:
        raise ValueError(f"Shard {number} has pieces of {sorted(widths)} columns.")
    X, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    if not len(X):
        raise ValueError(f"Shard {number} is empty: it has no rows.")
    if (bad := ~(np.abs(X) <= LARGEST)).any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        found = f"column {column} must hold finite numbers between ±{LARGEST:g}; found {X[row, column]}"
        raise ValueError(f"Shard {number}, row {row}: {found}.")
    if (bad := ~np.isfinite(y)).any():
        row = int(bad.argmax())
        raise ValueError(f"Shard {number}, row {row}: the observation must be finite; found {y[row]}.")
    check_observations(y, number, factor)
    return Shard(LinearRows.of(X, y, factor))


def check_piece(piece: Any, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and observations as arrays of numbers that belong together."""
    if not (isinstance(piece, tuple | list) and len(piece) == 2):
        raise ValueError(f"Shard {number} must be a pair (rows, observations); found {type(piece).__name__}.")
    try:
        X, y = (np.asarray(part, dtype=float) for part in piece)
    except (TypeError, ValueError):
        raise ValueError(f"Shard {number} must hold numbers.") from None
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(
            f"Shard {number} must have rows of shape (n, d) and n observations; found {X.shape} and {y.shape}."
        )
    return X, y


def check_observations(y: np.ndarray, number: int, factor: Factor) -> None:
    """Refuse observations the likelihood is not defined for, naming the first row of them."""

    def refusal(rows: int) -> str | None:
        try:
            factor.check(y[:rows])
        except ValueError as error:
            return str(error)
        return None

    if refusal(len(y)) is not None:
        rows = 1 + bisect.bisect_left(range(1, len(y)), True, key=lambda rows: refusal(rows) is not None)
        raise ValueError(f"Shard {number}, row {rows - 1}: {refusal(rows)}")
