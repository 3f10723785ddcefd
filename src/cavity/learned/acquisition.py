"""The acquisition rule of active learning: which unsure sites to query, so that few answers serve all of them."""

from typing import NamedTuple

import numpy as np

from cavity.learned.gp_state import GPState

#: widths of the kernel before there are labels, in deviations of the inputs; and the variance that is left then
FIRST_WIDTH, FIRST_TOLERANCE = 2.0, 1e-3


class Candidates(NamedTuple):
    """Unsure sites, one row each. variance: of their predictions, (sites, groups); expected_kl: with it."""

    inputs: np.ndarray
    variance: np.ndarray
    expected_kl: np.ndarray


class FittedGP(NamedTuple):
    """A Gaussian process with labels. noise: of an exact one. tolerance: the expected KL that is small enough."""

    state: GPState
    noise: float
    tolerance: float


def select_queries(sites: Candidates, fitted: FittedGP | None, most: int) -> np.ndarray:
    """Places of at most so many sites, the largest expected error first, each of all before it.

    How much a label lowers variances is known before its query: they depend on inputs alone. This is a pivoted
    Cholesky decomposition of the predictive covariance, which ends when nobody is unsure. Where targets have
    covariances of their own, that of the largest variance decides.
    """
    inputs = sites.inputs
    if fitted is None:
        deviation = np.where(inputs.std(axis=0) > 1e-12, inputs.std(axis=0), 1.0)
        scaled, noise, tolerance = inputs / (FIRST_WIDTH * deviation), 1e-6, FIRST_TOLERANCE
        residual, cost = np.ones(len(inputs)), np.ones(len(inputs))
        explained = np.zeros((len(inputs), 0))
    else:
        state, tolerance = fitted.state, fitted.tolerance
        group = int(np.argmax(sites.variance.sum(axis=0)))
        noise, variance = fitted.noise + float(state.floor[group]), sites.variance[:, group]
        scaled = inputs / np.asarray(state.width)
        explained = explained_by_labels(state, scaled, group)
        residual = np.maximum(1.0 - np.sum(explained**2, axis=1), 0.0)
        cost = float(state.inflation) * sites.expected_kl / np.maximum(variance, 1e-300)
        cost = np.where(variance > 0, np.nan_to_num(cost, nan=1.0, posinf=1e300), 1.0)
    picks: list[int] = []
    for _ in range(min(most, len(inputs))):
        gain = np.where(np.isin(np.arange(len(inputs)), picks), -1.0, residual * cost)
        best = int(np.argmax(gain))
        if picks and gain[best] <= tolerance:
            break
        picks.append(best)
        across = np.exp(-0.5 * np.sum((scaled - scaled[best]) ** 2, axis=1)) - explained @ explained[best]
        column = across / np.sqrt(max(residual[best], 0.0) + noise)
        explained = np.concatenate([explained, column[:, None]], axis=1)
        residual = np.maximum(residual - column**2, 0.0)
    return np.array(picks)


def explained_by_labels(state: GPState, scaled: np.ndarray, group: int) -> np.ndarray:
    """L⁻¹ k of every site: what the labels explain of its variance."""
    gap = np.sum((scaled[:, None] - np.asarray(state.inputs)[None]) ** 2, axis=-1)
    return np.exp(-0.5 * gap) @ np.asarray(state.inverse_root[group]).T
