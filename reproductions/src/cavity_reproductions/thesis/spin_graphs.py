"""Grids, complete graphs and random regular graphs of spins, with the groups, trees and clusters EP may use on them."""

from typing import Any, NamedTuple

import numpy as np

import cavity
from cavity.discrete import DiscreteGraph
from cavity.discrete.approx.tree import maximal_tree

KINDS = ("grid 4×4", "complete 8", "regular 16")
#: longest cycle that is made one term
LONGEST = 6


class Structure(NamedTuple):
    """edges: (m, 2). sizes: (m,), what |J| is in units of the coupling. clusters: disjoint sets of nodes."""

    nodes: int
    edges: np.ndarray
    sizes: np.ndarray
    clusters: list[list[int]]


def structure(kind: str, rng: np.random.Generator) -> Structure:
    """A graph, and sizes of its couplings, even in 0.5..1.5."""
    if kind == "grid 4×4":
        number = np.arange(16).reshape(4, 4)
        edges = grid_edges(4)
        clusters = [number[i : i + 2, j : j + 2].ravel().tolist() for i in (0, 2) for j in (0, 2)]
    elif kind == "complete 8":
        edges = np.array([(i, j) for i in range(8) for j in range(i + 1, 8)])
        clusters = [[i, i + 1] for i in range(0, 8, 2)]
    else:
        edges = regular(rng, 16, 3)
        clusters = []
    sizes = rng.uniform(0.5, 1.5, len(edges))
    count = int(edges.max()) + 1
    return Structure(count, edges, sizes, clusters or grown(count, edges, 4))


def grid_edges(side: int) -> np.ndarray:
    """Edges of a square grid, whose nodes are numbered row by row: those along rows, then those along columns."""
    number = np.arange(side**2).reshape(side, side)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    return np.concatenate([across, down])


def regular(rng: np.random.Generator, count: int, degree: int) -> np.ndarray:
    """A random regular graph: stubs paired at random until no pair is a loop or comes twice."""
    while True:
        pairs = np.sort(rng.permutation(np.repeat(np.arange(count), degree)).reshape(-1, 2), axis=1)
        if (pairs[:, 0] < pairs[:, 1]).all() and len(np.unique(pairs, axis=0)) == len(pairs):
            return np.unique(pairs, axis=0)


def grown(count: int, edges: np.ndarray, size: int) -> list[list[int]]:
    """Clusters grown node by node: always the free node with most edges into the cluster."""
    free, found = set(range(count)), []
    joined = np.zeros((count, count), bool)
    joined[edges[:, 0], edges[:, 1]] = joined[edges[:, 1], edges[:, 0]] = True
    while free:
        own = [min(free)]
        free.discard(own[0])
        while free and len(own) < size:
            own.append(max(sorted(free), key=lambda node: int(joined[node, own].sum())))
            free.discard(own[-1])
        found.append(sorted(own))
    return found


def cycle_groups(structure: Structure) -> list[list[int]]:
    """Edges of cycles that share none, the shortest first: on a grid, faces."""
    left, found = dict(enumerate(structure.edges.tolist())), []
    for length in range(3, LONGEST + 1):
        for number in range(len(structure.edges)):
            cycle = short_cycle(left, number, length) if number in left else None
            if cycle is not None:
                found.append(sorted(cycle))
                for edge in cycle:
                    del left[edge]
    return found


def short_cycle(edges: dict[int, list[int]], start: int, length: int) -> list[int] | None:
    """Edges of a cycle of this length through one of them."""
    first, goal = edges[start]

    def walk(node: int, used: list[int], seen: set[int]) -> list[int] | None:
        if len(used) == length:
            return used if node == goal else None
        for number, ends in edges.items():
            if node in ends and number not in used:
                following = ends[1 - ends.index(node)]
                if following not in seen or (following == goal and len(used) == length - 1):
                    found = walk(following, [*used, number], seen | {following})
                    if found is not None:
                        return found
        return None

    return walk(first, [start], {first, goal})


def between_clusters(structure: Structure) -> list[list[int]]:
    """Edges between the same two clusters, where there are several."""
    cluster = {node: number for number, own in enumerate(structure.clusters) for node in own}
    found: dict[tuple[int, ...], list[int]] = {}
    for number, ends in enumerate(structure.edges.tolist()):
        key = tuple(sorted(cluster[node] for node in ends))
        if key[0] != key[1]:
            found.setdefault(key, []).append(number)
    return [own for own in found.values() if len(own) > 1]


def forms(structure: Structure) -> dict[str, tuple[Any, Any]]:
    """Approximations by name: what stands for q, and which edges are joined."""
    tree = cavity.Tree(maximal_tree(structure.nodes, structure.edges, structure.sizes).tolist())
    clusters = cavity.Clusters(structure.clusters)
    return {
        "BP": ("disconnected", None),
        "cycles grouped": ("disconnected", cycle_groups(structure)),
        "tree": (tree, None),
        "clusters": (clusters, None),
        "clusters, grouped": (clusters, between_clusters(structure)),
    }


def spins(structure: Structure, coupling: float, field: float, rng: np.random.Generator) -> DiscreteGraph:
    """exp(Σ J_ij s_i s_j + Σ h_i s_i): |J| = coupling × its size, with random signs; h even in ± field."""
    signed = coupling * structure.sizes * rng.choice([-1.0, 1.0], len(structure.edges))
    return ising(structure.edges, signed, rng.uniform(-field, field, structure.nodes))


def ising(edges: np.ndarray, couplings: np.ndarray, fields: np.ndarray) -> DiscreteGraph:
    """exp(Σ J_ij s_i s_j + Σ h_i s_i)."""
    graph = DiscreteGraph([2] * len(fields))
    graph.add_factors(edges, couplings[:, None, None] * np.array([[1.0, -1.0], [-1.0, 1.0]]), log=True)
    graph.add_factors(np.arange(len(fields))[:, None], np.stack([-fields, fields], axis=1), log=True)
    return graph
