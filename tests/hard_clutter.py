"""Clutter sets that plain EP has no answer to, and a measure of agreement that shares nothing with the library."""

import numpy as np
from support import draw_clutter

import cavity as cv

#: sets of 20 points, w = 0.7, on which plain EP circles or meets improper cavities
HARD = [cv.models.clutter(draw_clutter(seed, 20, w=0.7), w=0.7) for seed in (3, 8, 11)]


def scalar_mismatch(problem, solution):
    """Largest gap between q and the tilted moments of a scalar clutter problem, recomputed with NumPy."""
    nu, tau = solution.sites[0].T
    prior = np.asarray(problem.prior)
    q = prior + solution.sites[0].sum(axis=0)
    (group,) = problem.groups
    x, w, c = np.asarray(group.data), float(group.factor.w), float(group.factor.clutter_variance)
    p, s = q[1] - tau, q[0] - nu
    assert np.all(p > 0)
    m, v = s / p, 1 / p
    signal = (1 - w) * np.exp(-0.5 * (x - m) ** 2 / (v + 1)) / np.sqrt(2 * np.pi * (v + 1))
    background = w * np.exp(-0.5 * x**2 / c) / np.sqrt(2 * np.pi * c)
    r = signal / (signal + background)
    mean = m + r * v * (x - m) / (v + 1)
    variance = v - r * v**2 / (v + 1) + r * (1 - r) * (v * (x - m) / (v + 1)) ** 2
    return max(np.abs(mean - q[0] / q[1]).max() * np.sqrt(q[1]), np.abs(np.log(variance * q[1])).max())
