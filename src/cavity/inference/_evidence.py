"""The log evidence of a state, as a sum of terms of its own size, and what it would be without single sites.

    log ∫ prior ∏ t̃ᵢ (3.40)  =  A(q) − A(prior) + Σ multiplicityᵢ log sᵢ
                             =  Σ multiplicityᵢ E[log t̃ᵢ] − KL(q ‖ prior)    under q.

Log partitions and log scales are of the size (mean / sd)² and cancel; no term of the second form is larger than the
evidence asks for. At a fixed point it is stationary in q, in the cavities and in the sites, so that rounding enters
squared.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity._core.tiers import tiered_jit
from cavity.families.base import Family
from cavity.inference._visit import (
    Report,
    State,
    deletion,
    gather,
    is_settled,
    keeps_visits,
    propose,
    scaled_at_visits,
    weighted_sites,
)
from cavity.inference.problem import Problem
from cavity.inference.update_rule import UpdateRule

#: mismatch below which scales measured at q and those of the last visits agree to its square; after a single pass,
#: whose evidence is that of the visits whether or not it ends at a fixed point, that must be within rounding
NEAR, NEAR_IN_ONE_PASS = 1e-3, 1e-7


def log_mean_of_site(
    method: UpdateRule, family: Family, cavity: jax.Array, log_z: jax.Array, site: jax.Array, local: jax.Array
) -> jax.Array:
    """E[log t̃ᵢ] under q, the scaled site: (log Zᵢ + KL(qᵢ ‖ cavity) − KL(qᵢ ‖ cavity · site^power)) / power.

    That is log sᵢ + E[ηᵢ·T(x)] without the log partitions. The last term is 0 where the cavity is q without the site,
    as it is when a state is measured.
    """
    total = log_z + family.kl(local, cavity)
    if method.projection.relaxes_cavity or method.single_pass:
        total = total - family.kl(local, cavity + method.power * site)
    return total / method.power


def log_means_of_visits(problem: Problem, method: UpdateRule, state: State, number: int) -> jax.Array:
    """E[log t̃ᵢ] under q of the sites of a group with the scales of their last visits."""
    group, sites = problem.groups[number], state.sites[number]
    seen = problem.posterior.marginals(problem.prior, state.q, group.scope, jnp.arange(group.size))
    means = state.log_scales[number] + group.family.expected_exponent(sites, seen)
    if keeps_visits(method, group):
        cavity, log_z = state.visited[number][:, :-1], state.visited[number][:, -1]
        found = log_mean_of_site(method, group.family, cavity, log_z, sites, seen)
        means = jnp.where(jnp.isfinite(found), found, means)
    return means


def weighted_sum(problem: Problem, number: int, means: jax.Array) -> jax.Array:
    """Σ multiplicityᵢ meanᵢ over the sites of a group that count."""
    weights = problem.groups[number].multiplicities
    return jnp.sum(jnp.where(weights > 0, weights * means, 0.0))


def evidence_of_visits(problem: Problem, method: UpdateRule, state: State) -> jax.Array:
    """The log evidence with the scales of the last visits; of a Gaussian, Gamma or other family with a divergence."""
    found = (
        weighted_sum(problem, number, log_means_of_visits(problem, method, state, number))
        for number in range(len(problem.groups))
    )
    divergence = problem.posterior.divergence(problem.prior, state.q)
    assert divergence is not None
    return sum(found, problem.posterior.log_mass(problem.prior)) - divergence


def conclude(problem: Problem, method: UpdateRule, state: State, report: Report) -> tuple[State, jax.Array]:
    """The state with the scales it ends with, and its log evidence, of which every site has a share log sᵢ.

    After one pass from flat sites it is Σ log Zᵢ, with the cavities of the visits; where EP is exact, which the
    measurement then shows, q has the cavities of a fixed point.
    """
    posterior, scales, evidence = problem.posterior, list(report.log_scales), jnp.zeros(())
    near = is_settled(report.mismatch, NEAR_IN_ONE_PASS if method.single_pass else NEAR)
    divergence = posterior.divergence(problem.prior, state.q)
    for number, group in enumerate(problem.groups):
        if scaled_at_visits(method, group):
            known = ~jnp.isnan(state.log_scales[number])  # of given sites there is no scale before the first visit
            scales[number] = jnp.where(known, state.log_scales[number], scales[number])
        means = scales[number]
        if divergence is not None:
            # Far from a fixed point, and where nothing could be measured, sites have the scales of their last visits.
            scaled = state._replace(log_scales=tuple(scales))
            visited = log_means_of_visits(problem, method, scaled, number)
            measured = ~(report.improper[number] | report.nonfinite[number] | report.unsure[number])
            means = jnp.where(measured & near, report.log_means[number], visited)
        evidence = evidence + weighted_sum(problem, number, means)
    if divergence is None:
        evidence += posterior.log_partition(state.q) - posterior.log_partition(problem.prior)
    else:
        evidence += posterior.log_mass(problem.prior) - divergence
    return state._replace(log_scales=tuple(scales)), evidence


@float64
@tiered_jit
def leave_one_out(
    problem: Problem, q: Any, sites: tuple[jax.Array, ...], moments: tuple[Any, ...]
) -> tuple[jax.Array, ...]:
    """log p(yᵢ | all data but i) ≈ log ∫ tᵢ(x) cavityᵢ(x) dx, one number per site, by group.

    The whole site is deleted. −inf where the cavity is improper, nan where moments, as learned, are unsure.
    """
    rule, answers, posterior = UpdateRule(), [], problem.posterior
    q = posterior.restored(problem.prior, q, weighted_sites(problem, sites))
    for group, own, learned in zip(problem.groups, sites, moments, strict=True):
        rows = gather(group, own, jnp.zeros((group.size, rule.projection.memory)), np.arange(group.size))
        local, cavities = posterior.cavities(problem.prior, q, group.scope, rows.which, deletion(rule, rows))
        trial = propose(rule, group, learned, local, rows, jax.random.key(0), cavities)
        known = jnp.where(trial.unsure, jnp.nan, trial.log_z)
        answers.append(jnp.where(group.family.is_proper(cavities), known, -jnp.inf))
    return tuple(answers)
