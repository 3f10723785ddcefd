"""The evidence. Every site is t̃ᵢ(x) = sᵢ exp(etaᵢ·T(x)) and carries log sᵢ (thesis 3.39)."""

from typing import Any

import jax
import jax.numpy as jnp

from cavity.families.base import Family
from cavity.inference.problem import Problem


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
