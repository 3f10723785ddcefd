"""Weighted rows as sites: equal observations become one site, in an order that does not depend on how they came.

A row of weight w stands for t^w. Rows that agree in inputs and label are one site of weight W = Σ w, held as ⌈W⌉ copies
of t^(W/⌈W⌉). So a weight of 2 is the row written twice, a weight of 0 the row left out, and a permutation changes
nothing.
"""

from typing import Any, NamedTuple

import numpy as np

from cavity._core import checks

#: a sum of weights this close to a whole number, relative to it, is that number: 0.1 + 0.2 + 0.7 are one copy, not two.
ROUNDING = 1e-12


class UniqueRows(NamedTuple):
    """Sites made of rows.

    X, y: inputs and label of every site, sorted by the inputs, then the label.
    copies: how many equal factors a site stands for, whole numbers from 1.
    exponents: the power in (0, 1] of each of these factors; None where all are 1.
    site: for every row handed in the number of its site, −1 where its weight is 0.
    """

    X: np.ndarray
    y: np.ndarray
    copies: np.ndarray
    exponents: np.ndarray | None
    site: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """Total weight of every site."""
        return self.copies * (1.0 if self.exponents is None else self.exponents)


def unique_rows(X: Any, y: Any, weights: Any = None) -> UniqueRows:
    """The sites of weighted rows.

    Args:
        X: (n, d), one observation a row.
        y: (n,) numbers: labels, counts or measurements.
        weights: (n,), not negative, not all zero; 1 each by default.
    """
    rows = checks.array("X", X, (2,)) + 0.0  # −0 and 0 are one number; the sum makes them one
    labels = checks.array("y", y, (1,)) + 0.0
    if len(labels) != len(rows):
        raise ValueError(f"y must have one entry a row of X, {len(rows)}; found {len(labels)}.")
    amount = np.ones(len(rows)) if weights is None else checks.array("weights", weights, (1,))
    if len(amount) != len(rows):
        raise ValueError(f"weights must have one entry a row of X, {len(rows)}; found {len(amount)}.")
    if (amount < 0).any():
        raise ValueError(f"weights must not be negative; found {amount.min()}.")
    kept = np.flatnonzero(amount > 0)
    if kept.size == 0:
        raise ValueError("weights are all zero: no row is left.")
    order = kept[canonical_order(rows[kept], labels[kept], amount[kept])]
    rows, labels = rows[order], labels[order]
    first = np.append(True, (rows[1:] != rows[:-1]).any(axis=1) | (labels[1:] != labels[:-1]))
    # Equal rows come in the order of their weights, so that their sum is rounded alike whatever order they came in.
    total = np.add.reduceat(amount[order], np.flatnonzero(first))
    copies, exponents = split(total)
    site = np.full(len(amount), -1)
    site[order] = np.cumsum(first) - 1
    return UniqueRows(rows[first], labels[first], copies, exponents, site)


def canonical_order(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rows sorted by their columns from the first, then by label, then by weight.

    Most rows are told apart by a few columns, so these are tried first: a sort costs as much a column.
    """
    columns = 1
    while columns < rows.shape[1]:
        order = np.lexsort(rows[:, columns - 1 :: -1].T)
        sorted_rows = rows[order, :columns]
        if not (sorted_rows[1:] == sorted_rows[:-1]).all(axis=1).any():
            return order
        columns *= 4
    return np.lexsort((weights, labels, *rows.T[::-1]))


def split(total: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """(copies, exponents) of total weights."""
    nearest = np.maximum(np.round(total), 1.0)
    whole = np.abs(total - nearest) <= ROUNDING * nearest
    copies = np.where(whole, nearest, np.ceil(total))
    return copies, None if whole.all() else np.where(whole, 1.0, total / copies)
