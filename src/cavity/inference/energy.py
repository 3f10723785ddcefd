"""The energy whose stationary points are the fixed points of EP and Power EP.

A state has sites etaᵢ (weights wᵢ, their multiplicities) and marginals gammaᵢ, one per site. With q = prior ∏ sites,
the power p, and log Z̃ᵢ(c) = log ∫ tᵢ^p exp(c·T) = log Zᵢ + A(c) for the cavity c = gammaᵢ − p etaᵢ,

    E(eta, gamma) = A(prior) − A(q) − Σ (wᵢ/p) [log Z̃ᵢ(gammaᵢ − p etaᵢ) − A(gammaᵢ)],

    ∂E/∂etaᵢ = wᵢ (μ_tilted − μ_q),        ∂E/∂gammaᵢ = (wᵢ/p) (μ(gammaᵢ) − μ_tilted),

with μ expected statistics: of the tilted distribution tᵢ^p × cavity, of q's marginal, of gammaᵢ. Where gamma are q's
own marginals, E = −log evidence (3.40), and both gradients vanish exactly when every tilted distribution has q's
moments.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cavity._core.precision import float64
from cavity._core.tiers import tiered_jit
from cavity.inference._loop import MEASURE_BATCH, refresh
from cavity.inference._visit import SiteBatch, gather, propose, site_key
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.update_rule import UpdateRule

__all__ = ["Energy", "energy"]


class Energy(NamedTuple):
    """The energy of a state and its slopes, by group: tuples of arrays with one row per site.

    Attributes:
        value: E, −log evidence where the marginals are q's own. nan where a cavity is improper.
        gradient_sites: ∂E/∂etaᵢ; of a categorical family in its log weights. nan where the cavity is improper.
        gradient_marginals: ∂E/∂gammaᵢ, in the same way.
        norm: the largest wᵢ √(2 KL(q's marginal ‖ tilted match)) over all sites. For a small gradient g of a site this
            is its length √(gᵀ C⁻¹ g) in units of the spread of the statistics, C their covariance under q's marginal;
            for a Gaussian √((Δmean/sd)² + ½ (Δ log variance)²). Infinite where a cavity is improper.

    Examples:
        At a fixed point of EP the energy is −log evidence and its slopes vanish:

        >>> import cavity as cv
        >>> solution = cv.infer(cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0]), cv.EP())
        >>> energy = solution.energy()
        >>> print(energy.value.round(3), solution.log_evidence.round(3), energy.norm < 1e-6)
        12.257 -12.257 True
    """

    value: Any
    gradient_sites: Any
    gradient_marginals: Any
    norm: Any


class GroupSlopes(NamedTuple):
    """What one group adds to KL(q ‖ prior) in the energy, and its slopes, one row per site.

    exponents: wᵢ E[etaᵢ·T] under q's marginal, which turn KL(q ‖ prior) into A(prior) − A(q).
    """

    value: jax.Array
    exponents: jax.Array
    sites: jax.Array
    marginals: jax.Array
    norm: jax.Array


@float64
@tiered_jit(static_argnames=("power",))
def energy(
    problem: Problem,
    sites: tuple[jax.Array, ...],
    marginals: tuple[jax.Array, ...] | None = None,
    power: float = 1.0,
    moments: tuple[Any, ...] | None = None,
) -> Energy:
    """E and its gradients at given sites. A function of arrays, which may be differentiated in reverse mode too.

    Args:
        problem: whose sites they are.
        sites: natural parameters, one array per group, such as `solution.sites`.
        marginals: gammaᵢ, one array per group; q's own by default.
        power: of the factors, the method's.
        moments: what the moments strategies have learned, by group; must be given where they learn.

    Returns:
        The energy, whose value is −log evidence at a fixed point.

    Examples:
        >>> import cavity as cv
        >>> from cavity.inference.energy import energy
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> solution = cv.infer(problem, cv.EP())
        >>> print(energy(problem, solution.sites).value.round(3))
        12.257
    """
    q = refresh(problem, sites)
    found = []
    for number, (group, own) in enumerate(zip(problem.groups, sites, strict=True)):
        seen = problem.posterior.marginals(problem.prior, q, group.scope, jnp.arange(group.size))
        gamma = seen if marginals is None else jnp.asarray(marginals[number])
        key = site_key(jax.random.key(0), group.moments.random, number)
        learned = group.moments.init(group) if moments is None else moments[number]
        found.append(group_slopes(UpdateRule(power=power), group, learned, jnp.asarray(own), seen, gamma, key))
    posterior, value = problem.posterior, sum((jnp.sum(part.value) for part in found), jnp.zeros(()))
    divergence = posterior.divergence(problem.prior, q)
    if divergence is None:
        value += posterior.log_partition(problem.prior) - posterior.log_partition(q)
        value += sum(jnp.sum(part.exponents) for part in found)
    else:
        value += divergence - posterior.log_mass(problem.prior)
    norm = jnp.max(jnp.concatenate([part.norm for part in found]))
    return Energy(value, tuple(part.sites for part in found), tuple(part.marginals for part in found), norm)


def group_slopes(
    method: UpdateRule,
    group: SiteGroup,
    learned: Any,
    sites: jax.Array,
    seen: jax.Array,
    gamma: jax.Array,
    key: jax.Array,
) -> GroupSlopes:
    """one row per site; a factor of multiplicity 0 adds nothing and has no slope."""
    family, power = group.family, method.power

    def one(entry: tuple[SiteBatch, jax.Array, jax.Array]) -> GroupSlopes:
        rows, seen, gamma = entry
        block = jax.tree.map(lambda leaf: leaf[None], rows)
        trial = jax.tree.map(lambda leaf: leaf[0], propose(method, group, learned, gamma[None], block, key))
        matched = trial.cavity + trial.message
        tilted, multiplicity = family.moments(matched), rows.multiplicity
        if family.cavities_proper:
            log_ratio = trial.log_z + family.log_partition(trial.cavity) - family.log_partition(gamma)
            log_ratio = log_ratio + power * family.expected_exponent(rows.site, seen)
        else:
            # Where gamma are q's own marginals the last term is 0, and none is larger than the energy asks for.
            apart = family.expected_exponent(rows.site, gamma) - family.expected_exponent(rows.site, seen)
            log_ratio = trial.log_z + family.kl(gamma, trial.cavity) - power * apart
        exponent = multiplicity * family.expected_exponent(rows.site, seen)
        length = jnp.sqrt(2.0 * jnp.maximum(family.kl(seen, matched), 0.0))

        def where_accepted(slope: jax.Array, otherwise: float) -> jax.Array:
            return jnp.where(multiplicity == 0, 0.0, jnp.where(trial.accepted, slope, otherwise))

        return GroupSlopes(
            where_accepted(-multiplicity / power * log_ratio, jnp.nan),
            where_accepted(exponent, jnp.nan),
            where_accepted(multiplicity * (tilted - family.moments(seen)), jnp.nan),
            where_accepted(multiplicity / power * (family.moments(gamma) - tilted), jnp.nan),
            where_accepted(multiplicity * length, jnp.inf),
        )

    rows = gather(group, sites, jnp.zeros((group.size, 0)), jnp.arange(group.size))
    return jax.lax.map(one, (rows, seen, gamma), batch_size=MEASURE_BATCH)
