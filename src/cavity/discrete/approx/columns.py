"""Sites that are small tables, all at once: what `visit` does, with every state of every variable an array of its own.

Loopy BP on a large graph is bound by memory. Written with one row a site, a compiler reads all of a row for each of its
few numbers, again and again; written with one array a number, everything between reading q and writing the new sites
happens in registers. The numbers are those of the general loop up to rounding, and up to the constant that a site's log
weights may hold.
"""

from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.table import Table
from cavity.families.categorical import SOME, Categorical, spread_gap
from cavity.families.product import Product, consecutive_slices
from cavity.inference.methods import Method
from cavity.inference.problem import Problem, SiteGroup
from cavity.moments.enumeration import FEW_ENTRIES, Entries, Enumeration, entry_messages
from cavity.numerics.short_axis import elementwise_log_sum, largest

#: logarithms of the entries of a table may differ by so much for their weights to be summed as they are
WIDEST = 500.0
#: entries of a table that are worth compiling one by one where there are so many sites
MANY_ENTRIES, MANY_SITES = 16, 1_000

#: the states of one variable, each an array over variables or sites: log weights, then numbers of zeros where kept
Column = list[jax.Array]


class Weights(NamedTuple):
    """A table without logarithms: entries in units of the largest, whose log is `log_scale`."""

    entries: Entries
    log_scale: jax.Array


class Visited(NamedTuple):
    """All sites of a group tried at once. log_total: log Σ t**power × cavity, without the cavity's normalisation."""

    cavity: list[Column]
    message: list[Column]
    log_total: jax.Array
    mismatch: jax.Array
    usable: jax.Array


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


def entries_of(group: SiteGroup, power: float) -> Entries:
    """power × log t by joint state, one array over the sites each; what is no number counts as impossible."""
    log_t = jnp.asarray(group.data, float)
    columns = {x: power * log_t[(slice(None), *x)] for x in np.ndindex(*log_t.shape[1:])}
    return {x: jnp.where(jnp.isfinite(own), own, -jnp.inf) for x, own in columns.items()}


def weights_of(group: SiteGroup, power: float) -> Weights:
    """t**power by joint state in units of its largest entry."""
    logs = entries_of(group, power)
    top = largest([*logs.values()])
    return Weights({x: jnp.exp(own - top) for x, own in logs.items()}, top)


def is_narrow(group: SiteGroup, power: float) -> jax.Array:
    """Whether the entries of every table are within `WIDEST` of each other, in logarithms: also that none is zero."""
    axes = tuple(range(1, group.data.ndim))
    log_t = power * jnp.asarray(group.data, float)
    return jnp.all(jnp.max(log_t, axis=axes) - jnp.min(log_t, axis=axes) <= WIDEST)


def taken_apart(states: int, eta: jax.Array, zeros: bool) -> Column:
    """Natural parameters of one categorical, rows by variable or site; without the numbers of zeros if none is one."""
    return [eta[:, k] for k in range(2 * states if zeros else states)]


def put_together(column: Column, size: int) -> jax.Array:
    """The inverse of `taken_apart`, with so many numbers a row."""
    return jnp.stack([*column, *[jnp.zeros_like(column[0])] * (size - len(column))], axis=1)


def states_of(group: SiteGroup) -> list[int]:
    """The numbers of states of a group's slots."""
    return list(group.data.shape[1:])


