"""Graphs small enough to be summed over all their states."""

import numpy as np
from scipy.special import logsumexp

from cavity import DiscreteGraph

SPINS = np.array([1.0, -1.0])


def joint_table(graph):
    """log weight of every joint state, one axis a variable, written without the library's own joining of tables."""
    cards = graph.cardinalities
    states = np.indices(cards).reshape(len(cards), -1)
    total = np.zeros(states.shape[1])
    for factor in graph:
        total += factor.log_values[tuple(states[list(factor.scope)])]
    for variable, state in graph.evidence.items():
        total[states[variable] != state] = -np.inf
    for variable, log_weights in graph.likelihoods.items():
        total += log_weights[states[variable]]
    return total.reshape(cards)


def enumerated(graph):
    """(log Z, marginals) by summing over all states."""
    table = joint_table(graph)
    log_z = logsumexp(table)
    axes = range(table.ndim)
    return log_z, [np.exp(logsumexp(table, axis=tuple(k for k in axes if k != i)) - log_z) for i in axes]


def spin_graph(edges, couplings, fields):
    """p ∝ exp(Σ J s s' + Σ h s)."""
    graph = DiscreteGraph(np.full(len(fields), 2))
    graph.add_factors(np.arange(len(fields))[:, None], np.asarray(fields)[:, None] * SPINS, log=True)
    graph.add_factors(np.asarray(edges), np.asarray(couplings)[:, None, None] * np.outer(SPINS, SPINS), log=True)
    return graph


def grid_edges(rows, columns):
    """Neighbours of a grid."""
    number = np.arange(rows * columns).reshape(rows, columns)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    return np.concatenate([across, down])


def random_graph(rng, variables=6, factors=6, largest=3, zeros=0.15):
    """Mixed cardinalities and scopes, some weights zero; may be impossible as a whole."""
    cards = rng.integers(1, 4, variables)
    graph = DiscreteGraph(cards)
    for _ in range(factors):
        scope = rng.choice(variables, rng.integers(1, largest + 1), replace=False)
        weights = rng.gamma(1.0, size=cards[scope])
        graph.add_factor(scope, np.where(rng.random(weights.shape) < zeros, 0.0, weights))
    return graph
