"""Which statistics of a tilted distribution a family matches, and what they are for the cavity itself."""

from typing import Any

import jax
import jax.numpy as jnp

from cavity.families.base import Family
from cavity.families.dirichlet import Dirichlet


def matches_squares(family: Family) -> bool:
    """Whether the family matches (E[w], E[w²]) in place of its expected statistics."""
    return isinstance(family, Dirichlet) and family.match == "mean_square"


def matched_statistics(family: Family, x: Any) -> jax.Array:
    """The functions of x whose tilted expectations `family.message` takes."""
    return jnp.concatenate([x, x**2], axis=-1) if matches_squares(family) else family.statistics(x)


def cavity_statistics(family: Family, cavity: jax.Array) -> jax.Array:
    """Their expectations under the cavity: the tilted statistics of a constant factor."""
    if not matches_squares(family):
        return family.moments(cavity)
    total = jnp.sum(cavity, axis=-1, keepdims=True)
    mean = cavity / total
    return jnp.concatenate([mean, mean * (cavity + 1.0) / (total + 1.0)], axis=-1)
