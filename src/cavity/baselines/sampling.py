"""Sampling: from the prior with weights (2.4, 3.77–3.78), and Gibbs sampling with hidden indicators (thesis 3.2.2).

In a Gibbs chain each observation is assigned, given θ, to a component with its posterior probability; given the
assignments, θ has a Gaussian (clutter) or Dirichlet (mixture weights) density and is drawn from it. The average of
those conditional densities estimates the posterior better than the draws do (Gelfand & Smith 1990).
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from cavity._diagnostics.psis import effective_sample_size
from cavity.exact_inference import problem_data
from cavity.exact_inference.problem_data import ClutterData, Estimate, MixtureData
from cavity.families.gaussian import LOG_2PI
from cavity.inference.pointwise import log_likelihood


class Chain(NamedTuple):
    """A Gibbs chain after burn-in.

    Attributes:
        samples: the draws, (S, d).
        means: of the conditional density each was drawn from, (S, d).
        covariances: of the same, (S, d, d).
        concentrations: of the conditional Dirichlets, None for clutter.
        scalar: whether θ is a number.
        evaluations: of the whole run.
        skipped: those of the burn-in.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> chain = baselines.gibbs_chain(problem, samples=100)
        >>> chain.samples.shape
        (100, 1)
    """

    samples: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    concentrations: np.ndarray | None
    scalar: bool
    evaluations: int
    skipped: int


def gibbs(
    problem: Any,
    samples: int = 2000,
    burn_in: int = 100,
    seed: int | np.random.Generator = 0,
    averaging: bool = False,
    start: Any = None,
) -> Estimate:
    """Mean and covariance from a Gibbs chain; it has no evidence.

    Args:
        problem: a problem of `cavity.models`, or anything with a `.problem()`.
        samples: draws after burn-in.
        burn_in: draws before that.
        seed: a number, or a NumPy generator.
        averaging: average the conditional means and covariances instead of the draws themselves.
        start: the first θ (or weights w).

    Returns:
        The estimate; its log evidence is nan.

    Raises:
        ValueError: if the method does not know the problem.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> found = baselines.gibbs(problem, samples=1000, averaging=True)
        >>> bool(1.0 < found.mean < 3.0)
        True
    """
    return summarise(gibbs_chain(problem, samples, burn_in, seed, start), averaging)


def gibbs_chain(
    problem: Any, samples: int = 2000, burn_in: int = 100, seed: int | np.random.Generator = 0, start: Any = None
) -> Chain:
    """Run the chain; `summarise` and `gibbs_density` read it.

    Args:
        problem: a problem of `cavity.models`, or anything with a `.problem()`.
        samples: draws after burn-in.
        burn_in: draws before that.
        seed: a number, or a NumPy generator.
        start: the first θ (or weights w).

    Returns:
        The chain.

    Raises:
        ValueError: if the method does not know the problem.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> baselines.gibbs_chain(problem, samples=100).samples.shape
        (100, 1)
    """
    problem = problem_data.resolve_problem(problem)
    if samples < 1 or burn_in < 0:
        raise ValueError(f"samples must be at least 1 and burn_in not negative; found {samples} and {burn_in}.")
    rng = np.random.default_rng(seed)
    if (mixture := problem_data.mixture_data(problem)) is not None:
        return mixture_chain(mixture, samples, burn_in, rng, start)
    if (clutter := problem_data.clutter_data(problem)) is not None:
        return clutter_chain(clutter, samples, burn_in, rng, start)
    raise problem_data.unsupported("gibbs", problem, problem_data.CLUTTER, problem_data.MIXTURE)


def clutter_chain(data: ClutterData, samples: int, burn_in: int, rng: np.random.Generator, start: Any) -> Chain:
    """c_i ~ Bernoulli(r_i(θ)), then θ ~ N((Λ₀ + N)⁻¹ (Λ₀ m₀ + Σ_{c_i = 1} x_i), (Λ₀ + N)⁻¹)."""
    index = problem_data.repetitions("gibbs", data.multiplicity)
    single = data._replace(x=data.x[index], multiplicity=np.ones(index.size))
    n, d = single.x.shape
    theta = data.default_start() if start is None else np.asarray(start, float).reshape(d)
    # The conditional precision Λ₀ + N I has the eigenvectors of the prior's, whatever N is.
    eigenvalues, basis = np.linalg.eigh(data.prior.precision)
    pull = basis.T @ data.prior.precision @ data.prior.mean
    turned, background, constant = single.x @ basis, single.log_background, single.log_signal_constant
    position = basis.T @ theta
    draws, means, variances = np.empty((3, samples, d))
    for sweep in range(-burn_in, samples):
        log_signal = constant - 0.5 * np.sum((turned - position) ** 2, axis=1)
        # P(c_i = 1) = r_i as a comparison of log odds with a logistic draw.
        chosen = rng.logistic(size=n) < log_signal - background
        variance = 1.0 / (eigenvalues + np.count_nonzero(chosen))
        mean = variance * (pull + chosen @ turned)
        position = mean + np.sqrt(variance) * rng.standard_normal(d)
        if sweep >= 0:
            draws[sweep], means[sweep], variances[sweep] = position, mean, variance
    covariances = np.einsum("ij,sj,kj->sik", basis, variances, basis)
    total = (burn_in + samples) * n
    return Chain(draws @ basis.T, means @ basis.T, covariances, None, data.prior.scalar, total, burn_in * n)


def mixture_chain(data: MixtureData, samples: int, burn_in: int, rng: np.random.Generator, start: Any) -> Chain:
    """z_i ~ Categorical(w_k p_ik / Σ_j w_j p_ij), then w ~ Dirichlet(a + counts)."""
    rows = data.log_densities[problem_data.repetitions("gibbs", data.multiplicity)]
    n, components = rows.shape
    prior = data.concentration
    w = prior / prior.sum() if start is None else np.asarray(start, float)
    draws, concentrations = np.empty((2, samples, components))
    for sweep in range(-burn_in, samples):
        with np.errstate(divide="ignore"):
            # The largest of log probability plus Gumbel noise is a draw from the categorical distribution.
            z = np.argmax(rows + np.log(w) + rng.gumbel(size=rows.shape), axis=1)
        concentration = prior + np.bincount(z, minlength=components)
        w = rng.dirichlet(concentration)
        if sweep >= 0:
            draws[sweep], concentrations[sweep] = w, concentration
    moments = [problem_data.dirichlet_moments(concentration) for concentration in concentrations]
    means, covariances = (np.stack(part) for part in zip(*moments, strict=True))
    return Chain(draws, means, covariances, concentrations, False, (burn_in + samples) * n, burn_in * n)


def summarise(chain: Chain, averaging: bool = False) -> Estimate:
    """Mean and covariance from the draws, or from their conditional densities: V[θ] = E V[θ|c] + V E[θ|c]."""
    values = chain.means if averaging else chain.samples
    each = (chain.evaluations - chain.skipped) // len(values)
    running = np.cumsum(values, axis=0)

    def shaped(mean: np.ndarray) -> Any:
        return float(mean[0]) if chain.scalar else mean

    trace = [
        (chain.skipped + size * each, math.nan, shaped(running[size - 1] / size))
        for size in problem_data.checkpoints(len(values))
    ]
    mean = values.mean(axis=0)
    gap = values - mean
    covariance = gap.T @ gap / len(values)
    if averaging:
        covariance = covariance + chain.covariances.mean(axis=0)
    spread = float(covariance[0, 0]) if chain.scalar else covariance
    return Estimate(math.nan, shaped(mean), spread, chain.evaluations, trace)


def gibbs_density(chain: Chain, grid: Any, averaging: bool = True) -> np.ndarray:
    """The posterior density of a scalar θ (or of w₁ when K = 2) on an ascending grid, normalised.

    Args:
        chain: made by `gibbs_chain`.
        grid: ascending values of θ.
        averaging: the mean of the conditional densities; else the share of draws in the cell around each grid point.

    Returns:
        The density at every point of the grid.

    Raises:
        ValueError: if θ is not a number.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> density = baselines.gibbs_density(baselines.gibbs_chain(problem, samples=1000), [1.0, 2.0, 3.0])
        >>> int(density.argmax())
        1
    """
    points = np.asarray(grid, float)
    concentrations = chain.concentrations
    if chain.samples.shape[1] != (1 if concentrations is None else 2):
        found = chain.samples.shape[1]
        raise ValueError(f"gibbs_density draws a scalar θ or w₁ of K = 2; found samples of {found} numbers.")
    if not averaging:
        middles = 0.5 * (points[1:] + points[:-1])
        edges = np.concatenate([[2 * points[0] - middles[0]], middles, [2 * points[-1] - middles[-1]]])
        return np.histogram(chain.samples[:, 0], edges)[0] / (len(chain.samples) * np.diff(edges))
    if concentrations is not None:
        # Assignments repeat themselves: each distinct count is evaluated once.
        distinct, times = np.unique(concentrations, axis=0, return_counts=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.stack([np.log(points), np.log1p(-points)], axis=1)
            powers = np.where(distinct == 1.0, 0.0, (distinct - 1.0) * logs[:, None, :]).sum(axis=2)
        log_parts = powers + gammaln(distinct.sum(axis=1)) - gammaln(distinct).sum(axis=1)
    else:
        pairs = np.column_stack([chain.means[:, 0], chain.covariances[:, 0, 0]])
        distinct, times = np.unique(pairs, axis=0, return_counts=True)
        gap = points[:, None] - distinct[:, 0]
        log_parts = -0.5 * (gap**2 / distinct[:, 1] + np.log(distinct[:, 1]) + LOG_2PI)
    return np.exp(np.asarray(logsumexp(log_parts + np.log(times / times.sum()), axis=1)))


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
    note = "Every sample has likelihood zero."
    if math.isfinite(log_z):
        note = f"Effective sample size {effective_sample_size(log_weights):.1f} of {samples}."
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
