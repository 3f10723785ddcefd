"""Newton's method on the equations of EP: the moments of q and of every tilted distribution agree.

In local coordinates (families.base), with μᵢ(q) the moments of the marginal that site i sees, μ̂ᵢ those of the tilted
distribution of the cavity qᵢ − p ηᵢ (p the power), F their covariances under q and Ĥᵢ the one under the tilted
distribution, a change x of the sites moves

    μᵢ by Σⱼ Fᵢⱼ wⱼ xⱼ,        μ̂ᵢ by Ĥᵢ (Fᵢᵢ⁻¹ Σⱼ Fᵢⱼ wⱼ xⱼ − p xᵢ),

and both agree to first order when (I − Ĥᵢ Fᵢᵢ⁻¹) Σⱼ Fᵢⱼ wⱼ xⱼ + p Ĥᵢ xᵢ = μ̂ᵢ − μᵢ. Fixed points are those of EP
whatever the way there: where sweeps oscillate or creep, a few of these steps often finish.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.tiers import tiered_jit
from cavity.inference._loop import Start, blank_state, measure_state
from cavity.inference._visit import State, site_key
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.update_rule import UpdateRule
from cavity.moments.base import UNSURE
from cavity.posteriors.base import Equations

#: step of the differences that give Ĥ, in local coordinates of the cavity
STEP = 1e-4
#: steps of a polish, halvings of one, and the share by which a step must lower the mismatch
ROUNDS, HALVINGS, LEAST = 20, 6, 1e-3


class Look(NamedTuple):
    """The tilted distributions of a group, in local coordinates at the marginals of q.

    gap: μ̂ − μ. spread: Ĥ. fisher: Fᵢᵢ. log_partition: log ∫ t^p exp(cavity·T). usable: whether all are numbers.
    """

    gap: jax.Array
    spread: jax.Array
    fisher: jax.Array
    log_partition: jax.Array
    usable: jax.Array


def look(
    group: SiteGroup, number: int, marginals: jax.Array, cavities: jax.Array, power: float, key: jax.Array
) -> Look:
    """Tilted moments and their covariance for every site of a group; Ĥ by differences of the moments.

    Of moments that do not learn: the others cannot be differentiated between sweeps.
    """
    family, size = group.family, group.family.local_size
    group_key = site_key(key, group.moments.random, number)

    def one(marginal: jax.Array, cavity: jax.Array, data: Any, which: jax.Array) -> Look:
        own_key = site_key(group_key, group.moments.random, which)
        proper = family.is_proper(cavity)
        cavity = jnp.where(proper, cavity, marginal)

        def tilted(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            moved = cavity + family.from_local(cavity, x)
            found, info = group.moments.tilt((), group.factor, family, moved, data, power, own_key)
            unsure = info.get(UNSURE, jnp.zeros((), bool))
            return family.local_moments(marginal, moved + found.site), found.log_z, unsure

        steps = STEP * jnp.concatenate([jnp.zeros((1, size)), jnp.eye(size), -jnp.eye(size)])
        moments, log_z, unsure = jax.vmap(tilted)(steps)
        slope = (moments[1 : size + 1] - moments[size + 1 :]).T / (2.0 * STEP)
        # From steps in the cavity's coordinates to steps in q's.
        change = jax.vmap(lambda x: family.to_local(cavity, family.from_local(marginal, x)))(jnp.eye(size)).T
        spread = slope @ change
        fisher = jax.jacfwd(lambda x: family.local_moments(marginal, marginal + family.from_local(marginal, x)))(
            jnp.zeros(size)
        )
        gap = moments[0] - family.local_moments(marginal, marginal)
        usable = proper & jnp.all(jnp.isfinite(spread)) & jnp.all(jnp.isfinite(gap)) & jnp.isfinite(log_z[0])
        usable = usable & ~jnp.any(unsure)
        partition = log_z[0] + family.log_partition(cavity)
        return Look(gap, 0.5 * (spread + spread.T), fisher, partition, usable)

    data = jax.tree.map(jnp.asarray, group.data)
    found = jax.vmap(one)(marginals, cavities, data, jnp.arange(group.size))
    return found._replace(usable=found.usable | (group.multiplicities == 0))


def equations(group: SiteGroup, seen: Look, power: float, *, surrogate: bool) -> Equations:
    """The linear equations of a Newton step. surrogate: the cavity does not follow q (the inner steps)."""
    eye = jnp.broadcast_to(jnp.eye(group.family.local_size), seen.spread.shape)
    mixing = eye if surrogate else eye - seen.spread @ jnp.linalg.pinv(seen.fisher, hermitian=True)
    held = (group.multiplicities > 0)[:, None]
    return Equations(
        scope=group.scope,
        multiplicity=group.multiplicities,
        mixing=jnp.where(held[..., None], mixing, 0.0),
        own=jnp.where(held[..., None], power * seen.spread, eye),
        right=jnp.where(held, seen.gap, 0.0),
    )


def marginals_of(problem: Problem, q: Any) -> tuple[jax.Array, ...]:
    """What every site sees of q, by group."""
    seen = []
    for group in problem.groups:
        seen.append(problem.posterior.marginals(problem.prior, q, group.scope, jnp.arange(group.size)))
    return tuple(seen)


def natural_steps(
    problem: Problem, marginals: tuple[jax.Array, ...], steps: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """Changes of the sites from their local coordinates; none where they are not numbers."""
    changes = []
    for group, own, x in zip(problem.groups, marginals, steps, strict=True):
        change = group.family.from_local(own, x)
        changes.append(jnp.where(jnp.isfinite(change), change, 0.0))
    return tuple(changes)


def fixed_point_step(problem: Problem, method: UpdateRule, state: State, key: jax.Array) -> tuple[jax.Array, ...]:
    """The change of all sites that would make the moments agree if they were linear in it."""
    marginals = marginals_of(problem, state.q)
    parts = []
    for number, (group, own, seen) in enumerate(zip(problem.groups, state.sites, marginals, strict=True)):
        found = look(group, number, seen, seen - method.power * own, method.power, key)
        parts.append(equations(group, found, method.power, surrogate=False))
    return natural_steps(problem, marginals, problem.posterior.solve(problem.prior, state.q, tuple(parts)))


class Progress(NamedTuple):
    """A polish on its way.

    sites, merit, largest: the best so far, the root of its mean squared mismatch, and its largest one.
    steps, halvings: the step tried from there. tries: evaluations made; rounds: steps taken.
    """

    sites: tuple[jax.Array, ...]
    merit: jax.Array
    largest: jax.Array
    steps: tuple[jax.Array, ...]
    halvings: jax.Array
    rounds: jax.Array


def begin_polish(sites: tuple[jax.Array, ...]) -> Progress:
    """Before the first candidate, the sites themselves."""
    none = jax.tree.map(lambda own: np.zeros(own.shape), sites)
    infinite: Any = np.full((), np.inf)
    counts: Any = np.asarray(HALVINGS), np.zeros((), int)
    return Progress(sites, infinite, infinite, none, *counts)


def is_polishing(now: Progress, tol: float) -> jax.Array:
    """Whether the mismatch is above the tolerance and may still fall."""
    return (now.largest > tol) & (now.halvings <= HALVINGS) & (now.rounds <= ROUNDS)


@tiered_jit
def polish(problem: Problem, method: UpdateRule, now: Progress, key: jax.Array, candidates: jax.Array) -> Progress:
    """Newton steps while the mismatch falls; a step that does not lower it is halved. At most so many candidates.

    Each turn of the loop looks at one candidate, so that the program holds q's algebra once.
    """

    def turn(now: Progress) -> Progress:
        scale = 0.5**now.halvings
        sites = jax.tree.map(lambda own, step: own + scale * step, now.sites, now.steps)
        state = blank_state(problem, method, Start(sites))
        report = measure_state(problem, method, state, key)
        every = jnp.concatenate(report.mismatch)
        found = jnp.where(problem.posterior.is_valid(state.q), jnp.sqrt(jnp.mean(every**2)), jnp.inf)

        def taken() -> Progress:
            steps = fixed_point_step(problem, method, state, key)
            return Progress(state.sites, found, report.largest, steps, jnp.zeros((), int), now.rounds + 1)

        lower = found < (1.0 - LEAST) * now.merit
        return jax.lax.cond(lower, taken, partial(now._replace, halvings=now.halvings + 1))

    def going(carry: tuple[Progress, jax.Array]) -> jax.Array:
        return is_polishing(carry[0], method.tol) & (carry[1] > 0)

    return jax.lax.while_loop(going, lambda carry: (turn(carry[0]), carry[1] - 1), (now, candidates))[0]
