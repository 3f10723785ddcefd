"""Filtering through time slices after Boyen & Koller: ADF with all factors of a slice as one term (thesis 4.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from cavity.discrete.approx.rewriting import Clustering, join_variables
from cavity.discrete.exact.junction_tree import exact_discrete
from cavity.discrete.graph import Contradiction, TableGraph
from cavity.discrete.tables import LogTable


@dataclass(frozen=True, eq=False)
class Filtered:
    """The result of `DiscreteGraph.filter`.

    Attributes:
        marginals: for every slice an array for each of its variables, q_k(x_k) given the evidence up to that slice
            (thesis 4.5).
        log_evidence: Σ log Z_i over the slices (3.27, 4.8).

    Examples:
        >>> import cavity as cv
        >>> chain = cv.DiscreteGraph([2, 2])
        >>> chain.add_factor([0], [0.9, 0.1])
        >>> chain.add_factor([0, 1], [[0.8, 0.2], [0.2, 0.8]])
        >>> found = chain.filter([[0], [1]])
        >>> found.marginals[1][0].round(3).tolist(), round(found.log_evidence, 6) + 0.0
        ([0.74, 0.26], 0.0)
    """

    marginals: list[list[np.ndarray]]
    log_evidence: float


def boyen_koller(graph: TableGraph, slices: Sequence[Sequence[Any]], clusters: Any, memory: float) -> Filtered:
    """`DiscreteGraph.filter`: names turned into numbers, clusters into variables, then slice after slice."""
    numbered = [[graph.variables.number(variable) for variable in own] for own in slices]
    place = slice_of_each(graph, numbered)
    if clusters is None:
        return filter_slices(graph, numbered, memory)
    clustering = Clustering.of(graph, clusters)
    for own in clustering.members:
        if len({place[variable] for variable in own}) > 1:
            names = ", ".join(graph.variables.name(variable) for variable in own)
            raise ValueError(f"a cluster must lie within one slice; {names} are of several.")
    factors_by_slice(graph, place, len(numbered))  # checked first, so that errors name the caller's variables
    merged = [sorted({int(clustering.cluster[variable]) for variable in own}) for own in numbered]
    found = filter_slices(join_variables(graph, clustering), merged, memory)
    held = dict(zip(chain(*merged), chain(*found.marginals), strict=True))
    marginals = [[clustering.marginal(held, variable) for variable in own] for own in numbered]
    return Filtered(marginals, found.log_evidence)


def slice_of_each(graph: TableGraph, slices: list[list[int]]) -> dict[int, int]:
    """The slice of every variable; each is in exactly one."""
    place: dict[int, int] = {}
    for number, own in enumerate(slices):
        for variable in own:
            if variable in place:
                name, first = graph.variables.name(variable), place[variable]
                raise ValueError(f"slices must be disjoint; {name} is in slices {first} and {number}.")
            place[variable] = number
    missing = next((v for v in range(len(graph.variables)) if v not in place), None)
    if missing is not None:
        raise ValueError(f"slices must name every variable; {graph.variables.name(missing)} is in none.")
    return place


def factors_by_slice(graph: TableGraph, place: dict[int, int], count: int) -> list[list[LogTable]]:
    """The factors of every slice: each belongs to the latest slice it touches, and may reach back one slice only."""
    found: list[list[LogTable]] = [[] for _ in range(count)]
    for table in graph:
        touched = sorted({place[variable] for variable in table.scope})
        if len(touched) > 1 and touched[0] < touched[-1] - 1:
            names = ", ".join(graph.variables.name(variable) for variable in table.scope)
            seen = f"the one over {names} touches slices {touched}"
            raise ValueError(f"a factor may touch a slice and the one before it; {seen}.")
        if touched:
            found[touched[-1]].append(table)
    return found


def filter_slices(graph: TableGraph, slices: list[list[int]], memory: float) -> Filtered:
    """One pass: q_new(x_k) = Σ t_i(x) q(x) / Z_i, summed over all but x_k of the new slice (4.6, 4.7)."""
    place = slice_of_each(graph, slices)
    constants = [float(table.log_values) for table in graph if not table.scope]
    if -math.inf in constants:
        raise Contradiction
    marginals: list[list[np.ndarray]] = []
    before: list[int] = []
    for own, factors in zip(slices, factors_by_slice(graph, place, len(slices)), strict=True):
        step = two_slices(graph, before, marginals[-1] if marginals else [], own, factors)
        found = exact_discrete(step, memory=memory)
        marginals.append(found.marginals[len(before) :])
        constants.append(found.log_evidence)
        before = own
    return Filtered(marginals, math.fsum(constants))


def two_slices(
    graph: TableGraph, before: list[int], q: list[np.ndarray], own: list[int], factors: list[LogTable]
) -> TableGraph:
    """The graph of one step: the slice before with q as its tables, the new slice with its factors and evidence."""
    variables = [*before, *own]
    place = {variable: number for number, variable in enumerate(variables)}
    step = TableGraph(graph.cardinalities[variables])
    for number, weights in enumerate(q):
        step.add_factor([number], weights)
    for table in factors:
        step.add_factor([place[variable] for variable in table.scope], table.log_values, log=True)
    # What was observed before is in q already, as a one: named again, it only makes the tables smaller.
    step.evidence = {place[variable]: state for variable, state in graph.evidence.items() if variable in place}
    step.likelihoods = {place[v]: graph.likelihoods[v] for v in own if v in graph.likelihoods}
    return step
