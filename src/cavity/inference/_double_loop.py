"""The double loop: a minimisation of EP's energy that cannot diverge (Heskes & Zoeter; Opper & Winther).

With sites η, power p, q(η) = prior × sites and surrogate marginals γᵢ, EP's energy is

    E(γ) = max_η [ −A(q(η)) − Σ (wᵢ/p) log Z̃ᵢ(γᵢ − p ηᵢ) ] + Σ (wᵢ/p) A(γᵢ),    log Z̃(c) = log ∫ t^p exp(c·T).

The inner problem is concave in η and is solved by Newton's method with a line search. The outer step γᵢ ← the marginal
of q(η) never raises E, because A and log Z̃ are convex (CCCP). At a fixed point γ, q and all tilted moments agree: it is
one of EP, and E = −log evidence. Sites may be negative. Near the end the outer steps creep, so Newton's method on the
equations of EP is tried now and then.

The maximum over η may lie where a cavity γ − p η stops being proper, because the factor alone keeps log Z̃ finite there.
Newton's steps then end at the border, anywhere along it. Such a problem is solved again from flat sites with the
divergence of the cavity from γ added, Σ (wᵢ/p) ρ [A(c) − A(γ) − ∇A(γ)·(c − γ)], for ever smaller ρ.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.tiers import tiered_jit
from cavity.families.base import Family
from cavity.inference._loop import refresh
from cavity.inference._newton import Look, equations, look, marginals_of, natural_steps
from cavity.inference.problem import Problem

#: candidates of an inner minimisation, its shortest share of a step, the decrease of its value at which it is done
TURNS, SHORTEST, SMALLEST = 150, 1e-9, 1e-12
#: the decrease at which it is done for a rho that is not the last
ROUGH = 1e-5
#: share of sites kept while looking for a start with proper cavities, and how often
SHRINK, SHRINKINGS = 0.7, 30
#: an inner step is taken if it gives this share of the decrease its slope promises
SUFFICIENT = 1e-4
#: a step shorter than this has met the border; ρ to begin with, its ratio from one to the next, and the last
STUCK, FIRST, RATIO, LAST = 1e-3, 0.1, 0.1, 1e-8


class Point(NamedTuple):
    """Sites, their q, what the tilted distributions look like, and the inner value Φ = A(q) + Σ (w/p) log Z̃."""

    sites: tuple[jax.Array, ...]
    q: Any
    looks: tuple[Look, ...]
    value: jax.Array


def at(
    problem: Problem,
    power: float,
    gamma: tuple[jax.Array, ...],
    sites: tuple[jax.Array, ...],
    key: Any,
    rho: jax.Array | float = 0.0,
) -> Point:
    """The inner problem at `sites`; an infinite value where q or a cavity is improper."""
    q = refresh(problem, sites)
    marginals = marginals_of(problem, q)
    value = problem.posterior.log_partition(q)
    feasible, looks = problem.posterior.is_valid(q), []
    for number, (group, own, seen, surrogate) in enumerate(zip(problem.groups, sites, marginals, gamma, strict=True)):
        cavities = surrogate - power * own
        found = look(group, number, seen, cavities, power, key)
        away, stiffness, divergence = jax.vmap(partial(drawn_back, group.family))(seen, cavities, surrogate)
        found = found._replace(
            gap=found.gap + rho * away,
            spread=found.spread + rho * stiffness,
            log_partition=found.log_partition + rho * divergence,
        )
        held = group.multiplicities > 0
        value = value + jnp.sum(jnp.where(held, group.multiplicities * found.log_partition, 0.0)) / power
        feasible = feasible & jnp.all(found.usable)
        looks.append(found)
    return Point(sites, q, tuple(looks), jnp.where(feasible & jnp.isfinite(value), value, jnp.inf))


def drawn_back(
    family: Family, marginal: jax.Array, cavity: jax.Array, surrogate: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What the divergence of a cavity from its surrogate marginal adds to gap, spread and value; zeros if improper."""
    cavity = jnp.where(family.is_proper(cavity), cavity, surrogate)

    def moments(x: jax.Array) -> jax.Array:
        return family.local_moments(marginal, cavity + family.from_local(marginal, x))

    origin = jnp.zeros(family.local_size)
    begun, slope = jax.jvp(family.log_partition, (surrogate,), (cavity - surrogate,))
    divergence = family.log_partition(cavity) - begun - slope
    away = moments(origin) - family.local_moments(marginal, surrogate)
    return away, jax.jacfwd(moments)(origin), divergence


