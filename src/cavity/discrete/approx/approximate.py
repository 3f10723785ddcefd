"""Approximations of a discrete graph: what stands for q, which factors are joined first, and the solution.

q is made of independent variables, of a tree, or of clusters. A solution has marginals of variables and of pairs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from cavity._core.precision import float64
from cavity.discrete.approx.parallel_bp import ParallelBP
from cavity.discrete.approx.rewriting import Clustering, join_factors, join_variables
from cavity.discrete.approx.tree import on_tree
from cavity.discrete.graph import TableGraph, Variables, check_possible
from cavity.discrete.tables import padded_tables
from cavity.factors.table import Table
from cavity.families import Categorical, Product
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.schedule import InOrder, Parallel
from cavity.inference.solution import ModelSolution, Solution
from cavity.moments.enumeration import Enumeration
from cavity.posteriors.factorised import Factorised, GraphPrior, Reach
from cavity.posteriors.tree import TreeDistribution

#: sites up to which a method that names no schedule visits them one after another; more are visited at once
ONE_BY_ONE = 5_000


@dataclasses.dataclass(frozen=True)
class Tree:
    """A tree over the variables, as the form of q in `DiscreteGraph.approximate`.

    Factors on its edges are exact; all others are sites (thesis 4.2.2).

    Attributes:
        edges: pairs of variables, by number or name; None for the spanning tree of maximal mutual information.

    Examples:
        >>> import cavity as cv
        >>> graph = cv.DiscreteGraph([2, 2, 2])
        >>> for pair in ([0, 1], [1, 2], [0, 2]):
        ...     graph.add_factor(pair, [[2.0, 1.0], [1.0, 2.0]])
        >>> graph.approximate(cv.Tree([[0, 1], [1, 2]])).problem().groups[0].size
        1
    """

    edges: Any = None


@dataclasses.dataclass(frozen=True)
class Clusters:
    """Disjoint sets of variables, each with a joint distribution of its own, as the form of q.

    Attributes:
        clusters: sets of variables, by number or name; variables in none of them stay alone.

    Examples:
        >>> import cavity as cv
        >>> graph = cv.DiscreteGraph([2, 2, 2])
        >>> for pair in ([0, 1], [1, 2], [0, 2]):
        ...     graph.add_factor(pair, [[2.0, 1.0], [1.0, 2.0]])
        >>> graph.approximate(cv.Clusters([[0, 1]])).problem().groups[0].size
        2
    """

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
            found = on_tree(joined, None if self.form.edges is None else tree_edges(joined, self.form.edges))
        else:
            if isinstance(self.form, Clusters):
                joined = join_variables(joined, Clustering.of(self.graph, self.form.clusters))
                check_possible(joined)
            found = disconnected(pad_states(joined))
        return dataclasses.replace(found, names=self.graph.variables.checksum())

    def interpret(self, solution: Solution) -> DiscreteSolution:
        """The solution of this approximation's problem, with marginals and pairs; `infer` returns it."""
        variables, clustering = self.graph.variables.copy(), None
        sizes = variables.cardinalities
        if isinstance(self.form, Clusters):
            clustering = Clustering.of(self.graph, self.form.clusters)
            sizes = np.array([math.prod(clustering.shape(number)) for number in range(len(clustering.members))])
        q = solution.q
        nodes = q.nodes.shape[-2] - 2 if isinstance(q, TreeDistribution) else sum(np.shape(eta)[-2] for eta in q.etas)
        if nodes != len(sizes):
            raise ValueError(f"this solution is of another graph: it has {nodes} variables, this one {len(sizes)}.")
        known: dict[str, Any] = {"variables": variables, "clustering": clustering, "sizes": sizes}
        return DiscreteSolution.of_graph(solution, variables.checksum(), **known)


def approximate(graph: TableGraph, form: Any = "disconnected", groups: Any = None) -> Approximation:
    """`DiscreteGraph.approximate`: names turned into forms, groups checked."""
    named, wanted = {"disconnected": None, "tree": Tree()}, 'form must be "disconnected", "tree", a Tree or Clusters'
    if isinstance(form, str):
        if form not in named:
            raise ValueError(f"{wanted}; found {form!r}.")
        form = named[form]
    if not isinstance(form, Tree | Clusters | None):
        raise TypeError(f"{wanted}; found {type(form).__name__}.")
    return Approximation(graph, form, disjoint_groups(groups, len(graph.factors)) if groups else ())


class StoredRows(NamedTuple):
    """Where each variable is stored: the number of its family, and its row there. cardinalities: of the families."""

    family: np.ndarray
    row: np.ndarray
    cardinalities: np.ndarray


def stored_by_cardinality(cardinalities: np.ndarray) -> StoredRows:
    """Variables of equal cardinality together, in their own order."""
    kinds, family = np.unique(cardinalities, return_inverse=True)
    row = np.zeros(len(cardinalities), np.int64)
    for number in range(len(kinds)):
        own = family == number
        row[own] = np.arange(own.sum())
    return StoredRows(family, row, kinds)


