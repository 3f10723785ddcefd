"""Parallel sweeps of loopy BP, and their measurement, with every state of every variable an array of its own.

Loopy BP on a large graph is bound by memory. Written with one row per site, a compiler reads all of a row for each of
its few numbers, again and again; written with one array per number, everything between reading q and writing the new
sites happens in registers. This is the one place outside `cavity.inference` that has delete, tilt, project and update
of its own; it applies to small tables alone. Its numbers are those of the general loop up to rounding, and up to the
constant that a site's log weights may hold: `tests/discrete/approx/test_parallel_bp.py` compares the two.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._numerics.sums import elementwise_log_sum, largest
from cavity.factors.table import Table
from cavity.families.categorical import SOME, Categorical, spread_gap
from cavity.families.product import Product, consecutive_slices
from cavity.inference.problem import Problem, SiteGroup, SweepKernel
from cavity.inference.schedule import Parallel
from cavity.inference.stepping import Report, State
from cavity.inference.update_rule import Matched, UpdateRule
from cavity.moments.enumeration import FEW_ENTRIES, Entries, Enumeration, entry_messages, entry_terms

#: logarithms of the entries of a table may differ by so much for their weights to be summed as they are
WIDEST = 500.0
#: entries of a table that are worth compiling one by one where there are so many sites
MANY_ENTRIES, MANY_SITES = 16, 1_000

#: the states of one variable, each an array over variables or sites: log weights, then numbers of zeros where kept
Column = list[jax.Array]


class TableWeights(NamedTuple):
    """A table without logarithms: entries in units of the largest, whose log is `log_scale`."""

    entries: Entries
    log_scale: jax.Array


class GroupMessages(NamedTuple):
    """All sites of a group tried at once. log_total: log Σ t**power × cavity, without the cavity's normalisation."""

    cavity: list[Column]
    message: list[Column]
    log_total: jax.Array
    mismatch: jax.Array
    usable: jax.Array


@dataclass(frozen=True)
class ParallelBP(SweepKernel):
    """Parallel sweeps, and measurements, of small tables over independent variables."""

    def applies(self, problem: Problem, method: UpdateRule) -> bool:
        """Whether every site is a small table, matched as it is, and all of a group are updated from the same q."""
        schedule = problem.schedule if method.schedule is None else method.schedule
        whole = isinstance(schedule, Parallel) and not method.single_pass and type(method.projection) is Matched
        return whole and all(is_table(group) for group in problem.groups)

    def sweep_while(
        self, problem: Problem, method: UpdateRule, state: State, moving: Callable[[Any], jax.Array]
    ) -> State:
        run = partial(sweep_columns, problem, method, moving)
        return jax.lax.cond(without_zeros(problem, method, state), partial(run, False), partial(run, True), state)

    def measure(self, problem: Problem, method: UpdateRule, state: State) -> Report:
        look = partial(measure_columns, problem, method)
        return jax.lax.cond(without_zeros(problem, method, state), partial(look, False), partial(look, True), state)


def sweep_columns(
    problem: Problem, method: UpdateRule, moving: Callable[[Any], jax.Array], zeros: bool, state: State
) -> State:
    """Sweeps while `moving`, with or without numbers of zeros. On the way q and the sites of a state are columns."""
    groups, tables = problem.groups, group_tables(problem, method, zeros)
    prior = variable_columns(problem.prior.etas, zeros)

    def sweep(now: State) -> State:
        columns: Any = now.sites
        q, sites, mismatch, counts = now.q, list(columns), [], now.counts
        for number, (group, table, old) in enumerate(zip(groups, tables, columns, strict=True)):
            found = group_messages(problem, method, group, table, q, old)

            def damped(message: jax.Array, site: jax.Array, usable: jax.Array = found.usable) -> jax.Array:
                return jnp.where(usable, method.damping * (message / method.power - site), 0.0)

            change = jax.tree.map(damped, tuple(found.message), old)
            changed = add_messages(problem, group, q, change), jax.tree.map(jnp.add, old, change)
            # A step after which a variable has no state left is not made, however short: zeros have no half.
            possible = all_have_states(changed[0]) if zeros else jnp.ones((), bool)
            q, sites[number] = jax.tree.map(partial(jnp.where, possible), changed, (q, old))
            mismatch.append(found.mismatch)
            counts = counts._replace(
                nonfinite=counts.nonfinite + jnp.sum(~found.usable), shortened=counts.shortened + ~possible
            )
        # Free of the rounding of the updates.
        rebuilt = prior
        for group, own in zip(groups, sites, strict=True):
            rebuilt = add_messages(problem, group, rebuilt, own)
        tilts = tuple(done + group.size for done, group in zip(counts.tilts, groups, strict=True))
        return now._replace(
            q=rebuilt,
            sites=tuple(sites),
            mismatch=tuple(mismatch),
            counts=counts._replace(tilts=tilts),
            sweep=now.sweep + 1,
            residuals=now.residuals.at[now.sweep].set(reduce(jnp.maximum, [jnp.max(own) for own in mismatch])),
        )

    start = state._replace(
        q=variable_columns(state.q.etas, zeros),
        sites=tuple(site_columns(group, own, zeros) for group, own in zip(groups, state.sites, strict=True)),
    )
    end = jax.lax.while_loop(moving, sweep, start)
    etas = tuple(join_columns(own, eta.shape[1]) for own, eta in zip(end.q, state.q.etas, strict=True))
    sites = tuple(
        jnp.concatenate([join_columns(own, 2 * k) for own, k in zip(site, group.data.shape[1:], strict=True)], axis=1)
        for group, site in zip(groups, end.sites, strict=True)
    )
    return end._replace(q=state.q._replace(etas=etas), sites=sites)


