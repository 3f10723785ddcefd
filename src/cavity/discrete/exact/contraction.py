"""Products of tables with variables summed out: the one arithmetic step of exact inference, planned by scope alone.

Small tables are multiplied and summed in one call. Of large ones two at a time are contracted as stacks of matrices,

    R[b, m, n] = Σ_k A[b, m, k] B[b, k, n],

so that the table over all their variables, the largest by far, is never written down. Their axes are moved first so
that the longest of b, m and n comes last, where loops are fast. (A library for matrices is no faster here: k is short,
and its threads wait for each other.)
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cavity.discrete.exact.clique_tree import Scope

#: entries of the table over all variables up to which everything is multiplied and summed at once
SMALL = 2048
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Stacks(NamedTuple):
    """How two tables become stacks of matrices: which is A, order of their axes, shapes; then the shape of R."""

    swapped: bool
    axes: tuple[tuple[int, ...], tuple[int, ...]]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    shape: tuple[int, ...]


class Contraction(NamedTuple):
    """One product of tables, by number, with variables summed out.

    terms: states that are summed into one entry. entries: of the tables it makes, copies included.
    """

    inputs: tuple[int, ...]
    subscripts: str
    stacks: Stacks | None
    terms: int
    entries: int

    def value(self, tables: Sequence[np.ndarray]) -> np.ndarray:
        """The table that results."""
        if self.stacks is None:
            return np.einsum(self.subscripts, *tables)
        ordered = tables[::-1] if self.stacks.swapped else tables
        parts = zip(ordered, self.stacks.axes, self.stacks.shapes, strict=True)
        first, second = (table.transpose(axes).reshape(shape) for table, axes, shape in parts)
        return np.einsum(self.subscripts, first, second).reshape(self.stacks.shape)


def size(variables: Iterable[int], states: Mapping[int, int]) -> int:
    """Entries of a table over these variables."""
    return math.prod([states[v] for v in variables])


def plan_contraction(
    inputs: Sequence[int], scopes: Sequence[Scope], gone: Collection[int], states: Mapping[int, int]
) -> tuple[Contraction, Scope]:
    """The step that multiplies tables with these scopes and sums `gone` out, and the scope of its result."""
    letters: dict[int, str] = {}
    words: list[str] = []
    for scope in scopes:
        for v in scope:
            if v not in letters:
                letters[v] = LETTERS[len(letters)]
        words.append("".join([letters[v] for v in scope]))
    terms = size(gone, states)
    if len(scopes) == 2 and size(letters, states) > SMALL:
        subscripts, stacks, kept = matrix_stacks(scopes[0], scopes[1], gone, states)
        copies = size(scopes[0], states) + size(scopes[1], states)
        return Contraction(tuple(inputs), subscripts, stacks, terms, copies + size(kept, states)), kept
    kept = tuple([v for v in letters if v not in gone])
    subscripts = f"{','.join(words)}->{''.join([letters[v] for v in kept])}"
    return Contraction(tuple(inputs), subscripts, None, terms, size(kept, states)), kept


def matrix_stacks(
    one: Scope, other: Scope, gone: Collection[int], states: Mapping[int, int]
) -> tuple[str, Stacks, Scope]:
    """Two tables as stacks of matrices, how they are multiplied, and the scope of the result. Every variable of `gone`
    is in both.
    """
    alone = [size(set(scope).difference(rest), states) for scope, rest in ((one, other), (other, one))]
    swapped = alone[0] > alone[1]
    first, second = (other, one) if swapped else (one, other)
    b = [v for v in second if v in first and v not in gone]
    k = [v for v in second if v in gone]
    m = [v for v in first if v not in second]
    n = [v for v in second if v not in first]
    lengths = {"b": size(b, states), "m": size(m, states), "k": size(k, states), "n": size(n, states)}
    groups = {"b": b, "m": m, "k": k, "n": n}
    orders = ("bmk", "bkn", "bmn") if lengths["n"] >= lengths["b"] else ("mkb", "knb", "mnb")
    wanted = [[v for group in order for v in groups[group]] for order in orders]
    stacks = Stacks(
        swapped,
        (tuple(first.index(v) for v in wanted[0]), tuple(second.index(v) for v in wanted[1])),
        (tuple(lengths[group] for group in orders[0]), tuple(lengths[group] for group in orders[1])),
        tuple(states[v] for v in wanted[2]),
    )
    return "{},{}->{}".format(*orders), stacks, tuple(wanted[2])
