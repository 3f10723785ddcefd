"""The parts of a visit, delete → tilt → project, for every method, family and posterior; and what a run carries on."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity._numerics.sums import all_last
from cavity.factors.base import Factor
from cavity.families.base import Family
from cavity.inference._skipping import NEWS, Skipping
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.schedule import Table
from cavity.inference.update_rule import Integrals, Projected, Projection, UpdateRule
from cavity.moments.base import UNSURE, Moments

#: an array whose first two axes, blocks or batches and what is in them, have become one
one_after_another = partial(jax.lax.collapse, start_dimension=0, stop_dimension=2)


class SiteBatch(NamedTuple):
    """Some sites of a group with what belongs to them, gathered before a scan; `which` are their numbers.

    mask: which of a site's numbers the visit may change; None for all.
    """

    which: jax.Array
    site: jax.Array
    memory: jax.Array
    multiplicity: jax.Array
    data: Any
    mask: jax.Array | None = None


class ProposedUpdate(NamedTuple):
    """The outcome of delete, tilt and project for a block of sites, before anything is changed.

    cavity: what the messages were matched against. unsure: sites whose moments are not known well enough.
    constraint_relaxed, memory, drift, info: the projection's, see `Projected`.
    share: of the step that the copies of a site take together; None where all of it is taken.
    """

    cavity: jax.Array
    log_z: jax.Array
    message: jax.Array
    proper: jax.Array
    finite: jax.Array
    unsure: jax.Array
    constraint_relaxed: jax.Array
    memory: jax.Array
    drift: jax.Array
    info: dict[str, jax.Array]
    share: jax.Array | None = None

    @property
    def accepted(self) -> jax.Array:
        """Whether the message may replace the site."""
        return self.proper & self.finite & ~self.unsure


def deletion(method: UpdateRule, rows: SiteBatch) -> jax.Array:
    """What deletion takes out of q: site**power. A site of multiplicity 0 is not in q, so there is nothing to take."""
    return method.power * jnp.minimum(rows.multiplicity, 1.0)[..., None] * rows.site


def propose(
    method: UpdateRule,
    group: SiteGroup,
    learned: Any,
    local: jax.Array,
    rows: SiteBatch,
    key: jax.Array,
    cavity: jax.Array | None = None,
) -> ProposedUpdate:
    """Delete, tilt and project a block of sites from the same q, of which `local` is what each of them sees.

    learned: the state of the group's moments, see `Moments.init`. cavity: if it is known better than as a difference.
    """
    family = method.projection.adapt(group.family)
    cavity = local - deletion(method, rows) if cavity is None else cavity
    proper = jnp.ones(cavity.shape[0], bool)
    if not family.cavities_proper:
        # What is integrated is always something that can be; results for an improper cavity are discarded. A relaxed
        # cavity is made from the scale of the one given.
        if method.projection.relaxes_cavity:
            proper = family.is_allowed(cavity)
        else:
            accepts = partial(group.moments.accepts, group.factor, family, power=method.power)
            proper = jax.vmap(accepts)(cavity, rows.data)
        cavity = jnp.where(proper[:, None], cavity, local)

    site = partial(project_site, group.moments, family, method.power, method.projection, learned, group.factor, key)
    found = jax.vmap(site)(rows._replace(multiplicity=None, mask=None), cavity)
    finite = jnp.isfinite(found.log_z) & all_last(jnp.isfinite(found.message))
    if not family.cavities_proper:
        finite = finite & family.is_allowed(found.cavity + found.message)
    if method.projection.relaxes_cavity:
        proper = proper & (family.is_allowed(cavity + found.message) | ~finite)
    return ProposedUpdate(
        found.cavity,
        found.log_z,
        found.message,
        proper,
        finite,
        found.info.get(UNSURE, jnp.zeros_like(finite)),
        found.constraint_relaxed,
        found.memory,
        found.drift,
        found.info,
    )


@partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def project_site(
    moments: Moments,
    family: Family,
    power: float,
    projection: Projection,
    learned: Any,
    factor: Factor,
    key: jax.Array,
    row: SiteBatch,
    cavity: jax.Array,
) -> Projected:
    """Tilt and project one site. Inlined into the programs that call it: it is traced once, however often they do."""
    own_key = site_key(key, moments.random, row.which)
    site = (learned, factor, family)
    integrals = Integrals(
        partial(moments.tilt, *site, data=row.data, power=power, key=own_key),
        partial(moments.expected_log, *site, data=row.data, key=own_key),
    )
    return projection.apply(family, integrals, cavity, row.site, row.memory)


def mismatch_of(method: UpdateRule, group: SiteGroup, rows: SiteBatch, trial: ProposedUpdate) -> jax.Array:
    """Moment mismatch between q and the projected tilted distribution; infinite where there is none.

    A site that stands for w factors is compared with q after all of them have moved, of which one is only a w-th.
    Of a message that makes known what q knew nothing of it is `NEWS`: infinite too, but the run must go on.
    """
    family = method.projection.adapt(group.family)
    before, after = trial.cavity + deletion(method, rows), trial.cavity + trial.message
    gap = family.distance(before, after)
    if not group.at_most_one:
        change = rows.multiplicity[..., None] * (trial.message / method.power - rows.site)
        together = family.distance(before, before + change)
        gap = jnp.where(
            rows.multiplicity > 1, jnp.where(jnp.isfinite(together), together, rows.multiplicity * gap), gap
        )
    if method.projection.memory:
        gap = jnp.maximum(gap, trial.drift)
    # A site of multiplicity 0 is not part of q: nothing it says can be out of step.
    return jnp.where(rows.multiplicity == 0, 0.0, jnp.where(trial.accepted, jnp.minimum(gap, NEWS), jnp.inf))


def without_news(mismatch: jax.Array) -> jax.Array:
    """The mismatch as it is told: that of news is infinite."""
    return jnp.where(mismatch >= NEWS, jnp.inf, mismatch)


def step_of(method: UpdateRule, group: SiteGroup, rows: SiteBatch, trial: ProposedUpdate) -> jax.Array:
    """The damped change of every site; none where the trial failed or the row is padding."""
    accepted = (trial.accepted & (rows.which < group.size))[..., None]
    accepted = accepted if rows.mask is None else accepted & rows.mask
    step = method.damping if trial.share is None else method.damping * trial.share[..., None]
    return jnp.where(accepted, step * (trial.message / method.power - rows.site), 0.0)


def gather(
    group: SiteGroup, sites: jax.Array, memory: jax.Array, index: Table, mask: np.ndarray | None = None
) -> SiteBatch:
    """The rows of the sites `index`, any shape; an index no site has takes the last site's."""
    rows = (sites, memory, group.multiplicities, jax.tree.map(jnp.asarray, group.data))
    if is_identity(index, group.size):
        picked = jax.tree.map(lambda leaf: leaf.reshape(*index.shape, *leaf.shape[1:]), rows)
    else:
        picked = jax.tree.map(lambda leaf: leaf[index], rows)
    spread = None if mask is None else jnp.broadcast_to(mask, (*index.shape, *mask.shape))
    return SiteBatch(jnp.asarray(index), *picked, mask=spread)


