"""Relaxed EP: moment matching against a cavity times a relaxation factor (Qi & Guo, "relaxed moment matching").

A visit minimises (5), KL(t r cavity ‖ q r) + c · penalty(r), over q and r = exp(b (m x − x²/2)), with m the mean of the
old site and strength b ≥ 0. For a given r the best q has q r = proj[t r cavity], so the new site is ordinary moment
matching against the *relaxed cavity* r × cavity, and the cost of b is, with that cavity N(h, λ), log Z, the derivative
d1 of log Z in h and the variance ratio ρ of tilted to relaxed cavity,

    Q(b) = E[log t] − log Z − ½ (ρ − 1 − log ρ) − ½ λ d1² + c · penalty.

(The printed step (16) multiplies r in once more, which contradicts (5).) Q often has two minima, at 0 and away from it.
The search is local and starts at the site's last strength, which it remembers: a global one jumps between them.
"""

from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from cavity._core.pytrees import pytree_dataclass, static
from cavity._numerics.sums import log_excess
from cavity.families.base import Family, Tilted
from cavity.families.gaussian import Gaussian
from cavity.inference.status import Status
from cavity.inference.update_rule import Integrals, Projected, Projection
from cavity.moments.base import Info

PENALTIES, FORMS = ("natural", "strength"), ("mean", "message")

#: half the distance of the central points of the search, relative to the strength
NEAR = 1e-3
#: points of the search, relative to the last strength, and in natural units where that is 0
AROUND = (0.0, 0.25, 0.5, 1.0 - NEAR, 1.0, 1.0 + NEAR, 2.0, 4.0)
FROM_ZERO = (0.0, 1e-6, 1e-3, 0.01, 0.1, 0.3, 1.0, 3.0)
#: place of the last strength among the first, and the order in which they are looked at
CENTRE = AROUND.index(1.0)
FROM_CENTRE = (4, 3, 5, 2, 6, 1, 7, 0)


@pytree_dataclass
class Relaxed(Projection):
    """The minimiser of the penalised KL (5) for scalar Gaussian sites.

    penalty: "natural" is the l1 norm of r's natural parameters, |b m| + |b|/2 (4); "strength" is |b| (35).
    scale_free: the penalty in units of the cavity's sd, |b m| √λ + |b| λ/2 or |b| λ, so that c does not depend
        on the scale of x.
    form: of r. "mean": a Gaussian around the old site's mean (11). "message": the old site to the power b (18).
    sequential: first b for the q there is, then q for that b (end of 3.2), in place of both together.
    """

    c: Any
    penalty: Literal["natural", "strength"] = static(default="natural")
    scale_free: bool = static(default=True)
    form: Literal["mean", "message"] = static(default="mean")
    sequential: bool = static(default=False)

    compromise: ClassVar[Status] = Status.CONVERGED_RELAXED
    relaxes_cavity: ClassVar[bool] = True
    memory: ClassVar[int] = 1
    tilts: ClassVar[int] = len(AROUND) + 1

    def validate(self, family: Family, power: float) -> None:
        if not isinstance(family, Gaussian):
            raise TypeError(
                f"RelaxedEP needs the penalised KL of a relaxation factor, which is known for scalar Gaussian sites; "
                f"{type(family).__name__} has none."
            )
        if power != 1.0:
            raise ValueError(f"RelaxedEP is defined for power 1; found {power}.")

    def project(self, family: Family, cavity: jax.Array, tilted: Tilted) -> tuple[jax.Array, jax.Array]:
        return tilted.site, jnp.zeros((), bool)

    def apply(
        self, family: Family, integrals: Integrals, cavity: jax.Array, site: jax.Array, memory: jax.Array
    ) -> Projected:
        direction, last = self.direction(site), memory[0]
        unit = 1.0 / cavity[1] if self.form == "mean" else 1.0
        points = jnp.where(last > 0, last * jnp.asarray(AROUND), jnp.asarray(FROM_ZERO) / unit)
        order = jnp.where(last > 0, jnp.asarray(FROM_CENTRE), jnp.arange(len(FROM_ZERO)))

        def look(now: StrengthSearch) -> StrengthSearch:
            # Points until the search is decided, then the strength found: the program holds the integrals once.
            strength = jnp.where(now.decided, now.strength, points[order[now.looks]])
            cost, integrated = self.cost(family, integrals, cavity, site, strength)
            costs = jnp.where(now.decided, now.costs, now.costs.at[order[now.looks]].set(cost))
            found = local_minimum(points, costs, last)
            keep = now.decided | (now.looks == 0)
            kept = jax.tree.map(partial(jnp.where, keep), integrated, now.kept)
            decided = is_decided(costs, last, now.looks + 1) | (now.looks + 1 == points.size)
            # The first look of a site without strength is at none.
            done = now.decided | (decided & (last == 0) & (found == 0))
            strength = jnp.where(now.decided, now.strength, found)
            return StrengthSearch(now.looks + 1, costs, strength, decided | now.decided, done, kept)

        blank = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(lambda: integrals.tilt(cavity))
        )
        no, nothing = jnp.zeros((), bool), jnp.full(points.shape, jnp.inf)
        begun = StrengthSearch(jnp.zeros((), int), nothing, jnp.zeros(()), no, no, blank)
        ended = jax.lax.while_loop(lambda now: ~now.done, look, begun)
        (tilted, info), strength = ended.kept, ended.strength
        relaxed = cavity + strength * direction
        drift = family.distance(relaxed + site, cavity + last * direction + site)
        return Projected(relaxed, tilted.log_z, tilted.site, strength > 0, strength[None], drift, info)

    def direction(self, site: jax.Array) -> jax.Array:
        """Natural parameters of r for strength 1; a site that says nothing has the mean 0."""
        if self.form == "message":
            return site
        silent = site[1] == 0
        mean = jnp.where(silent, 0.0, site[0] / jnp.where(silent, 1.0, site[1]))
        return jnp.stack([mean, jnp.ones_like(mean)])

    def cost(
        self, family: Family, integrals: Integrals, cavity: jax.Array, site: jax.Array, strength: jax.Array
    ) -> tuple[jax.Array, tuple[Tilted, Info]]:
        """Q(b), and the tilted moments it is made of.

        Infinite where the relaxed cavity or the new q would be improper, or t r cavity has no moments.
        """
        relaxed = cavity + strength * self.direction(site)
        proper = family.is_proper(relaxed)
        relaxed = jnp.where(proper, relaxed, cavity)
        tilted, info = integrals.tilt(relaxed)
        value = integrals.expected_log(relaxed, tilted=tilted) - tilted.log_z
        if self.sequential:
            # KL(t r cavity ‖ q r) for the old q = cavity × site.
            mean = family.moments(relaxed + tilted.site)
            value = value - site @ mean + family.log_partition(relaxed + site) - family.log_partition(relaxed)
        else:
            change = -tilted.site[1] / (relaxed[1] + tilted.site[1])  # ρ − 1
            value = value - 0.5 * log_excess(change, 1.0 + change) - 0.5 * tilted.stats[0] ** 2 / relaxed[1]
        proper = proper & family.is_proper(cavity + tilted.site)
        value = value + self.c * self.size(cavity, strength * self.direction(site), strength)
        return jnp.where(proper & jnp.isfinite(value), value, jnp.inf), (tilted, info)

    def size(self, cavity: jax.Array, relaxation: jax.Array, strength: jax.Array) -> jax.Array:
        """The penalty of r."""
        variance = 1.0 / cavity[1] if self.scale_free else 1.0
        if self.penalty == "strength":
            return strength * (variance if self.form == "mean" else 1.0)
        return jnp.abs(relaxation[0]) * variance**0.5 + 0.5 * jnp.abs(relaxation[1]) * variance


