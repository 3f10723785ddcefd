"""The messages of a junction tree as weights instead of logarithms: several times faster, where nothing can underflow.

Every table is scaled to a largest entry of 1 and knows its floor, the smallest entry that is not zero. A product of
tables has no entry, zeros apart, below the product of their floors: while that stays above 1e-250 nothing is lost.
Where it does not, as with strong couplings, this way is given up and `tree_messages` is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, overload

import numpy as np

from cavity.graph.junction_tree import Clique, JunctionTree
from cavity.graph.tree_messages import SAFE, Calibrated, Contradiction, fold, outside, own_marginals, product

#: bounds of a floor below this are measured instead
LOOSE = 1e-30


class Logarithms(Sequence[np.ndarray | None]):
    """Logarithms of messages, taken where they are asked for."""

    def __init__(self, weights: Sequence[np.ndarray | None]) -> None:
        self.weights = weights

    @overload
    def __getitem__(self, index: int) -> np.ndarray | None: ...
    @overload
    def __getitem__(self, index: slice) -> Logarithms: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | Logarithms | None:
        if isinstance(index, slice):
            return Logarithms(self.weights[index])
        if (message := self.weights[index]) is None:
            return None
        with np.errstate(divide="ignore"):
            return np.log(message)

    def __len__(self) -> int:
        return len(self.weights)


class Scaled(NamedTuple):
    """The factors of a clique, each with largest entry 1; the product of their floors, and the log of the scales."""

    parts: list[np.ndarray]
    floor: float
    log_scale: float


def scaled_factors(clique: Clique) -> Scaled:
    """Weights of a clique's factors."""
    tops = [float(factor.max()) for factor in clique.factors]
    if -np.inf in tops:
        raise Contradiction
    parts = [np.exp(factor - top) for factor, top in zip(clique.factors, tops, strict=True)]
    # The floors are those of the logarithms: a weight may itself have become zero.
    floors = (
        float(np.min(f, where=f > -np.inf, initial=top)) - top for f, top in zip(clique.factors, tops, strict=True)
    )
    return Scaled(parts, math.exp(math.fsum(floors)), math.fsum(tops))


def calibrate_weights(tree: JunctionTree) -> Calibrated | None:
    """Both passes, or None where a product could underflow."""
    if tree.log_constant == -np.inf:
        raise Contradiction
    factors = [scaled_factors(clique) for clique in tree.cliques]
    up: list[np.ndarray] = []
    floors: list[float] = []
    constants = [tree.log_constant]
    for index, clique in enumerate(tree.cliques):
        lowest = factors[index].floor * math.prod(floors[child] for child in clique.children)
        if lowest < SAFE:
            return None
        message = fold(np.add, clique_weights(tree, clique, factors[index].parts, up), tuple(range(clique.own)))
        peak = float(np.max(message))
        if peak == 0.0:
            raise Contradiction
        up.append(message / peak)
        floors.append(floor(up[-1], lowest / peak))
        constants.append(factors[index].log_scale + math.log(peak))

    down: list[np.ndarray | None] = [None] * len(tree.cliques)
    floors_down = [1.0] * len(tree.cliques)
    marginals: dict[int, np.ndarray] = {}
    with np.errstate(invalid="ignore"):
        for index in reversed(range(len(tree.cliques))):
            clique = tree.cliques[index]
            lowest = factors[index].floor * floors_down[index] * math.prod(floors[child] for child in clique.children)
            if lowest < SAFE:
                return None
            belief = clique_weights(tree, clique, factors[index].parts, up, down[index])
            marginals |= own_marginals(clique, belief)
            for child in clique.children:
                message = fold(np.add, belief, outside(clique, tree.cliques[child].separator)) / up[child]
                # 0/0: the child gives this state weight zero whatever is said here.
                message[np.isnan(message)] = 0.0
                peak = float(message.max())
                down[child] = message = message / peak
                floors_down[child] = floor(message, lowest / peak)
    return Calibrated(Logarithms(up), Logarithms(down), marginals, constants)


def clique_weights(
    tree: JunctionTree, clique: Clique, factors: list[np.ndarray], up: list[np.ndarray], above: np.ndarray | None = None
) -> np.ndarray:
    """Product of a clique's factors, the messages of its children and, where it is known, the one from above."""
    messages = [np.reshape(up[child], tree.cliques[child].message_shape) for child in clique.children]
    parts = [*factors, *messages] if above is None else [*factors, *messages, above]
    return product(parts, clique.shape, np.multiply)


def floor(table: np.ndarray, bound: float) -> float:
    """A bound of the smallest entry that is not zero: the one at hand, or measured where that is a poor one."""
    if bound > LOOSE:
        return bound
    return float(np.min(table, where=table > 0.0, initial=1.0))
