"""q in one family; every site acts on all of it, or on one part of a product family."""

from dataclasses import dataclass
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

    def local(self, q: jax.Array, scope: Any, index: jax.Array) -> jax.Array:
        part = q if scope is None else q[scope[0] : scope[1]]
        return jnp.broadcast_to(part, (*index.shape, *part.shape))

    def absorb(self, q: jax.Array, scope: Any, index: jax.Array, change: jax.Array) -> jax.Array:
        total = jnp.sum(change, axis=0)
        return q + total if scope is None else q.at[scope[0] : scope[1]].add(total)

    def is_proper(self, q: jax.Array) -> jax.Array:
        return self.family.is_proper(q)

    def log_partition(self, q: jax.Array) -> jax.Array:
        return self.family.log_partition(q)

    def views(self, q: jax.Array) -> dict[str, jax.Array]:
        return {"mean": self.family.mean(q), "covariance": self.family.covariance(q), **self.family.views(q)}

    def sample(self, key: jax.Array, q: jax.Array, draws: int) -> jax.Array:
        return self.family.sample(key, q, (draws,))

    def log_density(self, q: jax.Array, x: Any) -> jax.Array:
        return self.family.log_density(q, x)
