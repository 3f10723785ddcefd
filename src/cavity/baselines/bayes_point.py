"""The posterior of a Bayes point machine, w ~ N(0, I): exactly for three weights, and by weighted draws for any number.

Exactly it is the moments of a Gaussian inside a cone. For a convex cone with inward unit normals nᵢ, whose face i cuts
the unit sphere in an arc of angle θᵢ, integration by parts leaves integrals over the faces:

    P(cone)       = solid angle / 4π
    E[w; cone]    = Σ nᵢ θᵢ / (2π)^{3/2}
    E[w wᵀ; cone] = P(cone) I + Σ nᵢ (∫_arc u dθ)ᵀ / 4π

With label noise every pattern of right and wrong labels is a cone of its own, weighted by its likelihood (5.4).

Likelihood-weighted sampling draws random weights and weights them by how well they explain the labels: the reference
of the thesis for small problems (5.5), with its own error. Draws are N(0, I); their directions are even on the sphere,
and the step likelihood sees nothing else of them.
"""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from cavity._core import checks
from cavity.exact_inference.problem_data import Estimate

#: patterns of wrong labels that are added up, at most
MOST_PATTERNS = 4096
#: normals closer than this are one
SAME = 1e-12
#: an arc is cut into so many triangles with the centre: one may span half a circle
PIECES = 8
#: draws made at a time
BATCH = 500_000


class Cone(NamedTuple):
    """Probability, first and second moments of w ~ N(0, I) inside a cone."""

    mass: float
    first: np.ndarray
    second: np.ndarray


def exact_bayes_point(X: Any, y: Any, label_noise: float = 0.0) -> Estimate:
    """Evidence, mean and covariance of w ~ N(0, I) given labels sign(wᵀx), each wrong with probability label_noise.

    Exact up to rounding.

    Args:
        X: (n, 3), the last column usually ones.
        y: (n,), labels −1 and +1.
        label_noise: probability of a wrong label.

    Returns:
        The exact answer.

    Raises:
        ValueError: if X has not three columns, the data are not separable, or there are too many noisy points.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> found = baselines.exact_bayes_point([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [1, -1])
        >>> round(found.mean[0], 4), round(found.mean[1], 4)
        (np.float64(0.7979), np.float64(-0.7979))
    """
    X = np.asarray(checks.array("X", X, (2,)))
    if X.shape[1] != 3:
        raise ValueError(f"exact_bayes_point is for three weights; X has {X.shape[1]} columns.")
    signed = np.round(X * (np.asarray(y, float) / np.linalg.norm(X, axis=1))[:, None], 12)
    normals, groups = np.unique(signed, axis=0, return_inverse=True)
    counts = np.bincount(groups.ravel(), minlength=len(normals))
    patterns = [np.ones(len(normals))]
    if label_noise > 0:
        if 2 ** len(normals) > MOST_PATTERNS:
            raise ValueError(f"exact_bayes_point adds up 2ⁿ cones, {MOST_PATTERNS} at most; found n = {len(normals)}.")
        patterns = [np.array(signs) for signs in itertools.product([1.0, -1.0], repeat=len(normals))]
    mass, first, second = 0.0, np.zeros(3), np.zeros((3, 3))
    for signs in patterns:
        wrong = counts[signs < 0].sum()
        likelihood = label_noise**wrong * (1.0 - label_noise) ** (counts.sum() - wrong)
        part = cone(normals * signs[:, None])
        mass += likelihood * part.mass
        first += likelihood * part.first
        second += likelihood * part.second
    if not mass > 0:
        raise ValueError("The data are not separable: no weights have all points on the right side.")
    mean = first / mass
    covariance = second / mass - np.outer(mean, mean)
    return Estimate(math.log(mass), mean, covariance, len(X), [(len(X), math.log(mass), mean)])


def cone(normals: np.ndarray) -> Cone:
    """Moments of w ~ N(0, I) where normals @ w > 0; unit rows, no two the same."""
    arcs = [arc(normals, i) for i in range(len(normals))]
    lengths = np.array([0.0 if each is None else each[1] for each in arcs])
    if not lengths.any():
        return Cone(0.0, np.zeros(3), np.zeros((3, 3)))
    first = lengths @ normals / (2 * math.pi) ** 1.5
    centre = first / np.linalg.norm(first)
    angle, faces = 0.0, np.zeros((3, 3))
    for normal, each in zip(normals, arcs, strict=True):
        if each is not None:
            corners = arc_points(*each)
            angle += sum(solid_angle(centre, a, b) for a, b in itertools.pairwise(corners))
            basis, length = each
            faces += np.outer(normal, math.sin(length) * basis[0] + (1.0 - math.cos(length)) * basis[1])
    mass = angle / (4 * math.pi)
    second = mass * np.eye(3) + faces / (4 * math.pi)
    return Cone(mass, first, 0.5 * (second + second.T))


def arc(normals: np.ndarray, i: int) -> tuple[np.ndarray, float] | None:
    """The part of the great circle of wall i inside the others: orthonormal basis, its first row the beginning; angle.

    None where the wall is not part of the border.
    """
    circle = np.linalg.svd(normals[i][None])[2][1:]
    others = np.delete(normals, i, axis=0) @ circle.T
    if (np.hypot(*others.T) < SAME).any():
        return None  # a wall with the opposite normal: nothing is inside both
    middles = np.arctan2(others[:, 1], others[:, 0])
    low, high, reference = -math.pi, math.pi, 0.0
    if middles.size:
        low, high, reference = -0.5 * math.pi, 0.5 * math.pi, middles[0]
        # Half circles that overlap at all meet in one arc within the first.
        for turn in (middles[1:] - reference + math.pi) % (2 * math.pi) - math.pi:
            low, high = max(low, turn - 0.5 * math.pi), min(high, turn + 0.5 * math.pi)
    if high - low <= SAME:
        return None
    angle = reference + low
    rotation = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return rotation @ circle, high - low


def arc_points(basis: np.ndarray, length: float, pieces: int = PIECES) -> np.ndarray:
    """Points along an arc, both ends included."""
    angles = np.linspace(0.0, length, pieces + 1)
    return np.column_stack([np.cos(angles), np.sin(angles)]) @ basis


def solid_angle(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    """Of the triangle between three unit vectors (Van Oosterom & Strackee 1983)."""
    return 2.0 * math.atan2(abs(np.linalg.det(np.stack([a, b, c]))), 1.0 + a @ b + b @ c + c @ a)


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
