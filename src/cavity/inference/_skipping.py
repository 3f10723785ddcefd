"""When sweeps that leave sites out again and again are given up.

A site whose cavity is improper is left as it was, and tried again in the next sweep. Often it is possible soon, and the
run converges. Or the run oscillates: the sites that are left out change, the others come no nearer to agreement, and
none of this ends. A sweep that changes no site ends the run at once, for all others would do the same: so it is where
rounding has made q improper. Else it is looked at every `EVERY` sweeps. On half of the 1,080 problems of
`benchmarks/hard_problems.py` no run that converges is given up, by plain, damped or Power EP, and those of plain EP
that skip sites and do not converge end after 41 sweeps on average in place of 107. Runs of relaxed EP recover late,
when its strengths have grown: they are given up only where nothing changes.
"""

import sys
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

#: sweeps between two looks
EVERY = 8
#: visits left out, in windows of `EVERY` sweeps that all had some, after which a run has to come nearer
MANY = 32
#: the share of the largest mismatch a window ago that is near enough
NEARER = 0.5
#: the mismatch of a site whose variable becomes known: not that of a site that cannot be updated, which is infinite
NEWS = sys.float_info.max


class Skipping(NamedTuple):
    """What was seen at the last look.

    visits: those left out since the run began. streak: those of the windows up to now that all had some. mismatch: the
    largest of the sites that could be updated. hopeless: whether more sweeps are not worth making.
    """

    visits: jax.Array
    streak: jax.Array
    mismatch: jax.Array
    hopeless: jax.Array

    @classmethod
    def none(cls) -> "Skipping":
        """Before the first sweep."""
        zero = jnp.zeros((), int)
        return cls(zero, zero, jnp.zeros((), float), jnp.zeros((), bool))

    def after(
        self, sweep: jax.Array, visits: jax.Array, mismatch: tuple[jax.Array, ...], patient: bool = False
    ) -> "Skipping":
        """After a sweep, with the number of visits left out so far and the mismatch of all sites.

        While variables become known, sites wait for them: that is no streak. patient: whether runs recover late.
        """
        if patient:
            return self
        together = jnp.concatenate(mismatch)
        largest = jnp.max(jnp.where(jnp.isinf(together), 0.0, together))
        skipped = visits - self.visits
        streak = jnp.where((skipped > 0) & (largest < NEWS), self.streak + skipped, 0)
        hopeless = (self.streak > 0) & (streak >= MANY) & (largest > NEARER * self.mismatch)
        seen = Skipping(visits, streak, largest, hopeless)
        return jax.tree.map(lambda new, old: jnp.where(sweep % EVERY == 0, new, old), seen, self)


def is_stuck(before: Any, after: Any, unsure: jax.Array) -> jax.Array:
    """Whether a sweep has changed nothing, and so no other would; unsure sites may be known better in the next one."""
    same = jax.tree.map(lambda old, new: jnp.all((old == new) | (jnp.isnan(old) & jnp.isnan(new))), before, after)
    return reduce(jnp.logical_and, jax.tree.leaves(same), ~unsure)
