"""The one loop: delete → tilt → project → update, for every method, family and posterior.

A sweep visits the blocks of every group; a run is sweeps until the moment mismatch of all sites, measured at the state
handed back, is within tolerance. The same functions serve the compiled run, the host-driven run and `jax.vmap`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.inference.evidence import log_evidence, log_scale
from cavity.inference.methods import Method
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.schedule import Table

#: a step that would make q improper is halved at most this often before the block keeps its old sites.
MAX_HALVINGS = 20

#: the share of a step that a site of many copies takes at least.
SHORTEST_SHARE = 0.25

#: sites are measured this many at a time, so that node arrays of a quadrature stay small.
MEASURE_BATCH = 1024


class Counts(NamedTuple):
    """What was done and what went wrong on the way, summed over the run: never silent.

    tilts: integrations made to choose and update sites, one entry a group. shortened: blocks whose step was halved.
    """

    improper_cavity: jax.Array
    nonfinite: jax.Array
    shortened: jax.Array
    tilts: tuple[jax.Array, ...]


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


class Rows(NamedTuple):
    """Some sites of a group with what belongs to them, gathered before a scan; `which` are their numbers."""

    which: jax.Array
    site: jax.Array
    copies: jax.Array
    data: Any


class Trial(NamedTuple):
    """The outcome of delete, tilt and project for a block of sites, before anything is changed."""

    cavity: jax.Array
    log_z: jax.Array
    message: jax.Array
    proper: jax.Array
    finite: jax.Array
    given_up: jax.Array
    info: dict[str, jax.Array]

    @property
    def usable(self) -> jax.Array:
        """Whether the message may replace the site."""
        return self.proper & self.finite


def deleted(method: Method, rows: Rows) -> jax.Array:
    """What deletion takes out of q: site**power. A site of multiplicity 0 is not in q, so there is nothing to take."""
    return method.power * jnp.minimum(rows.copies, 1.0)[..., None] * rows.site


def attempt(method: Method, group: SiteGroup, local: jax.Array, rows: Rows, key: jax.Array) -> Trial:
    """Delete, tilt and project a block of sites from the same q, of which `local` is what each of them sees."""
    family = method.projection.adapt(group.family)
    cavity = local - deleted(method, rows)
    proper = family.is_proper(cavity)
    # What is integrated is always a distribution; results for an improper cavity are discarded.
    cavity = jnp.where(proper[:, None], cavity, local)

    def one(cavity: jax.Array, data: Any, which: jax.Array) -> tuple[Any, ...]:
        site_key = derived(key, group.moments.random, which)
        tilted, info = group.moments.tilt(
            group.moments.init(), group.factor, family, cavity, data, method.power, site_key
        )
        message, given_up = method.projection.project(family, cavity, tilted)
        return tilted.log_z, message, given_up, info

    log_z, message, given_up, info = jax.vmap(one)(cavity, rows.data, rows.which)
    finite = jnp.isfinite(log_z) & jnp.all(jnp.isfinite(message), axis=-1) & family.is_proper(cavity + message)
    return Trial(cavity, log_z, message, proper, finite, given_up, info)


def mismatch_of(method: Method, group: SiteGroup, rows: Rows, trial: Trial) -> jax.Array:
    """Moment mismatch between q and the projected tilted distribution; infinite where there is none."""
    family = method.projection.adapt(group.family)
    gap = family.distance(trial.cavity + deleted(method, rows), trial.cavity + trial.message)
    # A site of multiplicity 0 is not part of q: nothing it says can be out of step.
    return jnp.where(rows.copies == 0, 0.0, jnp.where(trial.usable, gap, jnp.inf))


def step_of(method: Method, group: SiteGroup, rows: Rows, trial: Trial) -> jax.Array:
    """The damped change of every site; none where the trial failed or the row is padding.

    Copies of a site move together, each by the full step of one: as far as that, q would overshoot and the iteration
    may not settle. They share the step; not in a single pass, where nothing else would make up for it.
    """
    usable = trial.usable & (rows.which < group.size)
    step = method.damping
    if group.multiplicity is not None and not group.at_most_one and not method.single_pass:
        step = step * jnp.maximum(1.0 / jnp.maximum(rows.copies, 1.0), SHORTEST_SHARE)[..., None]
    return jnp.where(usable[..., None], step * (trial.message / method.power - rows.site), 0.0)


def visit(
    problem: Problem, method: Method, group: SiteGroup, key: jax.Array, window: Any, block: tuple[jax.Array, Rows]
) -> tuple[Any, tuple[Trial, jax.Array]]:
    """Try one block of sites, at given places of a window, and absorb their change into it.

    Says how often the step had to be halved. Only what the next visit needs is computed here; new sites, mismatch,
    scales and counts follow for all together.
    """
    places, rows = block
    trial = attempt(method, group, problem.posterior.local(window, group.scope, places), rows, key)
    step = step_of(method, group, rows, trial)

    def absorbed(scale: jax.Array | float) -> Any:
        return problem.posterior.absorb(window, group.scope, places, scale * rows.copies[:, None] * step)

    # A single site of one copy moves q between two proper distributions: itself and the projected one.
    single = group.multiplicity is None or group.at_most_one
    if places.shape[0] == 1 and single and method.power == 1.0:
        return absorbed(1.0), (trial, jnp.zeros((), int))
    halvings, changed = shortened(problem, absorbed)
    return changed, (trial, halvings)


def shortened(problem: Problem, absorbed: Callable[[jax.Array | float], Any]) -> tuple[jax.Array, Any]:
    """The state `absorbed` makes of the longest share of a step that leaves it proper, and how often it was halved."""

    def too_long(attempted: tuple[jax.Array, Any]) -> jax.Array:
        return ~problem.posterior.is_proper(attempted[1]) & (attempted[0] <= MAX_HALVINGS)

    def shorten(attempted: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        return attempted[0] + 1, absorbed(step_scale(attempted[0] + 1))

    return jax.lax.while_loop(too_long, shorten, (jnp.zeros((), int), absorbed(1.0)))


def visit_in_windows(
    problem: Problem, method: Method, group: SiteGroup, key: jax.Array, q: Any, table: Table, sites: jax.Array
) -> tuple[Any, Rows, tuple[Trial, jax.Array]]:
    """Visit the blocks of a table one after another; the rows they had and how the visits went, block by block."""
    posterior, (blocks, block_size) = problem.posterior, table.shape
    # Windows hold whole windows of the next kind, the innermost whole blocks; the end is filled with no site's number.
    levels, unit = [], 1
    for width in reversed(posterior.window_sizes(table.size)):
        levels.append(max(1, width // (unit * block_size)))
        unit *= levels[-1]
    filled = filled_up(table, -(-blocks // unit) * unit, group.size)
    shape = (filled.shape[0] // unit, *reversed(levels))
    rows = gather(group, sites, filled.reshape(*shape, block_size))

    def through(outer: Any, numbered: tuple[jax.Array, Rows]) -> tuple[Any, Any]:
        """Window `number` of `outer`, with the windows and blocks in it."""
        number, own = numbered
        window = posterior.open(problem.prior, outer, group.scope, number, clipped(own.which.ravel(), group.size))
        window, visits = within(window, own)
        return posterior.close(outer, number, window), visits

    def within(outer: Any, rows: Rows) -> tuple[Any, Any]:
        count, depth = rows.which.shape[0], rows.which.ndim
        if depth > 2:
            return jax.lax.scan(through, outer, (jnp.arange(count), rows))
        places = rows.which if not levels else jnp.arange(count * block_size).reshape(count, block_size)
        return jax.lax.scan(partial(visit, problem, method, group, key), outer, (places, rows))

    outer = posterior.begin(problem.prior, q, group.scope, clipped(filled.ravel(), group.size), unit * block_size)
    outer, visits = within(outer, rows)
    flat = jax.tree.map(lambda leaf: leaf.reshape(filled.shape[0], *leaf.shape[len(shape) :])[:blocks], (rows, visits))
    return outer, *flat


def filled_up(table: Table, blocks: int, size: int) -> Table:
    """The table with blocks of padding at its end, kept known beforehand where it is."""
    if isinstance(table, np.ndarray):
        return np.concatenate([table, np.full((blocks - table.shape[0], table.shape[1]), size)])
    return jnp.concatenate([table, jnp.full((blocks - table.shape[0], table.shape[1]), size)])


def clipped(index: Table, size: int) -> Any:
    """Numbers of padding replaced by the last site's: it is looked at and not changed."""
    return np.minimum(index, size - 1) if isinstance(index, np.ndarray) else jnp.minimum(index, size - 1)


