"""Adaptive integration of a density of one variable, driven from the host, to about 1e-13.

Panels carry 33 Clenshaw–Curtis points, ends included, so a peak beside an edge is seen from both sides. Every panel is
compared with its two halves, in the zeroth, first and second moment; those that disagree are cut. The doubling that
verifies an answer is thus part of the computation.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from cavity.numerics.quadrature import clenshaw_curtis

ORDER = 33
MAX_ROUNDS = 64
#: panels cut at once, at most: more are only met where f is noise
MAX_CUTS = 10_000


class HostIntegral(NamedTuple):
    """log ∫ f, mean and variance of the normalised f, points used, and what each round knew: (points, log ∫ f, mean).

    error: the largest disagreement left, relative to ∫ f; infinite where no mass was found.
    """

    log_z: float
    mean: float
    variance: float
    points: int
    rounds: list[tuple[int, float, float]]
    error: float


POINTS, WEIGHTS, _ = clenshaw_curtis(ORDER)


def prior_edges(mean: float, sd: float, landmarks: np.ndarray) -> np.ndarray:
    """Starting panels: width sd/4 within 10 sd of the mean, then doubling, and an edge at every landmark."""
    near, far = np.linspace(-10.0, 10.0, 81), 10.0 * 2.0 ** np.arange(1, 20)
    edges = mean + sd * np.concatenate([-far[::-1], near, far])
    inside = landmarks[(landmarks > edges[0]) & (landmarks < edges[-1])]
    return np.unique(np.concatenate([edges, inside]))


def integrate_on_host(log_f: Callable[[np.ndarray], np.ndarray], edges: np.ndarray) -> HostIntegral:
    """∫ exp(log_f(θ)) dθ between the first and the last edge; NaN counts as no mass."""

    def sample(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Points and log of (weight × f), both (panels, 33)."""
        half = 0.5 * (high - low)[:, None]
        nodes = 0.5 * ((1.0 - POINTS) * low[:, None] + (1.0 + POINTS) * high[:, None])
        values = log_f(nodes.ravel()).reshape(nodes.shape)
        return nodes, np.where(np.isnan(values), -np.inf, values) + np.log(WEIGHTS * half)

    low, high = edges[:-1], edges[1:]
    nodes, terms = sample(low, high)
    points = nodes.size
    settled_nodes, settled_terms = np.zeros(0), np.zeros(0)
    rounds: list[tuple[int, float, float]] = []
    log_z, mean, variance, error = -np.inf, np.nan, np.nan, np.inf
    for _ in range(MAX_ROUNDS):
        middle = 0.5 * (low + high)
        half_nodes, half_terms = sample(np.concatenate([low, middle]), np.concatenate([middle, high]))
        points += half_nodes.size
        all_nodes = np.concatenate([settled_nodes, half_nodes.ravel()])
        all_terms = np.concatenate([settled_terms, half_terms.ravel()])
        log_z = float(logsumexp(all_terms))
        if not np.isfinite(log_z):
            break
        share = np.exp(all_terms - log_z)
        mean = float(share @ all_nodes)
        variance = float(share @ (all_nodes - mean) ** 2)
        rounds.append((points, log_z, mean))
        sd = np.sqrt(variance) or 1.0
        halves = panel_moments(half_nodes, half_terms, log_z, mean, sd).reshape(2, low.size, 3).sum(axis=0)
        gaps = np.abs(panel_moments(nodes, terms, log_z, mean, sd) - halves).max(axis=1)
        # Rounding of log f and of θ, some units in their last places, is an error of f that no cut removes.
        live = all_terms > log_z - 60.0
        rounding = np.finfo(float).eps * (8.0 + np.max(np.abs(all_terms[live])) + 8.0 * abs(mean) / sd)
        cut = (gaps > rounding) & (low < middle) & (middle < high)
        error = float(gaps.max())
        both = np.concatenate([cut, cut])
        settled_nodes = np.concatenate([settled_nodes, half_nodes[~both].ravel()])
        settled_terms = np.concatenate([settled_terms, half_terms[~both].ravel()])
        if not cut.any() or np.count_nonzero(cut) > MAX_CUTS:
            break
        low, high = np.concatenate([low, middle])[both], np.concatenate([middle, high])[both]
        nodes, terms = half_nodes[both], half_terms[both]
    return HostIntegral(log_z, mean, variance, points, rounds, error)


def panel_moments(nodes: np.ndarray, terms: np.ndarray, log_z: float, mean: float, sd: float) -> np.ndarray:
    """Shares of each panel in ∫ f, ∫ z f and ∫ z² f, z = (θ − mean)/sd; (panels, 3)."""
    # A panel that is not resolved may claim any mass; the bound keeps it finite.
    share = np.exp(np.minimum(terms - log_z, 300.0))
    z = (nodes - mean) / sd
    return np.stack([np.sum(share * z**k, axis=1) for k in range(3)], axis=1)
