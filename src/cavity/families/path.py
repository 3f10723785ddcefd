"""Distributions of discrete variables along a path: eta = (log tables of its edges, zeros in them).

The nodes are 0, …, E in order, edge e leads from node e to node e + 1, and

    p(x) ∝ ∏_e exp(table_e[x_e, x_{e+1}]),

with K states a node; of a variable that has fewer, the others are impossible. Zeros are counted, as in `Categorical`:
their log weight is 0 and they add one to the count. A shorter path is filled up with edges that copy the last node.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.nn import logsumexp

from cavity.families.base import Family
from cavity.families.categorical import SOME, Categorical
from cavity.numerics.precision import float64


class Products(NamedTuple):
    """Log products of the edges' tables: before and after each edge, and of all, from the first node to the last."""

    before: jax.Array
    after: jax.Array
    whole: jax.Array


@dataclass(frozen=True)
class Path(Family):
    """A path of so many edges, K = states; expected statistics are the pair marginals of the edges."""

    edges: int
    states: int

    @property
    def cavities_proper(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return 2 * self.local_size

    def tables(self, eta: jax.Array) -> jax.Array:
        """Log tables, −inf where impossible: (…, edges, first state, second state)."""
        eta = jnp.asarray(eta)
        logs = jnp.where(self.counts(eta) > SOME, -jnp.inf, eta[..., : self.local_size])
        return logs.reshape(*eta.shape[:-1], self.edges, self.states, self.states)

    def counts(self, eta: jax.Array) -> jax.Array:
        """How many messages call each pair of states impossible."""
        return jnp.asarray(eta)[..., self.local_size :]

    def from_tables(self, tables: jax.Array) -> jax.Array:
        """eta of log tables that may hold −inf."""
        flat = tables.reshape(*tables.shape[:-3], -1)
        zero = flat == -jnp.inf
        return jnp.concatenate([jnp.where(zero, 0.0, flat), zero.astype(float)], axis=-1, dtype=float)

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

    @float64
    def statistics(self, x: jax.Array) -> jax.Array:
        """Indicators of every edge's pair of states; x holds the states of the nodes."""
        ends = jax.nn.one_hot(jnp.asarray(x), self.states, dtype=float)
        pairs = ends[..., :-1, :, None] * ends[..., 1:, None, :]
        return pairs.reshape(*pairs.shape[:-3], -1)

    @float64
    def log_partition(self, eta: jax.Array) -> jax.Array:
        """−inf if nothing is possible, inf if a zero was divided out of nothing."""

        def step(weights: jax.Array, table: jax.Array) -> tuple[jax.Array, None]:
            return logsumexp(weights[..., :, None] + table, axis=-2), None

        tables = jnp.moveaxis(self.tables(eta), -3, 0)
        weights, _ = jax.lax.scan(step, jnp.zeros(tables.shape[1:-1]), tables)
        negative = jnp.any(self.counts(eta) < -SOME, axis=-1)
        return jnp.where(negative, jnp.inf, logsumexp(weights, axis=-1))

    @float64
    def moments(self, eta: jax.Array) -> jax.Array:
        pairs = jnp.exp(self.free_pairs(eta)[1])
        return pairs.reshape(*pairs.shape[:-3], -1)

    @float64
    def natural(self, mu: jax.Array) -> jax.Array:
        mu = jnp.asarray(mu)
        pairs = mu.reshape(*mu.shape[:-1], self.edges, self.states, self.states)
        return self.from_tables(conditionals(jnp.log(pairs)))

    @float64
    def is_proper(self, eta: jax.Array) -> jax.Array:
        """Numbers, and no zero divided out of nothing. Whether anything is possible at all the factors' log Z tell."""
        finite = jnp.all(jnp.isfinite(jnp.asarray(eta)), axis=-1)
        return finite & jnp.all(self.counts(eta) >= -SOME, axis=-1)

    def sample(self, key: jax.Array, eta: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        raise TypeError("Draws are made from the whole tree, not from a path of it.")

    def mean(self, eta: jax.Array) -> jax.Array:
        """Pair marginals of the edges."""
        return jnp.exp(self.free_pairs(eta)[1])

    def covariance(self, eta: jax.Array) -> jax.Array:
        raise TypeError("Asked of the whole tree, not of a path of it.")

    @float64
    def distance(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """The largest difference of pair probabilities, in the unit of `Categorical`."""
        both = jnp.stack([jnp.asarray(eta), jnp.asarray(other)])
        logs = self.free_pairs(both)[1]
        logs = logs.reshape(*logs.shape[:-2], -1)
        zero = logs == -jnp.inf
        pairs = jnp.concatenate([jnp.where(zero, 0.0, logs), zero.astype(float)], axis=-1)
        gap = jnp.max(Categorical(self.states**2).distance(pairs[0], pairs[1]), axis=-1)
        return jnp.where(jnp.all(self.is_proper(both), axis=0), gap, jnp.inf)

    def message(self, cavity: jax.Array, stats: jax.Array) -> jax.Array:
        log_pairs = jnp.log(stats.reshape(*stats.shape[:-1], self.edges, self.states, self.states))
        return self.message_of_logs(cavity, self.free_pairs(cavity)[1], log_pairs)

    def message_of_logs(self, cavity: jax.Array, known: jax.Array, log_pairs: jax.Array) -> jax.Array:
        """The message to a cavity of known log pair marginals that makes them `log_pairs`.

        It counts a zero where the cavity has mass and the pair marginal has none, and says nothing where the cavity has
        none itself.
        """
        silent = known == -jnp.inf
        zero = (log_pairs == -jnp.inf) & ~silent
        old = cavity[..., : self.local_size].reshape(known.shape)
        change = jnp.where(silent | zero, 0.0, conditionals(log_pairs) - old)
        flat = (*change.shape[:-3], -1)
        return jnp.concatenate([change.reshape(flat), zero.reshape(flat).astype(float)], axis=-1)

    @property
    def local_size(self) -> int:
        return self.edges * self.states**2

    def from_local(self, reference: jax.Array, x: jax.Array) -> jax.Array:
        """Log tables move; what is impossible stays so."""
        return jnp.concatenate([x, jnp.zeros_like(x)], axis=-1)

    def to_local(self, reference: jax.Array, change: jax.Array) -> jax.Array:
        return change[..., : self.local_size]


def log_matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """log Σ_y exp(a[x, y] + b[y, z])."""
    return logsumexp(a[..., :, :, None] + b[..., None, :, :], axis=-2)


def conditionals(log_pairs: jax.Array) -> jax.Array:
    """Tables with these pair marginals: the joint on the first edge, conditionals of the second node on all others."""
    first_node = logsumexp(log_pairs, axis=-1, keepdims=True)
    first = jnp.arange(log_pairs.shape[-3])[:, None, None] == 0
    known = first | (first_node == -jnp.inf)
    return jnp.where(log_pairs == -jnp.inf, -jnp.inf, log_pairs - jnp.where(known, 0.0, first_node))