def visit_together(
    problem: Problem, method: Method, group: SiteGroup, number: int, state: State, table: Table, key: jax.Array
) -> tuple[Any, Rows, tuple[Trial, jax.Array]]:
    """Visit the one block of a table, and rebuild q from the new sites rather than absorb them."""
    rows = gather(group, state.sites[number], table[0])
    local = problem.posterior.marginals(problem.prior, state.q, group.scope, clipped(table[0], group.size))
    trial = attempt(method, group, local, rows, key)
    step = step_of(method, group, rows, trial)
    index = jnp.asarray(table[0])

    def rebuilt(scale: jax.Array | float) -> Any:
        own = state.sites[number].at[index].add(scale * step, mode="drop")
        return refresh(problem, (*state.sites[:number], own, *state.sites[number + 1 :]))

    halvings, q = shortened(problem, rebuilt)
    one = jax.tree.map(lambda leaf: leaf[None], (rows, (trial, halvings)))
    return q, *one


def step_scale(halvings: jax.Array) -> jax.Array:
    """The share of the step left after so many halvings; none when even the shortest was too long."""
    return jnp.where(halvings > MAX_HALVINGS, 0.0, 0.5**halvings)


def gather(group: SiteGroup, sites: jax.Array, index: Table) -> Rows:
    """The rows of the sites `index`, any shape; an index no site has takes the last site's."""
    rows = (sites, group.copies, jax.tree.map(jnp.asarray, group.data))
    if is_as_stored(index, group.size):
        picked = jax.tree.map(lambda leaf: leaf.reshape(*index.shape, *leaf.shape[1:]), rows)
    else:
        picked = jax.tree.map(lambda leaf: leaf[index], rows)
    return Rows(jnp.asarray(index), *picked)


