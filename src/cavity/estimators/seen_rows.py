"""What a stream remembers: its classes, and of its rows not the rows, but what each said, found again by a key."""

from typing import Any, NamedTuple

import numpy as np

from cavity.models.latent_gaussian.unique_rows import UniqueRows

#: share by which the weight of a row may differ from what was seen: rounding of sums.
ROUNDING = 1e-9


class Seen(NamedTuple):
    """One entry a different (row, label).

    keys: sorted. naturals: (ν, τ) of all its copies together. weights: how often it counted.
    """

    keys: np.ndarray
    naturals: np.ndarray
    weights: np.ndarray

    @classmethod
    def none(cls) -> "Seen":
        """Nothing yet."""
        return cls(row_keys(np.zeros((0, 0))), np.zeros((0, 2)), np.zeros(0))

    def with_sites(self, merged: UniqueRows, sites: np.ndarray) -> "Seen":
        """With further rows; what is said twice adds up."""
        keys = np.concatenate([self.keys, keys_of(merged)])
        found, place = np.unique(keys, return_inverse=True)
        naturals, weights = np.zeros((len(found), 2)), np.zeros(len(found))
        np.add.at(naturals, place, np.concatenate([self.naturals, merged.copies[:, None] * sites]))
        np.add.at(weights, place, np.concatenate([self.weights, merged.weights]))
        return Seen(found, naturals, weights)

    def sites_of(self, merged: UniqueRows) -> np.ndarray:
        """(ν, τ) of one copy of every site, if these are exactly the rows seen."""
        keys = keys_of(merged)
        place = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        known = self.keys[place] == keys
        if not known.all() or len(keys) != len(self.keys):
            raise ValueError(
                f"X and y must be all rows seen so far, {len(self.keys)} different ones; found {int(known.sum())} of "
                f"them and {int((~known).sum())} others."
            )
        if not np.allclose(self.weights[place], merged.weights, rtol=ROUNDING, atol=0):
            raise ValueError("sample_weight must count every row as often as it was seen.")
        return self.naturals[place] / merged.copies[:, None]


def stream_classes(given: Any, known: np.ndarray | None) -> np.ndarray:
    """The classes of a stream, sorted: named in its first call, where none are known, and the same later."""
    if given is None and known is not None:
        return known
    found = np.unique(np.asarray(given))
    if len(found) < 2:
        raise ValueError(f"classes must hold at least two labels; found {found.tolist()}.")
    if known is not None and not np.array_equal(found, known):
        raise ValueError(f"classes must stay as in the first call, {known.tolist()}; found {found.tolist()}.")
    return found


def keys_of(merged: UniqueRows) -> np.ndarray:
    """A key for every site."""
    return row_keys(np.column_stack([merged.X, merged.y]))


def row_keys(rows: np.ndarray) -> np.ndarray:
    """128 bits for each row: two sums of its mixed bits with fixed odd multipliers, so that equal rows agree."""
    multipliers = np.random.default_rng(0).integers(2**63, size=(2, rows.shape[1]), dtype=np.uint64) * np.uint64(2)
    bits = np.ascontiguousarray(rows, np.float64).view(np.uint64).reshape(rows.shape)
    mixed = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    sums = ((mixed[:, None, :] * (multipliers + np.uint64(1))).sum(axis=2)).reshape(-1, 2)
    return (sums ^ (sums >> np.uint64(32))).view(np.dtype([("high", np.uint64), ("low", np.uint64)])).reshape(-1)
