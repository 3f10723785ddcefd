"""Enumeration: exact sums over all states of one or several discrete variables."""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._numerics.sums import concatenate_pieces, elementwise_log_sum, largest, log_sum_along, unstacked
from cavity.factors.base import Factor, evaluate
from cavity.factors.table import Table
from cavity.families.base import Family, Tilted
from cavity.families.categorical import Categorical
from cavity.families.product import ASKED_APART, Product
from cavity.moments.base import Info, Moments

#: joint states beyond which the table of a factor is refused
LARGEST = 10_000_000

#: entries up to which a table is summed entry by entry
FEW_ENTRIES = 9

#: log weights of a table by joint state
Entries = dict[tuple[int, ...], jax.Array]
#: the log weights of a message, by variable and state
ByState = Sequence[Sequence[jax.Array]]


@dataclass(frozen=True)
class Enumeration(Moments):
    """Sums of t(x)**power × cavity(x) over all x: an integer, or a tuple of integers for a product of categoricals.

    The message to variable i is the sum over the others,

        m_i(x_i) = Σ_{x_j, j ≠ i} t(x)**power Π_{j ≠ i} c_j(x_j) / Z,

    without cavity i: it is never divided out again, so it is right also where c_i is zero, and a sum that is exactly
    zero becomes a zero of the site (a count), not a small number. Where nothing is possible log Z = −inf, the site says
    nothing and the statistics are the cavity's.

    Args:
        maximum: the largest term in place of every sum, which makes max-product of sum-product. log Z then is the
            largest log weight, and the evidence of a run has no meaning.

    Examples:
        >>> import cavity as cv
        >>> pair = cv.families.Product((cv.families.Categorical(2), cv.families.Categorical(3)))
        >>> cv.Enumeration().evaluations(pair)
        6
    """

    maximum: bool = False

    def tilt(
        self, state: Any, factor: Factor, family: Family, cavity: jax.Array, data: Any, power: float, key: jax.Array
    ) -> tuple[Tilted, Info]:
        states = states_of(family)
        log_t = power * log_table(factor, states, data, isinstance(family, Product))
        question = "log_probabilities"
        cavities = family.each(question, cavity) if isinstance(family, Product) else [getattr(family, question)(cavity)]
        if not isinstance(factor, Table):
            # Nothing is known of the sum where the factor is NaN or +∞ at a state that is possible.
            unknown = (jnp.isnan(log_t) | (log_t == jnp.inf)) & (reduce(jnp.add.outer, cavities) > -jnp.inf)
            log_t = jnp.where(jnp.any(unknown), -jnp.inf, log_t)
        log_t = jnp.where(jnp.isfinite(log_t), log_t, -jnp.inf)
        outgoing = messages(log_t, cavities, self.maximum)
        inside = outgoing[0] + cavities[0]
        log_z = jnp.max(inside) if self.maximum else log_sum_along(inside)
        if len(states) <= ASKED_APART:
            stats, sites = [], []
            for own in zip(cavities, outgoing, strict=True):
                own_stats, own_site = results(log_z, *own)
                stats += own_stats
                sites += own_site
        else:
            stats, flat = results(log_z, jnp.concatenate(cavities), jnp.concatenate(outgoing), False)
            pairs = zip(*(jnp.split(piece, np.cumsum(states)[:-1]) for piece in flat), strict=True)
            sites = [piece for pair in pairs for piece in pair]
        return Tilted(log_z, concatenate_pieces(stats), concatenate_pieces(sites)), {}

    def evaluations(self, family: Family) -> int:
        return math.prod(states_of(family))


def results(
    log_z: jax.Array, log_c: jax.Array, message: jax.Array, few: bool = True
) -> tuple[list[jax.Array], list[jax.Array]]:
    """(probabilities, site) in pieces: entries where they are few, else vectors. The site is log weights, then zeros.

    log_c, message: logarithms, over the states of one variable or of several.
    """
    found = log_z > -jnp.inf
    scale = jnp.where(found, log_z, 0.0)
    log_own, entries = (unstacked(log_c), unstacked(message)) if few else ([log_c], [message])
    possible = [(entry > -jnp.inf) | ~found for entry in entries]
    weights = [jnp.where(p & found, entry - scale, 0.0) for p, entry in zip(possible, entries, strict=True)]
    pairs = zip(log_own, entries, strict=True)
    stats = [jnp.exp(jnp.where(found, own + entry - scale, own)) for own, entry in pairs]
    return stats, [*weights, *((~p).astype(float) for p in possible)]


