"""Which sites to ask about: those that tell most about all the others that are unsure."""

from typing import NamedTuple

import numpy as np

from cavity.learned.gp_state import Knowledge

#: widths of the kernel before there are labels, in deviations of the inputs; and the variance that is left then
FIRST_WIDTH, FIRST_TOLERANCE = 2.0, 1e-3


class Unsure(NamedTuple):
    """Sites that wait, one row each. variance: of their predictions, (sites, groups); expected_kl: with it."""

    inputs: np.ndarray
    variance: np.ndarray
    expected_kl: np.ndarray


class Told(NamedTuple):
    """What labels have told. noise: of an exact one. tolerance: the expected KL that is small enough."""

    known: Knowledge
    noise: float
    tolerance: float


def chosen(sites: Unsure, told: Told | None, most: int) -> np.ndarray:
    """Places of at most so many sites, the largest expected error first, each of all before it.

    What a label would tell is known before it is asked for: variances depend on inputs alone. This is a pivoted
    Cholesky decomposition of the predictive covariance, which ends when nobody is unsure. Where targets have
    covariances of their own, that of the largest variance decides.
    """
    inputs = sites.inputs
    if told is None:
        deviation = np.where(inputs.std(axis=0) > 1e-12, inputs.std(axis=0), 1.0)
        scaled, noise, tolerance = inputs / (FIRST_WIDTH * deviation), 1e-6, FIRST_TOLERANCE
        residual, cost = np.ones(len(inputs)), np.ones(len(inputs))
        explained = np.zeros((len(inputs), 0))
    else:
        known, tolerance = told.known, told.tolerance
        group = int(np.argmax(sites.variance.sum(axis=0)))
        noise, variance = told.noise + float(known.floor[group]), sites.variance[:, group]
        scaled = inputs / np.asarray(known.width)
        explained = projected(known, scaled, group)
        residual = np.maximum(1.0 - np.sum(explained**2, axis=1), 0.0)
        cost = float(known.inflation) * sites.expected_kl / np.maximum(variance, 1e-300)
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


def projected(known: Knowledge, scaled: np.ndarray, group: int) -> np.ndarray:
    """L⁻¹ k of every site: what the labels explain of its variance."""
    gap = np.sum((scaled[:, None] - np.asarray(known.inputs)[None]) ** 2, axis=-1)
    return np.exp(-0.5 * gap) @ np.asarray(known.inverse_root[group]).T