def all_have_states(q: tuple[Column, ...]) -> jax.Array:
    """Whether every variable has a possible state."""
    counts = [own[len(own) // 2 :] for own in q]
    return jnp.all(jnp.stack([jnp.all(reduce(jnp.logical_or, [c <= SOME for c in own])) for own in counts]))


def without_zeros(problem: Problem, method: UpdateRule, state: State) -> jax.Array:
    """Whether nothing is impossible: no numbers of zeros need be carried along, and weights can be summed."""
    counts = [jnp.all(eta[:, eta.shape[1] // 2 :] == 0) for eta in state.q.etas]
    return jnp.all(jnp.stack([*counts, *(is_narrow(group, method.power) for group in problem.groups)]))


def group_tables(problem: Problem, method: UpdateRule, zeros: bool) -> list[Any]:
    """The tables of all groups, as weights where nothing is impossible."""
    return [(log_entries if zeros else weight_entries)(group, method.power) for group in problem.groups]


def measure_columns(problem: Problem, method: UpdateRule, zeros: bool, state: State) -> Report:
    """Mismatch and scale of every site at the given state, with or without numbers of zeros."""
    q = variable_columns(state.q.etas, zeros)
    mismatch, nonfinite, scales = [], [], []
    for group, table, own in zip(problem.groups, group_tables(problem, method, zeros), state.sites, strict=True):
        sites = site_columns(group, own, zeros)
        found = group_messages(problem, method, group, table, q, sites)
        inside = [
            elementwise_log_sum(log_weights_of(add_scaled(cavity, site, method.power), k))
            for cavity, site, k in zip(found.cavity, sites, group.data.shape[1:], strict=True)
        ]
        scale = (found.log_total - reduce(jnp.add, inside)) / method.power
        scales.append(jnp.where(found.usable, scale, 0.0))
        mismatch.append(found.mismatch)
        nonfinite.append(~found.usable)
    none = tuple(map(jnp.zeros_like, nonfinite))
    return Report(tuple(mismatch), none, none, tuple(nonfinite), tuple(scales), tuple({} for _ in none))


def is_table(group: SiteGroup) -> bool:
    """Whether a group's sites can be written entry by entry."""
    return (
        isinstance(group.factor, Table)
        and isinstance(group.moments, Enumeration)
        and isinstance(group.family, Product)
        and all(isinstance(own, Categorical) for own in group.family.families)
        and group.multiplicity is None
        and int(np.prod(group.data.shape[1:])) <= (MANY_ENTRIES if group.size >= MANY_SITES else FEW_ENTRIES)
    )


def log_entries(group: SiteGroup, power: float) -> Entries:
    """power × log t by joint state, one array over the sites each; what is no number counts as impossible."""
    log_t = jnp.asarray(group.data, float)
    columns = {x: power * log_t[(slice(None), *x)] for x in np.ndindex(*log_t.shape[1:])}
    return {x: jnp.where(jnp.isfinite(own), own, -jnp.inf) for x, own in columns.items()}


def weight_entries(group: SiteGroup, power: float) -> TableWeights:
    """t**power by joint state in units of its largest entry."""
    logs = log_entries(group, power)
    top = largest([*logs.values()])
    return TableWeights({x: jnp.exp(own - top) for x, own in logs.items()}, top)


def is_narrow(group: SiteGroup, power: float) -> jax.Array:
    """Whether the entries of every table are within `WIDEST` of each other, in logarithms: also that none is zero."""
    axes = tuple(range(1, group.data.ndim))
    log_t = power * jnp.asarray(group.data, float)
    return jnp.all(jnp.max(log_t, axis=axes) - jnp.min(log_t, axis=axes) <= WIDEST)


def split_columns(states: int, eta: jax.Array, zeros: bool) -> Column:
    """Natural parameters of one categorical, rows by variable or site; without the numbers of zeros if none is one."""
    return [eta[:, k] for k in range(2 * states if zeros else states)]


def join_columns(column: Column, size: int) -> jax.Array:
    """The inverse of `split_columns`, with so many numbers per row."""
    return jnp.stack([*column, *[jnp.zeros_like(column[0])] * (size - len(column))], axis=1)


def variable_columns(etas: tuple[jax.Array, ...], zeros: bool) -> tuple[Column, ...]:
    """The columns of all variables, one per family."""
    return tuple(split_columns(eta.shape[1] // 2, jnp.asarray(eta, float), zeros) for eta in etas)


def site_columns(group: SiteGroup, sites: jax.Array, zeros: bool) -> tuple[Column, ...]:
    """The columns of a group's sites, one per slot."""
    parts = consecutive_slices([2 * k for k in group.data.shape[1:]])
    return tuple(split_columns(k, sites[:, part], zeros) for k, part in zip(group.data.shape[1:], parts, strict=True))


def log_weights_of(column: Column, states: int) -> Column:
    """Log weights, −inf where a message calls the state impossible."""
    if len(column) == states:
        return column
    pairs = zip(column[:states], column[states:], strict=True)
    return [jnp.where(count > SOME, -jnp.inf, weight) for weight, count in pairs]


def add_scaled(column: Column, other: Column, step: float | jax.Array) -> Column:
    """column + step × other."""
    return [own + step * change for own, change in zip(column, other, strict=True)]


def messages_in_logs(
    log_t: Entries, cavities: list[Column], maximum: bool
) -> tuple[list[Column], jax.Array, jax.Array]:
    """(log messages, log of the sum of all, whether there is one), whatever is in the table."""
    outgoing = entry_messages(log_t, cavities, maximum)
    inside = [m + c for m, c in zip(outgoing[0], cavities[0], strict=True)]
    log_total = largest(inside) if maximum else elementwise_log_sum(inside)
    return outgoing, log_total, jnp.isfinite(log_total)


def messages_in_weights(
    table: TableWeights, cavities: list[Column], maximum: bool
) -> tuple[list[Column], jax.Array, jax.Array]:
    """`messages_in_logs` with fewer exponentials and logarithms, for entries within `WIDEST` of each other.

    The most probable state of the others alone makes every sum at least exp(−WIDEST): what underflows beside it is less
    than rounding.
    """
    tops = [largest(own) for own in cavities]
    shares = [[jnp.exp(entry - top) for entry in own] for own, top in zip(cavities, tops, strict=True)]
    total = largest if maximum else partial(reduce, jnp.add)
    sums = [[total(terms) for terms in states] for states in entry_terms(table.entries, shares, operator.mul)]
    inside = total([m * c for m, c in zip(sums[0], shares[0], strict=True)])
    log_total = jnp.log(inside) + reduce(jnp.add, tops) + table.log_scale
    return [[jnp.log(own) for own in column] for column in sums], log_total, (inside > 0) & jnp.isfinite(inside)


def group_messages(
    problem: Problem,
    method: UpdateRule,
    group: SiteGroup,
    table: Entries | TableWeights,
    q: tuple[Column, ...],
    sites: tuple[Column, ...],
) -> GroupMessages:
    """Delete, tilt and match all sites of a group; the largest log weight of every message is 0."""
    wires = problem.prior.wires[group.scope.group]
    states = group.data.shape[1:]
    seen = [[own[wires[:, slot]] for own in q[number]] for slot, number in enumerate(group.scope.slots)]
    cavity = [add_scaled(own, site, -method.power) for own, site in zip(seen, sites, strict=True)]
    weights = [log_weights_of(own, k) for own, k in zip(cavity, states, strict=True)]
    maximum = isinstance(group.moments, Enumeration) and group.moments.maximum
    if isinstance(table, TableWeights):
        outgoing, log_total, usable = messages_in_weights(table, weights, maximum)
    else:
        outgoing, log_total, usable = messages_in_logs(table, weights, maximum)
    message, gaps = [], []
    for own, site, before, k in zip(outgoing, sites, seen, states, strict=True):
        top = reduce(jnp.maximum, own)
        if len(site) == k:
            message.append([entry - top for entry in own])
        else:
            possible = [(entry > -jnp.inf) | ~usable for entry in own]
            shifted = [jnp.where(p & usable, entry - top, 0.0) for p, entry in zip(possible, own, strict=True)]
            message.append([*shifted, *((~p).astype(top.dtype) for p in possible)])
        after = add_scaled(cavity[len(message) - 1], message[-1], 1.0)
        gaps.append(spread_gap(log_weights_of(before, k), log_weights_of(after, k)))
    mismatch = jnp.where(usable, reduce(jnp.maximum, gaps), jnp.inf)
    return GroupMessages(cavity, message, log_total, mismatch, usable)


def add_messages(
    problem: Problem, group: SiteGroup, q: tuple[Column, ...], sites: tuple[Column, ...]
) -> tuple[Column, ...]:
    """q times the messages of a group."""
    wires, found = problem.prior.wires[group.scope.group], list(q)
    for slot, number in enumerate(group.scope.slots):
        pairs = zip(found[number], sites[slot], strict=True)
        found[number] = [own.at[wires[:, slot]].add(message) for own, message in pairs]
    return tuple(found)
