"""Importance sampling from the prior, or likelihood-weighted sampling (2.4, 3.77–3.78)."""

import math
from typing import Any

import numpy as np

from cavity.exact_inference import problem_data
from cavity.exact_inference.problem_data import Estimate
from cavity.inference.pointwise import log_likelihood

#: smallest weight a mixture component is given in a sample: a Dirichlet draw may underflow to 0
TINY = 1e-300


def importance(problem: Any, samples: int = 10_000, seed: int | np.random.Generator = 0) -> Estimate:
    """p(D) ≈ 1/S Σ_s p(D | θ_s) and E[θ | D] ≈ Σ θ_s p(D | θ_s) / Σ p(D | θ_s), θ_s from the prior (3.77–3.78).

    The trace holds the estimates from the first S' samples, S' growing geometrically; the note gives the effective
    sample size (Σ weights)² / Σ weights².

    Args:
        problem: a problem of `cavity.models`, or anything with a `.problem()`.
        samples: draws from the prior.
        seed: a number, or a NumPy generator.

    Returns:
        The estimate; its note gives the effective sample size.

    Raises:
        ValueError: if the method does not know the problem.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> baselines.importance(problem, samples=1000).note.split()[:3]
        ['Effective', 'sample', 'size']
    """
    problem = problem_data.resolve_problem(problem)
    if samples < 1:
        raise ValueError(f"samples must be at least 1; found {samples}.")
    rng = np.random.default_rng(seed)
    mixture, prior = problem_data.mixture_data(problem), problem_data.read_gaussian_prior(problem)
    if mixture is not None:
        theta = np.maximum(rng.dirichlet(mixture.concentration, samples), TINY)
        log_weights = log_likelihood(problem, theta)
        scalar = False
    elif prior is not None:
        root = np.linalg.cholesky(prior.precision)
        noise = rng.standard_normal((samples, prior.mean.size))
        theta = prior.mean + np.linalg.solve(root.T, noise.T).T
        log_weights = log_likelihood(problem, theta[:, 0] if prior.scalar else theta)
        scalar = prior.scalar
    else:
        raise problem_data.unsupported("importance", problem, problem_data.GAUSSIAN, problem_data.MIXTURE)
    sites, sizes = problem_data.site_count(problem), problem_data.checkpoints(samples)
    found = [estimate_from_weights(theta[:size], log_weights[:size], scalar) for size in sizes]
    trace = [(size * sites, log_z, mean) for size, (log_z, mean, _) in zip(sizes, found, strict=True)]
    log_z, mean, covariance = found[-1]
    if math.isfinite(log_z):
        weights = np.exp(log_weights - log_weights.max())
        note = f"Effective sample size {weights.sum() ** 2 / np.sum(weights**2):.1f} of {samples}."
    else:
        note = "Every sample has likelihood zero."
    return Estimate(log_z, mean, covariance, samples * sites, trace, note)


def estimate_from_weights(theta: np.ndarray, log_weights: np.ndarray, scalar: bool) -> tuple[float, Any, Any]:
    """(log mean weight, weighted mean, weighted covariance); nan moments where all weights are zero."""
    top, d = np.max(log_weights), theta.shape[1]
    log_z, mean, covariance = -math.inf, np.full(d, math.nan), np.full((d, d), math.nan)
    if np.isfinite(top):
        weights = np.exp(log_weights - top)
        total = weights.sum()
        log_z, mean = float(top + np.log(total / len(theta))), weights @ theta / total
        gap = theta - mean
        covariance = (gap.T * (weights / total)) @ gap
    return (log_z, float(mean[0]), float(covariance[0, 0])) if scalar else (log_z, mean, covariance)
