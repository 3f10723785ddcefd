"""Sums and questions over the few entries of a last axis, written out entry by entry.

A sum over an axis of length 2 keeps a compiler from doing many sites at once; two named terms do not. Up to `FEW` terms
are written out, more are left to the library.
"""

from collections.abc import Sequence
from functools import reduce

import jax
import jax.numpy as jnp

#: terms that are written out: each is compiled on its own, and beyond these that takes longer than small runs do
FEW = 3


def elementwise_log_sum(terms: Sequence[jax.Array]) -> jax.Array:
    """log Σ exp(term), elementwise over equal shapes; −inf where every term is."""
    if len(terms) == 1:
        return terms[0]
    top = reduce(jnp.maximum, terms)
    possible = top > -jnp.inf
    scale = jnp.where(possible, top, 0.0)
    if len(terms) == 2:
        # One exponential, not two: the larger term is 1 beside the smaller.
        low = jnp.where(possible, jnp.minimum(*terms), 0.0)
        return jnp.where(possible, scale + jnp.log(1.0 + jnp.exp(low - scale)), -jnp.inf)
    total = reduce(jnp.add, [jnp.exp(term - scale) for term in terms])
    return jnp.where(possible, scale + jnp.log(jnp.where(possible, total, 1.0)), -jnp.inf)


def largest(terms: Sequence[jax.Array]) -> jax.Array:
    """The largest term, elementwise over equal shapes."""
    return reduce(jnp.maximum, terms)


def log_sum_along(values: jax.Array, axis: int) -> jax.Array:
    """log Σ exp over an axis."""
    if values.shape[axis] > FEW:
        return jax.nn.logsumexp(values, axis=axis)
    return elementwise_log_sum(
        [jax.lax.index_in_dim(values, k, axis, keepdims=False) for k in range(values.shape[axis])]
    )


def log_sum_last(values: jax.Array) -> jax.Array:
    """log Σ exp over the last axis."""
    return log_sum_along(values, -1)


def shares_last(log_values: jax.Array) -> jax.Array:
    """exp(values) / Σ exp(values) over the last axis; zero everywhere where every value is −inf."""
    if log_values.shape[-1] > FEW:
        top = jnp.max(log_values, axis=-1, keepdims=True)
        weights = jnp.exp(log_values - jnp.where(top > -jnp.inf, top, 0.0))
        total = jnp.sum(weights, axis=-1, keepdims=True)
        return weights / jnp.where(total > 0, total, 1.0)
    return jnp.stack(shares_and_rest([log_values[..., k] for k in range(log_values.shape[-1])])[0], axis=-1)


def shares_and_rest(terms: Sequence[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
    """(exp(term) / Σ exp(terms), the same of all other terms together), the latter without cancellation."""
    top = reduce(jnp.maximum, terms)
    scale = jnp.where(top > -jnp.inf, top, 0.0)
    weights = [jnp.exp(term - scale) for term in terms]
    total = reduce(jnp.add, weights)
    inverse = 1.0 / jnp.where(total > 0, total, 1.0)
    rest = [sum(weights[:k] + weights[k + 1 :], jnp.zeros_like(top)) for k in range(len(weights))]
    return [weight * inverse for weight in weights], [other * inverse for other in rest]


def all_last(flags: jax.Array) -> jax.Array:
    """Whether all flags of the last axis hold."""
    if flags.shape[-1] > FEW:
        return jnp.all(flags, axis=-1)
    return reduce(jnp.logical_and, [flags[..., k] for k in range(flags.shape[-1])])


def any_last(flags: jax.Array) -> jax.Array:
    """Whether any flag of the last axis holds."""
    return ~all_last(~flags)


def unstacked(values: jax.Array) -> list[jax.Array]:
    """The entries of a vector, or the vector itself where they are many."""
    return apart(values) if values.shape[0] <= FEW else [values]


def apart(values: jax.Array) -> list[jax.Array]:
    """The entries of a vector."""
    return [values[k] for k in range(values.shape[0])]


def concatenate_pieces(pieces: Sequence[jax.Array]) -> jax.Array:
    """Entries and vectors in one vector."""
    return jnp.concatenate([jnp.atleast_1d(piece) for piece in pieces])