def variables_apart(etas: tuple[jax.Array, ...], zeros: bool) -> tuple[Column, ...]:
    """The columns of all variables, one a family."""
    return tuple(taken_apart(eta.shape[1] // 2, jnp.asarray(eta, float), zeros) for eta in etas)


def sites_apart(group: SiteGroup, sites: jax.Array, zeros: bool) -> tuple[Column, ...]:
    """The columns of a group's sites, one a slot."""
    parts = consecutive_slices([2 * k for k in states_of(group)])
    return tuple(taken_apart(k, sites[:, part], zeros) for k, part in zip(states_of(group), parts, strict=True))


def log_weights(column: Column, states: int) -> Column:
    """Log weights, −inf where a message calls the state impossible."""
    if len(column) == states:
        return column
    pairs = zip(column[:states], column[states:], strict=True)
    return [jnp.where(count > SOME, -jnp.inf, weight) for weight, count in pairs]


def moved(column: Column, other: Column, step: float | jax.Array) -> Column:
    """column + step × other."""
    return [own + step * change for own, change in zip(column, other, strict=True)]


def by_logs(log_t: Entries, cavities: list[Column], maximum: bool) -> tuple[list[Column], jax.Array, jax.Array]:
    """(log messages, log of the sum of all, whether there is one), whatever is in the table."""
    outgoing = entry_messages(log_t, cavities, maximum)
    inside = [m + c for m, c in zip(outgoing[0], cavities[0], strict=True)]
    log_total = largest(inside) if maximum else elementwise_log_sum(inside)
    return outgoing, log_total, jnp.isfinite(log_total)


def by_weights(table: Weights, cavities: list[Column], maximum: bool) -> tuple[list[Column], jax.Array, jax.Array]:
    """`by_logs` with fewer exponentials and logarithms, for tables whose entries are within `WIDEST` of each other.

    The most probable state of the others alone makes every sum at least exp(−WIDEST): what underflows beside it is less
    than rounding.
    """
    tops = [largest(own) for own in cavities]
    shares = [[jnp.exp(entry - top) for entry in own] for own, top in zip(cavities, tops, strict=True)]
    total = largest if maximum else partial(reduce, jnp.add)

    def term(x: tuple[int, ...], axis: int) -> jax.Array:
        return reduce(jnp.multiply, [shares[j][k] for j, k in enumerate(x) if j != axis], table.entries[x])

    sums = [
        [total([term(x, axis) for x in table.entries if x[axis] == k]) for k in range(len(own))]
        for axis, own in enumerate(cavities)
    ]
    inside = total([m * c for m, c in zip(sums[0], shares[0], strict=True)])
    log_total = jnp.log(inside) + reduce(jnp.add, tops) + table.log_scale
    return [[jnp.log(own) for own in column] for column in sums], log_total, (inside > 0) & jnp.isfinite(inside)


def try_group(
    problem: Problem,
    method: Method,
    group: SiteGroup,
    table: Entries | Weights,
    q: tuple[Column, ...],
    sites: tuple[Column, ...],
) -> Visited:
    """Delete, tilt and match all sites of a group; the largest log weight of every message is 0."""
    wires = problem.prior.wires[group.scope.group]
    states = states_of(group)
    seen = [[own[wires[:, slot]] for own in q[number]] for slot, number in enumerate(group.scope.slots)]
    cavity = [moved(own, site, -method.power) for own, site in zip(seen, sites, strict=True)]
    weights = [log_weights(own, k) for own, k in zip(cavity, states, strict=True)]
    maximum = isinstance(group.moments, Enumeration) and group.moments.maximum
    if isinstance(table, Weights):
        outgoing, log_total, usable = by_weights(table, weights, maximum)
    else:
        outgoing, log_total, usable = by_logs(table, weights, maximum)
    message, gaps = [], []
    for own, site, before, k in zip(outgoing, sites, seen, states, strict=True):
        top = reduce(jnp.maximum, own)
        if len(site) == k:
            message.append([entry - top for entry in own])
        else:
            possible = [(entry > -jnp.inf) | ~usable for entry in own]
            shifted = [jnp.where(p & usable, entry - top, 0.0) for p, entry in zip(possible, own, strict=True)]
            message.append([*shifted, *((~p).astype(top.dtype) for p in possible)])
        after = moved(cavity[len(message) - 1], message[-1], 1.0)
        gaps.append(spread_gap(log_weights(before, k), log_weights(after, k)))
    mismatch = jnp.where(usable, reduce(jnp.maximum, gaps), jnp.inf)
    return Visited(cavity, message, log_total, mismatch, usable)


def spread(problem: Problem, group: SiteGroup, q: tuple[Column, ...], sites: tuple[Column, ...]) -> tuple[Column, ...]:
    """q times the messages of a group."""
    wires, found = problem.prior.wires[group.scope.group], list(q)
    for slot, number in enumerate(group.scope.slots):
        pairs = zip(found[number], sites[slot], strict=True)
        found[number] = [own.at[wires[:, slot]].add(message) for own, message in pairs]
    return tuple(found)
