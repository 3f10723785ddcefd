"""The junction tree of a discrete graph with its evidence in: a tree of cliques and the log tables they hold.

Observed variables and variables with one state are sliced out of the tables first, which makes the tree narrower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cavity.discrete.exact.clique_tree import Clique, CliqueTree, Scope, clique_tree, shape_within
from cavity.discrete.graph import DiscreteGraph


@dataclass(frozen=True, eq=False)
class JunctionTree:
    """A tree of cliques with numbers.

    factors: of every clique, log tables with one axis a variable of the clique, of length 1 where the factor does not
    depend on it. fixed: state of each variable that is observed or has one state. log_constant: log of the factors
    without free variables.
    """

    frame: CliqueTree
    factors: tuple[tuple[np.ndarray, ...], ...]
    fixed: dict[int, int]
    log_constant: float

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """Children before parents."""
        return self.frame.cliques


class Reduced(NamedTuple):
    """A graph without the variables that are fixed: states of the free ones, factors over them, log of the rest."""

    states: dict[int, int]
    fixed: dict[int, int]
    factors: list[tuple[Scope, np.ndarray]]
    log_constant: float


def fixed_states(graph: DiscreteGraph) -> dict[int, int]:
    """State of each variable that is observed or has one state."""
    return {int(v): 0 for v in np.flatnonzero(graph.cardinalities == 1)} | graph.evidence


def free_states(graph: DiscreteGraph, fixed: dict[int, int]) -> dict[int, int]:
    """Number of states of each variable that is not fixed."""
    return {v: count for v, count in enumerate(graph.cardinalities.tolist()) if v not in fixed}


def sliced(scope: Scope, values: np.ndarray, fixed: dict[int, int]) -> tuple[Scope, np.ndarray]:
    """A table without the variables that are fixed."""
    if fixed.keys().isdisjoint(scope):
        return scope, values
    return tuple(v for v in scope if v not in fixed), values[tuple(fixed.get(v, slice(None)) for v in scope)]


def reduced(graph: DiscreteGraph) -> Reduced:
    """Slice the fixed variables out of every table."""
    fixed = fixed_states(graph)
    tables = [*graph, *(((v,), weights) for v, weights in graph.likelihoods.items())]
    parts = [sliced(scope, values, fixed) for scope, values in tables]
    constants = [float(values) for scope, values in parts if not scope]
    log_constant = math.fsum(constants) if -math.inf not in constants else -math.inf
    return Reduced(free_states(graph, fixed), fixed, [part for part in parts if part[0]], log_constant)


def junction_tree(graph: DiscreteGraph, *, memory: float = math.inf, messages: int = 2) -> JunctionTree:
    """The junction tree of a graph with its evidence in.

    memory: bytes that the tables of inference may take, with so many messages an edge; beyond it, ValueError.
    """
    problem = reduced(graph)
    scopes = tuple(scope for scope, _ in problem.factors)
    frame = clique_tree(scopes, tuple(problem.states.items()), memory, messages)
    factors = tuple(
        tuple(sorted((within(clique, *problem.factors[place], problem.states) for place in clique.held), key=growing))
        for clique in frame.cliques
    )
    return JunctionTree(frame, factors, problem.fixed, problem.log_constant)


def within(clique: Clique, scope: Scope, values: np.ndarray, states: dict[int, int]) -> np.ndarray:
    """A factor as a table of a clique."""
    place = {v: axis for axis, v in enumerate(clique.variables)}
    order = sorted(range(len(scope)), key=lambda axis: place[scope[axis]])
    return values.transpose(order).reshape(shape_within(clique.variables, scope, states))


def growing(table: np.ndarray) -> tuple[int, tuple[bool, ...]]:
    """Key for multiplying tables: small ones first, of these the ones with the last axes, so that a product grows by
    leading axes and NumPy's inner loops stay long.
    """
    return table.size, tuple(length == 1 for length in table.shape[::-1])