class StrengthSearch(NamedTuple):
    """A search for a strength on its way.

    looks: integrals made. costs: of the points looked at, infinite for others. strength: found so far. decided: it will
    not change. kept: the tilted moments at the first point, then at the strength.
    """

    looks: jax.Array
    costs: jax.Array
    strength: jax.Array
    decided: jax.Array
    done: jax.Array
    kept: tuple[Tilted, Info]


def is_decided(costs: jax.Array, last: jax.Array, looks: jax.Array) -> jax.Array:
    """Whether the first looks tell where the search ends: at 0, or at a Newton step from a lowest centre."""
    costs = possible(costs)
    lowest = (costs[CENTRE - 1] >= costs[CENTRE]) & (costs[CENTRE + 1] >= costs[CENTRE])
    return jnp.where(last > 0, lowest & (looks >= 3), (costs[1] >= costs[0]) & (looks >= 2))


def possible(costs: jax.Array) -> jax.Array:
    """Costs without infinities. No relaxation is always possible: what is not leads down towards it."""
    return jnp.where(jnp.isfinite(costs), costs, 1e300 * (1.0 + jnp.arange(costs.size)))


def local_minimum(points: jax.Array, costs: jax.Array, last: jax.Array) -> jax.Array:
    """Downhill from the last strength: a Newton step where it lies lowest among its neighbours, else the first dip.

    The slope and curvature of the Newton step are differences of the central costs, NEAR apart.
    """
    costs = possible(costs)
    start = jnp.where(last > 0, CENTRE, 0)
    place, end = jnp.arange(points.size), jnp.ones(1, bool)
    lowest_of_left = jnp.concatenate([end, costs[:-1] >= costs[1:]])
    lowest_of_right = jnp.concatenate([costs[1:] >= costs[:-1], end])
    left = jnp.max(jnp.where(lowest_of_left & (place <= start), place, 0))
    right = jnp.min(jnp.where(lowest_of_right & (place >= start), place, points.size - 1))
    dip = jnp.where(costs[left] <= costs[right], left, right)
    low, middle, high = costs[CENTRE - 1], costs[CENTRE], costs[CENTRE + 1]
    bend = high - 2.0 * middle + low
    step = jnp.where(bend > 0, 0.5 * (high - low) / jnp.where(bend > 0, bend, 1.0), 0.0)
    polished = points[CENTRE] * (1.0 - NEAR * jnp.clip(step, -0.5 / NEAR, 0.5 / NEAR))
    return jnp.where((last > 0) & (jnp.abs(dip - CENTRE) <= 1), polished, between(points, costs, dip))


def between(points: jax.Array, costs: jax.Array, dip: jax.Array) -> jax.Array:
    """The vertex of the parabola through a dip and its neighbours; an end of the row is taken as it is.

    The points lie far apart. Taken as they are, two of them on either side of a minimum would send the search to and
    fro between them for ever.
    """
    middle = jnp.clip(dip, 1, points.size - 2)
    x, y = (jax.lax.dynamic_slice(row, (middle - 1,), (3,)) for row in (points, costs))
    falling, rising = -jnp.diff(y) / jnp.diff(x) * jnp.array([1.0, -1.0])
    centres = 0.5 * (x[1:] + x[:-1])
    vertex = centres[0] + (centres[1] - centres[0]) * falling / (falling + rising)
    return jnp.where((dip == middle) & jnp.isfinite(vertex), vertex, points[dip])
