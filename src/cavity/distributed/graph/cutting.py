"""A discrete graph cut into parts: every factor is in one part, and parts share the variables at their borders.

Belief propagation in a part needs of the others only the product of their messages to each shared variable: natural
parameters of a categorical (log weights and counts of zeros).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cavity.discrete import DiscreteGraph


class Plan(NamedTuple):
    """One part, as it is sent to a worker.

    variables: their numbers in the whole graph. cardinalities: of these. tables: (scopes, log values) of factors of one
    shape, in the part's own numbers. unary: log weights of every variable alone, zero for shared ones, which come with
    the messages to them. shared: the part's own numbers of them. owned: whose evidence this part counts.
    """

    variables: np.ndarray
    cardinalities: np.ndarray
    tables: list[tuple[np.ndarray, np.ndarray]]
    unary: np.ndarray
    shared: np.ndarray
    owned: np.ndarray


class Cut(NamedTuple):
    """plans: the parts. shared: numbers of the variables in several. log_constant: of factors without variables."""

    plans: list[Plan]
    shared: np.ndarray
    log_constant: float


def cut_graph(graph: DiscreteGraph, parts: int | Sequence[Sequence[int]]) -> Cut:
    """The graph with its factors of two or more variables divided among parts.

    parts: so many of about equal work, neighbours together; or the factors of every part, by number.
    """
    tables = [own for own in graph.tables() if len(own.shape) > 1]
    member = membership(graph, parts)
    count = int(member.max()) + 1 if member.size else 1
    holders = np.zeros((count, len(graph.variables)), bool)
    for own in tables:
        for column in own.scopes.T:
            holders[member[own.numbers], column] = True
    shared = np.flatnonzero(holders.sum(axis=0) > 1)
    # Variables without such factors count in the first part.
    holders[0] |= ~holders.any(axis=0)
    starts = np.concatenate([[0], np.cumsum(graph.cardinalities)])
    unary = graph.flat_unary()
    plans = []
    for number in range(count):
        variables = np.flatnonzero(holders[number])
        place = np.full(len(graph.variables), -1)
        place[variables] = np.arange(len(variables))
        held = [(own, member[own.numbers] == number) for own in tables]
        is_shared = np.isin(variables, shared)
        weights = [np.zeros(graph.cardinalities[v]) if s else unary[starts[v] : starts[v + 1]]
                   for v, s in zip(variables, is_shared, strict=True)]  # fmt: skip
        plans.append(
            Plan(
                variables,
                graph.cardinalities[variables],
                [(place[own.scopes[mine]], own.log_values[mine]) for own, mine in held if mine.any()],
                np.concatenate(weights) if weights else np.zeros(0),
                np.flatnonzero(is_shared),
                ~is_shared,
            )
        )
    constant = sum(float(own.log_values.sum()) for own in graph.tables() if not own.shape)
    return Cut(plans, shared, constant)


def membership(graph: DiscreteGraph, parts: Any) -> np.ndarray:
    """The part of every factor, by number; 0 for those of fewer than two variables, which are in no part's sites."""
    wide = [number for own in graph.tables() if len(own.shape) > 1 for number in own.numbers.tolist()]
    found = np.zeros(len(graph.factors), np.int64)
    if isinstance(parts, int | np.integer):
        if parts < 1:
            raise ValueError(f"parts must be a whole number of at least 1, or lists of factors; found {parts}.")
        for number, own in enumerate(np.array_split(near_each_other(graph, wide), min(int(parts), max(len(wide), 1)))):
            found[own] = number
        return found
    flat = [int(number) for own in parts for number in own]
    if len(set(flat)) < len(flat) or not set(wide) <= set(flat) or any(n >= len(graph.factors) or n < 0 for n in flat):
        raise ValueError("parts must name every factor of two or more variables once, by number.")
    for number, own in enumerate(parts):
        found[list(own)] = number
    return found


def near_each_other(graph: DiscreteGraph, wide: list[int]) -> np.ndarray:
    """Factors in the order of a walk through the graph, breadth first, so that neighbours stay together."""
    scopes = {
        n: scope for own in graph.tables() for n, scope in zip(own.numbers.tolist(), own.scopes.tolist(), strict=True)
    }
    touching: dict[int, list[int]] = {}
    for number in wide:
        for variable in scopes[number]:
            touching.setdefault(variable, []).append(number)
    order: list[int] = []
    seen: set[int] = set()
    reached: set[int] = set()
    for first in wide:
        queue = [first]
        while queue:
            following: list[int] = []
            for number in queue:
                if number in seen:
                    continue
                seen.add(number)
                order.append(number)
                for variable in scopes[number]:
                    if variable not in reached:
                        reached.add(variable)
                        following += touching[variable]
            queue = following
    return np.array(order, np.int64)
