"""What users read from the solution of a graph: marginals of variables and of pairs."""

from __future__ import annotations

import dataclasses
import math
from functools import reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from cavity._core.precision import float64
from cavity.discrete.approx.loopy import stored_by_cardinality
from cavity.families.categorical import Categorical
from cavity.posteriors.tree import TreeDistribution

if TYPE_CHECKING:
    from cavity.discrete.graph import DiscreteGraph
    from cavity.discrete.variables import Variables
    from cavity.inference.solution import Solution


@dataclasses.dataclass(frozen=True)
class Clustering:
    """members: the variables of every cluster, in the order of its axes. cluster, axis: of every variable."""

    members: tuple[tuple[int, ...], ...]
    cluster: np.ndarray
    axis: np.ndarray
    cardinalities: np.ndarray

    @classmethod
    def of(cls, graph: DiscreteGraph, clusters: list[tuple[int, ...]]) -> Clustering:
        """The clusters, then the variables that are in none, each alone."""
        held = {variable for own in clusters for variable in own}
        alone = [(number,) for number in range(len(graph.variables)) if number not in held]
        members = (*clusters, *alone)
        cluster, axis = np.zeros(len(graph.variables), np.int64), np.zeros(len(graph.variables), np.int64)
        for number, own in enumerate(members):
            cluster[list(own)], axis[list(own)] = number, range(len(own))
        return cls(members, cluster, axis, graph.cardinalities)


