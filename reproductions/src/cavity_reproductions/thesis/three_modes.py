"""The search for clutter posteriors with three modes, on a grid."""

import numpy as np

MODES = 3
#: two modes are apart when the density between them falls below this part of the lower one
VALLEY = 0.9
GRID = np.linspace(-12.0, 12.0, 601)
#: sets looked at together, to bound memory
CHUNK = 2000


def log_joint(sets: np.ndarray) -> np.ndarray:
    """log p(D, θ) of (3.4) on the grid for sets (m, n), w = ½, up to a constant of each set; (m, grid)."""
    background = np.exp(-0.05 * sets**2) / np.sqrt(10.0)
    total = np.broadcast_to(-0.005 * GRID**2, (len(sets), GRID.size)).copy()
    for x, constant in zip(sets.T, background.T, strict=True):
        total += np.log(np.exp(-0.5 * (GRID - x[:, None]) ** 2) + constant[:, None])
    return total


def modes(log_density: np.ndarray, height: float) -> list[int]:
    """Places on the grid of the modes that are apart and at least `height` times as high as the highest."""
    p = np.exp(log_density - log_density.max())
    tops = np.flatnonzero((p[1:-1] > p[:-2]) & (p[1:-1] > p[2:]) & (p[1:-1] > height)) + 1
    kept: list[int] = []
    for top in tops:
        if kept and p[kept[-1] : top].min() > VALLEY * min(p[kept[-1]], p[top]):
            if p[top] > p[kept[-1]]:
                kept[-1] = int(top)
        else:
            kept.append(int(top))
    return kept


def three_mode_sets(candidates: np.ndarray, height: float) -> np.ndarray:
    """Those of the sets (m, n) whose posterior has three modes."""
    found: list[np.ndarray] = []
    for start in range(0, len(candidates), CHUNK):
        piece = candidates[start : start + CHUNK]
        found += [x for x, values in zip(piece, log_joint(piece), strict=True) if len(modes(values, height)) == MODES]
    return np.array(found).reshape(-1, candidates.shape[1])
