"""Estimates from weighted draws, with their standard errors."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np


class LogMean(NamedTuple):
    """log of a mean weight, and the standard error of the mean relative to it."""

    value: float
    error: float


def stratified_log_mean(log_weights: np.ndarray, stratum: np.ndarray) -> LogMean:
    """log (1/S Σ w) and √(Σ_j n_j var_j) / Σ w, the error that is left when every stratum has its fixed number."""
    top = np.max(log_weights, initial=-math.inf)
    if not math.isfinite(top):
        return LogMean(-math.inf, math.inf)
    weights = np.exp(log_weights - top)
    spread = 0.0
    for number in np.unique(stratum):
        own = weights[stratum == number]
        spread += own.size * np.var(own, ddof=1)
    return LogMean(float(top + np.log(weights.mean())), float(np.sqrt(spread) / weights.sum()))


class WeightedMoments(NamedTuple):
    """Moments of values with standard errors, shaped like a value; covariances of its entries in a row, or None."""

    mean: Any
    mean_error: Any
    variance: Any
    variance_error: Any
    covariance: Any
    covariance_error: Any


def weighted_moments(x: Any, weights: np.ndarray, most: int) -> WeightedMoments:
    """Moments of a stack of values with weights w that sum to one; no covariance of values with over `most` entries.

    The error of a mean Σ w g is √Σ w² (g − mean)², that of a variance or covariance likewise.
    """
    leaves, structure = jax.tree.flatten(x)
    flat = np.concatenate([np.reshape(leaf, (weights.size, -1)) for leaf in leaves], axis=1).astype(float)
    if not np.any(weights > 0):
        weights = np.full(weights.size, math.nan)
    mean = weights @ flat
    gap = flat - mean
    variance = weights @ gap**2
    squared = weights**2
    mean_error = np.sqrt(squared @ gap**2)
    variance_error = np.sqrt(squared @ (gap**2 - variance) ** 2)
    covariance = covariance_error = None
    if flat.shape[1] <= most:
        covariance = (gap.T * weights) @ gap
        second = (gap**2).T @ (squared[:, None] * gap**2) - 2 * covariance * ((gap.T * squared) @ gap)
        covariance_error = np.sqrt(np.maximum(second + covariance**2 * squared.sum(), 0.0))
        if np.shape(leaves[0]) == (weights.size,) and len(leaves) == 1:
            covariance, covariance_error = covariance[0, 0], covariance_error[0, 0]

    def shaped(row: np.ndarray) -> Any:
        ends = np.cumsum([math.prod(np.shape(leaf)[1:]) for leaf in leaves])[:-1]
        parts = [part.reshape(np.shape(leaf)[1:])[()] for part, leaf in zip(np.split(row, ends), leaves, strict=True)]
        return jax.tree.unflatten(structure, parts)

    return WeightedMoments(
        shaped(mean), shaped(mean_error), shaped(variance), shaped(variance_error), covariance, covariance_error
    )
