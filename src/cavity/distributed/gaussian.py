"""Natural parameters of a Gaussian over d weights as one vector, and the contributions of all shards to them.

The precision matrix is symmetric, so its upper triangle is enough: d + d(d + 1)/2 numbers. Products and ratios of
densities are sums and differences of such vectors.

The contributions, as the client keeps them, are the truth of a run:

    global = prior + Σₖ contributionₖ,        cavityₖ = global − contributionₖ

A response replaces the contribution of its shard, it is never added: however often a shard is asked, and whatever
became of the worker that held it, nothing is counted twice and nothing is lost.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from cavity._core import checks
from cavity.distributed._rounds import Response, RoundsResult
from cavity.inference.stepping import MAX_HALVINGS


class GaussianMoments(NamedTuple):
    """Mean, covariance, and the log normaliser up to (2π)^{d/2}: ½ hᵀ Λ⁻¹ h − ½ log |Λ|."""

    mean: np.ndarray
    covariance: np.ndarray
    log_partition: float


def packed_size(d: int) -> int:
    """Numbers in a packed vector."""
    return d + d * (d + 1) // 2


def packed_dimension(vector: np.ndarray) -> int:
    """The d of a packed vector."""
    return round(np.sqrt(2 * vector.size + 2.25) - 1.5)


def pack_naturals(shift: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """(Λm, Λ) as one vector."""
    return np.concatenate([shift, precision[np.triu_indices(len(shift))]])


def unpack_naturals(vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(shift, precision) of a packed vector."""
    d = packed_dimension(vector)
    precision = np.zeros((d, d))
    precision[np.triu_indices(d)] = vector[d:]
    return vector[:d].copy(), precision + np.triu(precision, 1).T


def cholesky_or_none(matrix: np.ndarray) -> np.ndarray | None:
    """The lower Cholesky factor, or None for a matrix that is not positive definite."""
    try:
        lower = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None
    return lower if np.isfinite(lower).all() else None


def is_covariance(matrix: np.ndarray) -> bool:
    """Whether a matrix is symmetric, up to rounding, and positive definite."""
    return checks.is_symmetric(matrix, 1e-6) and cholesky_or_none(matrix) is not None


def is_proper(vector: np.ndarray) -> bool:
    """Whether the Gaussian can be normalised."""
    return bool(np.isfinite(vector).all()) and cholesky_or_none(unpack_naturals(vector)[1]) is not None


def to_moments(vector: np.ndarray) -> GaussianMoments:
    """Moments of a proper Gaussian.

    Raises:
        ValueError: the precision matrix is not positive definite.
    """
    shift, precision = unpack_naturals(vector)
    lower = cholesky_or_none(precision)
    if lower is None:
        raise ValueError("the precision matrix is not positive definite.")
    mean = cho_solve((lower, True), shift)
    inverse = cho_solve((lower, True), np.eye(len(shift)))
    half_log_determinant = float(np.log(np.diagonal(lower)).sum())
    return GaussianMoments(mean, 0.5 * (inverse + inverse.T), 0.5 * float(shift @ mean) - half_log_determinant)


def divergence(vector: np.ndarray, other: np.ndarray) -> float:
    """KL of a proper Gaussian from another: ½ (tr(P Σ) − d + (m − m')ᵀ P (m − m') − log |P Σ|), P of the other.

    Raises:
        ValueError: a precision matrix is not positive definite.
    """
    q, (shift, precision) = to_moments(vector), unpack_naturals(other)
    before, after = cholesky_or_none(precision), cholesky_or_none(q.covariance)
    if before is None or after is None:
        raise ValueError("the precision matrix is not positive definite.")
    spread = before.T @ after
    gap = before.T @ q.mean - solve_triangular(before, shift, lower=True)
    log_det = float(np.log(np.diagonal(before) * np.diagonal(after)).sum())
    return 0.5 * float((spread**2).sum() - gap.size + gap @ gap) - log_det


def from_moments(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The packed vector of N(mean, covariance).

    Raises:
        ValueError: the covariance matrix is not positive definite.
    """
    lower = cholesky_or_none(covariance)
    if lower is None:
        raise ValueError("the covariance matrix is not positive definite.")
    precision = cho_solve((lower, True), np.eye(len(mean)))
    precision = 0.5 * (precision + precision.T)
    return pack_naturals(precision @ mean, precision)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianResult(RoundsResult):
    """q(w) whose packed natural parameters are those of the prior and of every contribution, added up.

    Attributes:
        status: why it ended.
        log_evidence: estimate of log p(D) (3.40); None where it was not measured.
        mismatch: the largest moment mismatch of all shards, measured at the state returned.
        residuals: the largest mismatch met in every round.
        seconds: the run took.
        prior: packed natural parameters of the prior.
        contributions: of every shard, packed, one row each.
        shortened: rounds whose step was halved to keep q or a cavity proper.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity import distributed
        >>> prior, contributions = np.array([0.0, 1.0]), np.array([[2.0, 1.0], [4.0, 2.0]])  # rows: Λm, Λ
        >>> found = distributed.GaussianResult(
        ...     status=cv.Status.CONVERGED, log_evidence=None, mismatch=0.0, residuals=np.zeros(1), seconds=0.1,
        ...     prior=prior, contributions=contributions, shortened=0,
        ... )
        >>> found.mean, found.covariance
        (array([1.5]), array([[0.25]]))
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
