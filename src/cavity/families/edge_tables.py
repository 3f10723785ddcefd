"""What distributions on paths and on trees share: eta begins with the log tables of their edges and the zeros in them.

Zeros are counted, as in `Categorical`: their log weight is 0 and they add one to the count.
"""

from abc import abstractmethod
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from cavity._core.precision import float64
from cavity.families.base import Family
from cavity.families.categorical import SOME, Categorical
from cavity.numerics.short_axis import log_sum_along


@dataclass(frozen=True)
class EdgeTables(Family):
    """So many edges between nodes of K = states; of a variable that has fewer, the others are impossible."""

    edges: int
    states: int

    @property
    def cavities_proper(self) -> bool:
        """Counts of zeros are never negative: a cavity is a product of the other messages."""
        return True

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

    @float64
    def is_proper(self, eta: jax.Array) -> jax.Array:
        """Whether all is finite and no more zeros were removed than there were; log Z is −inf if all is 0."""
        finite = jnp.all(jnp.isfinite(jnp.asarray(eta)), axis=-1)
        return finite & jnp.all(self.counts(eta) >= -SOME, axis=-1)

    def sample(self, key: jax.Array, eta: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        raise TypeError("Draws are made from the whole tree, not from a part of it.")

    @float64
    def distance(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """The largest difference of pair probabilities, in the unit of `Categorical`."""
        both = jnp.stack([jnp.asarray(eta), jnp.asarray(other)])
        logs = self.log_pairs(both)
        pairs = split_zeros(logs.reshape(*logs.shape[:-2], -1))
        gap = jnp.max(Categorical(self.states**2).distance(pairs[0], pairs[1]), axis=-1)
        return jnp.where(jnp.all(self.is_proper(both), axis=0), gap, jnp.inf)

    @float64
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