@jax.tree_util.register_static
class Reader:
    """Reads a graph's variables from q. It is luggage: two readers count as equal, so that another graph of the same
    shape, or other evidence, is not compiled again; nothing compiled looks inside.

    graph: as inference saw it, where clusters are variables, and variables may have more states than the users'.
    """

    def __init__(self, graph: DiscreteGraph, clustering: Clustering | None, variables: Variables) -> None:
        self.graph, self.clustering, self.variables = graph, clustering, variables

    @property
    def sizes(self) -> np.ndarray:
        """States of every variable of the graph without those that inference was given in addition."""
        cards = self.variables.cardinalities
        if self.clustering is None:
            return cards
        return np.array([math.prod(cards[list(own)].tolist()) for own in self.clustering.members])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reader)

    def __hash__(self) -> int:
        return hash(Reader)

    def marginals(self, solution: Solution) -> Any:
        """P(x_i) of every variable: an array (variables, K) where all have K states, else a list of arrays."""
        held = self.held(solution)
        if self.clustering is None:
            return held
        own = self.clustering
        found = []
        for variable, (number, axis) in enumerate(zip(own.cluster, own.axis, strict=True)):
            joint = self.joint(held, number)
            found.append(joint.sum(tuple(k for k in range(joint.ndim) if k != axis)))
            assert len(found[-1]) == own.cardinalities[variable]
        return stacked(found)

    def joint(self, held: Any, cluster: int) -> np.ndarray:
        """The distribution of a cluster, one axis a member."""
        own = self.clustering
        assert own is not None
        return np.asarray(held[cluster]).reshape([int(own.cardinalities[v]) for v in own.members[cluster]])

    def held(self, solution: Solution) -> Any:
        """Marginals of the variables of the graph that inference saw."""
        sizes, moments = self.sizes, solution.view("moments")
        if not isinstance(solution.q, TreeDistribution) and len(moments) > 1:
            rows, moments = stored_by_cardinality(self.graph.cardinalities), [np.asarray(own) for own in moments]
            places = zip(rows.family, rows.row, sizes, strict=True)
            return [moments[family][row, :k] for family, row, k in places]
        nodes = np.asarray(moments if isinstance(solution.q, TreeDistribution) else moments[0])
        return nodes if (sizes == nodes.shape[1]).all() else [row[:k] for row, k in zip(nodes, sizes, strict=True)]

    @float64
    def pair(self, solution: Solution, i: Any, j: Any) -> np.ndarray:
        """P(x_i, x_j) where the approximation holds it: on a tree always, else in a cluster or in a factor."""
        i, j = self.variables.number(i), self.variables.number(j)
        if i == j:
            raise ValueError(f"a pair needs two variables; found {i} twice.")
        if isinstance(solution.q, TreeDistribution):
            return self.pair_on_tree(solution, i, j)
        if self.clustering is None:
            return self.pair_in_factor(solution, i, j, None)
        own = self.clustering
        if own.cluster[i] == own.cluster[j]:
            joint = self.joint(self.held(solution), int(own.cluster[i]))
            kept = (own.axis[i], own.axis[j])
            summed = joint.sum(tuple(k for k in range(joint.ndim) if k not in kept))
            return summed if kept[0] < kept[1] else summed.T
        return self.pair_in_factor(solution, i, j, own)

    def pair_on_tree(self, solution: Solution, i: int, j: int) -> np.ndarray:
        """Along the path: P(x_i, x_j) = Σ P(x_top) P(x_i | x_top) P(x_j | x_top)."""
        given, nodes = np.exp(np.asarray(solution.q.given)), np.exp(np.asarray(solution.q.nodes))
        parent = np.asarray(solution.problem.prior.parent)

        def chain(node: int) -> list[int]:
            found = [node]
            while found[-1] < len(parent) - 2:
                found.append(int(parent[found[-1]]))
            return found

        up_i, up_j = chain(i), chain(j)
        top = next(node for node in up_i if node in up_j)
        states = given.shape[1]

        def down(path: list[int]) -> np.ndarray:
            """P(x_end | x_top), from the conditionals below the top."""
            steps = path[: path.index(top)][::-1]
            return reduce(lambda total, node: total @ np.nan_to_num(given[node]), steps, np.eye(states))

        joint = np.einsum("t,ti,tj->ij", nodes[top], down(up_i), down(up_j))
        cards = self.graph.cardinalities
        return joint[: cards[i], : cards[j]] / joint.sum()

    def pair_in_factor(self, solution: Solution, i: int, j: int, own: Clustering | None) -> np.ndarray:
        """From factor × cavity of a factor that sees both; EP matches its single marginals, not the pair."""
        a, b = (i, j) if own is None else (int(own.cluster[i]), int(own.cluster[j]))
        rows, groups = stored_by_cardinality(self.graph.cardinalities), iter(range(len(solution.problem.groups)))
        for tables in self.graph.tables():
            if len(tables.shape) < 2:
                continue
            group = next(groups)
            sees = np.flatnonzero((tables.scopes == a).any(axis=1) & (tables.scopes == b).any(axis=1))
            if len(sees):
                scope = tables.scopes[sees[0]].tolist()
                log_joint = tables.log_values[sees[0]] + self.cavities(solution, rows, group, sees[0], scope)
                p = np.exp(log_joint - logsumexp(log_joint))
                return self.kept(p, scope, i, j, own)
        raise ValueError(f"this approximation does not hold the pair ({i}, {j}): no factor or cluster has both.")

    def cavities(self, solution: Solution, rows: Any, group: int, site: int, scope: list[int]) -> np.ndarray:
        """Σ of the log cavities of a site's variables, one axis each."""
        total, start, message = np.zeros(()), 0, np.asarray(solution.groups[group][site])
        for axis, variable in enumerate(scope):
            family = Categorical(int(self.graph.cardinalities[variable]))
            eta = solution.q.etas[rows.family[variable]][rows.row[variable]]
            left = np.asarray(family.log_probabilities(jnp.asarray(eta - message[start : start + family.size])))
            start += family.size
            total = total + left.reshape([-1 if k == axis else 1 for k in range(len(scope))])
        return total

    def kept(self, p: np.ndarray, scope: list[int], i: int, j: int, own: Clustering | None) -> np.ndarray:
        """A joint table over a scope summed down to two variables."""
        sizes = self.sizes
        p = p[tuple(slice(int(sizes[variable])) for variable in scope)]
        if own is not None:
            p = p.reshape([int(own.cardinalities[v]) for cluster in scope for v in own.members[cluster]])
            scope = [v for cluster in scope for v in own.members[cluster]]
        summed = p.sum(tuple(k for k, v in enumerate(scope) if v not in (i, j)))
        return summed if scope.index(i) < scope.index(j) else summed.T


def stacked(rows: list[np.ndarray]) -> Any:
    """One array where all rows have one length."""
    return np.stack(rows) if len({len(row) for row in rows}) == 1 else rows
