"""What every outcome of rounds over shards is: a Gaussian, as prior and contributions."""

import numpy as np

from cavity.distributed.naturals import Moments, moments
from cavity.inference.status import FIXED_POINTS, Status


class Combined:
    """q(w) whose packed natural parameters are those of the prior and of every contribution, added up."""

    prior: np.ndarray
    contributions: np.ndarray
    status: Status
    residuals: np.ndarray

    @property
    def d(self) -> int:
        """Number of weights: of d + d(d + 1)/2 packed numbers."""
        return round(np.sqrt(2 * self.prior.size + 2.25) - 1.5)

    @property
    def naturals(self) -> np.ndarray:
        """Packed natural parameters of q."""
        return self.prior + self.contributions.sum(axis=0)

    @property
    def q(self) -> Moments:
        """Mean, covariance and log normaliser of the weights."""
        return moments(self.naturals, self.d)

    @property
    def mean(self) -> np.ndarray:
        """Mean of the weights."""
        return self.q.mean

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the weights."""
        return self.q.covariance

    @property
    def rounds(self) -> int:
        """Rounds made."""
        return len(self.residuals)

    @property
    def converged(self) -> bool:
        """Whether a fixed point was reached: the moments agreed within the tolerance."""
        return self.status in FIXED_POINTS
