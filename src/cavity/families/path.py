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

from cavity._core.precision import float64
from cavity.families.categorical import SOME
from cavity.families.edge_tables import EdgeTables, conditionals, split_zeros
from cavity.numerics.short_axis import log_sum_along


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

    @float64
    def statistics(self, x: jax.Array) -> jax.Array:
        """Indicators of every edge's pair of states; x holds the states of the nodes."""
        ends = jax.nn.one_hot(jnp.asarray(x), self.states, dtype=float)
        pairs = ends[..., :-1, :, None] * ends[..., 1:, None, :]
        return pairs.reshape(*pairs.shape[:-3], -1)

    @float64
    def log_partition(self, eta: jax.Array) -> jax.Array:
        """−inf if no state is possible, inf if more zeros were divided out than there were."""

        def step(weights: jax.Array, table: jax.Array) -> tuple[jax.Array, None]:
            return log_sum_along(weights[..., :, None] + table, -2), None

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

    def mean(self, eta: jax.Array) -> jax.Array:
        """Pair marginals of the edges."""
        return jnp.exp(self.free_pairs(eta)[1])

    def covariance(self, eta: jax.Array) -> jax.Array:
        raise TypeError("Asked of the whole tree, not of a path of it.")

    def message(self, cavity: jax.Array, stats: jax.Array) -> jax.Array:
        log_pairs = jnp.log(stats.reshape(*stats.shape[:-1], self.edges, self.states, self.states))
        return self.changes(cavity, self.log_pairs(cavity), log_pairs)


def log_matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """log Σ_y exp(a[x, y] + b[y, z])."""
    return log_sum_along(a[..., :, :, None] + b[..., None, :, :], -2)
