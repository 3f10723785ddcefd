"""A program of exact inference in weights instead of logarithms: many times faster, where nothing can underflow.

Every table knows bounds of its entries: the smallest that is not zero and the largest. A product of tables has no
entry, zeros apart, below the product of the lower bounds: while that stays above 1e-250 nothing is lost. Where it does
not, as with strong couplings, this way is given up and `tree_messages` is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cavity.discrete.exact.program import Program
from cavity.discrete.exact.tree_messages import SAFE, Contradiction

#: bounds past this are measured instead
LOOSE = 1e-30
#: stands where a table was that is not needed any more
NOTHING = np.empty(0)


class Weights(NamedTuple):
    """A table of weights whose entries, zeros apart, lie between the bounds."""

    table: np.ndarray
    lowest: float
    largest: float


class Summed(NamedTuple):
    """Marginals of the free variables, and the log of the sum over all their states."""

    marginals: dict[int, np.ndarray]
    log_sum: float


def run(program: Program, inputs: Sequence[Weights], states: dict[int, int]) -> Summed | None:
    """All marginals, or None where a product could underflow."""
    tables = [own.table for own in inputs]
    lowest = [own.lowest for own in inputs]
    largest = [own.largest for own in inputs]
    scale = [0.0] * len(inputs)
    log_sum = 0.0
    for number, step in enumerate(program.steps):
        if number == program.upward:
            log_sum = log_product(tables, scale, program.scalars)
        used = step.inputs
        low = math.prod([lowest[t] for t in used])
        if low < SAFE:
            return None
        high = step.terms * math.prod([largest[t] for t in used])
        total = math.fsum([scale[t] for t in used])
        made = step.value([tables[t] for t in used])
        if low < LOOSE or high > 1.0 / LOOSE:
            high = float(made.max())
            if high == 0.0:
                raise Contradiction
            made = made / high
            total += math.log(high)
            low, high = float(np.min(made, where=made > 0.0, initial=1.0)), 1.0
        tables.append(made)
        lowest.append(low)
        largest.append(high)
        scale.append(total)
        for t in program.dropped[number]:
            tables[t] = NOTHING
    if len(program.steps) == program.upward:
        log_sum = log_product(tables, scale, program.scalars)
    return Summed(normalised(program, tables, states), log_sum + program.log_count)


def log_product(tables: Sequence[np.ndarray], scale: Sequence[float], scalars: Sequence[int]) -> float:
    """Log of the product of tables without variables."""
    values = [float(tables[t]) for t in scalars]
    if 0.0 in values:
        raise Contradiction
    return math.fsum([*map(math.log, values), *(scale[t] for t in scalars)])


def normalised(program: Program, tables: Sequence[np.ndarray], states: dict[int, int]) -> dict[int, np.ndarray]:
    """Marginals that sum to one, all of one length at a time."""
    found: dict[int, np.ndarray] = {}
    for length in set(states.values()):
        own = [v for v, count in states.items() if count == length]
        places = [program.marginals[v] for v in own]
        rows = np.array([np.ones(length) if place is None else tables[place] for place in places])
        rows /= rows.sum(axis=1, keepdims=True)
        found.update(zip(own, rows, strict=True))
    return found
