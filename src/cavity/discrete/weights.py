"""Tables of a graph as plain weights, for the formats and libraries that know no logarithms."""

from typing import NamedTuple

import numpy as np

from cavity.discrete.graph import DiscreteGraph


class Weights(NamedTuple):
    """One factor. weights: flat, the last variable of the scope running fastest or, where asked for, the first."""

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    weights: list[float]


def written_tables(graph: DiscreteGraph, *, evidence: bool = False, first_fastest: bool = False) -> list[Weights]:
    """Every factor of the graph in its own order, then soft evidence as factors.

    evidence: whether what was observed is added as well, as factors of 0 and 1: then the tables alone have the graph's
    distribution and its Z.
    """
    found: list[Weights | None] = [None] * len(graph.factors)
    for own in graph.tables():
        weights = plain_weights(own.log_values, own.numbers)
        if first_fastest:
            weights = weights.transpose(0, *range(len(own.shape), 0, -1))
        rows = weights.reshape(len(weights), -1).tolist()
        for number, scope, row in zip(own.numbers.tolist(), own.scopes.tolist(), rows, strict=True):
            found[number] = Weights(tuple(scope), own.shape, row)
    tables = [table for table in found if table is not None]
    for variable, log_likelihood in graph.likelihoods.items():
        row = plain_weights(log_likelihood[None], np.array([len(tables)]))[0]
        tables.append(Weights((variable,), row.shape, row.tolist()))
    for variable, state in graph.evidence.items() if evidence else ():
        row = np.eye(int(graph.cardinalities[variable]))[state]
        tables.append(Weights((variable,), row.shape, row.tolist()))
    return tables


def plain_weights(log_values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """exp of the logarithms, where doubles can hold it: an entry that became 0 or ∞ would be another model."""
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp(log_values)
    lost = (weights == np.inf) | ((weights == 0) & (log_values > -np.inf))
    if lost.any():
        place = tuple(np.argwhere(lost)[0])
        raise ValueError(
            f"factor {numbers[place[0]]} has an entry exp({log_values[place]:.6g}), which a double cannot hold; "
            "move a constant into another factor."
        )
    return weights
