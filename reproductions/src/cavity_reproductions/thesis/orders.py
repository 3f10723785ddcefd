"""Orders of the same data: from sorted to random, and what EP makes of them."""

import numpy as np

import cavity
from cavity_reproductions.workbench import solve


def half_sorted(sets: np.ndarray, orders: int, seed: int) -> np.ndarray:
    """Every set in orders from nearly sorted to nearly random: sorted by rank plus more and more noise."""
    rng = np.random.default_rng(seed)
    n = sets.shape[1]
    noise = rng.normal(size=(len(sets), orders, n)) * n * np.geomspace(0.01, 3.0, orders)[:, None]
    places = np.argsort(np.arange(n) + noise, axis=2)
    return np.take_along_axis(np.sort(sets, axis=1)[:, None, :], places, axis=2)


def rank_correlation(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Spearman's correlation along the last axis, one a row."""
    a, b = (np.argsort(np.argsort(part, axis=-1), axis=-1).astype(float) for part in (first, second))
    a, b = a - a.mean(axis=-1, keepdims=True), b - b.mean(axis=-1, keepdims=True)
    return np.sum(a * b, axis=-1) / np.sqrt(np.sum(a**2, axis=-1) * np.sum(b**2, axis=-1))


def order_report(orders: np.ndarray) -> dict:
    """EP on every order: how many converge, and how far converged results of one set lie apart."""
    ep = solve(cavity.models.clutter, orders, cavity.EP())
    done = ep.converged
    spread = np.zeros(len(orders))
    for row, ok in enumerate(done):
        if ok.any():
            parts = [ep.mean[row, ok], np.log(ep.covariance[row, ok]), ep.log_evidence[row, ok]]
            spread[row] = max(np.ptp(part) for part in parts)
    return {"converged": done.sum(axis=1), "orders": np.full(len(done), done.shape[1]), "spread": spread}
