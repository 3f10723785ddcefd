"""The evidence, where every site is t̃ᵢ(x) = sᵢ exp(etaᵢ·T(x)) and carries log sᵢ (thesis 3.39), and leave-one-out."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from cavity._core.precision import float64
from cavity.families.base import Family
from cavity.inference.problem import Problem
from cavity.moments.base import UNSURE


def log_scale(family: Family, cavity: jax.Array, log_z: jax.Array, site: jax.Array, power: float) -> jax.Array:
    """log sᵢ = (log Zᵢ + A(cavity) − A(cavity + power·site)) / power: the scaled site has the factor's own integral.

    For the matched site and power 1 this is log Z q(x)/q_new(x) taken apart (3.39, 3.59, 3.107).
    """
    return (log_z + family.log_partition(cavity) - family.log_partition(cavity + power * site)) / power


def log_evidence(problem: Problem, q: Any, log_scales: tuple[jax.Array, ...]) -> jax.Array:
    """log ∫ prior ∏ t̃ᵢ (3.40) = A(q) − A(prior) + Σ multiplicityᵢ log sᵢ. After one pass from flat sites: Σ log Zᵢ."""
    total = problem.posterior.log_partition(q) - problem.posterior.log_partition(problem.prior)
    for group, scales in zip(problem.groups, log_scales, strict=True):
        total = total + jnp.sum(group.copies * scales)
    return total


@float64
@jax.jit
def leave_one_out(
    problem: Problem, q: Any, sites: tuple[jax.Array, ...], moments: tuple[Any, ...]
) -> tuple[jax.Array, ...]:
    """log p(yᵢ | all data but i) ≈ log ∫ tᵢ(x) cavityᵢ(x) dx, one number per site, by group.

    The whole site of one factor is deleted, whatever the method's power was. A factor of multiplicity 0 is not in q, so
    nothing of it is deleted. −inf where the cavity is improper, nan where the factor's moments are not known well
    enough. moments: what their strategies have learned, by group.
    """
    answers = []
    for group, own, learned in zip(problem.groups, sites, moments, strict=True):
        local = problem.posterior.marginals(problem.prior, q, group.scope, jnp.arange(group.size))
        cavity = local - jnp.minimum(group.copies, 1.0)[:, None] * own
        proper = group.family.is_proper(cavity)
        strategy = partial(group.moments.tilt, learned, group.factor, group.family, power=1.0)

        def log_z(strategy: Any, cavity: jax.Array, data: Any, number: jax.Array) -> jax.Array:
            tilted, info = strategy(cavity, data, key=jax.random.fold_in(jax.random.key(0), number))
            return jnp.where(info.get(UNSURE, False), jnp.nan, tilted.log_z)

        safe, data = jnp.where(proper[:, None], cavity, local), jax.tree.map(jnp.asarray, group.data)
        found = jax.vmap(partial(log_z, strategy))(safe, data, jnp.arange(group.size))
        answers.append(jnp.where(proper, found, -jnp.inf))
    return tuple(answers)
