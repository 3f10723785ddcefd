"""A visit: what is proposed for a block of sites, and how far they go towards it.

The copies of a site go as far as their own answers to it allow, and all of them no further than q stays proper.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from cavity.inference._visit import ProposedUpdate, SiteBatch, deletion, propose, step_of
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.update_rule import MAX_HALVINGS, UpdateRule

#: so many copies of a site, or more, take the same share of a step that moves q by more than its spread.
MANY_COPIES = 4.0
#: rounds in which the copies of a site answer each other in a single pass
MAX_ROUNDS = 100


def propose_together(
    method: UpdateRule,
    group: SiteGroup,
    learned: Any,
    seen: tuple[jax.Array, jax.Array],
    rows: SiteBatch,
    key: jax.Array,
) -> ProposedUpdate:
    """As `propose`, with the share of the step that the m copies of a site can take together.

    A copy answers what the others say: with all of them at s its message is f(s), and they go to

        s + a (f(s) − s),    a = 1 / (1 − slope),

    the secant step to f(s) = s. The slope of f along the step, used where it is negative, as then the full step would
    overshoot, comes from a second integration after a trial step: nearly the full one where that moves q by little, the
    m-th part, or a quarter of it for more copies, where it moves q by its own spread or more. No copy goes further than
    that. In a single pass
    they go there at once, since no later visit would make up for what is left.

    seen: the marginals of q that the sites see, and their cavities.
    """
    local, cavity = seen
    trial = propose(method, group, learned, local, rows, key, cavity)
    if group.at_most_one:
        return trial
    if method.single_pass:
        return agreed_copies(method, group, learned, local, rows, key, trial)
    return with_share(method, group, learned, local, rows, key, trial)


def with_share(
    method: UpdateRule,
    group: SiteGroup,
    learned: Any,
    local: jax.Array,
    rows: SiteBatch,
    key: jax.Array,
    trial: ProposedUpdate,
) -> ProposedUpdate:
    """The trial of all copies at `rows.site`, of which q is `local`, with the share of the step they can take."""
    family, multiplicity = method.projection.adapt(group.family), rows.multiplicity
    step = trial.message / method.power - rows.site
    moved = family.distance(local, local + multiplicity[:, None] * step)
    held_back = jnp.clip(multiplicity, 1.0, MANY_COPIES) - 1.0
    cautious = 1.0 / (1.0 + held_back * jnp.where(moved < 1.0, moved, 1.0))  # improper: infinitely far
    taken = cautious[:, None] * step
    after, there = rows._replace(site=rows.site + taken), local + multiplicity[:, None] * taken
    possible = family.is_allowed(there)
    again = propose(method, group, learned, jnp.where(possible[:, None], there, local), after, key)
    answer = family.to_local(local, (again.message - trial.message) / method.power)
    taken = family.to_local(local, taken)
    length = jnp.sum(taken**2, axis=-1)
    slope = jnp.minimum(jnp.sum(answer * taken, axis=-1) / jnp.where(length > 0, length, 1.0), 0.0)
    known = again.accepted & possible
    share = jnp.where(known, jnp.minimum(cautious, 1.0 / (1.0 - slope)), 1.0 / (1.0 + held_back))
    return trial._replace(share=jnp.where(multiplicity > 1, share, 1.0))


def agreed_copies(
    method: UpdateRule,
    group: SiteGroup,
    learned: Any,
    local: jax.Array,
    rows: SiteBatch,
    key: jax.Array,
    trial: ProposedUpdate,
) -> ProposedUpdate:
    """The trial that the copies of a site come to when each answers the others: EP on the copies of a row alone.

    From one cavity for all of them their product would be that of an approximation far from where it was made.
    """
    family, several = method.projection.adapt(group.family), rows.multiplicity > 1

    def moved_to(site: jax.Array) -> tuple[jax.Array, SiteBatch]:
        return local + rows.multiplicity[:, None] * (site - rows.site), rows._replace(site=site)

    def step_from(site: jax.Array, trial: ProposedUpdate) -> jax.Array:
        assert trial.share is not None
        go = (several & trial.accepted)[:, None]
        return jnp.where(go, trial.share[:, None] * (trial.message / method.power - site), 0.0)

    def goes_on(carry: tuple[jax.Array, jax.Array, ProposedUpdate]) -> jax.Array:
        rounds, site, trial = carry
        now, _ = moved_to(site)
        gap = family.distance(now, now + rows.multiplicity[:, None] * step_from(site, trial))
        return (rounds < MAX_ROUNDS) & jnp.any(gap > method.tol)

    def again(carry: tuple[jax.Array, jax.Array, ProposedUpdate]) -> tuple[jax.Array, jax.Array, ProposedUpdate]:
        rounds, site, trial = carry
        site = site + step_from(site, trial)
        now, own = moved_to(site)
        new = propose(method, group, learned, now, own, key)
        return rounds + 1, site, with_share(method, group, learned, now, own, key, new)

    first = with_share(method, group, learned, local, rows, key, trial)
    _, site, last = jax.lax.while_loop(goes_on, again, (jnp.zeros((), int), rows.site, first))
    agreed = last._replace(message=method.power * site, share=jnp.ones_like(rows.multiplicity))
    whole = trial._replace(share=agreed.share)

    def chosen(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(several.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(chosen, agreed, whole)


def visit(
    problem: Problem,
    method: UpdateRule,
    group: SiteGroup,
    learned: Any,
    key: jax.Array,
    window: Any,
    block: tuple[jax.Array | None, SiteBatch],
) -> tuple[Any, tuple[ProposedUpdate, jax.Array]]:
    """Try one block of sites, at given places of a window (None: all of them), and absorb their change into it.

    Says which share of the step was taken. Only what the next visit needs is computed here; new sites, mismatch,
    scales and counts follow for all together.
    """
    places, rows = block
    seen = problem.posterior.local_cavities(window, group.scope, places, deletion(method, rows))
    trial = propose_together(method, group, learned, seen, rows, key)
    change = rows.multiplicity[:, None] * step_of(method, group, rows, trial)
    absorb = partial(problem.posterior.absorb, window, group.scope, places)
    # A single site of one copy moves q between two proper distributions: itself and the projected one.
    if rows.which.shape[0] == 1 and group.at_most_one and method.power == 1.0:
        return absorb(change), (trial, jnp.ones(()))
    share, changed = backtrack(problem, lambda share: absorb(share * change))
    return changed, (trial, share)


def backtrack(problem: Problem, absorbed: Callable[[jax.Array | float], Any]) -> tuple[jax.Array, Any]:
    """The longest share of a step that leaves the state `absorbed` makes of it proper, and that state.

    The step is halved until it does, and given up when even the shortest was too long: then the share is 0.
    """

    def too_long(attempted: tuple[jax.Array, Any]) -> jax.Array:
        return ~problem.posterior.is_valid(attempted[1]) & (attempted[0] > 0.0)

    def shorten(attempted: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        share = jnp.where(attempted[0] > 0.5**MAX_HALVINGS, 0.5 * attempted[0], 0.0)
        return share, absorbed(share)

    return jax.lax.while_loop(too_long, shorten, (jnp.ones(()), absorbed(1.0)))
