"""The one loop: visits make sweeps, sweeps make a run, for every method, family and posterior.

A sweep visits the blocks of every group; a run is sweeps until the moment mismatch of all sites, measured at the state
handed back, is within tolerance. The same functions serve the compiled run, the host-driven run and `jax.vmap`.

Moments may learn between two sweeps: what they were unsure of is answered by an oracle on the host. Learned state is
traced data of the compiled sweeps (`State.moments`), so what was learned compiles nothing anew.
"""

from functools import partial, reduce
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.tiers import tiered_jit
from cavity.inference._evidence import conclude, log_mean_of_site
from cavity.inference._skipping import Skipping, is_stuck
from cavity.inference._step_length import backtrack, propose_together, visit
from cavity.inference._visit import (
    Counts,
    Report,
    SiteBatch,
    State,
    count_tilts,
    deletion,
    gather,
    is_identity,
    is_settled,
    keeps_visits,
    log_scale,
    mismatch_of,
    one_after_another,
    propose,
    scatter_visits,
    site_key,
    step_of,
    weighted_sites,
)
from cavity.inference.problem import Problem
from cavity.inference.schedule import Table
from cavity.inference.update_rule import UpdateRule
from cavity.moments.base import Batch

#: sites are measured this many at a time, so that node arrays of a quadrature stay small.
MEASURE_BATCH = 1024
#: a copy: a run takes over the memory of its state, and the strategies keep what they have learned
own_memory = partial(jnp.array, copy=True)


