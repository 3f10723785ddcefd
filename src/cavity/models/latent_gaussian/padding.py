"""Shapes in buckets: rows are padded so that data sets of similar size share one compiled program."""

from typing import Any

import jax
import numpy as np

#: up to this many rows the buckets are powers of two, beyond it eight to an octave
COARSE = 256


def bucket(rows: int) -> int:
    """The padded number of rows: at least 32, within an eighth of `rows` beyond 256."""
    octave = 1 << max(rows - 1, 31).bit_length()
    if octave <= COARSE:
        return octave
    step = octave // 16
    return -(-rows // step) * step


def feature_bucket(features: int) -> int:
    """The padded number of features: a multiple of 8, within an eighth of `features` beyond 64."""
    step = max(8, (1 << max(features - 1, 1).bit_length()) // 16)
    return -(-features // step) * step


def padded(tree: Any, size: int) -> Any:
    """Arrays with their first row repeated at the end up to `size` rows: whatever is computed of it stays finite."""

    def pad(leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)
        return np.concatenate([leaf, np.broadcast_to(leaf[:1], (size - leaf.shape[0], *leaf.shape[1:]))])

    return jax.tree.map(pad, tree)


def padded_with_zeros(values: np.ndarray, size: int) -> np.ndarray:
    """A vector or matrix of sites with flat ones at the end."""
    return np.concatenate([values, np.zeros((size - values.shape[0], *values.shape[1:]))])
