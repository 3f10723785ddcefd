"""What the shards say of the weights, as the client keeps it: this is the truth of a run.

    global = prior + Σₖ contributionₖ,        cavityₖ = global − contributionₖ

A shard's answer replaces its contribution, it is never added: however often a shard is asked, and whatever became of
the worker that held it, nothing is counted twice and nothing is lost.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from cavity.distributed.naturals import is_proper

#: times a step is halved before it is given up
MAX_HALVINGS = 20


class Proposal(NamedTuple):
    """What a shard would have in place of its contribution.

    linked: whether its sites started from those behind the present contribution. If they were lost it did not, and the
    proposal is taken whole: a part of a step from sites nobody has is no set of sites.
    negative: sites of negative precision.
    """

    naturals: np.ndarray
    linked: bool
    negative: int


@dataclasses.dataclass
class Contributions:
    """prior: packed natural parameters of the d weights. values: one row a shard."""

    prior: np.ndarray
    values: np.ndarray
    d: int
    negative: np.ndarray
    shortened: int = 0

    @classmethod
    def none(cls, prior: np.ndarray, shards: int, d: int) -> "Contributions":
        """Flat sites everywhere."""
        return cls(prior, np.zeros((shards, prior.size)), d, np.zeros(shards, int))

    @property
    def total(self) -> np.ndarray:
        """The global natural parameters: made anew every time, so that no rounding piles up."""
        return self.prior + self.values.sum(axis=0)

    def cavity(self, number: int) -> np.ndarray:
        """Everything but what shard `number` said."""
        return self.total - self.values[number]

    def are_proper(self, values: np.ndarray, negative: np.ndarray) -> bool:
        """Whether the global distribution and every cavity can be normalised.

        Without negative sites every contribution is positive semi-definite, and prior plus some of them is proper.
        """
        if not np.isfinite(values).all():
            return False
        if not negative.any():
            return True
        total = self.prior + values.sum(axis=0)
        return is_proper(total, self.d) and all(is_proper(total - own, self.d) for own in values)

    def replace(self, proposals: dict[int, Proposal], damping: float) -> dict[int, float]:
        """Take as much of every proposal as leaves everything proper; the share of the step taken, by shard.

        The step is halved until the global distribution and every cavity are proper, and given up after that.
        """
        negative = self.negative.copy()
        for number, own in proposals.items():
            negative[number] = max(negative[number], own.negative) if own.linked else own.negative
        step = damping
        for halvings in range(MAX_HALVINGS + 1):
            values = self.values.copy()
            for number, own in proposals.items():
                share = step if own.linked else 1.0
                # A whole step is the proposal itself: the difference would round.
                values[number] = (
                    own.naturals if share == 1.0 else values[number] + share * (own.naturals - values[number])
                )
            if self.are_proper(values, negative):
                self.values = values
                for number, own in proposals.items():
                    whole = step == 1.0 or not own.linked
                    self.negative[number] = own.negative if whole else negative[number]
                self.shortened += halvings > 0
                return {number: step if own.linked else 1.0 for number, own in proposals.items()}
            step /= 2
        self.shortened += 1
        return {number: 0.0 for number in proposals}