def inner_step(problem: Problem, power: float, now: Point) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """Newton's step for Φ and the decrease its slope promises: Φ's gradient is −w (μ̂ − μ(q)) in site i."""
    marginals = marginals_of(problem, now.q)
    rows = zip(problem.groups, now.looks, strict=True)
    parts = tuple(equations(group, seen, power, surrogate=True) for group, seen in rows)
    steps = problem.posterior.solve(problem.prior, now.q, parts)
    promised = sum(
        jnp.sum(jnp.where(part.multiplicity[:, None] > 0, part.multiplicity[:, None] * part.right * step, 0.0))
        for part, step in zip(parts, steps, strict=True)
    )
    return natural_steps(problem, marginals, steps), jnp.asarray(promised)


class Inner(NamedTuple):
    """An inner minimisation on its way: the best point, the step tried from it and what its slope promises.

    share: of the step; before a feasible point is found, of the sites it begins with. rounds: steps taken.
    rho: the weight of the divergence of the cavities from γ.
    """

    sites: tuple[jax.Array, ...]
    marginals: tuple[jax.Array, ...]
    value: jax.Array
    steps: tuple[jax.Array, ...]
    promised: jax.Array
    share: jax.Array
    rounds: jax.Array
    turns: jax.Array
    rho: jax.Array
    done: jax.Array


def begin_inner(sites: tuple[jax.Array, ...], gamma: tuple[jax.Array, ...]) -> Inner:
    """Before the first turn, from the given sites."""
    number, zero, one = np.zeros((), int), np.zeros(()), np.ones(())  # of NumPy: there is nothing to compile yet
    none: Any = (np.full((), np.inf), sites, zero, one, number, number, zero, np.zeros((), bool))
    return Inner(sites, gamma, *none)


def minimise(
    problem: Problem, power: float, gamma: tuple[jax.Array, ...], now: Inner, key: Any, last_turn: jax.Array
) -> Inner:
    """The inner problem solved for the surrogate marginals γ, or as far as the last turn allows.

    A start whose cavities γ − p η are improper is shrunk: with no sites at all they are γ. Each turn of the loop looks
    at one candidate, so that the program holds q's algebra once.
    """

    def turn(now: Inner) -> Inner:
        searching = now.rounds == 0
        scale = jnp.where(searching & (now.turns > SHRINKINGS), 0.0, now.share)
        candidate = jax.tree.map(lambda own, step: jnp.where(searching, 0.0, own) + scale * step, now.sites, now.steps)
        point = at(problem, power, gamma, candidate, key, now.rho)
        target = jnp.where(searching, jnp.inf, now.value - SUFFICIENT * now.share * now.promised)
        enough = jnp.where(searching, jnp.isfinite(point.value), point.value <= target)

        def taken() -> Inner:
            steps, promised = inner_step(problem, power, point)
            between = now.rho > LAST
            little = jnp.where(between, ROUGH, SMALLEST) * (1.0 + jnp.abs(point.value))
            settled = ~searching & (now.value - point.value <= little)
            marginals, one = marginals_of(problem, point.q), jnp.ones(())
            # The next rho is another problem: its value at the same sites is found by a step of no length.
            eased = settled & between
            return Inner(
                sites=point.sites,
                marginals=marginals,
                value=jnp.where(eased, jnp.inf, point.value),
                steps=tuple(jnp.where(eased, 0.0, step) for step in steps),
                promised=jnp.where(eased, 0.0, promised),
                share=one,
                rounds=now.rounds + 1,
                turns=now.turns + 1,
                rho=jnp.where(eased, RATIO * now.rho, now.rho),
                done=settled & ~between,
            )

        def shortened() -> Inner:
            share = now.share * jnp.where(searching, SHRINK, 0.5)
            met = ~searching & (share < STUCK) & (now.rho == 0.0)
            return now._replace(
                sites=tuple(jnp.where(met, 0.0, own) for own in now.sites),
                steps=tuple(jnp.where(met, 0.0, step) for step in now.steps),
                value=jnp.where(met, jnp.inf, now.value),
                promised=jnp.where(met, 0.0, now.promised),
                share=jnp.where(met, 1.0, share),
                rho=jnp.where(met, FIRST, now.rho),
                turns=now.turns + 1,
                done=~searching & (share < SHORTEST),
            )

        return jax.lax.cond(enough, taken, shortened)

    def going(now: Inner) -> jax.Array:
        return ~now.done & (now.turns < last_turn)

    return jax.lax.while_loop(going, turn, now)


#: compiled; the host goes on from where it ended
compiled_turns = tiered_jit(minimise, static_argnames=("power",))
