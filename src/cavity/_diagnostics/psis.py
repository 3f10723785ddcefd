"""How good weighted draws are: Pareto-smoothed importance sampling, and estimates with their standard errors.

Pareto-smoothed importance sampling is that of Vehtari, Simpson, Gelman, Yao & Gabry (2024).
The largest importance weights decide the error of an estimate, and their distribution above a high threshold is nearly
a generalised Pareto distribution, whatever the weights come from:

    P(excess > y) = (1 + k y / scale)^(−1/k),      k > 0: moments of order 1/k and above are infinite.

k̂ is fitted to the excesses (Zhang & Stephens 2009), and the largest weights are replaced by the quantiles of the fit,
which have less noise. From k̂ > 0.7 on, more draws hardly help.
"""

import math
from typing import Any, NamedTuple

import jax
import numpy as np

#: fewest excesses a fit is made from
FEWEST = 5
#: k̂ is drawn towards 0.5 by as many excesses as this: a fit to few of them is noisy
PRIOR_COUNT, PRIOR_SHAPE = 10, 0.5
#: excesses below this share of the largest weight are rounding
TIE = 1e-12


class Pareto(NamedTuple):
    """A generalised Pareto distribution of excesses over 0."""

    shape: float
    scale: float

    def quantile(self, p: np.ndarray) -> np.ndarray:
        """The excess below which a share p lies: scale ((1 − p)^−k − 1) / k."""
        rate = -np.log1p(-p)
        return self.scale * (rate if self.shape == 0.0 else np.expm1(self.shape * rate) / self.shape)


class Smoothed(NamedTuple):
    """log_weights: normalised to sum to one, the largest of them smoothed. k_hat: shape of their tail."""

    log_weights: np.ndarray
    k_hat: float


def fit_pareto(excesses: np.ndarray) -> Pareto:
    """Shape and scale of positive excesses by the empirical-Bayes estimate of Zhang & Stephens (2009).

    In b = −k/scale the likelihood maximised over k is explicit, k(b) = mean log(1 − b y), and one-dimensional:
    log L(b) = n (log(−b / k(b)) − k(b) − 1). b is averaged over a grid, every node weighted by its likelihood; the
    grid is denser where a weakly informative prior, built from the largest value and the lower quartile, has its mass.
    """
    y = np.sort(excesses)
    n = y.size
    nodes = 30 + math.isqrt(n)
    quartile = y[max(int(n / 4 + 0.5) - 1, 0)]
    number = np.arange(1, nodes + 1)
    b = 1.0 / y[-1] + (1.0 - np.sqrt(nodes / (number - 0.5))) / (3.0 * quartile)
    shapes = np.mean(np.log1p(-b[:, None] * y), axis=1)
    # At b = 0 the tail is exponential, and −b/k(b) is the limit 1/mean.
    ratio = np.where(shapes == 0, 1.0 / np.mean(y), -b / np.where(shapes == 0, 1.0, shapes))
    log_likelihood = n * (np.log(ratio) - shapes - 1.0)
    weights = np.exp(log_likelihood - log_likelihood.max())
    best = float(weights @ b / weights.sum())
    shape = float(np.mean(np.log1p(-best * y)))
    return Pareto(shape, -shape / best)


def smooth(log_weights: np.ndarray) -> Smoothed:
    """Normalised log weights with the largest min(S/5, 3 √S) of them smoothed, and k̂.

    Weights of zero may be there. k̂ is inf where too few weights stand out to fit a tail, 0 where the largest are all
    equal and there is none.
    """
    count = log_weights.size
    top = np.max(log_weights, initial=-math.inf)
    if not math.isfinite(top):
        return Smoothed(np.full(count, -math.inf), math.inf)
    order = np.argsort(log_weights, kind="stable")
    size = math.ceil(min(count / 5, 3 * math.sqrt(count)))
    threshold = math.exp(log_weights[order[-size - 1]] - top)
    excesses = np.exp(log_weights[order[-size:]] - top) - threshold
    # Weights that tie with the threshold are no tail: 0 and 1 have none.
    tail, excesses = order[-size:][excesses > TIE], excesses[excesses > TIE]
    if tail.size < FEWEST:
        flat = tail.size == 0 and np.count_nonzero(log_weights > -math.inf) >= FEWEST
        return Smoothed(normalise_log_weights(log_weights), 0.0 if flat else math.inf)
    fit = fit_pareto(excesses)
    shape = (tail.size * fit.shape + PRIOR_COUNT * PRIOR_SHAPE) / (tail.size + PRIOR_COUNT)
    quantiles = Pareto(shape, fit.scale).quantile((np.arange(tail.size) + 0.5) / tail.size)
    smoothed = log_weights.copy()
    # A quantile above every weight seen would be a guess.
    smoothed[tail] = top + np.log(np.minimum(threshold + quantiles, 1.0))
    return Smoothed(normalise_log_weights(smoothed), shape)


def normalise_log_weights(log_weights: np.ndarray) -> np.ndarray:
    """Log weights less the logarithm of their sum."""
    top = log_weights.max()
    return log_weights - (top + math.log(np.sum(np.exp(log_weights - top))))


def effective_sample_size(log_weights: np.ndarray) -> float:
    """(Σ w)² / Σ w², the number of independent draws from the target that would estimate a mean as precisely."""
    top = np.max(log_weights, initial=-math.inf)
    if not math.isfinite(top):
        return 0.0
    weights = np.exp(log_weights - top)
    return float(weights.sum() ** 2 / np.sum(weights**2))


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
