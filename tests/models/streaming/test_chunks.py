"""Streams name what is bad by batch and row, before it is used."""

import time

import numpy as np
import pytest
from stream_rows import LABELS, ROWS, SMALL, cut, streamed

import cavity
from cavity.models.streaming import _chunks
from cavity.models.streaming._chunks import ChunkReader, source_of


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(_chunks, "CHUNK_ROWS", SMALL)


def bad(X, y, place, value=None, **changes):
    """Batches of 20 of which one is changed."""
    batches = cut(X, y, 20)
    batches[place] = changes.get("batch", batches[place])
    if value is not None:
        row, column = value[:2]
        table = batches[place][0].copy()
        table[row, column] = value[2]
        batches[place] = table, batches[place][1]
    return batches


@pytest.mark.parametrize(
    ("batches", "sentence"),
    [
        (bad(ROWS, LABELS, 3, (5, 1, np.nan)), "X must hold finite numbers .*; found nan in batch 3, row 5"),
        (bad(ROWS, LABELS, 3, (5, 1, 1e200)), "found 1e.200 in batch 3, row 5"),
        (bad(ROWS, LABELS, 2, batch=(ROWS[:5, :2], LABELS[:5])), "X of batch 2 has 2 columns; the first rows had 3"),
        (bad(ROWS, LABELS, 9, batch=(ROWS[:0], LABELS[:0])), "batch 9 is empty: it has no rows"),
        (bad(ROWS, LABELS, 1, batch=(ROWS[:5], LABELS[:4])), "batch 1 must have one entry per row of X, 5; found 4"),
        (bad(ROWS, LABELS, 1, batch=(ROWS[:2], [1.0, np.nan])), "found nan in batch 1, row 1"),
        (bad(ROWS, LABELS, 1, batch=(ROWS[:2], [1.0, 0.5])), "batch 1: .*0.5"),
        (bad(ROWS, LABELS, 1, batch=ROWS[:5]), "batch 1 must be a pair"),
        (bad(ROWS, LABELS, 1, batch=(ROWS[:2], [1.0, 1.0], [1.0, -1.0])), "found -1.0 in batch 1, row 1"),
        ((np.where(np.arange(200)[:, None] == 170, np.inf, ROWS), LABELS), "found inf in row 170"),
        ([], "batches is empty"),
        ((ROWS[:0], LABELS[:0]), "X is empty"),
    ],
    ids=range(12),
)
def test_bad_batches_are_named(batches, sentence):
    with pytest.raises(ValueError, match=sentence):
        streamed(batches)


def test_rows_that_change_between_passes_are_refused():
    orders = iter([np.arange(200), np.arange(200)[::-1]])
    with pytest.raises(ValueError, match="same order every time; some of the rows 0 to 63 were not in the first pass"):
        streamed(lambda: iter(cut(ROWS[(order := next(orders))], LABELS[order], 20)))
    lengths = iter([200, 130])
    with pytest.raises(ValueError, match="some of the rows 128 to 129 were not in the first pass"):
        streamed(lambda: iter([(ROWS[: (n := next(lengths))], LABELS[:n])]))
    lengths = iter([200, 192])
    with pytest.raises(ValueError, match="batches must give the same rows every time; found 192 of 200"):
        streamed(lambda: iter([(ROWS[: (n := next(lengths))], LABELS[:n])]))


def test_features_keep_their_number():
    with pytest.raises(ValueError, match="features of batch 4 have 2 columns; the first rows had 3"):
        streamed(cut(ROWS, LABELS, 20), features=lambda rows: rows[:, : 3 - np.array_equal(rows[0], ROWS[80])])


def test_what_is_no_source_or_method_is_refused():
    with pytest.raises(TypeError, match=r"batches must be \(X, y\), an iterable of such pairs"):
        source_of(ROWS)
    for method in (cavity.RelaxedEP(1.0), cavity.ConvergentEP()):
        with pytest.raises(ValueError, match=r"method must be EP\(\), PowerEP\(...\), RestrictedEP\(\) or ADF\(\)"):
            streamed((ROWS, LABELS), method=method)


def test_chunks_grow_with_the_features():
    """Work on q goes with the cube of the features, that on rows with their square."""
    wide = next(ChunkReader(source_of((np.ones((300, 40)), np.ones(300)))).chunks(0))
    assert wide.X.shape == (256, 40)


def test_labels_weights_and_rows_are_neither_cast_nor_unmasked():
    hidden = np.ma.array(LABELS, mask=np.arange(200) == 45)
    with pytest.raises(ValueError, match="y of batch 2 must not be masked; leave the rows out"):
        streamed(cut(ROWS, hidden, 20))
    odd = {
        "has masked entries": np.ma.array(np.ones(9), mask=np.arange(9) == 4),
        "found list": list("123456789"),
        "found complex numbers": np.ones(9, complex),
    }
    for sentence, weights in odd.items():
        with pytest.raises(ValueError, match=f"weights of batch 0 .*{sentence}"):
            streamed([(ROWS[:9], LABELS[:9], weights)])


def test_memory_that_is_filled_again_is_no_other_row():
    """Batches handed out in one buffer, as readers of files do."""

    def batches():
        X, y = np.empty((20, 3)), np.empty(20)
        for rows, labels in cut(ROWS, LABELS, 20):
            X[:], y[:] = rows, labels
            yield X, y

    np.testing.assert_array_equal(streamed(batches).mean, streamed((ROWS, LABELS)).mean)


def test_small_batches_are_read_thousands_per_second():
    """20,000 batches of one row within ten seconds, also where this machine is busy."""
    X, y = np.tile(ROWS, (100, 1)), np.tile(LABELS, 100)
    began = time.process_time()
    assert sum(len(chunk.X) for chunk in ChunkReader(source_of(cut(X, y, 1))).chunks(0)) == 20000
    assert time.process_time() - began < 10


@pytest.mark.parametrize("column", [1.7e9, 1e50, 0.0])
@pytest.mark.parametrize("change", [1e-9, -1.0])
def test_one_changed_number_beside_any_column_is_seen(column, change):
    passes = iter([0.0, change])

    def batches():
        X = np.column_stack([ROWS, np.full(200, column)])
        X[137, 1] += next(passes)
        return iter(cut(X, LABELS, 20))

    with pytest.raises(ValueError, match="some of the rows 128 to 191 were not in the first pass"):
        streamed(batches, features=lambda rows: rows[:, :3])