def is_as_stored(index: Table, size: int) -> bool:
    """Whether these are all sites in their own order, known beforehand."""
    return isinstance(index, np.ndarray) and np.array_equal(index.ravel(), np.arange(size))


def measure(problem: Problem, method: Method, q: Any, sites: tuple[jax.Array, ...], key: jax.Array) -> Report:
    """Mismatch and scale of every site at the given state; changes nothing."""
    columns = []
    for number, (group, own) in enumerate(zip(problem.groups, sites, strict=True)):
        group_key = derived(key, group.moments.random, number)

        def one(rows: Rows, group: SiteGroup = group, group_key: jax.Array = group_key) -> tuple[Any, ...]:
            block = jax.tree.map(lambda leaf: leaf[None], rows)
            local = problem.posterior.marginals(problem.prior, q, group.scope, block.which)
            trial = jax.tree.map(lambda leaf: leaf[0], attempt(method, group, local, block, group_key))
            scale = log_scale(group.family, trial.cavity, trial.log_z, rows.site, method.power)
            held = rows.copies > 0
            nonfinite = held & trial.proper & ~trial.finite
            mismatch = mismatch_of(method, group, rows, trial)
            # A site that cannot be integrated here has no scale of its own; 1 is what an untouched site has.
            scale = jnp.where(trial.usable, scale, 0.0)
            return mismatch, held & trial.given_up, held & ~trial.proper, nonfinite, scale, trial.info

        # Batches of one length: a shorter last one would be compiled apart.
        size, batches = group.size, -(-group.size // MEASURE_BATCH)
        length = -(-size // batches)
        rows = gather(group, own, clipped(np.arange(batches * length), size).reshape(batches, length))
        measured = jax.lax.map(jax.vmap(one), rows)
        columns.append(jax.tree.map(partial(joined, size), measured))
    return Report(*(tuple(column) for column in zip(*columns, strict=True)))


def joined(size: int, leaf: jax.Array) -> jax.Array:
    """Batches one after another, without what filled the last one up."""
    return leaf.reshape(-1, *leaf.shape[2:])[:size]


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
    if init is None:
        q = problem.posterior.flat(problem.prior)
        log_scales = tuple(jnp.zeros(group.size) for group in problem.groups)
    else:
        q = refresh(problem, sites)
        log_scales = measure(problem, method, q, sites, key).log_scales
    zero = jnp.zeros((), int)
    return State(
        q=q,
        sites=sites,
        log_scales=log_scales,
        mismatch=tuple(jnp.full(group.size, jnp.inf, dtype=float) for group in problem.groups),
        counts=Counts(zero, zero, zero, tuple(zero for _ in problem.groups)),
        sweep=zero,
        residuals=jnp.full(method.max_sweeps, jnp.nan),
        finished=jnp.zeros((), bool),
    )


def sweep(problem: Problem, method: Method, state: State, key: jax.Array) -> State:
    """One pass over all groups, then q rebuilt from the sites."""
    schedule = problem.schedule if method.schedule is None else method.schedule
    for number, group in enumerate(problem.groups):
        mismatch = state.mismatch[number]
        if schedule.needs_mismatch:
            mismatch = measure(problem, method, state.q, state.sites, key).mismatch[number]
            state = state._replace(counts=tilted(state.counts, problem.groups))
        # A number no group has keeps the orders apart from the draws.
        order_key = derived(key, schedule.random, len(problem.groups), number, state.sweep)
        group_key = derived(key, group.moments.random, number)
        for table in schedule.visits(number, group.size, order_key, mismatch):
            if table.shape[0] == 1 and table.shape[1] > 1:
                q, rows, visits = visit_together(problem, method, group, number, state, table, group_key)
                state = recorded(method, group, number, state._replace(q=q), table, rows, *visits)
                continue
            q, rows, visits = visit_in_windows(problem, method, group, group_key, state.q, table, state.sites[number])
            state = recorded(method, group, number, state, table, rows, *visits)
            # A pass in windows leaves no q of its own.
            windowed = bool(problem.posterior.window_sizes(table.size))
            state = state._replace(q=refresh(problem, state.sites) if windowed else q)
    if not problem.posterior.window_sizes(1):
        state = state._replace(q=refresh(problem, state.sites))

    residuals = state.residuals.at[state.sweep].set(jnp.max(jnp.concatenate(state.mismatch)))
    return state._replace(residuals=residuals, sweep=state.sweep + 1)


def tilted(counts: Counts, groups: tuple[SiteGroup, ...]) -> Counts:
    """The counts after one integration of every site."""
    return counts._replace(tilts=tuple(done + g.size for done, g in zip(counts.tilts, groups, strict=True)))


def recorded(
    method: Method,
    group: SiteGroup,
    number: int,
    state: State,
    table: Table,
    rows: Rows,
    trials: Trial,
    halvings: jax.Array,
) -> State:
    """The state with what the visits of a table left: sites, scales and mismatch put in place, counts added up.

    Scans hand the trials out and the new rows are put in place here, once a table, by a gather: carrying the arrays
    through the scan would copy them at every visit.
    """
    scale = step_scale(halvings)[:, None, None]
    new = rows._replace(site=rows.site + scale * step_of(method, group, rows, trials))
    rows, new, trials = jax.tree.map(lambda leaf: leaf.reshape(table.size, *leaf.shape[2:]), (rows, new, trials))
    scales = jax.vmap(partial(log_scale, group.family, power=method.power))(trials.cavity, trials.log_z, new.site)
    real = rows.which < group.size
    place = jnp.full(group.size, table.size).at[table.ravel()].set(jnp.arange(table.size), mode="drop")

    def replaced(groups: tuple[jax.Array, ...], rows: jax.Array, usable: jax.Array | None = None) -> tuple[Any, ...]:
        old = groups[number]
        if is_as_stored(table, group.size):
            new = rows if usable is None else jnp.where(usable, rows, old)
        else:
            kept = place < table.size if usable is None else (place < table.size) & usable[place]
            new = jnp.where(jnp.reshape(kept, (group.size,) + (1,) * (rows.ndim - 1)), rows[place], old)
        return (*groups[:number], new, *groups[number + 1 :])

    counts = state.counts
    tilts = tuple(done + (jnp.sum(real) if g == number else 0) for g, done in enumerate(counts.tilts))
    held = real & (rows.copies > 0)
    return state._replace(
        sites=replaced(state.sites, new.site),
        log_scales=replaced(state.log_scales, scales, trials.usable),
        mismatch=replaced(state.mismatch, mismatch_of(method, group, rows, trials)),
        counts=Counts(
            counts.improper_cavity + jnp.sum(~trials.proper & held),
            counts.nonfinite + jnp.sum(trials.proper & ~trials.finite & held),
            counts.shortened + jnp.sum(halvings > 0),
            tilts,
        ),
    )


def is_settled(mismatch: tuple[jax.Array, ...], tol: float) -> jax.Array:
    """Every site that can be updated is within tolerance; those that cannot have an infinite mismatch."""
    together = jnp.concatenate(mismatch)
    return jnp.all((together <= tol) | jnp.isinf(together))


@jax.jit
def begin(problem: Problem, method: Method, init: tuple[jax.Array, ...] | None, key: jax.Array) -> State:
    """Compiled `start`."""
    return start(problem, method, init, key)


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
        # Both must agree, so that a run that is measured more often, because somebody listens, ends at the same sweep.
        finished = is_settled(report.mismatch, method.tol) & is_settled(state.mismatch, method.tol)
        return state._replace(finished=finished), report

    shape = jax.eval_shape(lambda: measure(problem, method, state.q, state.sites, key))
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
    state, report = jax.lax.while_loop(unfinished, stretch, (state, blank))
    return state, report, log_evidence(problem, state.q, state.log_scales)


#: `advance` compiled; the second takes over the memory of the state it is given, which is gone afterwards
advance_anew = jax.jit(advance)
advance_in_place = jax.jit(advance, donate_argnames="state")
