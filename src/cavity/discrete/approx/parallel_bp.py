"""Parallel sweeps of loopy BP and their measurement, in columns."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cavity.discrete.approx.columns import (
    Column,
    entries_of,
    is_narrow,
    is_table,
    log_weights,
    moved,
    put_together,
    sites_apart,
    spread,
    states_of,
    try_group,
    variables_apart,
    weights_of,
)
from cavity.families.categorical import SOME
from cavity.inference.methods import Method
from cavity.inference.problem import Problem
from cavity.inference.projection import Matched
from cavity.inference.schedule import Parallel
from cavity.inference.stepping import Report, State
from cavity.inference.sweep_kernel import SweepKernel
from cavity.numerics.short_axis import elementwise_log_sum
from cavity.posteriors.factorised import Network


class Columns(NamedTuple):
    """A `State` taken apart. q: one variable's columns a family; sites: one a slot, by group."""

    q: tuple[Column, ...]
    sites: tuple[tuple[Column, ...], ...]
    mismatch: tuple[jax.Array, ...]
    nonfinite: jax.Array
    shortened: jax.Array
    sweep: jax.Array
    residuals: jax.Array


def sweeps_of(problem: Problem, method: Method, moving: Callable[[Any], jax.Array], zeros: bool, state: State) -> State:
    """Sweeps while `moving`, with or without numbers of zeros."""
    groups, tables = problem.groups, tables_of(problem, method, zeros)
    prior = variables_apart(problem.prior.etas, zeros)

    def sweep(now: Columns) -> Columns:
        q, sites, mismatch = now.q, list(now.sites), []
        nonfinite, shortened = now.nonfinite, now.shortened
        for number, (group, table) in enumerate(zip(groups, tables, strict=True)):
            visited, old = try_group(problem, method, group, table, q, sites[number]), sites[number]
            change = tuple(
                [
                    jnp.where(visited.usable, method.damping * (m / method.power - s), 0.0)
                    for m, s in zip(*pair, strict=True)
                ]
                for pair in zip(visited.message, old, strict=True)
            )
            changed = spread(problem, group, q, change)
            # A step after which a variable has no state left is not made, however short: zeros have no half.
            possible = all_have_states(changed) if zeros else jnp.ones((), bool)
            sites[number] = tuple(
                moved(own, step, possible.astype(float)) for own, step in zip(old, change, strict=True)
            )
            q = jax.tree.map(partial(jnp.where, possible), changed, q)
            mismatch.append(visited.mismatch)
            nonfinite = nonfinite + jnp.sum(~visited.usable)
            shortened = shortened + ~possible
        # Free of the rounding of the updates.
        rebuilt = prior
        for group, own in zip(groups, sites, strict=True):
            rebuilt = spread(problem, group, rebuilt, own)
        worst = reduce(jnp.maximum, [jnp.max(own) for own in mismatch])
        residuals = now.residuals.at[now.sweep].set(worst)
        return Columns(rebuilt, tuple(sites), tuple(mismatch), nonfinite, shortened, now.sweep + 1, residuals)

    counts = state.counts
    start = Columns(
        variables_apart(state.q.etas, zeros),
        tuple(sites_apart(group, own, zeros) for group, own in zip(groups, state.sites, strict=True)),
        state.mismatch,
        counts.nonfinite,
        counts.shortened,
        state.sweep,
        state.residuals,
    )
    end = jax.lax.while_loop(moving, sweep, start)
    made = end.sweep - state.sweep
    tilts = tuple(done + made * group.size for done, group in zip(counts.tilts, groups, strict=True))
    return state._replace(
        q=Network(
            tuple(put_together(own, eta.shape[1]) for own, eta in zip(end.q, state.q.etas, strict=True)), state.q.wires
        ),
        sites=tuple(
            jnp.concatenate([put_together(own, 2 * k) for own, k in zip(site, states_of(group), strict=True)], axis=1)
            for group, site in zip(groups, end.sites, strict=True)
        ),
        mismatch=end.mismatch,
        counts=counts._replace(nonfinite=end.nonfinite, shortened=end.shortened, tilts=tilts),
        sweep=end.sweep,
        residuals=end.residuals,
    )


def all_have_states(q: tuple[Column, ...]) -> jax.Array:
    """Whether every variable has a possible state."""
    counts = [own[len(own) // 2 :] for own in q]
    return jnp.all(jnp.stack([jnp.all(reduce(jnp.logical_or, [c <= SOME for c in own])) for own in counts]))


@dataclass(frozen=True)
class InColumns(SweepKernel):
    """Parallel sweeps, and measurements, of small tables over independent variables."""

    def can_measure(self, problem: Problem, method: Method) -> bool:
        """Whether every site is a small table, matched as it is."""
        return type(method.projection) is Matched and all(is_table(group) for group in problem.groups)

    def can_sweep(self, problem: Problem, method: Method) -> bool:
        """Whether all sites of a group are updated from the same q, and their scales are measured afterwards."""
        schedule = problem.schedule if method.schedule is None else method.schedule
        return isinstance(schedule, Parallel) and not method.single_pass and self.can_measure(problem, method)

    def sweep_while(self, problem: Problem, method: Method, state: State, moving: Callable[[Any], jax.Array]) -> State:
        run = partial(sweeps_of, problem, method, moving)
        return jax.lax.cond(are_plain(problem, method, state), partial(run, False), partial(run, True), state)

    def measure(self, problem: Problem, method: Method, state: State) -> Report:
        look = partial(report_of, problem, method)
        return jax.lax.cond(are_plain(problem, method, state), partial(look, False), partial(look, True), state)


def are_plain(problem: Problem, method: Method, state: State) -> jax.Array:
    """Whether nothing is impossible: no numbers of zeros need be carried along, and weights can be summed."""
    counts = [jnp.all(eta[:, eta.shape[1] // 2 :] == 0) for eta in state.q.etas]
    return jnp.all(jnp.stack([*counts, *(is_narrow(group, method.power) for group in problem.groups)]))


def tables_of(problem: Problem, method: Method, zeros: bool) -> list[Any]:
    """The tables of all groups, as weights where nothing is impossible."""
    return [(entries_of if zeros else weights_of)(group, method.power) for group in problem.groups]


def report_of(problem: Problem, method: Method, zeros: bool, state: State) -> Report:
    """Mismatch and scale of every site at the given state, with or without numbers of zeros."""
    q = variables_apart(state.q.etas, zeros)
    mismatch, nonfinite, scales, nothing = [], [], [], []
    for group, table, own in zip(problem.groups, tables_of(problem, method, zeros), state.sites, strict=True):
        sites = sites_apart(group, own, zeros)
        visited = try_group(problem, method, group, table, q, sites)
        inside = [
            elementwise_log_sum(log_weights(moved(cavity, site, method.power), k))
            for cavity, site, k in zip(visited.cavity, sites, states_of(group), strict=True)
        ]
        scale = (visited.log_total - reduce(jnp.add, inside)) / method.power
        scales.append(jnp.where(visited.usable, scale, 0.0))
        mismatch.append(visited.mismatch)
        nonfinite.append(~visited.usable)
        nothing.append(jnp.zeros(group.size, bool))
    none = tuple(nothing)
    return Report(tuple(mismatch), none, none, tuple(nonfinite), tuple(scales), tuple({} for _ in none))
