"""The most probable states by loopy max-product: belief propagation with maxima in place of sums."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from cavity.discrete.approx.approximate import (
    Approximation,
    DiscreteSolution,
    log_cavities,
    pad_states,
    stored_by_cardinality,
)
from cavity.discrete.exact.junction_tree import log_weight
from cavity.discrete.graph import TableGraph
from cavity.inference.infer import infer
from cavity.inference.methods import EP, Method
from cavity.inference.solution import Solution
from cavity.inference.status import Status
from cavity.moments.enumeration import Enumeration

#: tried one after another, until one settles
METHODS = (EP(max_sweeps=200), EP(damping=0.5, max_sweeps=1000))
#: a state whose max-marginal is within this share of the best is looked at again
CLOSE = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class MostProbable:
    """The result of `max_product`.

    Attributes:
        states: one per variable.
        log_weight: log ∏ t of these states, computed afresh. No other is larger where the graph is a tree and the run
            converged; elsewhere it is a lower bound of the best, −inf where the states are impossible together.
        max_marginals: of every variable, the maximum over all others, scaled so that the largest entry is 1.
        status: of the run.
        sweeps: of the run.

    Examples:
        >>> import cavity as cv
        >>> graph = cv.DiscreteGraph([2, 2])
        >>> graph.add_factor([0, 1], [[2.0, 1.0], [1.0, 4.0]])
        >>> found = cv.max_product(graph)
        >>> found.max_marginals[0].tolist(), round(found.log_weight, 4), str(found.status)
        ([0.5, 1.0], 1.3863, 'converged')
    """

    states: np.ndarray
    log_weight: float
    max_marginals: Any
    status: Status
    sweeps: int


def max_product(
    graph: TableGraph,
    method: Method | None = None,
    *,
    max_seconds: float | None = None,
    callback: Callable[[DiscreteSolution], Any] | None = None,
) -> MostProbable:
    """The most probable states of a graph by max-product; exact on trees.

    Args:
        graph: a `DiscreteGraph`, with its evidence.
        method: `EP` with a schedule and damping of your own; by default plain EP, then damped EP if that does not
            converge.
        max_seconds: for each method tried.
        callback: called with the graph's solution after every sweep. Its evidence has no meaning here.

    Returns:
        A `MostProbable`.

    Raises:
        ValueError: if some variable has no possible state.

    Examples:
        >>> import cavity as cv
        >>> graph = cv.DiscreteGraph([2, 2])
        >>> graph.add_factor([0, 1], [[2.0, 1.0], [1.0, 4.0]])
        >>> cv.max_product(graph).states.tolist()
        [1, 1]
    """
    asked = Approximation(graph)
    problem = asked.problem().with_moments(Enumeration(maximum=True))
    reported = None if callback is None else lambda solution: callback(asked.interpret(solution))
    tried = METHODS if method is None else (method,)
    solution = infer(problem, tried[0], max_seconds=max_seconds, callback=reported)
    for own in tried[1:]:
        if not solution.converged and solution.status not in (Status.INTERRUPTED, Status.TIME_BUDGET):
            solution = infer(problem, own, max_seconds=max_seconds, callback=reported)
    found = asked.interpret(solution).marginals
    best = [row / row.max() for row in found]
    states = decide_states(graph, solution, best)
    marginals = np.stack(best) if isinstance(found, np.ndarray) else best
    return MostProbable(states, log_weight(graph, states), marginals, solution.status, int(solution.sweeps))


def decide_states(graph: TableGraph, solution: Solution, best: list[np.ndarray]) -> np.ndarray:
    """The best state of every variable.

    Variables with several equally good states would choose each for itself, and their choices need not agree. They and
    those whose choices are impossible together are decided one factor after another, given what is decided already.
    """
    states = np.array([int(np.argmax(row)) for row in best])
    undecided = {v for v, row in enumerate(best) if np.sum(row > 1.0 - CLOSE) > 1}
    undecided |= clashing_variables(graph, states)
    undecided -= set(graph.evidence)
    if not undecided:
        return states
    at: dict[int, list[tuple[int, int, tuple[int, ...]]]] = {v: [] for v in undecided}
    seen = pad_states(graph)
    groups = [own for own in seen.factors.by_shape if len(own.shape) > 1]
    for number, own in enumerate(groups):
        for site in np.flatnonzero(np.isin(own.scopes, list(undecided)).any(axis=1)).tolist():
            scope = tuple(own.scopes[site].tolist())
            for v in undecided.intersection(scope):
                at[v].append((number, site, scope))
    rows = stored_by_cardinality(seen.cardinalities)
    for first in sorted(undecided):
        waiting = deque([first])
        while waiting:
            variable = waiting.popleft()
            if variable == first:
                undecided.discard(first)
            for number, site, scope in at.get(variable, []):
                free = [axis for axis, v in enumerate(scope) if v in undecided]
                if not free:
                    continue
                weights = groups[number].log_values[site] + log_cavities(solution, rows, number, site, list(scope))
                given = weights[tuple(slice(None) if axis in free else states[v] for axis, v in enumerate(scope))]
                for axis, state in zip(free, np.unravel_index(np.argmax(given), given.shape), strict=True):
                    states[scope[axis]] = state
                    undecided.discard(scope[axis])
                    waiting.append(scope[axis])
    return states


def clashing_variables(graph: TableGraph, states: np.ndarray) -> set[int]:
    """Variables of factors that call their states impossible together."""
    impossible = [own.scopes[own.at(states) == -np.inf].ravel().tolist() for own in graph.factors.by_shape]
    return set(chain(*impossible))
