"""What is possible at all and what is still free: evidence sliced out of tables, zeros passed along."""

import numpy as np

from cavity.discrete.graph import TableGraph


class Contradiction(ValueError):
    """All states have weight zero."""

    def __init__(self) -> None:
        super().__init__("the evidence has probability zero: no state of the variables has a positive weight.")


def check_possible(graph: TableGraph) -> None:
    """Refuse a graph in which some variable is left without a state.

    A state is struck out when every entry of some table that holds it is zero or needs a struck state; that is repeated
    until nothing changes. These are the zeros belief propagation would find, so what passes here can be run. A graph
    whose tables contradict each other around a loop may pass.
    """
    cards = graph.cardinalities
    starts = np.cumsum(cards) - cards
    alive = graph.flat_unary() > -np.inf
    # Without zeros in tables of several variables nothing is passed on.
    zeros = [own for own in graph.tables() if (own.log_values == -np.inf).any()]
    groups, constants = [own for own in zeros if len(own.shape) > 1], [own for own in zeros if not own.shape]
    possible = changed = not constants
    while changed and possible:
        possible = bool(np.logical_or.reduceat(alive, starts).all()) if len(cards) else True
        changed = False
        for own in groups:
            places = [starts[own.scopes[:, axis]][:, None] + np.arange(k) for axis, k in enumerate(own.shape)]
            entries = own.log_values > -np.inf
            for axis, place in enumerate(places):
                entries = entries & alive[place].reshape(-1, *(k if j == axis else 1 for j, k in enumerate(own.shape)))
            for axis, place in enumerate(places):
                held = entries.any(axis=tuple(j + 1 for j in range(len(own.shape)) if j != axis))
                struck = alive[place] & ~held
                if struck.any():
                    alive[place[struck]] = False
                    changed = True
    if not possible:
        raise Contradiction


def fixed_states(graph: TableGraph) -> dict[int, int]:
    """State of each variable that is observed or has one state."""
    return {int(v): 0 for v in np.flatnonzero(graph.cardinalities == 1)} | graph.evidence


def free_states(graph: TableGraph, fixed: dict[int, int]) -> dict[int, int]:
    """Number of states of each variable that is not fixed."""
    return {v: count for v, count in enumerate(graph.cardinalities.tolist()) if v not in fixed}


def slice_table(
    scope: tuple[int, ...], values: np.ndarray, fixed: dict[int, int]
) -> tuple[tuple[int, ...], np.ndarray]:
    """A table without the variables that are fixed."""
    if fixed.keys().isdisjoint(scope):
        return scope, values
    return tuple(v for v in scope if v not in fixed), values[tuple(fixed.get(v, slice(None)) for v in scope)]
