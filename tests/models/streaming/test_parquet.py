"""Rows from Parquet files and Arrow tables, and what is refused of them."""

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from cavity.factors import Probit
from cavity.models.streaming import parquet, stream_linear_models

RNG = np.random.default_rng(8)
POINTS = RNG.standard_normal((90, 2))
LABELS = np.where(POINTS[:, 0] + RNG.standard_normal(90) > 0, 1, -1)
WEIGHTS = np.arange(90) % 3
TABLE = pa.table({"width": POINTS[:, 1], "kind": LABELS, "count": WEIGHTS, "height": POINTS[:, 0].astype(np.float32)})


def rows_of(batches):
    """All rows a function of batches gives, as arrays."""
    return [np.concatenate(parts) for parts in zip(*batches(), strict=True)]


@pytest.mark.parametrize("kind", ["folder", "files", "table", "dataset"])
def test_rows_come_as_they_were_written(tmp_path, kind):
    """In their order, whatever the row groups, and as often as asked for."""
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for path, part in zip(paths, (TABLE[:40], TABLE[40:]), strict=True):
        pq.write_table(part, path, row_group_size=13)
    source = {"folder": tmp_path, "files": paths, "table": TABLE, "dataset": ds.dataset(TABLE)}[kind]
    read = parquet(source, target="kind", columns=["height", "width"], weights="count")
    for _ in range(2):
        X, y, weights = rows_of(read)
        np.testing.assert_array_equal(X, np.column_stack([POINTS[:, 0].astype(np.float32), POINTS[:, 1]]))
        np.testing.assert_array_equal(y, LABELS)
        np.testing.assert_array_equal(weights, WEIGHTS)
    X, _ = rows_of(parquet(source, target="kind"))
    np.testing.assert_array_equal(X[:, 0], POINTS[:, 1])  # all columns but the target, in their order
    np.testing.assert_array_equal(X[:, 1], WEIGHTS)


def test_bad_columns_and_files_get_one_sentence(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [1.0, None], "b": [1, -1], "c": ["x", "y"]}), path)
    with pytest.raises(ValueError, match=r"rows\.parquet has no column 'd'; it has a, b, c"):
        parquet(path, target="d")
    with pytest.raises(ValueError, match="columns is empty: X needs at least one column"):
        parquet(path, target="b", columns=[])
    with pytest.raises(ValueError, match="column 'c' must hold numbers; found string"):
        stream_linear_models(parquet(path, target="b"), factor=Probit())
    with pytest.raises(ValueError, match="found nan in batch 0, row 1"):
        stream_linear_models(parquet(path, target="b", columns=["a"]), factor=Probit())
    (tmp_path / "text.parquet").write_text("not this")
    with pytest.raises(ValueError, match=r"text\.parquet cannot be read as Parquet"):
        parquet(tmp_path / "text.parquet", target="a")