def pass_over(
    problem: Problem,
    method: UpdateRule,
    number: int,
    key: jax.Array,
    mask: np.ndarray | None,
    state: State,
    table: Table,
) -> State:
    """The visits of a table to group `number`, its blocks one after another, and q after them.

    mask: which numbers of a site the visits may change; None for all.
    """
    group, posterior, learned = problem.groups[number], problem.posterior, state.moments[number]
    blocks, block_size = table.shape
    if blocks == 1 < block_size:
        return visit_together(problem, method, number, key, mask, state, table)
    # Windows hold whole windows of the next kind, the innermost whole blocks; the end is filled with no site's number,
    # in whose place the last site is looked at and not changed.
    levels, unit = [], 1
    for width in reversed(posterior.window_sizes(table.size, block_size)):
        levels.append(max(1, width // (unit * block_size)))
        unit *= levels[-1]
    library = np if isinstance(table, np.ndarray) else jnp  # known beforehand, or not
    filled = library.concatenate([table, library.full((-blocks % unit, block_size), group.size)])
    shape = (filled.shape[0] // unit, *reversed(levels))
    rows = gather(group, state.sites[number], state.memory[number], filled.reshape(*shape, block_size), mask)
    visit_block = partial(visit, problem, method, group, learned, key)

    def visit_window(outer: Any, numbered: tuple[jax.Array, SiteBatch]) -> tuple[Any, Any]:
        """A window of `outer` by its number, with the windows or blocks in it."""
        which, own = numbered
        index = jnp.minimum(own.which.ravel(), group.size - 1)
        window = posterior.open(problem.prior, outer, group.scope, which, index)
        if own.which.ndim > 2:
            window, visits = jax.lax.scan(visit_window, window, (jnp.arange(own.which.shape[0]), own))
        elif levels == [1] and block_size > 1:
            # The block is the whole window: it changes at once.
            window, visits = visit_block(window, (None, jax.tree.map(itemgetter(0), own)))
            visits = jax.tree.map(partial(jnp.expand_dims, axis=0), visits)
        else:
            places = jnp.arange(own.which.size).reshape(own.which.shape)
            window, visits = jax.lax.scan(visit_block, window, (places, own))
        return posterior.close(outer, which, window), visits

    order = library.minimum(filled.ravel(), group.size - 1)
    outer = posterior.begin(problem.prior, state.q, group.scope, order, unit * block_size)
    if levels:
        outer, visits = jax.lax.scan(visit_window, outer, (jnp.arange(shape[0]), rows))
    else:
        outer, visits = jax.lax.scan(visit_block, outer, (rows.which, rows))
    joined = jax.tree.map(partial(jax.lax.collapse, start_dimension=0, stop_dimension=len(shape)), (rows, visits))
    rows, (trials, shares) = jax.tree.map(itemgetter(slice(blocks)), joined)
    state = scatter_visits(method, group, number, state, table, rows, trials, shares)
    # A pass in windows leaves no q of its own.
    return state._replace(q=refresh(problem, state.sites) if levels else outer)


def visit_together(
    problem: Problem,
    method: UpdateRule,
    number: int,
    key: jax.Array,
    mask: np.ndarray | None,
    state: State,
    table: Table,
) -> State:
    """Visit the one block of a table, and rebuild q from the new sites rather than absorb them."""
    group, index = problem.groups[number], jnp.asarray(table[0])
    rows = gather(group, state.sites[number], state.memory[number], table[0], mask)
    which, removed = table[0].clip(max=group.size - 1), deletion(method, rows)
    seen = problem.posterior.cavities(problem.prior, state.q, group.scope, which, removed)
    trial = propose_together(method, group, state.moments[number], seen, rows, key)
    step = step_of(method, group, rows, trial)

    def rebuilt(share: jax.Array | float) -> Any:
        if is_identity(table, group.size):
            own = rows.site + share * step
        else:
            own = state.sites[number].at[index].add(share * step, mode="drop")
        return refresh(problem, (*state.sites[:number], own, *state.sites[number + 1 :]))

    share, q = backtrack(problem, rebuilt)
    one = jax.tree.map(partial(jnp.expand_dims, axis=0), (rows, trial, share))
    return scatter_visits(method, group, number, state._replace(q=q), table, *one)


@tiered_jit(inline=True)
def measure_state(problem: Problem, method: UpdateRule, state: State, key: jax.Array) -> Report:
    """Mismatch and scale of every site at the given state; changes nothing.

    Inlined into the programs that call it: it is traced once, however often one of them does.
    """
    if problem.sweep_kernel is not None and problem.sweep_kernel.applies(problem, method):
        return problem.sweep_kernel.measure(problem, method, state)
    found = []
    for number, group in enumerate(problem.groups):
        # Batches of one length: a shorter last one would be compiled apart.
        size, batches = group.size, -(-group.size // MEASURE_BATCH)
        length = -(-size // batches)
        index = np.minimum(np.arange(batches * length), size - 1).reshape(batches, length)
        rows = gather(group, state.sites[number], state.memory[number], index)
        one = jax.vmap(partial(measure_site, problem, method, number, state, key))
        joined = jax.tree.map(one_after_another, jax.lax.map(one, rows))
        found.append(jax.tree.map(itemgetter(slice(size)), joined))
    return Report(*zip(*found, strict=True))


def measure_site(
    problem: Problem, method: UpdateRule, number: int, state: State, key: jax.Array, rows: SiteBatch
) -> tuple[Any, ...]:
    """The entries of a `Report` for one site of group `number`."""
    group, posterior = problem.groups[number], problem.posterior
    block = jax.tree.map(partial(jnp.expand_dims, axis=0), rows)
    local, cavity = posterior.cavities(problem.prior, state.q, group.scope, block.which, deletion(method, block))
    group_key = site_key(key, group.moments.random, number)
    trial = propose(method, group, state.moments[number], local, block, group_key, cavity)
    trial, local = jax.tree.map(itemgetter(0), (trial, local))
    scale = log_scale(group.family, trial.cavity, trial.log_z, rows.site, method.power)
    held = rows.multiplicity > 0
    unsure = held & trial.proper & trial.unsure
    nonfinite = held & trial.proper & ~trial.finite & ~trial.unsure
    mismatch = mismatch_of(method, group, rows, trial)
    # A site that cannot be integrated here has no scale of its own; 1 is what an untouched site has.
    scale = jnp.where(trial.accepted, scale, 0.0)
    log_mean = scale + group.family.expected_exponent(rows.site, local)
    if not group.family.cavities_proper:
        found = log_mean_of_site(method, group.family, trial.cavity, trial.log_z, rows.site, local)
        log_mean = jnp.where(trial.accepted, found, log_mean)
    relaxed, improper = held & trial.constraint_relaxed, held & ~trial.proper
    return mismatch, relaxed, improper, nonfinite, scale, trial.info, unsure, log_mean


def refresh(problem: Problem, sites: tuple[jax.Array, ...]) -> Any:
    """q from the prior and the sites, free of the rounding of the updates."""
    return problem.posterior.refresh(problem.prior, weighted_sites(problem, sites))


class Start(NamedTuple):
    """Where a run begins: sites and, where the projection has one, memory, one array per group."""

    sites: tuple[jax.Array, ...]
    memory: tuple[jax.Array, ...] | None = None


def blank_state(
    problem: Problem, method: UpdateRule, start: Start | None, moments: tuple[Any, ...] | None = None
) -> State:
    """The state of flat or given sites before anything is visited or measured: every log sᵢ is 0, every mismatch ∞.

    moments: what the moments strategies have learned, by group; must be given where this is compiled and they learn.
    """
    zero, groups = jnp.zeros((), int), problem.groups
    blank = tuple(jnp.zeros((group.size, method.projection.memory)) for group in groups)
    return State(
        q=problem.posterior.flat(problem.prior) if start is None else refresh(problem, start.sites),
        sites=tuple(jnp.zeros((g.size, g.family.size)) for g in groups) if start is None else start.sites,
        memory=blank if start is None or start.memory is None else start.memory,
        log_scales=tuple(jnp.zeros(group.size) for group in groups),
        visited=tuple(jnp.zeros((g.size, keeps_visits(method, g) * (g.family.size + 1))) for g in groups),
        mismatch=tuple(jnp.full(group.size, jnp.inf, dtype=float) for group in groups),
        counts=Counts(zero, zero, zero, zero, (zero,) * len(groups)),
        sweep=zero,
        residuals=jnp.full(method.max_sweeps, jnp.nan),
        finished=jnp.zeros((), bool),
        moments=tuple(group.moments.init(group) for group in groups) if moments is None else moments,
        skipping=Skipping.none(),
    )


@tiered_jit
def initial_state(
    problem: Problem, method: UpdateRule, start: Start | None, moments: tuple[Any, ...] | None = None
) -> State:
    """Flat sites with sᵢ = 1 (3.46–3.48), or given ones, whose scales are NaN until they are visited or measured."""
    state = blank_state(problem, method, start, moments)
    return state if start is None else state._replace(log_scales=tuple(scale * jnp.nan for scale in state.log_scales))


def sweep(problem: Problem, method: UpdateRule, key: jax.Array, state: State) -> State:
    """One pass over all groups, then q rebuilt from the sites."""
    schedule = problem.schedule if method.schedule is None else method.schedule
    rebuilt, before, unsure = False, state, state.counts.unsure
    for number, group in enumerate(problem.groups):
        mismatch = state.mismatch[number]
        if schedule.needs_mismatch:
            mismatch = measure_state(problem, method, state, key).mismatch[number]
            state = state._replace(counts=count_tilts(state.counts, problem.groups))
        # A number no group has keeps the orders apart from the draws.
        order_key = site_key(key, schedule.random, len(problem.groups), number, state.sweep)
        group_key = site_key(key, group.moments.random, number)
        tables = schedule.visits(number, group.size, order_key, mismatch)
        # `pass_over` rebuilds q itself after a single block, and after windows.
        size, (blocks, block_size) = tables[-1].size, tables[-1].shape
        rebuilt = blocks == 1 < block_size or bool(problem.posterior.window_sizes(size, block_size))
        for mask in schedule.parts(group.family):
            visited = partial(pass_over, problem, method, number, group_key, mask)
            if len(tables) > 1 and len({table.shape for table in tables}) == 1:
                # One program for all of them.
                state, _ = jax.lax.scan(lambda s, t, go=visited: (go(s, t), None), state, jnp.stack(tables))
            else:
                state = reduce(visited, tables, state)
    if not rebuilt:
        state = state._replace(q=refresh(problem, state.sites))

    residuals = state.residuals.at[state.sweep].set(jnp.max(jnp.concatenate(state.mismatch)))
    state = state._replace(residuals=residuals, sweep=state.sweep + 1)
    skipping = state.skipping.after(
        state.sweep, state.counts.improper_cavity, state.mismatch, patient=method.projection.memory > 0
    )
    stuck = is_stuck((before.sites, before.memory), (state.sites, state.memory), state.counts.unsure > unsure)
    return state._replace(skipping=skipping._replace(hopeless=skipping.hopeless | stuck))


def sweep_once(problem: Problem, method: UpdateRule, state: State, key: jax.Array) -> State:
    """One sweep, by the problem's own kernel where it has one for this method."""
    kernel = problem.sweep_kernel
    if kernel is not None and kernel.applies(problem, method):
        return kernel.sweep_while(problem, method, state, lambda now: now.sweep == state.sweep)
    return sweep(problem, method, key, state)


def advance(
    problem: Problem, method: UpdateRule, state: State, last_sweep: jax.Array, key: jax.Array
) -> tuple[State, Report, jax.Array]:
    """Sweeps until finished or `last_sweep` is reached, then the report and the log evidence of the state reached.

    The mismatch met while visiting is free but belongs to states on the way. Only when it has settled is the state
    itself measured, and if that disagrees the sweeps go on.
    """
    kernel = problem.sweep_kernel

    def goes_on(state: State) -> jax.Array:
        return (state.sweep < last_sweep) & ~state.skipping.hopeless

    def unfinished(carry: tuple[State, Report]) -> jax.Array:
        return ~carry[0].finished & goes_on(carry[0])

    def stretch(carry: tuple[State, Report]) -> tuple[State, Report]:
        def moving(state: State) -> jax.Array:
            first = state.sweep == carry[0].sweep
            return (first | ~is_settled(state.mismatch, method.tol)) & goes_on(state)

        if kernel is not None and kernel.applies(problem, method):
            state = kernel.sweep_while(problem, method, carry[0], moving)
        else:
            state = jax.lax.while_loop(moving, partial(sweep, problem, method, key), carry[0])
        report = measure_state(problem, method, state, key)
        # Both must agree, so that a run that is measured more often, as one with a callback, ends at the same sweep.
        finished = is_settled(report.mismatch, method.tol) & is_settled(state.mismatch, method.tol)
        return state._replace(finished=finished), report

    blank = jax.tree.map(jnp.zeros_like, jax.eval_shape(measure_state, problem, method, state, key))
    state, report = jax.lax.while_loop(unfinished, stretch, (state, blank))
    state, evidence = conclude(problem, method, state, report)
    return state, report, evidence


#: `advance` compiled; the second takes over the memory of the state it is given, which is gone afterwards
advance_anew = tiered_jit(advance)
advance_in_place = tiered_jit(advance, donate_argnames=("state",))


def learns(problem: Problem) -> bool:
    """Whether the moments of some group do."""
    return any(map(attrgetter("moments.learns"), problem.groups))


@tiered_jit(static_argnames=("number",))
def cavities_of(problem: Problem, method: UpdateRule, state: State, number: int) -> jax.Array:
    """The cavities of all sites of a group."""
    group = problem.groups[number]
    local = problem.posterior.marginals(problem.prior, state.q, group.scope, jnp.arange(group.size))
    return local - method.power * state.sites[number]


def learn_unsure(problem: Problem, method: UpdateRule, state: State, report: Report) -> State:
    """The state after the moments that learn were given the sites they were unsure of.

    Those sites stayed as they were. A state that was finished stays so where nothing was learned that it depends on.
    """
    moments, goes_on, ended = list(state.moments), False, bool(state.finished)
    for number, (group, unsure) in enumerate(zip(problem.groups, report.unsure, strict=True)):
        if not group.moments.learns:
            continue
        # All sites, whichever are unsure: their number does not change, so nothing is compiled again.
        cavities = cavities_of(problem, method, state, number=number)
        batch = Batch(group.factor, group.family, cavities, group.data, np.asarray(unsure), ended)
        learned, changed = group.moments.learn(state.moments[number], batch)
        moments[number] = jax.tree.map(own_memory, learned)
        goes_on = goes_on or changed
    state = state._replace(moments=tuple(moments))
    # With what is known now sites may move that could not before.
    hopes = state.skipping._replace(hopeless=jnp.zeros((), bool))
    return state._replace(finished=jnp.zeros((), bool), skipping=hopes) if goes_on else state
