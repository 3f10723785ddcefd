"""Weighted rows as sites: equal observations become one site, in an order that does not depend on how they came.

A row of weight w stands for t^w. Rows that agree in inputs and label are one site of weight W = Σ w, which is ⌈W⌉ equal
factors t^(W/⌈W⌉), its multiplicity. So a weight of 2 is the row written twice, a weight of 0 the row left out, and a
permutation changes nothing. A kernel that gives every row a latent of its own, as `White` does, keeps equal rows apart;
a weight then raises the likelihood of the row's own latent to that power.

Their number is padded to a bucket, so that data sets of similar size share one compiled program. Padding has
multiplicity 0: it is in no posterior, cavity or evidence.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from cavity._core import checks
from cavity.factors.base import Factor
from cavity.factors.wrappers import Tempered
from cavity.families.gaussian import Gaussian
from cavity.inference.problem import SiteGroup, as_mask
from cavity.moments.base import ClosedForm

#: a sum of weights this close to a whole number, relative to it, is that number: 0.1 + 0.2 + 0.7 are one copy, not two.
ROUNDING = 1e-12
#: equal rows have one latent where their covariance is their variance but for this much of it
SAME_LATENT = 1e-13
#: so many rows at a time are asked whether they have one
ASKED = 16
#: up to this many rows the buckets are powers of two, beyond it eight to an octave
COARSE = 256


class UniqueRows(NamedTuple):
    """Sites made of rows.

    Attributes:
        X: inputs of every site, sorted by the inputs, then the label.
        y: label of every site.
        sample_weight: total weight of every site, above 0; whole where it is so but for rounding.
        site: for every row handed in the number of its site, −1 where its weight is 0.
    """

    X: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray
    site: np.ndarray


def unique_rows(X: Any, y: Any, sample_weight: Any = None, kernel: Any = None) -> UniqueRows:
    """The sites of weighted rows.

    Args:
        X: (n, d), one observation per row.
        y: (n,) numbers: labels, counts or measurements.
        sample_weight: (n,), not negative, not all zero; 1 each by default.
        kernel: asked whether equal rows have one latent, if it is a function k(X); else they have.
    """
    rows = checks.array("X", X, (2,)) + 0.0  # −0 and 0 are one number; the sum makes them one
    labels = checks.array("y", y, (1,)) + 0.0
    if len(labels) != len(rows):
        raise ValueError(f"y must have one entry per row of X, {len(rows)}; found {len(labels)}.")
    weights = np.ones(len(rows)) if sample_weight is None else checks.array("sample_weight", sample_weight, (1,))
    if len(weights) != len(rows):
        raise ValueError(f"sample_weight must have one entry per row of X, {len(rows)}; found {len(weights)}.")
    if (weights < 0).any():
        raise ValueError(f"sample_weight must not be negative; found {weights.min()}.")
    kept = np.flatnonzero(weights > 0)
    if kept.size == 0:
        raise ValueError("sample_weight is zero in every row: no row is left.")
    order = kept[canonical_order(rows[kept], labels[kept], weights[kept])]
    rows, labels = rows[order], labels[order]
    first = np.append(True, (rows[1:] != rows[:-1]).any(axis=1) | (labels[1:] != labels[:-1]))
    if callable(kernel) and not first.all():
        repeated = ~first & np.append(True, first[:-1])  # the second row of every set of equal ones
        apart = np.zeros(np.count_nonzero(first), bool)
        apart[np.cumsum(first)[repeated] - 1] = ~has_one_latent(kernel, rows[repeated])
        first |= apart[np.cumsum(first) - 1]
    # Equal rows come in the order of their weights, so that their sum is rounded alike whatever order they came in.
    total = without_rounding(np.add.reduceat(weights[order], np.flatnonzero(first)))
    site = np.full(len(weights), -1)
    site[order] = np.cumsum(first) - 1
    return UniqueRows(rows[first], labels[first], total, site)


def has_one_latent(kernel: Any, rows: np.ndarray) -> np.ndarray:
    """For every row, whether two observations there are of the same latent."""
    own = np.arange(ASKED)
    found = []
    for start in range(0, len(rows), ASKED):
        some = rows[np.minimum(start + own, len(rows) - 1)]
        k = np.asarray(kernel(np.concatenate([some, some])))
        found.append(abs(k[own, own] - k[own, own + ASKED]) <= SAME_LATENT * abs(k[own, own]))
    return np.concatenate(found)[: len(rows)]


def canonical_order(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rows sorted by their columns from the first, then by label, then by weight.

    Most rows are told apart by a few columns, so these are tried first: the cost of a sort is per column.
    """
    columns = 1
    while columns < rows.shape[1]:
        order = np.lexsort(rows[:, columns - 1 :: -1].T)
        sorted_rows = rows[order, :columns]
        if not (sorted_rows[1:] == sorted_rows[:-1]).all(axis=1).any():
            return order
        columns *= 4
    return np.lexsort((weights, labels, *rows.T[::-1]))


