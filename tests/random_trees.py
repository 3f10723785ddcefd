"""Random trees of Gaussian variables with one or two factors that are not Gaussian, and what EP must say of them.

All variables are linear in independent Gaussian coordinates, so that without the other factors everything is closed
form. On a tree EP's fixed point is then that of EP on the one or two variables that have such a factor, under their
joint Gaussian: with one of them mean, variance and evidence are exact, integrals of one dimension. NumPy and SciPy
only; the library is used to state the graph.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from rank_one_ep import noisy_normal, rank_one_ep
from scipy.stats import norm
from scipy.stats import t as student

import cavity as cv

#: (log Z, d log Z/dm, d² log Z/dm²) of a factor under N(m, v)
Moments = Callable[[float, float], tuple[float, float, float]]


class Answer(NamedTuple):
    """Means and variances of all numbers of a tree, in the order of their making, and the log evidence."""

    mean: np.ndarray
    variance: np.ndarray
    log_evidence: float


@dataclass
class RandomTree:
    """A graph, and the same thing in coordinates z: a number is row·z + shift, mean and covariance are those of z.

    parts: for every number its row, its shift, the tree it is part of, and how a solution tells its mean and variance.
    cores: the numbers that have a factor that is not Gaussian, with its moments. log_z: of the observations taken in.
    """

    graph: Any = field(default_factory=cv.FactorGraph)
    mean: np.ndarray = field(default_factory=lambda: np.zeros(0))
    covariance: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    rows: list[np.ndarray] = field(default_factory=list)
    shifts: list[float] = field(default_factory=list)
    trees: list[int] = field(default_factory=list)
    handles: list[Any] = field(default_factory=list)
    places: list[int | None] = field(default_factory=list)
    vectors: list[tuple[Any, list[int]]] = field(default_factory=list)
    cores: dict[int, Moments] = field(default_factory=dict)
    log_z: float = 0.0

    def coordinates(self, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """New coordinates, and their numbers."""
        start, size = len(self.mean), len(mean)
        self.mean = np.concatenate([self.mean, mean])
        whole = np.zeros((start + size, start + size))
        whole[:start, :start], whole[start:, start:] = self.covariance, covariance
        self.covariance = whole
        return np.arange(start, start + size)

    def number(self, row: dict[int, float], shift: float, tree: int, handle: Any, place: int | None = None) -> int:
        """A new number, and its place among all."""
        self.rows.append(np.array([[k, weight] for k, weight in row.items()]).reshape(-1, 2))
        self.shifts.append(shift)
        self.trees.append(tree)
        self.handles.append(handle)
        self.places.append(place)
        return len(self.rows) - 1

    def row(self, which: int) -> np.ndarray:
        """Weights of all coordinates in a number."""
        found = np.zeros(len(self.mean))
        for k, weight in self.rows[which]:
            found[int(k)] += weight
        return found

    def join(self, trees: set[int]) -> int:
        """The trees become one."""
        first = min(trees)
        self.trees = [first if own in trees else own for own in self.trees]
        return first

    def add_vector(self, handle: Any, rows: list[dict[int, float]], shifts: Any, tree: int) -> None:
        """The components of a vector as numbers."""
        pairs = zip(rows, shifts, strict=True)
        made = [self.number(row, float(shift), tree, handle, k) for k, (row, shift) in enumerate(pairs)]
        self.vectors.append((handle, made))

    def combined(self, which: list[int], weights: Any) -> dict[int, float]:
        """Weights of the coordinates in Σ weights × numbers."""
        total = sum(weight * self.row(own) for own, weight in zip(which, weights, strict=True))
        return {k: float(total[k]) for k in np.flatnonzero(total)}

    def observe(self, which: int, value: float, variance: float) -> None:
        """Condition on value ~ N(number, variance)."""
        row = self.row(which)
        spread = self.covariance @ row
        total, gap = row @ spread + variance, value - row @ self.mean - self.shifts[which]
        self.log_z += norm.logpdf(gap, scale=np.sqrt(total))
        self.mean = self.mean + spread * gap / total
        self.covariance = self.covariance - np.outer(spread, spread) / total

    def answer(self) -> Answer | None:
        """What EP must say; None where EP as one would write it finds no fixed point."""
        which = list(self.cores)
        mixing = np.stack([self.row(own) for own in which])
        centre = mixing @ self.mean + np.array([self.shifts[own] for own in which])
        joint = mixing @ self.covariance @ mixing.T
        terms = [self.cores[own] for own in which]
        found = rank_one_ep(joint, lambda i, m, v: terms[i](m + centre[i], v), tol=1e-12)
        if not found.converged:
            return None
        gain = self.covariance @ mixing.T @ np.linalg.inv(np.eye(len(which)) + found.tau[:, None] * joint)
        mean = self.mean + gain @ found.nu
        covariance = self.covariance - gain @ (found.tau[:, None] * mixing @ self.covariance)
        rows = np.stack([self.row(own) for own in range(len(self.rows))])
        variance = np.einsum("ij,jk,ik->i", rows, covariance, rows)
        return Answer(rows @ mean + np.array(self.shifts), variance, self.log_z + found.log_evidence)

    def told(self, solution: Any) -> Answer:
        """What a solution says."""
        means, variances = [], []
        for handle, place in zip(self.handles, self.places, strict=True):
            own = solution.marginals[handle]
            means.append(float(own.mean if place is None else own.mean[place]))
            variances.append(float(own.variance if place is None else own.variance[place, place]))
        return Answer(np.array(means), np.array(variances), float(solution.log_evidence))


def random_tree(structure: int, numbers: int, cores: int | None = None) -> RandomTree:
    """A tree by two seeds: those of one structure share a compiled program. cores: one or two; at random if None."""
    plan, rng = np.random.default_rng(structure), np.random.default_rng([structure, numbers])
    tree = RandomTree()
    for _ in range(plan.integers(1, 4)):
        add_root(tree, rng)
    if plan.random() < 0.5:
        add_random_vector(tree, plan, rng)
    for _ in range(plan.integers(1, 6)):
        kind = plan.choice(["linear", "linear", "inner", "product", "observation"])
        if kind == "linear":
            add_linear(tree, plan, rng)
        elif kind == "observation":
            add_observation(tree, plan, rng)
        elif tree.vectors:
            (add_inner if kind == "inner" else add_product)(tree, plan, rng)
    count = int(plan.integers(1, 3)) if cores is None else cores
    scalars = [own for own, place in enumerate(tree.places) if place is None]
    for own in plan.permutation(scalars)[:count].tolist():
        add_core(tree, own, plan, rng)
    if plan.random() < 0.3:
        add_observation(tree, plan, rng)
    return tree


def add_root(tree: RandomTree, rng: np.random.Generator) -> None:
    mean, variance = 2 * rng.normal(), np.exp(rng.normal())
    (k,) = tree.coordinates(np.array([mean]), np.array([[variance]]))
    tree.number({int(k): 1.0}, 0.0, len(tree.rows), tree.graph.gaussian(mean, variance))


def random_covariance(rng: np.random.Generator, size: int) -> np.ndarray:
    root = rng.normal(size=(size, size))
    return root @ root.T + 0.1 * np.eye(size)


def add_random_vector(tree: RandomTree, plan: np.random.Generator, rng: np.random.Generator) -> None:
    size = int(plan.integers(2, 4))
    mean, covariance = rng.normal(size=size), random_covariance(rng, size)
    which = tree.coordinates(mean, covariance)
    handle = tree.graph.vector(mean, covariance)
    tree.add_vector(handle, [{int(k): 1.0} for k in which], np.zeros(size), len(tree.rows))


def add_linear(tree: RandomTree, plan: np.random.Generator, rng: np.random.Generator) -> None:
    """A sum of up to three numbers of different trees, with noise or without."""
    parts: list[int] = []
    for own in plan.permutation(len(tree.rows)).tolist():
        if tree.places[own] is None and tree.trees[own] not in [tree.trees[part] for part in parts]:
            parts.append(own)
    parts = parts[: int(plan.integers(1, 4))]
    noisy = plan.random() < 0.6
    weights = rng.choice([-1.0, 1.0], len(parts)) * np.exp(0.7 * rng.normal(size=len(parts)))
    offset, variance = rng.normal(), float(np.exp(2 * rng.normal() - 1)) if noisy else 0.0
    row = tree.combined(parts, weights)
    shift = offset + sum(weight * tree.shifts[own] for own, weight in zip(parts, weights, strict=True))
    if noisy:
        (k,) = tree.coordinates(np.zeros(1), np.array([[variance]]))
        row[int(k)] = 1.0
    handles = [tree.handles[own] for own in parts]
    handle = tree.graph.linear(*handles, weights=weights, offset=offset, variance=variance)
    tree.number(row, shift, tree.join({tree.trees[own] for own in parts}), handle)


def add_inner(tree: RandomTree, plan: np.random.Generator, rng: np.random.Generator) -> None:
    handle, components = tree.vectors[plan.integers(len(tree.vectors))]
    x, offset = rng.normal(size=len(components)), rng.normal()
    row = tree.combined(components, x)
    shift = offset + sum(weight * tree.shifts[own] for own, weight in zip(components, x, strict=True))
    tree.number(row, shift, tree.trees[components[0]], tree.graph.inner(handle, x, offset=offset))


def add_product(tree: RandomTree, plan: np.random.Generator, rng: np.random.Generator) -> None:
    handle, components = tree.vectors[plan.integers(len(tree.vectors))]
    size = int(plan.integers(1, 4))
    matrix, offset, noise = (
        rng.normal(size=(size, len(components))),
        rng.normal(size=size),
        random_covariance(rng, size),
    )
    rows = [tree.combined(components, matrix[k]) for k in range(size)]
    shifts = offset + matrix @ np.array([tree.shifts[own] for own in components])
    for row, k in zip(rows, tree.coordinates(np.zeros(size), noise), strict=True):
        row[int(k)] = 1.0
    made = tree.graph.product(matrix, handle, covariance=noise, offset=offset)
    tree.add_vector(made, rows, shifts, tree.trees[components[0]])


def add_observation(tree: RandomTree, plan: np.random.Generator, rng: np.random.Generator) -> None:
    """A number seen through Gaussian noise, by a relation or by a likelihood."""
    scalars = [own for own, place in enumerate(tree.places) if place is None]
    which = int(plan.choice(scalars))
    value, variance = 2 * rng.normal(), float(np.exp(rng.normal()))
    if plan.random() < 0.5:
        tree.graph.linear(tree.handles[which], variance=variance, out=value)
    else:
        tree.graph.add(cv.factors.Gaussian(variance), tree.handles[which], data=value)
    tree.observe(which, value, variance)


def add_core(tree: RandomTree, which: int, plan: np.random.Generator, rng: np.random.Generator) -> None:
    """A factor that is not Gaussian; half of them are not log-concave and send messages of negative precision."""
    kind, handle, y = plan.choice(["step", "probit", "clutter", "student", "within"]), tree.handles[which], rng.normal()
    if kind in ("step", "probit"):
        noise, sign = float(rng.choice([0.0, 0.1, 0.3])) if kind == "step" else 0.0, float(np.sign(y))
        tree.graph.add(cv.factors.Step(noise) if kind == "step" else cv.factors.Probit(), handle, data=sign)
        wider = float(kind == "probit")
        tree.cores[which] = lambda m, v: noisy_normal(sign, m, v + wider, noise)
    elif kind == "clutter":
        share, wide, y = float(rng.uniform(0.1, 0.9)), 10.0, 3 * y
        tree.graph.add(cv.factors.Clutter(share, wide), handle, data=y)
        tree.cores[which] = lambda m, v: clutter_moments(y, share, wide, m, v)
    elif kind == "student":
        scale, df, y = 0.5, float(rng.choice([2.0, 4.0])), 3 * y
        tree.graph.add(cv.factors.StudentT(scale, df), handle, data=y)
        tree.cores[which] = lambda m, v: by_quadrature(
            lambda f: student.logpdf((y - f) / scale, df) - np.log(scale), m, v
        )
    else:
        width = float(np.exp(rng.normal()))
        tree.graph.within(handle, y, y + width)
        tree.cores[which] = lambda m, v: by_quadrature(lambda f: np.zeros_like(f), m, v, y, y + width)


def clutter_moments(y: float, share: float, wide: float, m: float, v: float) -> tuple[float, float, float]:
    """Of (1 − w) N(y; f, 1) + w N(y; 0, a)."""
    own = np.log1p(-share) + norm.logpdf(y, m, np.sqrt(v + 1))
    log_z = np.logaddexp(own, np.log(share) + norm.logpdf(y, 0.0, np.sqrt(wide)))
    r, slope = np.exp(own - log_z), (y - m) / (v + 1)
    return float(log_z), float(r * slope), float(-r / (v + 1) + r * (1 - r) * slope**2)


NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)


def by_quadrature(
    log_term: Callable[[np.ndarray], np.ndarray], m: float, v: float, low: float = -np.inf, high: float = np.inf
) -> tuple[float, float, float]:
    """Gauss–Legendre on 200 panels of the part of (low, high) that a Gaussian reaches, or where it comes nearest."""
    s = np.sqrt(v)
    nearest = np.clip(m, low, high)
    first, last = max(low, nearest - 14 * s), min(high, nearest + 14 * s)
    edges = np.linspace(first, last, 201)
    half = 0.5 * np.diff(edges)
    f = (0.5 * (edges[1:] + edges[:-1])[:, None] + half[:, None] * NODES).ravel()
    log_p = log_term(f) - 0.5 * ((f - m) / s) ** 2
    top = log_p.max()
    p = np.exp(log_p - top) * (half[:, None] * WEIGHTS).ravel()
    z = p.sum()
    mean = p @ f / z
    variance = p @ (f - mean) ** 2 / z
    return float(top + np.log(z / s) - 0.5 * np.log(2 * np.pi)), float((mean - m) / v), float((variance - v) / v**2)
