"""Exact answers for discrete graphs of small width, by a junction tree."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cavity.discrete.exact.clique_tree import ENTRY
from cavity.discrete.exact.junction_tree import (
    Calibrated,
    JunctionTree,
    calibrate,
    clique_belief,
    collect,
    incoming,
    junction_tree,
    log_max,
    log_sum_over,
    multiply,
    outside,
)
from cavity.discrete.exact.program import plan_program
from cavity.discrete.exact.weighted_tables import Summed, evaluate, free_tables
from cavity.discrete.graph import TableGraph


@dataclass(frozen=True, eq=False)
class Exact:
    """The exact posterior of a discrete graph.

    marginals: one array per variable, one-hot where it is observed. log_evidence: log Σ_x ∏ t(x), over the states that
    agree with the evidence. width: of the elimination order. table_size: entries of the largest table.
    """

    marginals: list[np.ndarray]
    log_evidence: float
    width: int
    table_size: int
    graph: TableGraph = field(repr=False)

    @cached_property
    def tree(self) -> JunctionTree:
        """The junction tree with its tables, made where a pair is asked for."""
        return junction_tree(self.graph)

    @cached_property
    def messages(self) -> Calibrated:
        """The log messages of the tree."""
        return calibrate(self.tree)

    def pair(self, first: Any, second: Any) -> np.ndarray:
        """p(x_i, x_j) of two variables, by number or name; rows belong to the first.

        From a clique that holds both, else as p(x_i) p(x_j | x_i), by exact inference for every state of one of them.
        """
        i, j = (self.graph.variables.number(variable) for variable in (first, second))
        if i == j:
            return np.diag(self.marginals[i])
        if i in self.tree.fixed or j in self.tree.fixed:
            return np.multiply.outer(self.marginals[i], self.marginals[j])
        for index in (self.tree.frame.home[i], self.tree.frame.home[j]):
            if {i, j} <= set(self.tree.cliques[index].variables):
                return self._within(index, i, j)
        if len(self.marginals[j]) < len(self.marginals[i]):
            return self._by_conditioning(j, i).T
        return self._by_conditioning(i, j)

    def _within(self, index: int, i: int, j: int) -> np.ndarray:
        """p(x_i, x_j) from the table of one clique."""
        variables = self.tree.cliques[index].variables
        belief = clique_belief(self.tree, index, self.messages.up, self.messages.down)
        with np.errstate(divide="ignore"):
            table = log_sum_over(belief, outside(self.tree.cliques[index], (i, j)))
        weights = np.exp(table - table.max())
        weights /= weights.sum()
        return weights if variables.index(i) < variables.index(j) else weights.T

    def _by_conditioning(self, i: int, j: int) -> np.ndarray:
        """p(x_i, x_j) = p(x_i) p(x_j | x_i)."""
        found, graph = np.zeros((len(self.marginals[i]), len(self.marginals[j]))), self.graph
        for state in np.flatnonzero(self.marginals[i]).tolist():
            evidence = {**graph.evidence, i: state}
            given = TableGraph.assemble(graph.variables, graph.factors, evidence, graph.likelihoods)
            found[state] = self.marginals[i][state] * exact_discrete(given, memory=math.inf).marginals[j]
        return found


def exact_discrete(graph: TableGraph, *, memory: float = 2e9) -> Exact:
    """Marginals and log evidence of a discrete graph with its evidence, to rounding.

    Args:
        graph: of small width.
        memory: bytes that the tables may take; a graph that needs more is refused before any of them is made.

    Raises:
        ValueError: if the tables need more memory, or the evidence has probability zero.

    Examples:
        >>> import cavity as cv
        >>> graph = cv.DiscreteGraph([2, 2])
        >>> graph.add_factor([0, 1], [[2.0, 1.0], [1.0, 4.0]])
        >>> found = cv.discrete.exact_discrete(graph)
        >>> found.marginals[0].round(3).tolist(), found.pair(0, 1).tolist()
        ([0.375, 0.625], [[0.25, 0.125], [0.125, 0.5]])
    """
    start = free_tables(graph)
    frame, program = plan_program(start.scopes, start.children, tuple(start.states.items()), memory)
    # Weights are the faster way, logarithms the one that always works and needs no more than was promised.
    found = evaluate(program, start.inputs, start.states) if ENTRY * program.entries <= memory else None
    if found is None:
        calibrated = calibrate(junction_tree(graph, memory=memory))
        found = Summed(calibrated.marginals, math.fsum(calibrated.constants))
    else:
        found = found._replace(log_sum=found.log_sum + start.log_constant)
    marginals = [
        found.marginals[v] if v in found.marginals else np.eye(int(states))[graph.evidence.get(v, 0)]
        for v, states in enumerate(graph.cardinalities)
    ]
    return Exact(marginals, found.log_sum, frame.width, frame.table_size, copy.copy(graph))


def exact_map(graph: TableGraph, *, memory: float = 2e9) -> tuple[np.ndarray, float]:
    """The most probable states of a discrete graph with its evidence, and their log weight log ∏ t(x).

    Maxima in place of sums towards the roots; then each clique, given its separator, chooses the states of its own
    variables. Of several best states one is returned, the same at every call.

    Args:
        graph: of small width.
        memory: bytes that the tables may take.

    Raises:
        ValueError: if the tables need more memory, or the evidence has probability zero.

    Examples:
        >>> import cavity as cv
        >>> graph = cv.DiscreteGraph([2, 2])
        >>> graph.add_factor([0, 1], [[2.0, 1.0], [1.0, 4.0]])
        >>> states, log_weight = cv.discrete.exact_map(graph)
        >>> states.tolist(), round(log_weight, 4)
        ([1, 1], 1.3863)
    """
    tree = junction_tree(graph, memory=memory, messages=1)
    up, _ = collect(tree, log_max)
    states = np.zeros(len(graph.variables), np.int64)
    for variable, state in tree.fixed.items():
        states[variable] = state
    for index, clique in reversed([*enumerate(tree.cliques)]):
        given = states[list(clique.separator)]
        # An axis of length 1 has the same entry for all states.
        rows = [
            part[(..., *np.minimum(given, np.array(part.shape[clique.own :]) - 1))]
            for part in incoming(tree, index, up)
        ]
        best = np.argmax(multiply(rows, clique.shape[: clique.own]))
        states[list(clique.variables[: clique.own])] = np.unravel_index(best, clique.shape[: clique.own])
    return states, log_weight(graph, states)


def log_weight(graph: TableGraph, states: np.ndarray) -> float:
    """log ∏ t(x) of one state of all variables, likelihoods included."""
    terms = [own.log_values[(np.arange(len(own.scopes)), *states[own.scopes].T)] for own in graph.tables()]
    terms.append(np.array([weights[states[v]] for v, weights in graph.likelihoods.items()]))
    return math.fsum(np.concatenate(terms).tolist())
