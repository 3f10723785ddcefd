"""The forest of Eslami, Tarlow, Kohli & Winn (2014): trees with a polynomial in every leaf, updated as labels arrive.

Settings follow the re-implementation in Jitkrittum et al.: 64 trees, 100 random split candidates a node, squared error,
polynomials of degree 2 in the leaves. Where neither text says how, this was chosen:

    all labels go to every tree, which differ by their split candidates alone
    a candidate is a random column at a random value between two labels; the best one leaves the smallest sum of
        squares around the means of both sides, of standardised targets
    a leaf has at least 20 labels; a node that could be cut is cut if that lowers the sum of squares
    a polynomial is fitted by least squares of smallest norm, of standardised inputs
    the disagreement of trees is the mean over trees of KL(tree's message ‖ average message)
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from cavity._core.precision import float64
from cavity.families.base import Family
from cavity.families.gaussian import Gaussian
from cavity.learned.message_coordinates import Target, chart, variables

#: forests as scikit-learn has them
KINDS = {"breiman": RandomForestRegressor, "extremely randomised": ExtraTreesRegressor}

LEAST, CANDIDATES, TREES = 20, 100, 64
#: predicted logarithms stay within these, so that a polynomial far out gives a number
LARGEST = 30.0


def with_parameters(family: Family, cavities: np.ndarray) -> list[tuple[Family, jax.Array, jax.Array]]:
    """Of every variable its family, its messages, and their (mean, log variance) or logarithms of parameters."""
    rows = variables(family, jnp.asarray(cavities, float))
    return [(own, piece, jax.vmap(chart(own).parameters)(piece)) for own, piece in rows]


@float64
def message_columns(family: Family, cavities: np.ndarray) -> np.ndarray:
    """What a tree may split on: mean, variance, natural and regression parameters of every message.

    A Gaussian gives (m, v, m/v, 1/v, log v), a Beta (mean, variance, a, b, log a, log b). Eslami et al. also use flags
    of improper messages and the factor's value at the modes; here all are proper, and the factor may have no density.
    """
    found = []
    for own, piece, values in with_parameters(family, cavities):
        # A Gaussian's mean is among its parameters already.
        extra = values[:, 1:] if isinstance(own, Gaussian) else values
        found += [own.mean(piece)[:, None], own.covariance(piece)[:, None], piece, extra]
    return np.asarray(jnp.concatenate(found, axis=1))


@float64
def regression_parameters(family: Family, cavities: np.ndarray) -> np.ndarray:
    """(mean, log variance) or logarithms of the parameters of every message, side by side."""
    return np.asarray(jnp.concatenate([values for *_, values in with_parameters(family, cavities)], axis=1))


def polynomials(points: np.ndarray) -> np.ndarray:
    """1, all coordinates, all products of two: degree 2."""
    pairs = list(combinations_with_replacement(range(points.shape[1]), 2))
    products = np.stack([points[:, i] * points[:, j] for i, j in pairs], axis=1)
    return np.concatenate([np.ones((len(points), 1)), points, products], axis=1)


@dataclass
class Node:
    """column: split on, −1 in a leaf. children: (left, right), by number. rows, model: labels of a leaf, its fit."""

    rows: np.ndarray
    column: int = -1
    border: float = 0.0
    children: tuple[int, int] = (-1, -1)
    model: np.ndarray | None = None


class RegressionTree(list[Node]):
    """Nodes by number."""

    def add(self, rows: np.ndarray) -> int:
        """A leaf without a model yet."""
        self.append(Node(rows))
        return len(self) - 1

    def leaves(self, columns: np.ndarray) -> np.ndarray:
        """The leaf of every row."""
        rows = zip(*((node.column, node.border, node.children) for node in self), strict=True)
        split, border, children = map(np.array, rows)
        at = np.zeros(len(columns), int)
        while True:
            inside = np.flatnonzero(split[at] >= 0)
            if not len(inside):
                return at
            nodes = at[inside]
            right = columns[inside, split[nodes]] > border[nodes]
            at[inside] = children[nodes, right.astype(int)]


class MessageForest:
    """Messages to one variable of a factor, `target.kind` being "parameters". Labels: cavities and projections."""

    def __init__(
        self, target: Target, cavities: np.ndarray, projected: np.ndarray, seed: int = 0, trees: int = TREES
    ) -> None:
        self.target, self.rng = target, np.random.default_rng(seed)
        self.cavities, self.values = np.asarray(cavities, float), values_of(target, projected)
        points = regression_parameters(target.family, self.cavities)
        self.centre, self.deviation = points.mean(axis=0), np.maximum(points.std(axis=0), 1e-12)
        self.scale = np.maximum(self.values.std(axis=0), 1e-12)
        self.columns, self.terms = self.seen(self.cavities)
        self.trees = [RegressionTree() for _ in range(trees)]
        for tree in self.trees:
            self.grow(tree, tree.add(np.arange(len(self.cavities))))

    def seen(self, cavities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Columns to split on and terms of the polynomials, of any cavities."""
        points = (regression_parameters(self.target.family, cavities) - self.centre) / self.deviation
        return message_columns(self.target.family, cavities), polynomials(points)

    def grow(self, tree: RegressionTree, node: int) -> None:
        """Split a leaf as long as that helps, and fit the leaves that come of it."""
        waiting = [node]
        while waiting:
            own = tree[waiting.pop()]
            rows = own.rows
            found = best_split(self.rng, self.columns[rows], self.values[rows] / self.scale)
            if found is None:
                own.model = np.linalg.lstsq(self.terms[rows], self.values[rows], rcond=1e-8)[0]
                continue
            own.column, own.border = found
            right = self.columns[rows, own.column] > own.border
            own.children = tree.add(rows[~right]), tree.add(rows[right])
            own.rows = rows[:0]
            waiting += own.children

    def with_more(self, cavities: np.ndarray, projected: np.ndarray) -> None:
        """Labels that arrive later: leaves they fall into are fitted again, and split where they have become large."""
        first = len(self.cavities)
        self.cavities = np.concatenate([self.cavities, np.asarray(cavities, float)])
        self.values = np.concatenate([self.values, values_of(self.target, projected)])
        self.columns, self.terms = self.seen(self.cavities)
        fresh = np.arange(first, len(self.cavities))
        for tree in self.trees:
            places = tree.leaves(self.columns[fresh])
            for leaf in np.unique(places):
                tree[leaf].rows = np.concatenate([tree[leaf].rows, fresh[places == leaf]])
                self.grow(tree, int(leaf))

    def votes(self, cavities: np.ndarray) -> np.ndarray:
        """The parameters every tree predicts, (trees, rows, parameters)."""
        columns, terms = self.seen(np.asarray(cavities, float))
        found = []
        for tree in self.trees:
            nothing = np.zeros((terms.shape[1], self.values.shape[1]))
            models = np.stack([nothing if own.model is None else own.model for own in tree])
            found.append(np.einsum("nt,ntk->nk", terms, models[tree.leaves(columns)]))
        return np.stack(found)

    @float64
    def predict(self, cavities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(natural parameters of the moment average of the trees' messages, their disagreement)."""
        own = self.target.own
        votes = self.votes(cavities)
        # All parameters but a Gaussian's mean are logarithms.
        logs = votes[..., 1:] if isinstance(own, Gaussian) else votes
        np.clip(logs, -LARGEST, LARGEST, out=logs)
        etas = jax.vmap(jax.vmap(chart(own).from_parameters))(jnp.asarray(votes))
        average = own.natural(own.moments(etas).mean(axis=0))
        return np.asarray(average), np.asarray(own.kl(etas, average[None]).mean(axis=0))


def best_split(rng: np.random.Generator, columns: np.ndarray, values: np.ndarray) -> tuple[int, float] | None:
    """(column, border) of the best candidate; None where none leaves enough labels on both sides and helps."""
    count = len(columns)
    if count < 2 * LEAST:
        return None
    chosen = rng.integers(columns.shape[1], size=CANDIDATES)
    ends = columns[rng.integers(count, size=(2, CANDIDATES)), chosen]
    borders = ends[0] + rng.random(CANDIDATES) * (ends[1] - ends[0])
    right = columns[:, chosen] > borders
    size = right.sum(axis=0)
    centred = values - values.mean(axis=0)
    sums = right.T.astype(float) @ centred
    # The sum of squares falls by |sum on the right|² (1/right + 1/left), the sum on the left being its negative.
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.sum(sums**2, axis=1) * (1.0 / size + 1.0 / (count - size))
    gain = np.where((size >= LEAST) & (count - size >= LEAST), gain, -1.0)
    best = int(np.argmax(gain))
    return (int(chosen[best]), float(borders[best])) if gain[best] > 1e-12 * np.sum(centred**2) else None


@float64
def values_of(target: Target, projected: np.ndarray) -> np.ndarray:
    """The parameters, as the trees average them, of projections given by natural parameters."""
    return np.asarray(jax.vmap(chart(target.own).parameters)(jnp.asarray(projected, float)))


def averaged_trees(
    kind: Literal["breiman", "extremely randomised"],
    columns: np.ndarray,
    values: np.ndarray,
    trees: int = 64,
    seed: int = 0,
) -> Callable[[np.ndarray], np.ndarray]:
    """Breiman's random forest or extremely randomised trees: rows of columns to rows of values. Outputs share trees."""
    outputs = values[:, 0] if values.shape[1] == 1 else values
    found = KINDS[kind](n_estimators=trees, random_state=seed).fit(columns, outputs)
    return lambda rows: np.asarray(found.predict(rows)).reshape(len(rows), -1)
