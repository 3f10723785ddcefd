"""Loopy belief propagation on pairwise graphs as it is usually written: messages along edges, and Bethe's log Z.

It knows nothing of EP: experiments compare the two.
"""

from typing import NamedTuple

import numpy as np


class Beliefs(NamedTuple):
    """marginals: (variables, K). log_z: of the Bethe free energy. settled: whether the messages came to rest."""

    marginals: np.ndarray
    log_z: float
    settled: bool


def sum_product(scopes: np.ndarray, tables: np.ndarray, count: int, damping: float = 0.5) -> Beliefs:
    """All messages at once, m_{i→j}(x_j) ∝ Σ_{x_i} h(x_i, x_j) ∏_{k≠j} m_{k→i}(x_i), in logarithms, damped.

    scopes: (edges, 2); tables: (edges, K, K), weights; count: of variables.
    """
    source = np.concatenate([scopes[:, 0], scopes[:, 1]])
    target = np.concatenate([scopes[:, 1], scopes[:, 0]])
    weights = np.concatenate([tables, tables.transpose(0, 2, 1)])
    back = np.roll(np.arange(len(source)), len(scopes))
    messages, settled = np.zeros((len(source), tables.shape[1])), False
    for _ in range(20_000):
        total = arriving(messages, target, count)
        cavity = np.exp(total[source] - messages[back])
        new = np.log(np.einsum("ei,eij->ej", cavity, weights))
        new -= new.mean(axis=1, keepdims=True)
        if settled := bool(np.abs(new - messages).max() < 1e-13):
            break
        messages = damping * messages + (1 - damping) * new
    total = arriving(messages, target, count)
    marginals = normalised(np.exp(total), 1)
    return Beliefs(marginals, bethe(scopes, tables, marginals, total, messages, back), settled)


def arriving(messages: np.ndarray, target: np.ndarray, count: int) -> np.ndarray:
    """Sums of the log messages that reach each variable."""
    total = np.zeros((count, messages.shape[1]))
    np.add.at(total, target, messages)
    return total


def bethe(
    scopes: np.ndarray,
    tables: np.ndarray,
    single: np.ndarray,
    total: np.ndarray,
    messages: np.ndarray,
    back: np.ndarray,
) -> float:
    """log Z = Σ_edges Σ b log(h / b) − Σ_i (d_i − 1) H(b_i), with d_i the number of edges of i.

    Pair beliefs b(x_i, x_j) ∝ h(x_i, x_j) ∏_{k≠j} m_{k→i} ∏_{k≠i} m_{k→j}.
    """
    edges = len(scopes)
    left = np.exp(total[scopes[:, 0]] - messages[back[:edges]])
    right = np.exp(total[scopes[:, 1]] - messages[:edges])
    pairs = normalised(left[:, :, None] * tables * right[:, None, :], (1, 2))
    degrees = np.bincount(scopes.ravel(), minlength=len(single))
    entropies = -np.sum(single * np.log(single), axis=1)
    return float(np.sum(pairs * (np.log(tables) - np.log(pairs))) - np.sum((degrees - 1) * entropies))


def normalised(weights: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    """Weights that sum to one."""
    return weights / weights.sum(axis=axis, keepdims=True)
