"""Why Laplace's method and variational Bayes have nothing to say on the step likelihood (section 5.5)."""

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_ndtr

from cavity.baselines import latent_laplace
from cavity.factors import Step
from cavity_reproductions.thesis.three_points import Points


def laplace_refusal(data: Points) -> str:
    """What Laplace's method says."""
    try:
        latent_laplace(data.K + 1e-9 * np.eye(len(data.K)), data.y, Step())
    except TypeError as refusal:
        return str(refusal)
    return ""


def variational_gaussian(data: Points, label_noise: float, starts: int, seed: int) -> tuple[float, np.ndarray]:
    """The largest lower bound of log p(D) by a Gaussian q, and the mean of q.

    E_q[log t] = log ε + log((1 − ε)/ε) Φ(z), z = y mᵀx/√(xᵀVx), is −∞ for ε = 0 whatever q: no Gaussian is a bound.
    """
    if label_noise == 0:
        return -np.inf, np.full(data.X.shape[1], np.nan)
    d = data.X.shape[1]
    lower = np.tril_indices(d)

    def loss(vector: np.ndarray) -> float:
        mean, root = vector[:d], np.zeros((d, d))
        root[lower] = vector[d:]
        z = data.y * (data.X @ mean) / np.linalg.norm(data.X @ root, axis=1)
        divergence = 0.5 * (np.sum(root**2) + mean @ mean - d) - np.sum(np.log(np.abs(np.diagonal(root))))
        right = np.exp(log_ndtr(z))
        return divergence - np.sum(np.log(label_noise) + np.log((1 - label_noise) / label_noise) * right)

    rng, best = np.random.default_rng(seed), None
    for _ in range(starts):
        start = np.concatenate([rng.normal(size=d), np.eye(d)[lower]])
        found = minimize(loss, start, method="BFGS")
        best = found if best is None or found.fun < best.fun else best
    assert best is not None
    return -float(best.fun), best.x[:d]


def bounds_by_noise(data: Points, levels: tuple[float, ...], starts: int, seed: int) -> dict[str, Any]:
    """Bound and mean for several ε."""
    found = [variational_gaussian(data, level, starts, seed) for level in levels]
    return {"levels": levels, "bounds": [bound for bound, _ in found], "means": [mean for _, mean in found]}
