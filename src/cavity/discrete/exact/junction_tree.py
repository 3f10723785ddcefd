"""Exact answers for discrete graphs of small width, by the junction tree of a graph with its evidence in.

The faster way is a program in weights (`weighted_tables`). Messages in logarithms, here, always work.

Observed variables and variables with one state are sliced out of the tables first, which makes the tree narrower. Then

    up    m_C(s)   = Σ over C∖s of  ∏ factors · ∏ messages of the children
    down  m_P→C(s) = Σ over P∖s of  (everything in P, with P's own message from above) / m_C(s)

A sum is taken of exponentials less the largest. A state of the separator may lie more than 1e308 below another one and
still be the likely one once the other side of the tree is known: where a sum comes out that small, it is taken again
with a maximum of its own for each state, so that nothing is lost but what is negligible whatever comes later.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np

from cavity.discrete.exact._clique_tree import ENTRY, SAFE, Clique, CliqueTree, clique_tree
from cavity.discrete.exact._program import plan_program
from cavity.discrete.exact._weighted_tables import Summed, evaluate, free_tables
from cavity.discrete.graph import Contradiction, TableGraph, slice_table, split_variables
from cavity.discrete.tables import LogTable

#: entries from which a table is reduced slice by slice: NumPy's loop over a short last axis is slow
LARGE = 4096

#: a log table and the axes to remove → the log table over the rest
Reduction = Callable[[np.ndarray, tuple[int, ...]], np.ndarray]


@dataclass(frozen=True, eq=False)
class JunctionTree:
    """A tree of cliques with numbers.

    factors: of every clique, log tables with one axis per variable of the clique, of length 1 where the factor does not
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


def junction_tree(graph: TableGraph, *, memory: float = math.inf, messages: int = 2) -> JunctionTree:
    """The junction tree of a graph with its evidence in.

    memory: bytes that the tables of inference may take, with so many messages per edge; beyond it, ValueError.
    """
    fixed, states = split_variables(graph)
    tables = [*graph, *(((v,), graph.likelihoods[v]) for v in sorted(graph.likelihoods))]
    parts = [slice_table(scope, values, fixed) for scope, values in tables]
    constants = [float(values) for scope, values in parts if not scope]
    log_constant = math.fsum(constants) if -math.inf not in constants else -math.inf
    tables = [LogTable(*part) for part in parts if part[0]]
    frame = clique_tree(tuple(own.scope for own in tables), tuple(states.items()), memory, messages)
    factors = tuple(
        tuple(sorted((tables[place].over(clique.variables) for place in clique.held), key=multiplication_order))
        for clique in frame.cliques
    )
    return JunctionTree(frame, factors, fixed, log_constant)


def multiplication_order(table: np.ndarray) -> tuple[int, tuple[bool, ...]]:
    """Key for multiplying tables: small ones first, of these the ones with the last axes, so that a product grows by
    leading axes and NumPy's inner loops stay long.
    """
    return table.size, tuple(length == 1 for length in table.shape[::-1])


class Calibrated(NamedTuple):
    """Log messages to the parents and from them (None into a root), marginals of the free variables, and the constants
    taken out of the messages: their sum is log Z.
    """

    up: Sequence[np.ndarray]
    down: Sequence[np.ndarray | None]
    marginals: dict[int, np.ndarray]
    constants: list[float]


