"""q a tree over discrete variables (thesis 4.2.2): q(x) = p(x_root) ∏ p(x_v | x_parent(v)).

Every variable is the child of one edge with a table of log weights; the roots of a forest hang below one more node of a
single state. A site acts on the edges of the subtree that its variables span. Rebuilding q is one pass of messages up
the tree and one down, level by level, each level in rows of at most `WIDTH` nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cavity._core.tiers import tiered_jit
from cavity._numerics.sums import log_sum_along
from cavity.families.categorical import SOME
from cavity.families.subtree import Path, Subtree
from cavity.posteriors.base import Posterior


class Wires(NamedTuple):
    """Where the sites of a group act.

    nodes: (sites, edges), the variable below each edge; top: (sites,), the node above the first; parents: (sites,
    edges), the shape of the subtree, see `Subtree`.
    """

    nodes: jax.Array
    top: jax.Array
    parents: jax.Array


class PathWires(NamedTuple):
    """Where the sites of a group act that are paths from one variable up to a top and down to another.

    nodes: (sites, edges), the variable below each edge; upward: whether the edge is walked from it to its parent. top:
    (sites,), the highest node; peak: the number of an edge at it.
    """

    nodes: jax.Array
    upward: jax.Array
    top: jax.Array
    peak: jax.Array


class TreePrior(NamedTuple):
    """The tree and what its own factors say.

    tables, zeros: (nodes, K, K), log weights [parent's state, own state] and counts of zeros. parent: (nodes,). Two
    nodes are no variables: the last but one is above the roots, the last stands for nothing.
    rows: (rows, width), the nodes from the deepest to the roots, filled up with the last.
    """

    tables: jax.Array
    zeros: jax.Array
    parent: jax.Array
    rows: jax.Array
    wires: tuple[Wires | PathWires, ...]
    log_constant: jax.Array


class TreeDistribution(NamedTuple):
    """q: log p(x_v | x_parent) of every node, log p(x_v), log normaliser; and its natural parameters and shape."""

    given: jax.Array
    nodes: jax.Array
    log_partition: jax.Array
    prior: TreePrior


@dataclass(frozen=True)
class TreePosterior(Posterior):
    """states: K, of all variables; those with fewer have impossible ones."""

    states: int

    def refresh(self, prior: TreePrior, groups: tuple[tuple[int, jax.Array], ...]) -> TreeDistribution:
        for scope, sites in groups:
            prior = self.moved(prior, prior.wires[scope], sites)
        return calibrated(prior)

    def moved(self, prior: TreePrior, wires: Wires | PathWires, sites: jax.Array) -> TreePrior:
        """The tables with the sites of these wires multiplied in."""
        size = wires.nodes.shape[1] * self.states**2
        tables, zeros = (
            sites[:, start : start + size].reshape(*wires.nodes.shape, self.states, self.states) for start in (0, size)
        )
        if isinstance(wires, PathWires):
            tables, zeros = transpose_where(tables, wires.upward), transpose_where(zeros, wires.upward)
        return prior._replace(
            tables=prior.tables.at[wires.nodes].add(tables), zeros=prior.zeros.at[wires.nodes].add(zeros)
        )

    def marginals(self, prior: TreePrior, q: TreeDistribution, scope: int, index: jax.Array) -> jax.Array:
        return self.local(q, scope, index)

    def local(self, window: TreeDistribution, scope: int, place: jax.Array) -> jax.Array:
        wires = jax.tree.map(lambda leaf: leaf[place], window.prior.wires[scope])
        tables, top = window.given[wires.nodes], window.nodes[wires.top][:, :, None]
        if isinstance(wires, PathWires):
            tables = tables.at[jnp.arange(len(place)), wires.peak].add(top)
            return Path(wires.nodes.shape[1], self.states).from_tables(transpose_where(tables, wires.upward))
        tables = tables.at[:, 0].add(top)
        return Subtree(wires.nodes.shape[1], self.states).from_tables(tables, wires.parents)

    def absorb(self, window: TreeDistribution, scope: int, place: jax.Array, change: jax.Array) -> TreeDistribution:
        wires = jax.tree.map(lambda leaf: leaf[place], window.prior.wires[scope])
        return calibrated(self.moved(window.prior, wires, change))

    def is_valid(self, q: TreeDistribution | TreePrior) -> jax.Array:
        found = calibrated(q) if isinstance(q, TreePrior) else q
        return jnp.isfinite(found.log_partition) & jnp.all(found.prior.zeros >= -SOME)

    def log_partition(self, q: TreeDistribution | TreePrior) -> jax.Array:
        """Of q its log normaliser; of the prior minus the log of the constant factors, see `Factorised`."""
        return -q.log_constant if isinstance(q, TreePrior) else q.log_partition

    def views(self, prior: TreePrior, q: TreeDistribution) -> dict[str, Callable[[], Any]]:
        return {"moments": lambda: jnp.exp(q.nodes[:-2]), "given": lambda: jnp.exp(q.given[:-2])}

    def sample(self, key: jax.Array, prior: TreePrior, q: TreeDistribution, draws: int) -> jax.Array:
        """States (draws, variables), drawn from the roots down."""

        def row(states: jax.Array, numbered: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            own, nodes = numbered
            logits = q.given[nodes[None, :], states[:, prior.parent[nodes]]]
            return states.at[:, nodes].set(jax.random.categorical(own, logits)), None

        start = jnp.zeros((draws, len(prior.parent)), int)
        keys = jax.random.split(key, len(prior.rows))
        states, _ = jax.lax.scan(row, start, (keys, prior.rows[::-1]))
        return states[:, :-2]

    def factor_arguments(self, prior: TreePrior, scope: int, index: jax.Array, x: Any) -> Any:
        raise TypeError(
            "the factors of a tree approximation lie along the tree and cannot be evaluated one by one: check the "
            "graph without it, infer(graph), or compare with cavity.exact(graph)."
        )

    def log_density(self, prior: TreePrior, q: TreeDistribution, x: jax.Array) -> jax.Array:
        states = jnp.concatenate([x, jnp.zeros((*x.shape[:-1], 2), int)], axis=-1)
        nodes = jnp.arange(len(prior.parent) - 2)
        return jnp.sum(q.given[nodes, states[..., prior.parent[:-2]], x], axis=-1)


def transpose_where(tables: jax.Array, which: jax.Array) -> jax.Array:
    """Tables (…, K, K) with rows and columns exchanged where asked."""
    return jnp.where(which[..., None, None], jnp.swapaxes(tables, -1, -2), tables)


@tiered_jit
def calibrated(prior: TreePrior) -> TreeDistribution:
    """Messages up, which make tables conditional, then marginals down."""
    tables = jnp.where(prior.zeros > SOME, -jnp.inf, prior.tables)

    def climb(below: jax.Array, nodes: jax.Array) -> tuple[jax.Array, None]:
        up = log_sum_along(tables[nodes] + below[nodes][:, None, :], 2)
        return below.at[prior.parent[nodes]].add(up), None

    below, _ = jax.lax.scan(climb, jnp.zeros(tables.shape[:2]), prior.rows)
    joint = tables + below[:, None, :]
    up = log_sum_along(joint, 2)[:, :, None]
    given = joint - jnp.where(up == -jnp.inf, 0.0, up)

    def descend(nodes: jax.Array, own: jax.Array) -> tuple[jax.Array, None]:
        pair = nodes[prior.parent[own]][:, :, None] + given[own]
        return nodes.at[own].set(log_sum_along(pair, 1)), None

    above = jnp.full_like(below, -jnp.inf).at[-2:, 0].set(0.0)
    nodes, _ = jax.lax.scan(descend, above, prior.rows[::-1])
    return TreeDistribution(given, nodes, below[-2, 0], prior)
