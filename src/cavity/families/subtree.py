"""Distributions of discrete variables along a path or on a small tree.

eta begins with the log tables of the edges and the zeros in them. Every node has K states; of a variable that has
fewer, the others are impossible. Zeros are counted, as in `Categorical`: their log weight is 0 and they add one to the
count.

Path: eta = (log tables of its edges, zeros in them). The nodes are 0, …, E in order, edge e leads from node e to node
e + 1, and

    p(x) ∝ ∏_e exp(table_e[x_e, x_{e+1}]).

A shorter path is filled up with edges that copy the last node.

Subtree: eta = (log tables of the edges, zeros in them, parents). Node 0 is the top, edge e leads down to node e + 1
from node parents[e] ≤ e, and

    p(x) ∝ ∏_e exp(table_e[x_parent, x_child]).

Trees of different shape share arrays, so the shape travels with the parameters: the last entries of eta are the
parents. They are constants, not parameters: a message has 0 there, and so sums and differences keep them.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.nn import logsumexp

from cavity._numerics.sums import log_sum_along
from cavity.families.base import Family
from cavity.families.categorical import SOME, Categorical


@dataclass(frozen=True)
class EdgeTables(Family):
    """So many edges between nodes of K = states; of a variable that has fewer, the others are impossible."""

    edges: int
    states: int

    #: counts of zeros are never negative: a cavity is a product of the other messages
    cavities_proper: ClassVar[bool] = True

    @property
    def local_size(self) -> int:
        return self.edges * self.states**2

    def tables(self, eta: jax.Array) -> jax.Array:
        """Log tables, −inf where impossible: (…, edges, first state, second state)."""
        eta = jnp.asarray(eta)
        logs = jnp.where(self.counts(eta) > SOME, -jnp.inf, eta[..., : self.local_size])
        return logs.reshape(*eta.shape[:-1], self.edges, self.states, self.states)

    def counts(self, eta: jax.Array) -> jax.Array:
        """How many messages call each pair of states impossible."""
        return jnp.asarray(eta)[..., self.local_size : 2 * self.local_size]

    @abstractmethod
    def log_pairs(self, eta: jax.Array) -> jax.Array:
        """Log pair marginals of the edges, for any leading axes."""

    def is_proper(self, eta: jax.Array) -> jax.Array:
        """Whether all is finite and no more zeros were removed than there were; log Z is −inf if all is 0."""
        finite = jnp.all(jnp.isfinite(jnp.asarray(eta)), axis=-1)
        return finite & jnp.all(self.counts(eta) >= -SOME, axis=-1)

    def sample(self, key: jax.Array, eta: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        raise TypeError("Draws are made from the whole tree, not from a part of it.")

    def distance(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """The largest difference of pair probabilities, in the unit of `Categorical`."""
        both = jnp.stack([jnp.asarray(eta), jnp.asarray(other)])
        logs = self.log_pairs(both)
        pairs = split_zeros(logs.reshape(*logs.shape[:-2], -1))
        gap = jnp.max(Categorical(self.states**2).distance(pairs[0], pairs[1]), axis=-1)
        return jnp.where(jnp.all(self.is_proper(both), axis=0), gap, jnp.inf)

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """Σ p(pair) (log table − log table') over all edges, − A + A'; infinite where p' is zero and p is not."""
        p = jnp.exp(self.log_pairs(eta))
        gap = jnp.where(p > 0, self.tables(eta) - self.tables(other), 0.0)
        linear = jnp.sum(jnp.where(p > 0, p * gap, 0.0), axis=(-3, -2, -1))
        return linear - self.log_partition(eta) + self.log_partition(other)

    def changes(self, cavity: jax.Array, known: jax.Array, log_pairs: jax.Array) -> jax.Array:
        """Changes of tables and counts that make a cavity of `known` log pair marginals one of these.

        A zero is counted where the cavity has mass and the pair marginal has none; nothing is said where the cavity has
        none itself.
        """
        silent = known == -jnp.inf
        zero = (log_pairs == -jnp.inf) & ~silent
        old = cavity[..., : self.local_size].reshape(known.shape)
        change = jnp.where(silent | zero, 0.0, conditionals(log_pairs) - old)
        flat = (*change.shape[:-3], -1)
        return jnp.concatenate([change.reshape(flat), zero.reshape(flat).astype(float)], axis=-1)

    def from_local(self, reference: jax.Array, x: jax.Array) -> jax.Array:
        """Log tables move; what is impossible stays so."""
        return jnp.concatenate([x, jnp.zeros((*x.shape[:-1], self.size - self.local_size))], axis=-1)

    def to_local(self, reference: jax.Array, change: jax.Array) -> jax.Array:
        return change[..., : self.local_size]


def split_zeros(logs: jax.Array) -> jax.Array:
    """Log weights that may be −inf as (weights with 0 there, counts), along the last axis."""
    zero = logs == -jnp.inf
    return jnp.concatenate([jnp.where(zero, 0.0, logs), zero.astype(float)], axis=-1, dtype=float)


def conditionals(log_pairs: jax.Array) -> jax.Array:
    """Tables with these pair marginals: the joint on the first edge, conditionals of the second node on all others."""
    first_node = log_sum_along(log_pairs, -1)[..., None]
    first = jnp.arange(log_pairs.shape[-3])[:, None, None] == 0
    known = first | (first_node == -jnp.inf)
    return jnp.where(log_pairs == -jnp.inf, -jnp.inf, log_pairs - jnp.where(known, 0.0, first_node))


class Products(NamedTuple):
    """Log products of the edges' tables: before and after each edge, and of all, from the first node to the last."""

    before: jax.Array
    after: jax.Array
    whole: jax.Array


@dataclass(frozen=True)
class Path(EdgeTables):
    """A path of so many edges, K = states; expected statistics are the pair marginals of the edges."""

    @property
    def size(self) -> int:
        return 2 * self.local_size

    def from_tables(self, tables: jax.Array) -> jax.Array:
        """eta of log tables that may hold −inf."""
        return split_zeros(tables.reshape(*tables.shape[:-3], -1))

    def products(self, tables: jax.Array) -> Products:
        """Along the path, one edge after another, for any leading axes."""
        along = jnp.moveaxis(tables, -3, 0)
        nothing = jnp.broadcast_to(jnp.where(jnp.eye(self.states) > 0, 0.0, -jnp.inf), along.shape[1:])

        def forward(product: jax.Array, table: jax.Array) -> tuple[jax.Array, jax.Array]:
            return log_matmul(product, table), product

        def backward(product: jax.Array, table: jax.Array) -> tuple[jax.Array, jax.Array]:
            return log_matmul(table, product), product

        whole, before = jax.lax.scan(forward, nothing, along)
        _, after = jax.lax.scan(backward, nothing, along, reverse=True)
        return Products(jnp.moveaxis(before, 0, -3), jnp.moveaxis(after, 0, -3), whole)

    def pairs(self, tables: jax.Array, products: Products, log_ends: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(log Z, log pair marginals) with log weights [first, last] on the ends.

        pair_e[x, y] ∝ table_e[x, y] Σ_{a, b} before_e[a, x] ends[a, b] after_e[y, b].
        """
        beyond = log_matmul(log_ends[..., None, :, :], jnp.swapaxes(products.after, -1, -2))
        around = log_matmul(jnp.swapaxes(products.before, -1, -2), beyond)
        log_z = logsumexp(products.whole + log_ends, axis=(-1, -2))
        scale = jnp.where(log_z == -jnp.inf, 0.0, log_z)[..., None, None, None]
        return log_z, tables + around - scale

    def free_pairs(self, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(log Z, log pair marginals) of members."""
        tables = self.tables(eta)
        return self.pairs(tables, self.products(tables), jnp.zeros((self.states, self.states)))

    def log_pairs(self, eta: jax.Array) -> jax.Array:
        return self.free_pairs(eta)[1]

    def statistics(self, x: jax.Array) -> jax.Array:
        """Indicators of every edge's pair of states; x holds the states of the nodes."""
        ends = jax.nn.one_hot(jnp.asarray(x), self.states, dtype=float)
        pairs = ends[..., :-1, :, None] * ends[..., 1:, None, :]
        return pairs.reshape(*pairs.shape[:-3], -1)

    def log_partition(self, eta: jax.Array) -> jax.Array:
        """−inf if no state is possible, inf if more zeros were divided out than there were."""

        def step(weights: jax.Array, table: jax.Array) -> tuple[jax.Array, None]:
            return log_sum_along(weights[..., :, None] + table, -2), None

        tables = jnp.moveaxis(self.tables(eta), -3, 0)
        weights, _ = jax.lax.scan(step, jnp.zeros(tables.shape[1:-1]), tables)
        negative = jnp.any(self.counts(eta) < -SOME, axis=-1)
        return jnp.where(negative, jnp.inf, logsumexp(weights, axis=-1))

    def moments(self, eta: jax.Array) -> jax.Array:
        pairs = jnp.exp(self.free_pairs(eta)[1])
        return pairs.reshape(*pairs.shape[:-3], -1)

    def natural(self, mu: jax.Array) -> jax.Array:
        mu = jnp.asarray(mu)
        pairs = mu.reshape(*mu.shape[:-1], self.edges, self.states, self.states)
        return self.from_tables(conditionals(jnp.log(pairs)))

    def mean(self, eta: jax.Array) -> jax.Array:
        """Pair marginals of the edges."""
        return jnp.exp(self.free_pairs(eta)[1])

    def covariance(self, eta: jax.Array) -> jax.Array:
        raise TypeError("A path of a tree has no covariance; the family of the whole tree has.")

    def message(self, cavity: jax.Array, stats: jax.Array) -> jax.Array:
        log_pairs = jnp.log(stats.reshape(*stats.shape[:-1], self.edges, self.states, self.states))
        return self.changes(cavity, self.log_pairs(cavity), log_pairs)


def log_matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """log Σ_y exp(a[x, y] + b[y, z])."""
    return log_sum_along(a[..., :, :, None] + b[..., None, :, :], -2)


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

    def statistics(self, x: jax.Array) -> jax.Array:
        """Indicators of every edge's pair of states; x holds the states of the nodes. The parents are left 0."""
        raise TypeError("A value of a Subtree does not say which tree it is of; use `moments`.")

    def log_partition(self, eta: jax.Array) -> jax.Array:
        """From the pass up alone: −inf if no state is possible, inf if more zeros were divided out than there were."""
        own = jnp.zeros((self.edges + 1, self.states))
        run = jnp.vectorize(lambda *tree: logsumexp(upward(own, *tree)[0][0]), signature="(e,k,l),(e)->()")
        negative = jnp.any(self.counts(eta) < -SOME, axis=-1)
        return jnp.where(negative, jnp.inf, run(self.tables(eta), self.parents(eta)))

    def moments(self, eta: jax.Array) -> jax.Array:
        pairs = jnp.exp(self.passes(eta).pairs)
        return jnp.concatenate([pairs.reshape(*pairs.shape[:-3], -1), jnp.asarray(eta)[..., -self.edges :]], axis=-1)

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
