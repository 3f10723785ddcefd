"""What a run carries from sweep to sweep, and what the visits of a table leave in it."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cavity._core.precision import float64
from cavity.inference._visit import ProposedUpdate, SiteBatch, is_identity, mismatch_of, step_of, step_scale
from cavity.inference.evidence import log_scale
from cavity.inference.problem import SiteGroup
from cavity.inference.schedule import Table
from cavity.inference.update_rule import UpdateRule


class Counts(NamedTuple):
    """What was done and what went wrong on the way, summed over the run: never silent.

    unsure: visits whose moments were not known well enough. shortened: blocks whose step was halved.
    tilts: integrations made to choose and update sites, one entry per group.
    """

    improper_cavity: jax.Array
    nonfinite: jax.Array
    unsure: jax.Array
    shortened: jax.Array
    tilts: tuple[jax.Array, ...]


class Report(NamedTuple):
    """The state as measured from outside a sweep, one entry per group."""

    mismatch: tuple[jax.Array, ...]
    constraint_relaxed: tuple[jax.Array, ...]
    improper: tuple[jax.Array, ...]
    nonfinite: tuple[jax.Array, ...]
    log_scales: tuple[jax.Array, ...]
    info: tuple[dict[str, jax.Array], ...]
    unsure: tuple[jax.Array, ...] = ()

    @property
    @float64
    def largest(self) -> jax.Array:
        """The largest mismatch of all sites."""
        return jnp.max(jnp.concatenate(self.mismatch))


class State(NamedTuple):
    """Carried from sweep to sweep.

    memory: what the projection remembers of every site, by group. moments: what the moments strategy of each group has
    learned, see `Moments.init`.
    """

    q: Any
    sites: tuple[jax.Array, ...]
    memory: tuple[jax.Array, ...]
    log_scales: tuple[jax.Array, ...]
    mismatch: tuple[jax.Array, ...]
    counts: Counts
    sweep: jax.Array
    residuals: jax.Array
    finished: jax.Array
    moments: tuple[Any, ...]


def scaled_at_visits(method: UpdateRule, group: SiteGroup) -> bool:
    """Whether the scales of the sites are those of their last visits; else they are measured when the sweeps are over.

    In a single pass they differ, and a site whose cavity has become improper can be measured no more.
    """
    return method.single_pass or not group.family.cavities_proper


def count_tilts(counts: Counts, groups: tuple[SiteGroup, ...]) -> Counts:
    """The counts after one integration of every site."""
    return counts._replace(tilts=tuple(done + g.size for done, g in zip(counts.tilts, groups, strict=True)))


def scatter_visits(
    method: UpdateRule,
    group: SiteGroup,
    number: int,
    state: State,
    table: Table,
    rows: SiteBatch,
    trials: ProposedUpdate,
    halvings: jax.Array,
) -> State:
    """The state with what the visits of a table left: sites, scales and mismatch put in place, counts added up.

    Scans hand the trials out and the new rows are put in place here, once per table, by a gather: carrying the arrays
    through the scan would copy them at every visit.
    """
    scale = step_scale(halvings)[:, None, None]
    new = rows._replace(site=rows.site + scale * step_of(method, group, rows, trials))
    rows, new, trials = jax.tree.map(lambda leaf: leaf.reshape(table.size, *leaf.shape[2:]), (rows, new, trials))
    log_scales = state.log_scales
    real = rows.which < group.size
    in_order = is_identity(table, group.size)
    place = jnp.full(group.size, table.size).at[table.ravel()].set(jnp.arange(table.size), mode="drop")

    def replaced(groups: tuple[jax.Array, ...], rows: jax.Array, kept: jax.Array | None = None) -> tuple[Any, ...]:
        old = groups[number]
        if not in_order:
            kept = place < table.size if kept is None else (place < table.size) & kept[place]
        if kept is not None:
            kept = jnp.reshape(kept, kept.shape + (1,) * (rows.ndim - 1))
        rows = rows if in_order else rows[place]
        new = rows if kept is None else jnp.where(kept, rows, old)
        return (*groups[:number], new, *groups[number + 1 :])

    if scaled_at_visits(method, group):
        scales = jax.vmap(partial(log_scale, group.family, power=method.power))(trials.cavity, trials.log_z, new.site)
        log_scales = replaced(log_scales, scales, trials.accepted)
    counts = state.counts
    tilts = tuple(done + (jnp.sum(real) if g == number else 0) for g, done in enumerate(counts.tilts))
    held = real & (rows.copies > 0)
    return state._replace(
        sites=replaced(state.sites, new.site),
        memory=replaced(state.memory, trials.memory, trials.accepted) if method.projection.memory else state.memory,
        log_scales=log_scales,
        mismatch=replaced(state.mismatch, mismatch_of(method, group, rows, trials)),
        counts=Counts(
            counts.improper_cavity + jnp.sum(~trials.proper & held),
            counts.nonfinite + jnp.sum(trials.proper & ~trials.finite & ~trials.unsure & held),
            counts.unsure + jnp.sum(trials.proper & trials.unsure & held),
            counts.shortened + jnp.sum(halvings > 0),
            tilts,
        ),
    )


def is_settled(mismatch: tuple[jax.Array, ...], tol: float) -> jax.Array:
    """Every site that can be updated is within tolerance; those that cannot have an infinite mismatch."""
    together = jnp.concatenate(mismatch)
    return jnp.all((together <= tol) | jnp.isinf(together))
