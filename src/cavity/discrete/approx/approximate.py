"""What stands for q: independent variables, a tree, or clusters; and which factors are joined before they are sites."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from cavity.discrete.approx.loopy import disconnected
from cavity.discrete.approx.queries import DiscreteSolution
from cavity.discrete.approx.rewriting import Clustering, join_factors, join_variables, pad_states
from cavity.discrete.approx.tree import on_tree
from cavity.discrete.evidence import check_possible
from cavity.discrete.graph import TableGraph
from cavity.inference.problem import Problem
from cavity.inference.solution import Solution


@dataclasses.dataclass(frozen=True)
class Tree:
    """A tree over the variables. edges: pairs of variables, by number or name; None: of maximal mutual information."""

    edges: Any = None


@dataclasses.dataclass(frozen=True)
class Clusters:
    """Disjoint sets of variables, each with a joint distribution of its own; variables in none stay alone."""

    clusters: Sequence[Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Approximation:
    """A graph with its approximation; `infer` takes it."""

    graph: TableGraph
    form: Tree | Clusters | None = None
    groups: tuple[tuple[int, ...], ...] = ()

    def problem(self) -> Problem:
        """The sites and what q is made of; a graph without a possible state is refused."""
        if not len(self.graph.variables):
            raise ValueError("the graph has no variables.")
        joined = join_factors(self.graph, self.groups) if self.groups else self.graph
        check_possible(joined)
        if isinstance(self.form, Tree):
            return on_tree(joined, None if self.form.edges is None else tree_edges(joined, self.form.edges))
        clustering = self.clustering()
        if clustering is not None:
            joined = join_variables(joined, clustering)
            check_possible(joined)
        return disconnected(pad_states(joined))

    def clustering(self) -> Clustering | None:
        """The clusters that q holds, where it holds any."""
        return Clustering.of(self.graph, self.form.clusters) if isinstance(self.form, Clusters) else None

    def interpret(self, solution: Solution) -> DiscreteSolution:
        """The solution of this approximation's problem, with marginals and pairs; `infer` returns it."""
        return DiscreteSolution.interpreting(solution, self.graph.variables.copy(), self.clustering())


def approximate(graph: TableGraph, form: Any = "disconnected", groups: Any = None) -> Approximation:
    """`DiscreteGraph.approximate`: names turned into forms, groups checked."""
    named = {"disconnected": None, "tree": Tree()}
    if isinstance(form, str):
        if form not in named:
            raise ValueError(f'form must be "disconnected", "tree", a Tree or Clusters; found {form!r}.')
        form = named[form]
    if form is not None and not isinstance(form, Tree | Clusters):
        raise TypeError(f'form must be "disconnected", "tree", a Tree or Clusters; found {type(form).__name__}.')
    return Approximation(graph, form, disjoint_groups(groups, len(graph.factors)) if groups else ())


def disjoint_groups(groups: Any, factors: int) -> tuple[tuple[int, ...], ...]:
    """Disjoint sets of factors by number, of so many factors."""
    found = tuple(tuple(int(number) for number in own) for own in groups)
    flat = [number for own in found for number in own]
    if flat and not factors:
        raise ValueError("groups name factors; the graph has none.")
    if any(not 0 <= number < factors for number in flat):
        raise ValueError(f"groups name factors 0 to {factors - 1}; found {[min(flat), max(flat)]}.")
    if len(set(flat)) < len(flat):
        raise ValueError("groups name a factor twice.")
    return found


def tree_edges(graph: TableGraph, edges: Any) -> np.ndarray:
    """Edges by number."""
    numbered = [[graph.variables.number(end) for end in edge] for edge in edges]
    if any(len(edge) != 2 or edge[0] == edge[1] for edge in numbered):
        raise ValueError("edges of a Tree are pairs of different variables.")
    return np.array(numbered, np.int64).reshape(-1, 2)