@float64
def disconnected(graph: TableGraph) -> Problem:
    """The problem whose EP is loopy BP: factors of one variable are in the prior, exactly; every other is a site."""
    rows = stored_by_cardinality(graph.cardinalities)
    families = tuple(map(Categorical, rows.cardinalities.tolist()))
    wires, groups = [], []
    for own in graph.factors.by_shape:
        if len(own.shape) < 2:
            continue
        slots = tuple(np.searchsorted(rows.cardinalities, own.shape).tolist())
        family = Product(tuple(map(Categorical, own.shape)))
        groups.append(SiteGroup(Table(), own.log_values, family, Enumeration(), scope=Reach(len(wires), slots)))
        wires.append(rows.row[own.scopes].astype(np.int32))
    if not groups:
        # Everything is held exactly; a site that says nothing gives the loop something to visit.
        family, nothing = Product((families[rows.family[0]],)), np.zeros((1, graph.cardinalities[0]))
        groups.append(SiteGroup(Table(), nothing, family, Enumeration(), scope=Reach(0, (int(rows.family[0]),))))
        wires.append(np.zeros((1, 1), np.int32))
    etas, flat, starts = [], graph.flat_unary(), np.cumsum(graph.cardinalities) - graph.cardinalities
    for number, k in enumerate(rows.cardinalities):
        weights = flat[starts[rows.family == number][:, None] + np.arange(k)]
        zero = weights == -np.inf
        etas.append(jnp.asarray(np.concatenate([np.where(zero, 0.0, weights), zero], axis=1, dtype=float)))
    prior = GraphPrior(tuple(etas), tuple(map(jnp.asarray, wires)), jnp.asarray(graph.log_constant))
    schedule = Parallel() if sum(map(len, wires)) > ONE_BY_ONE else InOrder()
    return Problem(prior, tuple(groups), Factorised(families), schedule=schedule, sweep_kernel=ParallelBP())