def is_identity(index: Table, size: int) -> bool:
    """Whether these are all sites in their own order, known beforehand."""
    return isinstance(index, np.ndarray) and np.array_equal(index.ravel(), np.arange(size))


def site_key(key: jax.Array, needed: bool, *numbers: int | jax.Array) -> jax.Array:
    """A key for these numbers; the key as it is where it is not used, which keeps the compiled loop small.

    Groups and sites get the same key in every sweep, so that sampled moments have a fixed point.
    """
    for number in numbers if needed else ():
        key = jax.random.fold_in(key, number)
    return key


class Counts(NamedTuple):
    """What was done and what went wrong on the way, summed over the run: never silent.

    Attributes:
        improper_cavity: visits that left a site alone because its cavity was improper.
        nonfinite: visits whose factor gave no finite moments.
        unsure: visits whose moments were not known well enough.
        shortened: blocks whose step was halved.
        tilts: integrations made to choose and update sites, one entry per group.

    Examples:
        >>> import cavity as cv
        >>> problem, method = cv.models.clutter([0.1, 2.3, 1.9]), cv.EP()
        >>> _, info = cv.stepping.step(problem, method, cv.stepping.init(problem, method))
        >>> int(info.counts.tilts[0]), int(info.counts.improper_cavity)
        (3, 0)
    """

    improper_cavity: jax.Array
    nonfinite: jax.Array
    unsure: jax.Array
    shortened: jax.Array
    tilts: tuple[jax.Array, ...]


class Report(NamedTuple):
    """The state as measured from outside a sweep, one entry per group with one number per site.

    Attributes:
        mismatch: between the moments of q and of the tilted distribution.
        constraint_relaxed: whether a site matches moments only by giving a constraint up.
        improper: whether its cavity is.
        nonfinite: whether its factor gave no finite moments.
        log_scales: log sᵢ (thesis 3.39).
        info: what the moments strategy reported.
        unsure: whether its moments were not known well enough.
        log_means: E[log t̃ᵢ] under q of the scaled site, from which the log evidence is summed.

    Examples:
        >>> import cavity as cv
        >>> problem, method = cv.models.clutter([0.1, 2.3, 1.9]), cv.EP()
        >>> report = cv.stepping.measure(problem, method, cv.stepping.init(problem, method))
        >>> report.mismatch[0].shape, bool(report.improper[0].any())
        ((3,), False)
    """

    mismatch: tuple[jax.Array, ...]
    constraint_relaxed: tuple[jax.Array, ...]
    improper: tuple[jax.Array, ...]
    nonfinite: tuple[jax.Array, ...]
    log_scales: tuple[jax.Array, ...]
    info: tuple[dict[str, jax.Array], ...]
    unsure: tuple[jax.Array, ...] = ()
    log_means: tuple[jax.Array, ...] = ()

    @property
    @float64
    def largest(self) -> jax.Array:
        """The largest mismatch of all sites."""
        return jnp.max(jnp.concatenate(self.mismatch))