def multiply(parts: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """A clique's log table from tables that broadcast to it; small ones first, so that only the last sums are large."""
    if not parts:
        return np.zeros(shape)
    total = reduce(np.add, parts)
    return total if total.shape == shape else np.broadcast_to(total, shape)


def fold(combine: np.ufunc, table: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Reduce a table over axes given in ascending order."""
    if table.size < LARGE:
        return combine.reduce(table, axis=axes)
    for gone, axis in enumerate(axes):
        before = (slice(None),) * (axis - gone)
        first, second, *others = (table[(*before, state)] for state in range(table.shape[axis - gone]))
        table = np.asarray(combine(first, second))
        for other in others:
            combine(table, other, out=table)
    return table


def log_sum_over(table: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """log Σ exp over the axes."""
    return log_sum_of(*exponentials(table), table, axes)


def exponentials(table: np.ndarray) -> tuple[np.ndarray, float]:
    """exp(table − peak) and the peak, its largest entry (0 where all are −inf)."""
    peak = float(table.max())
    if peak == -np.inf:
        return np.zeros(table.shape), 0.0
    shifted = table - peak
    return np.exp(shifted, out=shifted), peak


def log_sum_of(linear: np.ndarray, peak: float, table: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """log Σ exp over the axes of a table whose exponentials are at hand."""
    total = fold(np.add, linear, axes)
    if total.min() > SAFE:
        return np.log(total) + peak
    top = fold(np.maximum, table, axes)
    zero = top == -np.inf
    if np.all(zero | (total > SAFE)):
        return np.log(total) + peak
    # Where the maximum is −inf so are all terms; any finite number in its place leaves them so.
    shift = np.where(zero, 0.0, top)
    return np.log(fold(np.add, np.exp(table - np.expand_dims(shift, axes)), axes)) + shift


def outside(clique: Clique, variables: Iterable[int]) -> tuple[int, ...]:
    """Axes of a clique's table that do not belong to these variables."""
    kept = set(variables)
    return tuple(axis for axis, v in enumerate(clique.variables) if v not in kept)


def incoming(tree: JunctionTree, index: int, up: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The factors of a clique and the messages of its children, as tables of the clique."""
    children = tree.cliques[index].children
    return [*tree.factors[index], *(np.reshape(up[child], tree.cliques[child].message_shape) for child in children)]


def collect(tree: JunctionTree, remove: Reduction) -> tuple[list[np.ndarray], list[float]]:
    """Messages towards the roots, with largest entry 0, and the constants taken out of them.

    With sums the constants add up to log Z, with maxima to the largest log weight.
    """
    up: list[np.ndarray] = []
    constants = [tree.log_constant]
    if tree.log_constant == -np.inf:
        raise Contradiction
    with np.errstate(divide="ignore"):
        for index, clique in enumerate(tree.cliques):
            message = remove(multiply(incoming(tree, index, up), clique.shape), tuple(range(clique.own)))
            top = float(np.max(message))
            if top == -np.inf:
                raise Contradiction
            up.append(message - top)
            constants.append(top)
    return up, constants


def calibrate(tree: JunctionTree) -> Calibrated:
    """Both passes: messages with largest entry 0 to the roots and back, and the marginal of every free variable."""
    up, constants = collect(tree, log_sum_over)
    down: list[np.ndarray | None] = [None] * len(tree.cliques)
    marginals: dict[int, np.ndarray] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        for index in reversed(range(len(tree.cliques))):
            clique = tree.cliques[index]
            belief = clique_belief(tree, index, up, down)
            linear, peak = exponentials(belief)
            marginals |= own_marginals(clique, linear)
            for child in clique.children:
                axes = outside(clique, tree.cliques[child].separator)
                message = log_sum_of(linear, peak, belief, axes) - up[child]
                # 0/0: the child gives this state weight zero whatever is said here.
                message[np.isnan(message)] = -np.inf
                message -= message.max()
                down[child] = message
    return Calibrated(up, down, marginals, constants)


def clique_belief(
    tree: JunctionTree, index: int, up: Sequence[np.ndarray], down: Sequence[np.ndarray | None]
) -> np.ndarray:
    """Log table of a clique with all messages in: its marginal, up to a constant."""
    parts = incoming(tree, index, up)
    if (above := down[index]) is not None:
        parts.append(above)
    return multiply(parts, tree.cliques[index].shape)


def own_marginals(clique: Clique, linear: np.ndarray) -> dict[int, np.ndarray]:
    """Marginals of the variables that a clique sums out; its table of weights shrinks by one axis per step."""
    found: dict[int, np.ndarray] = {}
    for variable, states in zip(clique.variables[: clique.own], clique.shape, strict=False):
        rows = linear.reshape(states, -1)
        weights = rows.sum(axis=1)
        found[variable] = weights / weights.sum()
        linear = rows.sum(axis=0)
    return found


@dataclass(frozen=True, eq=False)
class Exact:
    """The exact posterior of a discrete graph.

    Attributes:
        marginals: one array per variable, one-hot where it is observed.
        log_evidence: log Σ_x ∏ t(x), over the states that agree with the evidence.
        width: of the elimination order.
        table_size: entries of the largest table.
        graph: that was asked about.

    Examples:
        >>> import cavity as cv
        >>> graph = cv.DiscreteGraph([2, 2])
        >>> graph.add_factor([0, 1], [[2.0, 1.0], [1.0, 4.0]])
        >>> found = cv.exact(graph)
        >>> found.marginals[0].round(3).tolist(), found.width, found.table_size
        ([0.375, 0.625], 1, 4)
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
        """p(x_i, x_j) of two variables.

        From a clique that holds both, else as p(x_i) p(x_j | x_i), by exact inference for every state of one of them.

        Args:
            first, second: by number or name.

        Returns:
            An array with the states of the first in rows and those of the second in columns.

        Raises:
            ValueError: if there is no such variable.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.DiscreteGraph([2, 2])
            >>> graph.add_factor([0, 1], [[2.0, 1.0], [1.0, 4.0]])
            >>> cv.exact(graph).pair(0, 1).tolist()
            [[0.25, 0.125], [0.125, 0.5]]
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
            given = copy.copy(graph)
            given.evidence[i] = state
            found[state] = self.marginals[i][state] * exact_discrete(given, memory=math.inf).marginals[j]
        return found


def exact_discrete(graph: TableGraph, *, memory: float = 2e9) -> Exact:
    """Marginals and log evidence of a discrete graph with its evidence, to rounding.

    Args:
        graph: of small width.
        memory: bytes that the tables may take; a graph that needs more is refused before any of them is made.

    Returns:
        An `Exact`.

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
    found = evaluate(program, start) if ENTRY * program.entries <= memory else None
    if found is None:
        calibrated = calibrate(junction_tree(graph, memory=memory))
        found = Summed(calibrated.marginals, math.fsum(calibrated.constants))
    free, cards = found.marginals, graph.cardinalities.tolist()
    marginals = [free[v] if v in free else np.eye(k)[graph.evidence.get(v, 0)] for v, k in enumerate(cards)]
    return Exact(marginals, found.log_sum, frame.width, frame.table_size, copy.copy(graph))


def exact_map(graph: TableGraph, *, memory: float = 2e9) -> tuple[np.ndarray, float]:
    """The most probable states of a discrete graph with its evidence, and their log weight log ∏ t(x).

    Maxima in place of sums towards the roots; then each clique, given its separator, chooses the states of its own
    variables. Of several best states one is returned, the same at every call.

    Args:
        graph: of small width.
        memory: bytes that the tables may take.

    Returns:
        The states, one per variable, and their log weight.

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
    up, _ = collect(tree, partial(fold, np.maximum))
    states = np.zeros(len(graph.variables), np.int64)
    states[list(tree.fixed)] = list(tree.fixed.values())
    for index, clique in reversed([*enumerate(tree.cliques)]):
        given = states[list(clique.separator)]
        # An axis of length 1 has the same entry for all states.
        parts = incoming(tree, index, up)
        rows = [part[(..., *np.minimum(given, np.array(part.shape[clique.own :]) - 1))] for part in parts]
        best = np.argmax(multiply(rows, clique.shape[: clique.own]))
        states[list(clique.variables[: clique.own])] = np.unravel_index(best, clique.shape[: clique.own])
    return states, log_weight(graph, states)


def log_weight(graph: TableGraph, states: np.ndarray) -> float:
    """log ∏ t(x) of one state of all variables, likelihoods included."""
    terms = [own.at(states) for own in graph.factors.by_shape]
    terms.append(np.array([weights[states[v]] for v, weights in graph.likelihoods.items()]))
    return math.fsum(np.concatenate(terms).tolist())