def messages(log_t: jax.Array, cavities: list[jax.Array], maximum: bool = False) -> list[jax.Array]:
    """log Σ over all other variables of t Π_{j ≠ i} c_j, for every variable i; or its largest term.

    Small tables entry by entry, large ones by halves: one half of the variables is summed out for all of the other.
    """
    if log_t.size > FEW_ENTRIES:
        return halved(log_t, cavities, jnp.max if maximum else jax.nn.logsumexp)
    entries = {x: log_t[x] for x in np.ndindex(log_t.shape)}
    return list(map(jnp.stack, entry_messages(entries, list(map(jnp.unstack, cavities)), maximum)))


def halved(log_t: jax.Array, cavities: list[jax.Array], total: Callable[..., jax.Array]) -> list[jax.Array]:
    """`messages` by halves, down to single variables."""
    if log_t.ndim == 1:
        return [log_t]
    middle = log_t.ndim // 2
    halves = cavities[:middle], cavities[middle:]
    first, second = (reduce(jnp.add.outer, own).ravel() for own in halves)
    table = log_t.reshape(len(first), len(second))
    kept = total(table + second, axis=1), total(table.T + first, axis=1)
    shapes = log_t.shape[:middle], log_t.shape[middle:]
    return [
        message
        for own, values, shape in zip(halves, kept, shapes, strict=True)
        for message in halved(values.reshape(shape), own, total)
    ]


def entry_messages(log_t: Entries, cavities: ByState, maximum: bool = False) -> list[list[jax.Array]]:
    """`messages` with every entry of the table and of the cavities apart: a number each, or one array of sites."""
    total = largest if maximum else elementwise_log_sum
    return [list(map(total, states)) for states in entry_terms(log_t, cavities, operator.add)]


def entry_terms(
    table: Entries, cavities: ByState, combine: Callable[[Any, Any], jax.Array]
) -> list[list[list[jax.Array]]]:
    """For every variable i and state x_i the terms of its message: t(x) combined with c_j(x_j), j ≠ i, for all such x.

    combine: addition of logarithms, or multiplication of weights.
    """
    found: list[list[list[jax.Array]]] = []
    for axis, own in enumerate(cavities):
        states: list[list[jax.Array]] = [[] for _ in own]
        for x, term in table.items():
            for j, k in enumerate(x):
                if j != axis:
                    term = combine(term, cavities[j][k])
            states[x[axis]].append(term)
        found.append(states)
    return found


class TooManyStates(ValueError):
    """The table of a factor has more joint states than are summed over."""


def states_of(family: Family) -> tuple[int, ...]:
    """How many states each categorical variable of a family has, or a sentence why it has none."""
    states: list[int] = []
    for own in family.families if isinstance(family, Product) else (family,):
        if not isinstance(own, Categorical):
            raise TypeError(
                f"Enumeration sums over Categorical variables and products of them; found {own!r}. "
                "Use cavity.Quadrature() for up to three continuous dimensions, else cavity.Importance(draws=10_000)."
            )
        states.append(own.states)
    if (joint := math.prod(states)) > LARGEST:
        raise TooManyStates(
            f"Enumeration over {len(states)} variables has {joint} joint states, more than {LARGEST}. "
            "Use cavity.Importance(draws=10_000)."
        )
    return tuple(states)


def log_table(factor: Factor, shape: tuple[int, ...], data: Any, joint: bool) -> jax.Array:
    """log t at every joint state, one axis per variable; the factor sees a tuple of integers, or one integer."""
    if isinstance(factor, Table):
        return jnp.asarray(data, float)
    index = jnp.asarray(np.indices(shape).reshape(len(shape), -1))

    def value(x: jax.Array) -> jax.Array:
        return evaluate(factor, "log_density", tuple(x) if joint else x[0], data)

    return jax.vmap(value, in_axes=1)(index).reshape(shape)
