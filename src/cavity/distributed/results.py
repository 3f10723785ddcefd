"""The result of rounds over shards: how they ended, and q(w) as prior and contributions where it is a Gaussian."""

import dataclasses

import numpy as np

from cavity.distributed.naturals import GaussianMoments, to_moments
from cavity.inference.status import Result, Status


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundsResult(Result):
    """How a run ended.

    Attributes:
        status: why it ended.
        log_evidence: estimate of log p(D) (3.40); None where it was not measured.
        mismatch: the largest moment mismatch of all shards, measured at this very state where the run has ended.
        residuals: the largest mismatch met in every round.
        seconds: the run took.
    """

    status: Status
    log_evidence: float | None
    mismatch: float
    residuals: np.ndarray
    seconds: float

    @property
    def rounds(self) -> int:
        """Rounds made."""
        return len(self.residuals)

    def __str__(self) -> str:
        known = "" if self.log_evidence is None else f", log evidence {self.log_evidence:.6g}"
        return f"{self.status} after {self.rounds} rounds, mismatch {self.mismatch:.1e}{known}. {self.status.sentence}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianResult(RoundsResult):
    """q(w) whose packed natural parameters are those of the prior and of every contribution, added up.

    Attributes:
        prior, contributions: packed natural parameters, one row of contributions per shard.
        shortened: rounds whose step was halved to keep q or a cavity proper.
    """

    prior: np.ndarray
    contributions: np.ndarray
    shortened: int

    @property
    def naturals(self) -> np.ndarray:
        """Packed natural parameters of q."""
        return self.prior + self.contributions.sum(axis=0)

    @property
    def q(self) -> GaussianMoments:
        """Mean, covariance and log normaliser of the weights."""
        return to_moments(self.naturals)

    @property
    def mean(self) -> np.ndarray:
        """Mean of the weights."""
        return self.q.mean

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the weights."""
        return self.q.covariance