class State(NamedTuple):
    """Carried from sweep to sweep.

    Attributes:
        q: the posterior as its strategy stores it.
        sites: natural parameters, by group.
        memory: what the projection remembers of every site, by group.
        log_scales: log sᵢ of every site, by group.
        visited: the cavity and log Zᵢ of every site's last visit, by group; no columns where they are not needed.
        mismatch: of every site when it was last visited, by group.
        counts: of the whole run.
        sweep: sweeps made.
        residuals: the largest mismatch met in every sweep, with room for all that may come.
        finished: whether the sites agreed within the tolerance when last measured.
        moments: what the moments strategy of each group has learned, see `Moments.init`.
        skipping: of the visits left out, whether more sweeps are worth making.

    Examples:
        >>> import cavity as cv
        >>> problem, method = cv.models.clutter([0.1, 2.3, 1.9]), cv.EP()
        >>> state = cv.stepping.init(problem, method)
        >>> int(state.sweep), state.sites[0].shape, state.residuals.shape
        (0, (3, 2), (200,))
    """

    q: Any
    sites: tuple[jax.Array, ...]
    memory: tuple[jax.Array, ...]
    log_scales: tuple[jax.Array, ...]
    visited: tuple[jax.Array, ...]
    mismatch: tuple[jax.Array, ...]
    counts: Counts
    sweep: jax.Array
    residuals: jax.Array
    finished: jax.Array
    moments: tuple[Any, ...]
    skipping: Skipping


def log_scale(family: Family, cavity: jax.Array, log_z: jax.Array, site: jax.Array, power: float) -> jax.Array:
    """log sᵢ = (log Zᵢ + A(cavity) − A(cavity + power·site)) / power: the scaled site has the factor's own integral.

    A scaled site is t̃ᵢ(x) = sᵢ exp(etaᵢ·T(x)) (thesis 3.39). For the matched site and power 1 log sᵢ is
    log Z q(x)/q_new(x) taken apart (3.59, 3.107).
    """
    return (log_z + family.log_partition(cavity) - family.log_partition(cavity + power * site)) / power


def scaled_at_visits(method: UpdateRule, group: SiteGroup) -> bool:
    """Whether the scales of the sites are those of their last visits; else they are measured when the sweeps are over.

    In a single pass they differ, and a site whose cavity has become improper can be measured no more.
    """
    return method.single_pass or not group.family.cavities_proper


def weighted_sites(problem: Problem, sites: tuple[jax.Array, ...]) -> tuple[tuple[Any, jax.Array], ...]:
    """Pairs (scope, the group's sites times their multiplicity), as posteriors take them."""
    pairs = zip(problem.groups, sites, strict=True)
    return tuple((group.scope, group.multiplicities[:, None] * own) for group, own in pairs)


def keeps_visits(method: UpdateRule, group: SiteGroup) -> bool:
    """Whether the evidence rests on the cavities of the last visits, of a family whose log partitions may be large."""
    return method.single_pass and not group.family.cavities_proper


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
    shares: jax.Array,
) -> State:
    """The state with what the visits of a table left: sites, scales and mismatch put in place, counts added up.

    Scans hand the trials out and the new rows are put in place here, once per table, by a gather: carrying the arrays
    through the scan would copy them at every visit.
    """
    new = rows._replace(site=rows.site + shares[:, None, None] * step_of(method, group, rows, trials))
    rows, new, trials = jax.tree.map(one_after_another, (rows, new, trials))
    log_scales, visited = state.log_scales, state.visited
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
    if keeps_visits(method, group):
        visited = replaced(visited, jnp.column_stack([trials.cavity, trials.log_z]), trials.accepted)
    counts = state.counts
    made = jnp.sum(real) * (1 if trials.share is None else 2)
    tilts = (*counts.tilts[:number], counts.tilts[number] + made, *counts.tilts[number + 1 :])
    held = real & (rows.multiplicity > 0)
    return state._replace(
        sites=replaced(state.sites, new.site),
        memory=replaced(state.memory, trials.memory, trials.accepted) if method.projection.memory else state.memory,
        log_scales=log_scales,
        visited=visited,
        mismatch=replaced(state.mismatch, mismatch_of(method, group, rows, trials)),
        counts=Counts(
            counts.improper_cavity + jnp.sum(~trials.proper & held),
            counts.nonfinite + jnp.sum(trials.proper & ~trials.finite & ~trials.unsure & held),
            counts.unsure + jnp.sum(trials.proper & trials.unsure & held),
            counts.shortened + jnp.sum(shares < 1.0),
            tilts,
        ),
    )


def is_settled(mismatch: tuple[jax.Array, ...], tol: float) -> jax.Array:
    """Every site that can be updated is within tolerance, and nothing is news; those that cannot are infinite."""
    together = jnp.concatenate(mismatch)
    return jnp.all((together <= tol) | jnp.isinf(together))
