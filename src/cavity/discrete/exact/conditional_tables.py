"""Tables that are conditional distributions, found by their numbers: Σ_v t(v, parents) is the same for all parents.

Whatever depends on v alone from below is then irrelevant to the rest: a child that nobody has seen, directly or through
its own children, sums to one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cavity.discrete.tables import Tables


class Weighted(NamedTuple):
    """Tables of one shape as weights t / exp(log_scale).

    lowest: smallest entry that is not zero, largest: largest one, of every table. child: the variable that the table
    sums to one over for every state of the others, −1 where there is none.
    """

    weights: np.ndarray
    log_scale: np.ndarray
    lowest: np.ndarray
    largest: np.ndarray
    child: np.ndarray


def weighted(groups: Sequence[Tables]) -> list[Weighted]:
    """All tables as weights. A variable is the child of one table at most: of a table that could be the distribution of
    several variables, the first is taken that no other table is the only one for.
    """
    found = [scaled(own) for own in groups]
    sums = [common_sums(own, part.weights) for own, part in zip(groups, found, strict=True)]
    taken = {-1}
    for several in (False, True):
        for own, part, sum_over in zip(groups, found, sums, strict=True):
            fits = sum_over > 0.0
            for row in np.flatnonzero((fits.sum(axis=1) > 1) if several else (fits.sum(axis=1) == 1)).tolist():
                child = next((v for v in own.scopes[row][fits[row]].tolist() if v not in taken), -1)
                part.child[row] = child
                taken.add(child)
    for own, part, sum_over in zip(groups, found, sums, strict=True):
        rows, axis = np.nonzero(own.scopes == part.child[:, None])
        scale = sum_over[rows, axis]
        part.weights[rows] /= scale.reshape(-1, *[1] * len(own.shape))
        part.log_scale[rows] += np.log(scale)
        part.lowest[rows] /= scale
        part.largest[rows] /= scale
    return found


def scaled(own: Tables) -> Weighted:
    """Weights with largest entry 1; a table of zeros stays one."""
    axes = tuple(range(1, own.log_values.ndim))
    top = own.log_values.max(axis=axes)
    top = np.where(top == -np.inf, 0.0, top)
    shifted = own.log_values - np.expand_dims(top, axes)
    # The lowest of the logarithms: a weight may itself have become zero.
    bottom = np.min(shifted, axis=axes, where=shifted > -np.inf, initial=0.0)
    return Weighted(np.exp(shifted), top, np.exp(bottom), np.ones(len(top)), np.full(len(top), -1))


def common_sums(own: Tables, weights: np.ndarray) -> np.ndarray:
    """(n, m): the sum of table i over variable j where it is, to rounding, the same for all states of the others; else
    0.
    """
    found = np.zeros(own.scopes.shape)
    for j, states in enumerate(own.shape):
        sums = weights.sum(axis=j + 1).reshape(len(weights), -1)
        high, low = sums.max(axis=1), sums.min(axis=1)
        equal = high - low <= 4 * states * np.finfo(float).eps * high
        found[:, j] = np.where(equal, sums.mean(axis=1), 0.0)
    return found
