"""Rows from Parquet files and Arrow tables, read in record batches. Needs PyArrow: the extra `cavity[arrow]`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

#: rows of a record batch
ROWS = 65536


def parquet(
    path: Any, *, target: str, columns: Sequence[str] | None = None, weights: str | None = None
) -> Callable[[], Iterator[tuple[np.ndarray, ...]]]:
    """Batches for `fit_stream` from Parquet files, which may be larger than memory.

    Args:
        path: of a file, of several, which are read one after another, or of a folder of them; or a table or a dataset
            of PyArrow.
        target: the column that is y.
        columns: those that are X; None for all others, in their order.
        weights: the column that says how often a row counts.

    Returns:
        A function that begins to read anew whenever it is called. Missing values come as NaN and are refused by row.

    Raises:
        ValueError: a column is missing or holds no numbers, or the files cannot be read as Parquet.
        ImportError: PyArrow is not installed.

    Examples:
        >>> import tempfile
        >>> import pyarrow as pa
        >>> import pyarrow.parquet
        >>> from cavity.models.streaming import parquet
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pa.parquet.write_table(pa.table({"age": [31, 54], "risk": [-1, 1]}), f"{folder}/people.parquet")
        ...     batches = parquet(folder, target="risk")
        ...     [(X.tolist(), y.tolist()) for X, y in batches()]
        [([[31.0], [54.0]], [-1, 1])]
    """
    dataset = open_dataset(path)
    known = dataset.schema.names
    chosen = [name for name in known if name not in (target, weights)] if columns is None else list(columns)
    extra = [] if weights is None else [weights]
    for name in (target, *chosen, *extra):
        if name not in known:
            raise ValueError(f"{path} has no column {name!r}; it has {', '.join(known)}.")
    if not chosen:
        raise ValueError("columns is empty: X needs at least one column.")

    def batches() -> Iterator[tuple[np.ndarray, ...]]:
        wanted = list(dict.fromkeys([*chosen, target, *extra]))
        # Order matters to a stream, and batches read ahead take memory.
        scanner = dataset.scanner(columns=wanted, batch_size=ROWS, batch_readahead=1, fragment_readahead=1)
        for batch in scanner.to_batches():
            if batch.num_rows:
                X = np.column_stack([as_floats(batch.column(name), name) for name in chosen])
                y = batch.column(target).to_numpy(zero_copy_only=False)
                yield (X, y, *(as_floats(batch.column(name), name) for name in extra))

    return batches


def open_dataset(path: Any) -> Any:
    """The dataset of the files, or of Arrow's own tables and record batches."""
    try:
        import pyarrow.dataset as arrow  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError("Parquet files need PyArrow; install it with: pip install 'cavity[arrow]'.") from None
    if isinstance(path, arrow.Dataset):
        return path
    try:
        return arrow.dataset(path, format=None if hasattr(path, "schema") else "parquet")
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}.") from None


def as_floats(column: Any, name: str) -> np.ndarray:
    """A column as float64, missing values as NaN."""
    try:
        return column.to_numpy(zero_copy_only=False).astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"column {name!r} must hold numbers; found {column.type}.") from None
