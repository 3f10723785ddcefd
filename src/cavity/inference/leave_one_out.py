"""Leave-one-out predictions from the cavities: log p(yᵢ | all data but i) ≈ log ∫ tᵢ(x) cavityᵢ(x) dx."""

from typing import Any

import jax
import jax.numpy as jnp

from cavity._core.precision import float64
from cavity.inference.problem import Problem, SiteGroup
from cavity.moments.base import UNSURE


@float64
@jax.jit
def leave_one_out(
    problem: Problem, q: Any, sites: tuple[jax.Array, ...], moments: tuple[Any, ...]
) -> tuple[jax.Array, ...]:
    """One number per site, by group. The whole site of one factor is deleted, whatever the method's power was.

    A factor of multiplicity 0 is not in q, so nothing of it is deleted. −inf where the cavity is improper, nan where
    the factor's moments are not known well enough. moments: what their strategies have learned, by group.
    """
    rows = zip(problem.groups, sites, moments, strict=True)
    return tuple(group_log_z(problem, q, group, own, learned) for group, own, learned in rows)


def group_log_z(problem: Problem, q: Any, group: SiteGroup, sites: jax.Array, learned: Any) -> jax.Array:
    """log Z of every site of a group under its cavity."""
    local = problem.posterior.marginals(problem.prior, q, group.scope, jnp.arange(group.size))
    cavity = local - jnp.minimum(group.copies, 1.0)[:, None] * sites
    proper = group.family.is_proper(cavity)

    def log_z(cavity: jax.Array, data: Any, number: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(0), number)
        tilted, info = group.moments.tilt(learned, group.factor, group.family, cavity, data, 1.0, key)
        return jnp.where(info.get(UNSURE, False), jnp.nan, tilted.log_z)

    safe = jnp.where(proper[:, None], cavity, local)
    found = jax.vmap(log_z)(safe, jax.tree.map(jnp.asarray, group.data), jnp.arange(group.size))
    return jnp.where(proper, found, -jnp.inf)