def without_rounding(total: np.ndarray) -> np.ndarray:
    """Sums of weights, whole where they are so but for rounding."""
    nearest = np.maximum(np.round(total), 1.0)
    return np.where(np.abs(total - nearest) <= ROUNDING * nearest, nearest, total)


def split_weights(sample_weight: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """(multiplicity, exponents) of weights W ≥ 0: ⌈W⌉ factors t^(W/⌈W⌉), and no factor where W is 0.

    Returns:
        The whole numbers ⌈W⌉, and the powers in (0, 1]; None where all powers are 1.
    """
    total = np.asarray(sample_weight, float)
    if (total == 1.0).all():
        return total, None
    total = np.where(total > 0, without_rounding(total), 0.0)
    multiplicity = np.ceil(total)
    if (multiplicity == total).all():
        return multiplicity, None
    return multiplicity, np.where(multiplicity > 0, total / np.where(multiplicity > 0, multiplicity, 1.0), 1.0)


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
    n = len(jax.tree.leaves(tree)[0])
    if n == size:
        return tree
    index = np.where(np.arange(size) < n, np.arange(size), 0)
    return jax.tree.map(partial(np.take, indices=index, axis=0), jax.tree.map(np.asarray, tree))


def padded_with_zeros(values: np.ndarray, size: int) -> np.ndarray:
    """A vector or matrix of sites with flat ones at the end."""
    return np.concatenate([values, np.zeros((size - values.shape[0], *values.shape[1:]))])


def weighted_sites(y: Any, factor: Factor, sample_weight: Any = None) -> SiteGroup:
    """What is observed of the latents of weighted rows, one site each.

    Args:
        y: what the likelihood takes, one entry per row.
        factor: the likelihood.
        sample_weight: how often each row counts; fractions raise its likelihood to that power. 1 by default.
    """
    weights = np.ones(len(jax.tree.leaves(y)[0])) if sample_weight is None else sample_weight
    multiplicity, exponents = split_weights(weights)
    if exponents is not None:
        y, factor = (y, exponents), Tempered(factor)
    return SiteGroup(factor, y, Gaussian(), ClosedForm(), multiplicity)


def left_out(multiplicity: np.ndarray, group: SiteGroup) -> np.ndarray:
    """The multiplicity of those rows that have none in their padded group, because their latent is fixed at 0."""
    return multiplicity * (np.asarray(group.multiplicity)[: len(multiplicity)] == 0)


def padded_group(group: SiteGroup, size: int, varies: np.ndarray | None = None) -> SiteGroup:
    """The group with so many sites; further ones are repetitions of the first, of multiplicity 0.

    Args:
        group: its sites, which may be of other moments and likelihoods than those of fits.
        size: the number of sites; that of the group leaves it as it is.
        varies: which latents have any variance; the others have multiplicity 0 too. All of them if None.
    """
    n = group.size
    if size == n and varies is None:
        return group
    multiplicity = np.ones(n) if group.multiplicity is None else np.asarray(group.multiplicity, float)
    multiplicity = padded_with_zeros(multiplicity if varies is None else np.where(varies, multiplicity, 0.0), size)
    return dataclasses.replace(group, data=padded(group.data, size), multiplicity=as_mask(multiplicity))
