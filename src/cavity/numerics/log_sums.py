"""log Σ exp over few terms, written out term by term.

A sum over an axis of length 2 keeps a compiler from doing many sites at once; two named terms do not. Up to `FEW` terms
are written out, more are left to the library.
"""

from collections.abc import Sequence
from functools import reduce

import jax
import jax.numpy as jnp

#: terms that are written out
FEW = 16


def log_sum(terms: Sequence[jax.Array]) -> jax.Array:
    """log Σ exp(term), elementwise over equal shapes; −inf where every term is."""
    if len(terms) == 1:
        return terms[0]
    top = reduce(jnp.maximum, terms)
    possible = top > -jnp.inf
    scale = jnp.where(possible, top, 0.0)
    total = reduce(jnp.add, [jnp.exp(term - scale) for term in terms])
    return jnp.where(possible, scale + jnp.log(jnp.where(possible, total, 1.0)), -jnp.inf)


def log_sum_last(values: jax.Array) -> jax.Array:
    """log Σ exp over the last axis."""
    if values.shape[-1] > FEW:
        return jax.nn.logsumexp(values, axis=-1)
    return log_sum([values[..., k] for k in range(values.shape[-1])])
