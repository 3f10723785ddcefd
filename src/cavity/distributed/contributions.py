"""The contributions of all shards to q, as the client keeps them: this is the truth of a run.

    global = prior + Σₖ contributionₖ,        cavityₖ = global − contributionₖ

A response replaces the contribution of its shard, it is never added: however often a shard is asked, and whatever
became of the worker that held it, nothing is counted twice and nothing is lost. Rows and partitions contribute to a
Gaussian, parts of a graph to the variables they share.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from cavity.discrete import DiscreteGraph
from cavity.distributed.graph.cutting import Cut
from cavity.distributed.naturals import is_proper
from cavity.distributed.protocol import Response
from cavity.families.categorical import Categorical
from cavity.inference.stepping import MAX_HALVINGS


@dataclasses.dataclass
class Contributions:
    """To the natural parameters of a Gaussian.

    prior: packed natural parameters of the weights. values: one row per shard. shortened: rounds of halved steps.
    """

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

    def fields(self) -> dict[str, Any]:
        """As a `GaussianResult` has them."""
        return {"prior": self.prior, "contributions": self.values.copy(), "shortened": self.shortened}

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


class BorderMessages:
    """The messages of all parts to the variables they share, on the client.

    own: weights of the shared variables themselves. index: which numbers of the vector of all shared variables a part
    sees. values: the messages of every part.
    """

    def __init__(self, graph: DiscreteGraph, cut: Cut) -> None:
        starts = np.concatenate([[0], np.cumsum(graph.cardinalities)])
        weights = [graph.flat_unary()[starts[v] : starts[v + 1]] for v in cut.shared]
        zeros = [own == -np.inf for own in weights]
        pairs = [(np.where(zero, 0.0, own), zero.astype(float)) for own, zero in zip(weights, zeros, strict=True)]
        self.own = np.concatenate([np.zeros(0), *(part for pair in pairs for part in pair)])
        self.families = [Categorical(int(graph.cardinalities[v])) for v in cut.shared]
        ends = np.cumsum([family.size for family in self.families])
        places = {
            int(v): np.arange(end - family.size, end)
            for v, end, family in zip(cut.shared, ends, self.families, strict=True)
        }
        nothing = np.zeros(0, np.int64)
        seen = [[places[int(v)] for v in plan.variables[plan.shared]] for plan in cut.plans]
        self.index = [np.concatenate([nothing, *places]) for places in seen]
        self.values = [np.zeros(len(each)) for each in self.index]

    @property
    def total(self) -> np.ndarray:
        """Natural parameters of the shared variables."""
        found = self.own.copy()
        for index, messages in zip(self.index, self.values, strict=True):
            found[index] += messages
        return found

    def cavity(self, number: int) -> np.ndarray:
        """The messages of all others to the variables part `number` sees."""
        return self.total[self.index[number]] - self.values[number]

    def replace(self, responses: dict[int, Response], damping: float) -> dict[int, float]:
        """Take the messages of parts, whole: damping is done inside the parts."""
        for number, response in responses.items():
            self.values[number] = response.contribution
        return dict.fromkeys(responses, 1.0)

    def log_partition(self) -> float:
        """Σ log Z of the shared variables."""
        ends = np.cumsum([family.size for family in self.families])[:-1]
        parts = zip(self.families, np.split(self.total, ends), strict=True) if self.families else ()
        return sum(float(family.log_partition(jnp.asarray(eta))) for family, eta in parts)


GlobalState = Contributions | BorderMessages
