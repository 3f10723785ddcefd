"""The contributions of all shards to q(w), as the client keeps them: this is the truth of a run.

    global = prior + Σₖ contributionₖ,        cavityₖ = global − contributionₖ

A response replaces the contribution of its shard, it is never added: however often a shard is asked, and whatever
became of the worker that held it, nothing is counted twice and nothing is lost.
"""

import dataclasses

import numpy as np

from cavity.distributed.naturals import is_proper
from cavity.distributed.protocol import Response
from cavity.inference.stepping import MAX_HALVINGS


@dataclasses.dataclass
class Contributions:
    """prior: packed natural parameters of the weights. values: one row per shard. shortened: rounds of halved steps."""

    prior: np.ndarray
    values: np.ndarray
    negative: np.ndarray
    shortened: int = 0

    @classmethod
    def flat(cls, prior: np.ndarray, shards: int) -> "Contributions":
        """Those of flat sites everywhere."""
        return cls(prior, np.zeros((shards, prior.size)), np.zeros(shards, int))

    @property
    def total(self) -> np.ndarray:
        """The global natural parameters: made anew every time, so that no rounding piles up."""
        return self.prior + self.values.sum(axis=0)

    def cavity(self, number: int) -> np.ndarray:
        """Everything but the contribution of shard `number`."""
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
        return is_proper(total) and all(is_proper(total - own) for own in values)

    def replace(self, responses: dict[int, Response], damping: float) -> dict[int, float]:
        """Take as much of every proposed contribution as leaves all proper; the share of the step taken, by shard.

        The step is halved until the global distribution and every cavity are proper, and given up after that.
        """
        negative = self.negative.copy()
        for number, own in responses.items():
            negative[number] = max(negative[number], own.negative) if own.linked else own.negative
        step = damping
        for halvings in range(MAX_HALVINGS + 1):
            values = self.values.copy()
            for number, own in responses.items():
                share = step if own.linked else 1.0
                # A whole step is what was proposed itself: the difference would round.
                values[number] = (
                    own.contribution if share == 1.0 else values[number] + share * (own.contribution - values[number])
                )
            if self.are_proper(values, negative):
                self.values = values
                for number, own in responses.items():
                    whole = step == 1.0 or not own.linked
                    self.negative[number] = own.negative if whole else negative[number]
                self.shortened += halvings > 0
                return {number: step if own.linked else 1.0 for number, own in responses.items()}
            step /= 2
        self.shortened += 1
        return {number: 0.0 for number in responses}
