"""Places for the nodes of a network, from its edges alone: the same edges always give the same drawing.

Distances on the page are brought near to distances along the edges (stress majorisation), starting from classical
scaling of these. Parts that are not connected are laid out one by one and set beside each other.
"""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, shortest_path

#: steps of the majorisation, and the relative gain below which it ends
STEPS, GAIN = 300, 1e-5
#: share of edges along two axes, as |mean exp(4i angle)|, from which a network counts as a grid
GRID = 0.35
#: between parts, in lengths of an edge
GAP = 1.0
#: rounds of moving apart what overlaps
ROUNDS = 100


def layout(count: int, edges: Sequence[tuple[int, int]], lengths: Sequence[float], radii: np.ndarray) -> np.ndarray:
    """Places (count, 2) of nodes joined by edges of these lengths; nodes of these radii do not overlap."""
    if count == 0:
        return np.zeros((0, 2))
    ends = np.array(edges, np.int64).reshape(-1, 2)
    weights = np.asarray(lengths, float)
    ends, first = np.unique(np.sort(ends, axis=1), axis=0, return_index=True)
    matrix = coo_array((weights[first], (ends[:, 0], ends[:, 1])), shape=(count, count)).tocsr()
    parts, part = connected_components(matrix, directed=False)
    places = np.zeros((count, 2))
    for number in range(parts):
        own = np.flatnonzero(part == number)
        inside = matrix[own][:, own]
        found = stress_layout(np.asarray(shortest_path(inside, directed=False)))
        links = np.stack(inside.nonzero(), axis=1)
        places[own] = separated(upright(found, links), radii[own])
    return packed(places, part)


def stress_layout(distances: np.ndarray) -> np.ndarray:
    """Places whose distances are near these, each counted relative to its size."""
    count = len(distances)
    if count == 1:
        return np.zeros((1, 2))
    places = classical_scaling(distances)
    weights = np.where(distances > 0, 1.0 / np.maximum(distances, 1e-9) ** 2, 0.0)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    inverse = np.linalg.inv(laplacian + 1.0 / count) - 1.0 / count
    before = np.inf
    for _ in range(STEPS):
        apart = np.linalg.norm(places[:, None] - places[None], axis=2)
        stress = float(np.sum(weights * (apart - distances) ** 2))
        if stress >= before * (1.0 - GAIN):
            break
        before = stress
        pull = weights * distances / np.where(apart > 1e-12, apart, np.inf)
        places = inverse @ (pull.sum(axis=1)[:, None] * places - pull @ places)
    return places


def classical_scaling(distances: np.ndarray) -> np.ndarray:
    """The two leading coordinates of points with about these distances; equal nodes are moved a little apart."""
    squares = distances**2
    centred = -0.5 * (squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean())
    values, vectors = np.linalg.eigh(centred)
    vectors = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 1e-6))
    vectors = vectors * np.where(vectors[np.argmax(np.abs(vectors), axis=0), range(vectors.shape[1])] < 0, -1.0, 1.0)
    angle = np.arange(len(distances)) * 2.4
    return vectors[:, ::-1] + 0.05 * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def upright(places: np.ndarray, links: np.ndarray) -> np.ndarray:
    """Turned so that a grid has rows and columns, and anything else is wider than high; the first node is top left."""
    places = places - places.mean(axis=0)
    steps = places[links[:, 1]] - places[links[:, 0]]
    direction = np.mean(np.exp(4j * np.arctan2(steps[:, 1], steps[:, 0]))) if len(links) else 0.0
    if abs(direction) > GRID:
        turn = float(np.angle(direction)) / 4
    else:
        _, vectors = np.linalg.eigh(places.T @ places)
        turn = float(np.arctan2(vectors[1, -1], vectors[0, -1]))
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    places = places @ rotation
    if np.ptp(places[:, 1]) > np.ptp(places[:, 0]) * 1.05:
        places = places[:, ::-1]
    return places * np.where(places[0] * [1.0, -1.0] > 1e-9, -1.0, 1.0)


def separated(places: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Nodes that overlap are moved apart along the line between them, as often as it takes or `ROUNDS` times."""
    apart = radii[:, None] + radii[None]
    np.fill_diagonal(apart, 0.0)
    for _ in range(ROUNDS):
        step = places[:, None] - places[None]
        distance = np.maximum(np.linalg.norm(step, axis=2), 1e-9)
        lacking = np.maximum(apart - distance, 0.0)
        if lacking.max() < 1e-3:
            break
        places = places + 0.5 * np.sum((lacking / distance)[:, :, None] * step, axis=1)
    return places


def packed(places: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Parts beside each other in rows of about the same width, the largest first."""
    sizes = np.array([np.ptp(places[part == number], axis=0) + GAP for number in range(part.max() + 1)])
    order = np.argsort(-sizes.prod(axis=1), kind="stable")
    limit = max(float(sizes[:, 0].max()), 1.3 * float(np.sqrt(sizes.prod(axis=1).sum())))
    left, top, height, found = 0.0, 0.0, 0.0, places.copy()
    for number in order:
        width, tall = sizes[number]
        if left > 0 and left + width > limit:
            left, top, height = 0.0, top - height, 0.0
        own = part == number
        corner = np.array([places[own, 0].min(), places[own, 1].max()])
        found[own] = places[own] - corner + [left, top]
        left, height = left + width, max(height, tall)
    return found
