"""Distributions of discrete variables on a small tree: eta = (log tables of the edges, zeros in them, parents).

Node 0 is the top, edge e leads down to node e + 1 from node parents[e] ≤ e, and

    p(x) ∝ ∏_e exp(table_e[x_parent, x_child]),

with K states a node; of a variable that has fewer, the others are impossible. Zeros are counted, as in `Categorical`:
their log weight is 0 and they add one to the count.

Trees of different shape share arrays, so the shape travels with the parameters: the last entries of eta are the
parents. They are constants, not parameters: a message has 0 there, and so sums and differences keep them.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.nn import logsumexp

from cavity._core.precision import float64
from cavity.families.categorical import SOME
from cavity.families.edge_tables import EdgeTables, conditionals, split_zeros


class Passes(NamedTuple):
    """Results of the passes up and down the tree: log Z, log pair marginals (edges, K, K), log marginals (nodes, K)."""

    log_partition: jax.Array
    pairs: jax.Array
    nodes: jax.Array


@dataclass(frozen=True)
class Subtree(EdgeTables):
    """A tree of so many edges, K = states; expected statistics are the pair marginals, then the parents."""

    @property
    def size(self) -> int:
        return 2 * self.edges * self.states**2 + self.edges

    def parents(self, eta: jax.Array) -> jax.Array:
        """The parent of every edge's child."""
        return jnp.asarray(eta)[..., -self.edges :].astype(int)

    def from_tables(self, tables: jax.Array, parents: jax.Array) -> jax.Array:
        """eta of log tables that may hold −inf."""
        flat = tables.reshape(*tables.shape[:-3], -1)
        shape = jnp.broadcast_to(parents, (*flat.shape[:-1], self.edges))
        return jnp.concatenate([split_zeros(flat), shape], axis=-1, dtype=float)

    def passes(self, eta: jax.Array, held: jax.Array | None = None) -> Passes:
        """Messages up and down, for any leading axes of eta. held: log weights (nodes, K) put on the nodes."""
        own = jnp.zeros((self.edges + 1, self.states)) if held is None else held
        run = jnp.vectorize(partial(two_passes, own), signature="(e,k,l),(e)->(),(e,k,l),(n,k)")
        return Passes(*run(self.tables(eta), self.parents(eta)))

    def log_pairs(self, eta: jax.Array) -> jax.Array:
        return self.passes(eta).pairs

    @float64
    def statistics(self, x: jax.Array) -> jax.Array:
        """Indicators of every edge's pair of states; x holds the states of the nodes. The parents are left 0."""
        raise TypeError("A value of a Subtree does not say which tree it is of; use `moments`.")

    @float64
    def log_partition(self, eta: jax.Array) -> jax.Array:
        """From the pass up alone: −inf if no state is possible, inf if more zeros were divided out than there were."""
        own = jnp.zeros((self.edges + 1, self.states))
        run = jnp.vectorize(lambda *tree: logsumexp(upward(own, *tree)[0][0]), signature="(e,k,l),(e)->()")
        negative = jnp.any(self.counts(eta) < -SOME, axis=-1)
        return jnp.where(negative, jnp.inf, run(self.tables(eta), self.parents(eta)))

    @float64
    def moments(self, eta: jax.Array) -> jax.Array:
        pairs = jnp.exp(self.passes(eta).pairs)
        return jnp.concatenate([pairs.reshape(*pairs.shape[:-3], -1), jnp.asarray(eta)[..., -self.edges :]], axis=-1)

    @float64
    def natural(self, mu: jax.Array) -> jax.Array:
        mu = jnp.asarray(mu)
        pairs = mu[..., : -self.edges].reshape(*mu.shape[:-1], self.edges, self.states, self.states)
        return self.from_tables(conditionals(jnp.log(pairs)), mu[..., -self.edges :])

    def mean(self, eta: jax.Array) -> jax.Array:
        """Marginals of the nodes."""
        return jnp.exp(self.passes(eta).nodes)

    def covariance(self, eta: jax.Array) -> jax.Array:
        """Pair marginals of the edges."""
        return jnp.exp(self.passes(eta).pairs)

    def message(self, cavity: jax.Array, stats: jax.Array) -> jax.Array:
        shape = (*stats.shape[:-1], self.edges, self.states, self.states)
        return self.message_of_logs(cavity, self.passes(cavity), jnp.log(stats[..., : -self.edges].reshape(shape)))

    def message_of_logs(self, cavity: jax.Array, known: Passes, log_pairs: jax.Array) -> jax.Array:
        """The message to a cavity whose passes are known that makes these its log pair marginals."""
        nothing = jnp.zeros((*cavity.shape[:-1], self.edges))
        return jnp.concatenate([self.changes(cavity, known.pairs, log_pairs), nothing], axis=-1)

    def local_moments(self, reference: jax.Array, eta: jax.Array) -> jax.Array:
        return self.moments(eta)[..., : self.local_size]


def upward(held: jax.Array, tables: jax.Array, parents: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log weight of everything below each node, itself included, and the message of every edge to its parent."""

    def climb(below: jax.Array, edge: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
        number, table, parent = edge
        up = logsumexp(table + below[number + 1][None, :], axis=1)
        return below.at[parent].add(up), up

    return jax.lax.scan(climb, held, (jnp.arange(len(tables)), tables, parents), reverse=True)


def two_passes(held: jax.Array, tables: jax.Array, parents: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """log Z, log pair marginals, log marginals of one tree."""
    below, ups = upward(held, tables, parents)
    total = logsumexp(below[0])
    scale = jnp.where(total == -jnp.inf, 0.0, total)

    def descend(nodes: jax.Array, edge: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
        number, table, up, parent = edge
        given = table + below[number + 1][None, :] - jnp.where(up == -jnp.inf, 0.0, up)[:, None]
        pair = nodes[parent][:, None] + given
        return nodes.at[number + 1].set(logsumexp(pair, axis=0)), pair

    top = jnp.full_like(held, -jnp.inf).at[0].set(below[0] - scale)
    nodes, pairs = jax.lax.scan(descend, top, (jnp.arange(len(tables)), tables, ups, parents))
    return total, pairs, nodes
