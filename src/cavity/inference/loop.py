"""The one loop: delete → tilt → project → update, for every method, family and posterior.

A sweep visits the blocks of every group; a run is sweeps until the moment mismatch of all sites, measured at the state
handed back, is within tolerance. The same functions serve the compiled run, the host-driven run and `jax.vmap`.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cavity.inference.evidence import log_evidence, log_scale
from cavity.inference.methods import Method
from cavity.inference.problem import Problem, SiteGroup

#: a step that would make q improper is halved at most this often before the block keeps its old sites.
MAX_HALVINGS = 20

#: sites are measured this many at a time, so that node arrays of a quadrature stay small.
MEASURE_BATCH = 1024


class Counts(NamedTuple):
    """What went wrong on the way, summed over the run: never silent."""

    improper_cavity: jax.Array
    nonfinite: jax.Array
    shortened: jax.Array


class Report(NamedTuple):
    """The state as measured from outside a sweep, one entry a group."""

    mismatch: tuple[jax.Array, ...]
    given_up: tuple[jax.Array, ...]
    improper: tuple[jax.Array, ...]
    nonfinite: tuple[jax.Array, ...]
    log_scales: tuple[jax.Array, ...]
    info: tuple[dict[str, jax.Array], ...]

    @property
    def largest(self) -> jax.Array:
        """The largest mismatch of all sites."""
        return jnp.max(jnp.concatenate(self.mismatch))


class State(NamedTuple):
    """Carried from sweep to sweep."""

    q: Any
    sites: tuple[jax.Array, ...]
    log_scales: tuple[jax.Array, ...]
    mismatch: tuple[jax.Array, ...]
    counts: Counts
    sweep: jax.Array
    residuals: jax.Array
    finished: jax.Array


class Trial(NamedTuple):
    """The outcome of delete, tilt and project for a block of sites, before anything is changed."""

    cavity: jax.Array
    log_z: jax.Array
    message: jax.Array
    mismatch: jax.Array
    usable: jax.Array
    improper: jax.Array
    nonfinite: jax.Array
    given_up: jax.Array
    info: dict[str, jax.Array]


def attempt(
    problem: Problem, method: Method, group: SiteGroup, q: Any, sites: jax.Array, index: jax.Array, key: jax.Array
) -> Trial:
    """Delete, tilt and project the sites `index` of a group from the same q."""
    family = method.projection.adapt(group.family)
    local = problem.posterior.local(q, group.scope, index)
    # A site of multiplicity 0 is not in q, so there is nothing to delete.
    held = jnp.minimum(group.copies[index], 1.0)[:, None]
    cavity = local - method.power * held * sites[index]
    proper = family.is_proper(cavity)
    # What is integrated is always a distribution; results for an improper cavity are discarded below.
    usable_cavity = jnp.where(proper[:, None], cavity, local)

    def one(cavity: jax.Array, data: Any, number: jax.Array) -> tuple[Any, ...]:
        site_key = derived(key, group.moments.random, number)
        tilted, info = group.moments.tilt(
            group.moments.init(), group.factor, family, cavity, data, method.power, site_key
        )
        message, given_up = method.projection.project(family, cavity, tilted)
        return tilted.log_z, message, given_up, info

    data = jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], group.data)
    log_z, message, given_up, info = jax.vmap(one)(usable_cavity, data, index)
    projected = usable_cavity + message
    finite = jnp.isfinite(log_z) & jnp.all(jnp.isfinite(message), axis=-1) & family.is_proper(projected)
    usable = proper & finite
    mismatch = jnp.where(
        usable, family.distance(usable_cavity + method.power * held * sites[index], projected), jnp.inf
    )
    return Trial(usable_cavity, log_z, message, mismatch, usable, ~proper, proper & ~finite, given_up, info)


def visit(problem: Problem, method: Method, number: int, state: State, index: jax.Array, key: jax.Array) -> State:
    """Update one block of sites of group `number`; padding indices are dropped."""
    group = problem.groups[number]
    sites = state.sites[number]
    trial = attempt(problem, method, group, state.q, sites, index, key)
    real = index < group.size
    usable = trial.usable & real

    old = sites[index]
    step = jnp.where(usable[:, None], method.damping * (trial.message / method.power - old), 0.0)
    copies = group.copies[index][:, None]
    posterior = problem.posterior

    def too_long(carry: tuple[jax.Array, Any]) -> jax.Array:
        halvings, q = carry
        return ~posterior.is_proper(q) & (halvings <= MAX_HALVINGS)

    def shorten(carry: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        halvings = carry[0] + 1
        scale = jnp.where(halvings > MAX_HALVINGS, 0.0, 0.5**halvings)
        return halvings, posterior.absorb(state.q, group.scope, index, scale * copies * step)

    full = posterior.absorb(state.q, group.scope, index, copies * step)
    halvings, q = jax.lax.while_loop(too_long, shorten, (jnp.zeros((), int), full))
    scale = jnp.where(halvings > MAX_HALVINGS, 0.0, 0.5**halvings)
    new = old + scale * step

    scales = jax.vmap(partial(log_scale, group.family, power=method.power))(trial.cavity, trial.log_z, new)
    scales = jnp.where(usable, scales, state.log_scales[number][index])
    counts = Counts(
        state.counts.improper_cavity + jnp.sum(trial.improper & real),
        state.counts.nonfinite + jnp.sum(trial.nonfinite & real),
        state.counts.shortened + (halvings > 0),
    )
    return state._replace(
        q=q,
        sites=put(state.sites, number, index, new),
        log_scales=put(state.log_scales, number, index, scales),
        mismatch=put(state.mismatch, number, index, trial.mismatch),
        counts=counts,
    )


def put(groups: tuple[jax.Array, ...], number: int, index: jax.Array, rows: jax.Array) -> tuple[jax.Array, ...]:
    """The tuple with rows `index` of entry `number` replaced; padding indices fall outside and are dropped."""
    return (*groups[:number], groups[number].at[index].set(rows, mode="drop"), *groups[number + 1 :])


def measure(problem: Problem, method: Method, q: Any, sites: tuple[jax.Array, ...], key: jax.Array) -> Report:
    """Mismatch and scale of every site at the given state; changes nothing."""
    rows = []
    for number, group in enumerate(problem.groups):

        def one(
            index: jax.Array,
            group: SiteGroup = group,
            own: jax.Array = sites[number],
            key: jax.Array = derived(key, group.moments.random, number),
        ) -> tuple[Any, ...]:
            trial = attempt(problem, method, group, q, own, index[None], key)
            scale = log_scale(group.family, trial.cavity[0], trial.log_z[0], own[index], method.power)
            first = jax.tree.map(lambda leaf: leaf[0], trial)
            return first.mismatch, first.given_up, first.improper, first.nonfinite, scale, first.info

        rows.append(jax.lax.map(one, jnp.arange(group.size), batch_size=min(group.size, MEASURE_BATCH)))
    return Report(*(tuple(column) for column in zip(*rows, strict=True)))


def derived(key: jax.Array, needed: bool, *numbers: int | jax.Array) -> jax.Array:
    """A key for these numbers; the key as it is where nobody uses it, which keeps the compiled loop small.

    Groups and sites get the same key in every sweep, so that sampled moments have a fixed point.
    """
    for number in numbers if needed else ():
        key = jax.random.fold_in(key, number)
    return key


def refresh(problem: Problem, sites: tuple[jax.Array, ...]) -> Any:
    """q from the prior and the sites, free of the rounding of the updates."""
    weighted = (group.copies[:, None] * own for group, own in zip(problem.groups, sites, strict=True))
    return problem.posterior.refresh(
        problem.prior, tuple((group.scope, own) for group, own in zip(problem.groups, weighted, strict=True))
    )


def start(problem: Problem, method: Method, init: tuple[jax.Array, ...] | None, key: jax.Array) -> State:
    """Flat sites with sᵢ = 1 (3.46–3.48), or given ones with the scales their q implies."""
    sites = init if init is not None else tuple(jnp.zeros((g.size, g.family.size)) for g in problem.groups)
    q = refresh(problem, sites)
    if init is None:
        log_scales = tuple(jnp.zeros(group.size) for group in problem.groups)
    else:
        log_scales = measure(problem, method, q, sites, key).log_scales
    zero = jnp.zeros((), int)
    return State(
        q=q,
        sites=sites,
        log_scales=log_scales,
        mismatch=tuple(jnp.full(group.size, jnp.inf) for group in problem.groups),
        counts=Counts(zero, zero, zero),
        sweep=zero,
        residuals=jnp.full(method.max_sweeps, jnp.nan),
        finished=jnp.zeros((), bool),
    )


def sweep(problem: Problem, method: Method, state: State, key: jax.Array) -> State:
    """One pass over all groups, then q rebuilt from the sites."""
    for number, group in enumerate(problem.groups):
        mismatch = state.mismatch[number]
        if method.schedule.needs_mismatch:
            mismatch = measure(problem, method, state.q, state.sites, key).mismatch[number]
        # A number no group has keeps the orders apart from the draws.
        order_key = derived(key, method.schedule.random, len(problem.groups), number, state.sweep)
        table = method.schedule.visits(group.size, order_key, mismatch)

        group_key = derived(key, group.moments.random, number)

        def body(
            state: State, index: jax.Array, number: int = number, group_key: jax.Array = group_key
        ) -> tuple[State, None]:
            return visit(problem, method, number, state, index, group_key), None

        state, _ = jax.lax.scan(body, state, table)
    state = state._replace(q=refresh(problem, state.sites))

    residuals = state.residuals.at[state.sweep].set(jnp.max(jnp.concatenate(state.mismatch)))
    return state._replace(residuals=residuals, sweep=state.sweep + 1)


def is_settled(mismatch: tuple[jax.Array, ...], tol: float) -> jax.Array:
    """Every site that can be updated is within tolerance; those that cannot have an infinite mismatch."""
    together = jnp.concatenate(mismatch)
    return jnp.all((together <= tol) | jnp.isinf(together))


@partial(jax.jit, static_argnames="method")
def begin(problem: Problem, method: Method, init: tuple[jax.Array, ...] | None, key: jax.Array) -> State:
    """Compiled `start`."""
    return start(problem, method, init, key)


@partial(jax.jit, static_argnames="method")
def advance(
    problem: Problem, method: Method, state: State, last_sweep: jax.Array, key: jax.Array
) -> tuple[State, Report, jax.Array]:
    """Sweeps until finished or `last_sweep` is reached, then the report and the log evidence of the state reached.

    The mismatch met while visiting is free but belongs to states on the way. Only when it has settled is the state
    itself measured, and if that disagrees the sweeps go on.
    """

    def unfinished(carry: tuple[State, Report]) -> jax.Array:
        return ~carry[0].finished & (carry[0].sweep < last_sweep)

    def stretch(carry: tuple[State, Report]) -> tuple[State, Report]:
        def moving(state: State) -> jax.Array:
            first = state.sweep == carry[0].sweep
            return (first | ~is_settled(state.mismatch, method.tol)) & (state.sweep < last_sweep)

        state = jax.lax.while_loop(moving, lambda state: sweep(problem, method, state, key), carry[0])
        report = measure(problem, method, state.q, state.sites, key)
        return state._replace(finished=is_settled(report.mismatch, method.tol)), report

    shape = jax.eval_shape(lambda: measure(problem, method, state.q, state.sites, key))
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
    state, report = jax.lax.while_loop(unfinished, stretch, (state, blank))
    return state, report, log_evidence(problem, state.q, state.log_scales)
