"""What a search over a kernel and a likelihood moves, as one vector: theta, the likelihood's free ones, what else."""

import dataclasses
from typing import Any

import numpy as np

from cavity.factors.base import Factor
from cavity.models.latent_gaussian.parameters import bounds, log_prior, pack


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """kernel, term: where the search starts. free: parameters of the likelihood that it moves.

    deviations: of a normal prior on the kernel's theta around its start, one a number; None or infinite: flat.
    others: further numbers, all in [0, 1], that come last and have a flat prior.
    """

    kernel: Any
    term: Factor
    free: tuple[str, ...]
    deviations: Any = None
    others: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))

    @property
    def start(self) -> np.ndarray:
        """The vector of where the search starts."""
        return np.concatenate([self.kernel.theta, pack(self.term, self.free), self.others])

    @property
    def limits(self) -> np.ndarray:
        """A row (low, high) for each number of the vector."""
        return np.concatenate(
            [self.kernel.bounds, bounds(self.term, self.free), np.tile([0.0, 1.0], (self.others.size, 1))]
        )

    def split(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(theta, the likelihood's, the others) of a vector."""
        theta = self.kernel.theta.size
        own, likelihood, others = np.split(vector, [theta, vector.size - self.others.size])
        return own, likelihood, others

    def log_prior(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density of a vector up to a constant, and its gradient."""
        own, likelihood, others = self.split(vector)
        value, gradient = log_prior(self.term, self.free, likelihood)
        wide = np.full(own.size, np.inf) if self.deviations is None else np.asarray(self.deviations, float)
        away = (own - self.kernel.theta) / wide
        return value - 0.5 * float(away @ away), np.concatenate([-away / wide, gradient, np.zeros(others.size)])
