"""Likelihood-weighted sampling of linear classifiers: random weights, weighted by how well they explain the labels.

The reference of the thesis for small problems (5.5), with its own error. Draws are N(0, I); their directions are
even on the sphere, and the step likelihood sees nothing else of them.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from cavity._core import checks

#: draws made at a time
BATCH = 500_000


class SphereSamples(NamedTuple):
    """Moments of w ~ N(0, I) given the labels; the fields named `error` are standard errors.

    Attributes:
        log_evidence: log of the share of weights that explain the labels.
        log_evidence_error: its error.
        mean: of the weights.
        mean_error: its error.
        covariance: of the weights.
        direction: the mean at unit length.
        direction_error: a length.
        effective: (Σ weights)²/Σ weights².
        draws: what was kept, those with a likelihood above 0.
        weights: of the draws.

    Examples:
        >>> from cavity import baselines
        >>> X, y = [[1.0, 0.2], [0.1, 1.0]], [1, 1]
        >>> found = baselines.sphere_sampling(X, y, draws=10_000)
        >>> found.mean.shape, bool(found.effective > 1000)
        ((2,), True)
    """

    log_evidence: float
    log_evidence_error: float
    mean: np.ndarray
    mean_error: np.ndarray
    covariance: np.ndarray
    direction: np.ndarray
    direction_error: float
    effective: float
    draws: np.ndarray
    weights: np.ndarray

    def vote(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """The predictive average (5.7): probability that wᵀx > 0 for the rows of X, and its standard error."""
        sides = (np.asarray(X, float) @ self.draws.T > 0).astype(float)
        share = self.weights / self.weights.sum()
        found = sides @ share
        return found, np.sqrt((sides - found[:, None]) ** 2 @ share**2)


def sphere_sampling(X: Any, y: Any, label_noise: float = 0.0, draws: int = 1_000_000, seed: int = 0) -> SphereSamples:
    """Weights drawn from N(0, I), each with the likelihood ε^r (1 − ε)^(n − r) of its r errors (5.4).

    With label_noise = 0 only separators are kept; where none is drawn an error says so.

    Args:
        X: (n, d).
        y: (n,), labels −1 and +1.
        label_noise: ε, the probability of a wrong label.
        draws: how many.
        seed: of the generator.

    Returns:
        The moments and the draws that were kept.

    Raises:
        ValueError: if fewer than two draws explain the labels.

    Examples:
        >>> from cavity import baselines
        >>> X, y = [[1.0, 0.2], [0.1, 1.0]], [1, 1]
        >>> found = baselines.sphere_sampling(X, y, draws=10_000)
        >>> bool(abs(found.log_evidence + 1.2) < 0.2)
        True
    """
    X, y = np.asarray(checks.array("X", X, (2,))), np.asarray(checks.array("y", y, (1,)))
    rng = np.random.default_rng(seed)
    kept, weights = [], []
    for first in range(0, draws, BATCH):
        w = rng.normal(size=(min(BATCH, draws - first), X.shape[1]))
        wrong = np.sum((w @ X.T) * y <= 0, axis=1)
        likelihood = np.power(label_noise, wrong) * np.power(1.0 - label_noise, len(y) - wrong)
        kept.append(w[likelihood > 0])
        weights.append(likelihood[likelihood > 0])
    w, likelihood = np.concatenate(kept), np.concatenate(weights)
    if len(w) < 2:
        raise ValueError(f"Of {draws} random classifiers {len(w)} explain the labels: too few to average.")
    return summarise_sphere_draws(w, likelihood, draws)


def summarise_sphere_draws(w: np.ndarray, likelihood: np.ndarray, draws: int) -> SphereSamples:
    """Weighted moments and their errors to first order."""
    evidence = likelihood.sum() / draws
    spread = math.sqrt((np.sum(likelihood**2) / draws - evidence**2) / draws)
    share = likelihood / likelihood.sum()
    mean = share @ w
    gaps = w - mean
    direction = mean / np.linalg.norm(mean)
    across = gaps - np.outer(gaps @ direction, direction)
    return SphereSamples(
        log_evidence=math.log(evidence),
        log_evidence_error=spread / evidence,
        mean=mean,
        mean_error=np.sqrt(share**2 @ gaps**2),
        covariance=(gaps * share[:, None]).T @ gaps,
        direction=direction,
        direction_error=float(np.sqrt(np.sum(share**2 @ across**2)) / np.linalg.norm(mean)),
        effective=float(1.0 / np.sum(share**2)),
        draws=w,
        weights=likelihood,
    )
