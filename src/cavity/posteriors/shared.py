"""q in one family; every site acts on all of it, or on one part of a product family."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from cavity.families.base import Family
from cavity.posteriors.base import Posterior


@dataclass(frozen=True)
class Shared(Posterior):
    """q is one natural parameter vector. A group's scope is None, or the (start, stop) of its part of the vector."""

    family: Family

    def refresh(self, prior: Any, groups: tuple[tuple[Any, jax.Array], ...]) -> jax.Array:
        q = jnp.asarray(prior, float)
        for scope, sites in groups:
            q = self.absorb(q, scope, jnp.arange(sites.shape[0]), sites)
        return q

    def marginals(self, prior: Any, q: jax.Array, scope: Any, index: jax.Array) -> jax.Array:
        return self.local(q, scope, index)

    def local(self, window: jax.Array, scope: Any, place: jax.Array) -> jax.Array:
        part = window if scope is None else window[scope[0] : scope[1]]
        return jnp.broadcast_to(part, (*place.shape, *part.shape))

    def absorb(self, window: jax.Array, scope: Any, place: jax.Array, change: jax.Array) -> jax.Array:
        total = jnp.sum(change, axis=0)
        return window + total if scope is None else window.at[scope[0] : scope[1]].add(total)

    def is_proper(self, q: jax.Array) -> jax.Array:
        return self.family.is_proper(q)

    def log_partition(self, q: jax.Array) -> jax.Array:
        return self.family.log_partition(q)

    def views(self, prior: Any, q: jax.Array) -> dict[str, Callable[[], jax.Array]]:
        own = {name: partial(lambda value: value, value) for name, value in self.family.views(q).items()}
        return {"mean": lambda: self.family.mean(q), "covariance": lambda: self.family.covariance(q), **own}

    def sample(self, key: jax.Array, prior: Any, q: jax.Array, draws: int) -> jax.Array:
        return self.family.sample(key, q, (draws,))

    def log_density(self, prior: Any, q: jax.Array, x: Any) -> jax.Array:
        return self.family.log_density(q, x)