def pad_states(graph: TableGraph) -> TableGraph:
    """The same distribution with impossible states added to some variables; the graph itself if that gains nothing.

    Axes of every table are in order of their lengths, so that (2, 3) and (3, 2) are one shape. The variables have
    numbers, no names.
    """
    if len(np.unique(graph.cardinalities)) < 2:
        return graph
    factors = graph.factors.derive(padded_tables)
    wider = factors.cardinalities
    likelihoods = {v: np.pad(own, (0, int(wider[v]) - len(own))) for v, own in graph.likelihoods.items()}
    return TableGraph.assemble(Variables(wider), factors, graph.evidence, likelihoods)


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


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class DiscreteSolution(ModelSolution):
    """The solution of a discrete graph, which knows its variables: a `Solution` with marginals and pairs.

    What q holds one by one are *nodes*: the variables, or clusters of them. They may have more states than the
    variables, which are impossible and come last. The attributes of a `Solution` come before those named here.

    Attributes:
        variables: of the graph.
        clustering: the variables of every node, where these are clusters.
        sizes: numbers of states of the nodes, without the impossible ones.

    Examples:
        >>> import cavity as cv
        >>> graph = cv.DiscreteGraph([2, 2])
        >>> graph.add_factor([0, 1], [[2.0, 1.0], [1.0, 4.0]])
        >>> found = cv.infer(graph, cv.EP())
        >>> found.converged, found.marginals[0].round(3).tolist()
        (True, [0.375, 0.625])
    """

    variables: Variables
    clustering: Clustering | None
    sizes: np.ndarray

    @property
    def marginals(self) -> Any:
        """P(x_i) of every variable: an array (variables, K) where all have K states, else a list of arrays.

        Of a stack of solutions each has the stack's axes first.
        """
        own, held = self.clustering, self._held()
        if own is None and isinstance(held, np.ndarray):
            return held
        rows = held if own is None else [own.marginal(held, variable) for variable in range(len(own.cluster))]
        return np.stack(rows, axis=-2) if len({row.shape[-1] for row in rows}) == 1 else rows

    @float64
    def pair(self, i: Any, j: Any) -> np.ndarray:
        """P(x_i, x_j) where the approximation holds it: on a tree always, else in a cluster or in a factor.

        Args:
            i, j: two variables, by number or name.

        Returns:
            An array with the states of x_i in rows and those of x_j in columns.

        Raises:
            ValueError: if no factor or cluster has both, or the solution is a stack.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.DiscreteGraph([2, 2])
            >>> graph.add_factor([0, 1], [[2.0, 1.0], [1.0, 4.0]])
            >>> cv.infer(graph, cv.EP()).pair(0, 1).round(3).tolist()
            [[0.25, 0.125], [0.125, 0.5]]
        """
        if np.ndim(self.code):
            raise ValueError(f"pair takes one solution at a time; found a stack of shape {np.shape(self.code)}.")
        i, j = self.variables.number(i), self.variables.number(j)
        if i == j:
            raise ValueError(f"a pair needs two variables; found {i} twice.")
        if isinstance(self.q, TreeDistribution):
            return self._pair_on_tree(i, j)
        own = self.clustering
        if own is not None and (number := int(own.cluster[i])) == own.cluster[j]:
            return summed_to(self._held()[number].reshape(own.shape(number)), list(own.members[number]), i, j)
        return self._pair_in_factor(i, j)

    def by_name(self, x: Any) -> np.ndarray:
        """Drawn states (draws, variables), in the order of the graph."""
        nodes, own = x, self.clustering
        if not isinstance(self.q, TreeDistribution):
            rows = self._rows()
            nodes = np.stack([x[family][:, row] for family, row in zip(rows.family, rows.row, strict=True)], axis=1)
        if own is None:
            return nodes
        states = [np.unravel_index(nodes[:, node], own.shape(node)) for node in range(len(own.members))]
        return np.stack([states[node][axis] for node, axis in zip(own.cluster, own.axis, strict=True)], axis=1)

    def _held(self) -> Any:
        """Marginals of the nodes: an array (nodes, K) where all have K states, else a list of arrays."""
        moments = self.view("moments")
        moments = list(map(np.asarray, (moments,) if isinstance(self.q, TreeDistribution) else moments))
        if len(moments) == 1:
            (nodes,) = moments
            alike = (self.sizes == nodes.shape[-1]).all()
            return nodes if alike else [nodes[..., node, :k] for node, k in enumerate(self.sizes)]
        rows = self._rows()
        return [moments[family][..., row, :k] for family, row, k in zip(rows.family, rows.row, self.sizes, strict=True)]

    def _rows(self) -> StoredRows:
        """Where every node is stored: with the fewest states that are enough for it."""
        stored = np.array([family.states for family in self.problem.posterior.families])  # type: ignore[attr-defined]
        return stored_by_cardinality(stored[np.searchsorted(stored, self.sizes)])

    def _pair_on_tree(self, i: int, j: int) -> np.ndarray:
        """Along the path: P(x_i, x_j) = Σ P(x_top) P(x_i | x_top) P(x_j | x_top)."""
        given, nodes = np.nan_to_num(np.exp(np.asarray(self.q.given))), np.exp(np.asarray(self.q.nodes))
        parent = np.asarray(self.problem.prior.parent)

        def from_above(node: int) -> dict[int, np.ndarray]:
            """P(x_node | x_a) for the node itself and every a above it."""
            found = {node: np.eye(given.shape[1])}
            while node < len(parent) - 2:
                found[int(parent[node])] = given[node] @ found[node]
                node = int(parent[node])
            return found

        above_i, above_j = from_above(i), from_above(j)
        top = next(node for node in above_i if node in above_j)
        joint = np.einsum("t,ti,tj->ij", nodes[top], above_i[top], above_j[top])
        return joint[: self.sizes[i], : self.sizes[j]] / joint.sum()

    def _pair_in_factor(self, i: int, j: int) -> np.ndarray:
        """From factor × cavity of a factor that sees both; EP matches its single marginals, not the pair."""
        own, rows = self.clustering, self._rows()
        a, b = (i, j) if own is None else (int(own.cluster[i]), int(own.cluster[j]))
        for number, (group, wires) in enumerate(zip(self.problem.groups, self.problem.prior.wires, strict=True)):
            slots, wires = np.array(group.scope.slots), np.asarray(wires)
            seen = [((slots == rows.family[node]) & (wires == rows.row[node])).any(axis=1) for node in (a, b)]
            sites = np.flatnonzero(seen[0] & seen[1])
            if len(sites):
                places = zip(slots, wires[sites[0]], strict=True)
                scope = [int(np.flatnonzero(rows.family == slot)[row]) for slot, row in places]
                log_joint = np.asarray(group.data)[sites[0]] + log_cavities(self, rows, number, sites[0], scope)
                p = np.exp(log_joint - logsumexp(log_joint))
                p = p[tuple(slice(int(self.sizes[node])) for node in scope)]
                if own is not None:
                    p = p.reshape([count for node in scope for count in own.shape(node)])
                    scope = [v for node in scope for v in own.members[node]]
                return summed_to(p, scope, i, j)
        raise ValueError(f"this approximation does not hold the pair ({i}, {j}): no factor or cluster has both.")


def log_cavities(solution: Solution, rows: StoredRows, group: int, site: int, scope: list[int]) -> np.ndarray:
    """Σ of the log cavities of the nodes that a site sees, one axis each. rows: where the nodes are stored."""
    total, start, message = np.zeros(()), 0, np.asarray(solution.sites[group][site])
    for axis, node in enumerate(scope):
        family = Categorical(int(rows.cardinalities[rows.family[node]]))
        eta = solution.q.etas[rows.family[node]][rows.row[node]]
        left = np.asarray(family.log_probabilities(jnp.asarray(eta - message[start : start + family.size])))
        start += family.size
        total = total + left.reshape([-1 if k == axis else 1 for k in range(len(scope))])
    return total


def summed_to(p: np.ndarray, scope: list[int], i: int, j: int) -> np.ndarray:
    """A joint table over a scope summed down to two variables."""
    summed = p.sum(tuple(k for k, v in enumerate(scope) if v not in (i, j)))
    return summed if scope.index(i) < scope.index(j) else summed.T
