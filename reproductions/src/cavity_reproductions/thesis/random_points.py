"""Random separable points in the plane, with a bias: problems whose Bayes point is known exactly."""

import numpy as np

from cavity.baselines.billiards import separator, walls
from cavity_reproductions.thesis.three_points import Points


def random_points(rng: np.random.Generator, count: int, lengths: float = 0.0) -> Points:
    """`count` points around the origin, labelled by a random line near it.

    lengths: deviation of the logarithm of a factor on each whole vector, bias included; a step does not see it.
    """
    while True:
        X = np.column_stack([rng.normal(size=(count, 2)), np.ones(count)])
        w = rng.normal(size=3) * np.array([1.0, 1.0, 0.5])
        y = np.sign(X @ w)
        if abs(y.sum()) < count:
            return Points(X * np.exp(lengths * rng.normal(size=(count, 1))), y)


def clustered_points(rng: np.random.Generator, count: int, copies: int, spread: float) -> Points:
    """`count` such points, each the centre of `copies` others within `spread`, all on its side of the line."""
    centres = random_points(rng, count)
    while True:
        X = np.repeat(centres.X, copies, axis=0)
        X[:, :2] += spread * rng.normal(size=(len(X), 2))
        y = np.repeat(centres.y, copies)
        if separable(X, y):
            return Points(X, y)


def separable(X: np.ndarray, y: np.ndarray) -> bool:
    """Whether some weights have all points on the right side."""
    try:
        separator(walls(X, y, None).normals)
    except ValueError:
        return False
    return True
