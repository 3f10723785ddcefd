"""Exact answers, against which every approximation is measured.

    scalar θ              adaptive quadrature (2.2), about 1e-12
    mixture weights       the product Π_i Σ_k w_k p_ik expanded by counts: a mixture of Dirichlets, O(n^K)
    clutter of a vector   all 2^n assignments of points to signal or clutter, n ≤ 14

The last two look at every term once, so their cost is not counted in evaluations: those are n.

The quadrature is driven from the host. Panels carry 33 Clenshaw–Curtis points, ends included, so a peak beside an edge
is seen from both sides. Every panel is compared with its two halves, in the zeroth, first and second moment; those that
disagree are cut. The doubling that verifies an answer is thus part of the computation.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import gammaln, logsumexp

from cavity._numerics.quadrature import clenshaw_curtis
from cavity.discrete import DiscreteGraph, exact_discrete
from cavity.exact_inference import problem_data
from cavity.exact_inference.problem_data import ClutterData, Estimate, GaussianPrior, MixtureData
from cavity.inference.pointwise import log_likelihood
from cavity.inference.problem import Problem

#: points of a clutter problem whose assignments are enumerated, at most
MAX_ENUMERATED = 14
#: steps of the expansion by counts, at most
MAX_EXPANSION = 1_000_000_000
#: edges put at data values, at most
MAX_LANDMARKS = 64
#: points of a panel, and rounds of cutting panels
ORDER, MAX_ROUNDS = 33, 64
#: panels cut at once, at most: more are only met where f is noise
MAX_CUTS = 10_000
POINTS, WEIGHTS, _ = clenshaw_curtis(ORDER)


def exact(problem: Any, *, memory: float = 2e9) -> Any:
    """Exact log evidence, mean and covariance: quadrature for a scalar θ, expansion or enumeration otherwise.

    Of a `DiscreteGraph` the marginals, by junction tree.

    Args:
        problem: a problem of `cavity.models`, or a `DiscreteGraph`.
        memory: bytes that the tables of a graph's junction tree may take.

    Returns:
        An `Estimate`, or of a graph an `Exact`.

    Raises:
        ValueError: if the problem is of none of these kinds, or too large.

    Examples:
        >>> import cavity as cv
        >>> found = cv.exact(cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0]))
        >>> round(found.log_evidence, 4), round(found.mean, 4)
        (-12.1762, 1.5084)
    """
    if isinstance(problem, DiscreteGraph):
        return exact_discrete(problem, memory=memory)
    problem = problem_data.resolve_problem(problem)
    if (mixture := problem_data.mixture_data(problem)) is not None:
        return expand_mixture(mixture)
    prior = problem_data.read_gaussian_prior(problem)
    if prior is not None and prior.mean.size == 1:
        return by_quadrature(problem, prior)
    if (clutter := problem_data.clutter_data(problem)) is not None:
        return enumerate_clutter(clutter)
    raise problem_data.unsupported("exact", problem, problem_data.SCALAR, problem_data.CLUTTER, problem_data.MIXTURE)


def by_quadrature(problem: Problem, prior: GaussianPrior) -> Estimate:
    """log ∫ p(θ) Π t_i(θ) dθ and its moments for one variable.

    Panels start at the values of the data as well: a narrow mode of a wide prior lies among them.
    """
    joint = problem_data.log_joint(problem, prior)
    edges = prior_edges(float(prior.mean[0]), float(prior.precision[0, 0] ** -0.5), landmarks(problem))
    result = integrate_on_host(lambda theta: joint(theta[:, None]), edges)
    sites = problem_data.site_count(problem)
    note = ""
    if not math.isfinite(result.log_z):
        note = "No mass was found: every term of the joint density is zero where it was looked at."
    elif result.error > 1e-10:
        note = f"The quadrature still changes by {result.error:.1e} of the integral when its panels are halved."
    mean, covariance = prior.shaped(np.array([result.mean]), np.array([[result.variance]]))
    trace = [(points * sites, value, prior.shaped(np.array([m]), np.eye(1))[0]) for points, value, m in result.rounds]
    return Estimate(result.log_z, mean, covariance, result.points * sites, trace, note)


def landmarks(problem: Problem) -> np.ndarray:
    """Finite data values that are numbers, one per site; quantiles of them when they are many."""
    found = []
    for group in problem.groups:
        columns = [np.asarray(leaf, float).reshape(group.size, -1) for leaf in jax.tree.leaves(group.data)]
        found += [column[:, 0] for column in columns if column.shape[1] == 1]
    values = np.unique(np.concatenate([*found, np.zeros(0)]))
    values = values[np.isfinite(values)]
    if values.size <= MAX_LANDMARKS:
        return values
    return np.quantile(values, np.linspace(0.0, 1.0, MAX_LANDMARKS))


def expand_mixture(data: MixtureData) -> Estimate:
    """Π_i Σ_k w_k p_ik = Σ_c C(c) Π_k w_k^{c_k} over counts c; each term meets the prior in a Dirichlet(a + c).

    p(D) = Σ_c C(c) B(a + c) / B(a), and the moments are those of the mixture of Dirichlets.
    """
    rows = data.log_densities[problem_data.repetitions("exact", data.multiplicity)]
    n, components = rows.shape
    if n * (n + 1) ** (components - 1) > MAX_EXPANSION:
        most = f"n (n + 1)^(K − 1) ≤ {MAX_EXPANSION:.0e} coefficients"
        raise ValueError(f"exact expands {most}; found n = {n} and K = {components}.")
    # Rows are used up to their largest entry, which keeps the logarithms small and their rounding with them.
    top = rows.max(axis=1)
    counts, log_coefficients = polynomial(rows - top[:, None])
    prior = data.concentration
    concentration = prior + counts
    log_beta = np.sum(gammaln(concentration), axis=1) - gammaln(prior.sum() + n)
    log_terms = log_coefficients + log_beta - (np.sum(gammaln(prior)) - gammaln(prior.sum()))
    log_z = float(np.asarray(logsumexp(log_terms)))
    weight = np.exp(log_terms - log_z)
    means = concentration / (prior.sum() + n)
    mean = weight @ means
    gaps = means - mean
    within = np.diag(mean) - np.einsum("c,ci,cj->ij", weight, means, means)
    covariance = within / (prior.sum() + n + 1.0) + np.einsum("c,ci,cj->ij", weight, gaps, gaps)
    log_evidence = log_z + float(np.sum(top))
    return Estimate(log_evidence, mean, covariance, n, [(n, log_evidence, mean)])


def polynomial(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts c (one row per monomial) and log C(c) of Π_i Σ_k w_k exp(rows_ik)."""
    n, components = rows.shape
    # Axis k counts component k; the count of the last one follows from the number of factors multiplied so far.
    table = np.full((n + 1,) * (components - 1), -np.inf)
    table[(0,) * (components - 1)] = 0.0
    for row in rows:
        new = table + row[-1]
        for axis in range(components - 1):
            ahead = [slice(None)] * (components - 1)
            behind = list(ahead)
            ahead[axis], behind[axis] = slice(1, None), slice(None, -1)
            new[tuple(ahead)] = np.logaddexp(new[tuple(ahead)], table[tuple(behind)] + row[axis])
        table = new
    present = np.argwhere(np.isfinite(table))
    counts = np.column_stack([present, n - present.sum(axis=1)])
    return counts, table[tuple(present.T)]


def enumerate_clutter(data: ClutterData) -> Estimate:
    """Π_i of (signal + clutter) multiplied out: one Gaussian in θ for each of the 2^n sets S of signal points.

    With Λ = Λ₀ + |S| I and m the conditional mean of θ given S, the log weight of S is
        Σ_S log (1−w) N(x_i; m, I) + Σ_not S log w N(x_i; 0, c I) − ½ (m − m₀)ᵀ Λ₀ (m − m₀) − ½ log |Λ|/|Λ₀|:
    residuals from m, whose squares do not cancel however far the points lie from the prior mean.
    """
    index = problem_data.repetitions("exact", data.multiplicity)
    n = index.size
    if n > MAX_ENUMERATED:
        most = f"2^n assignments of a vector clutter problem, n ≤ {MAX_ENUMERATED}"
        raise ValueError(f"exact enumerates {most}; found {n}.")
    # In the eigenbasis of the prior precision every Λ is diagonal.
    eigenvalues, basis = np.linalg.eigh(data.prior.precision)
    x = (data.x[index] - data.prior.mean) @ basis
    signal = ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(bool)
    precision = eigenvalues + signal.sum(axis=1)[:, None]
    means = (signal @ x) / precision
    squares = sum((column - means[:, [j]]) ** 2 for j, column in enumerate(x.T))
    log_choice = np.where(signal, data.log_signal_constant - 0.5 * squares, data.log_background[index]).sum(axis=1)
    log_terms = log_choice - 0.5 * np.sum(eigenvalues * means**2 + np.log(precision / eigenvalues), axis=1)
    log_z = float(np.asarray(logsumexp(log_terms)))
    weight = np.exp(log_terms - log_z)
    mean = weight @ means
    gaps = means - mean
    covariance = np.diag(weight @ (1.0 / precision)) + np.einsum("c,ci,cj->ij", weight, gaps, gaps)
    shaped = data.prior.shaped(data.prior.mean + basis @ mean, basis @ covariance @ basis.T)
    return Estimate(log_z, *shaped, n, [(n, log_z, shaped[0])])


def posterior_density(problem: Any, grid: Any, log: bool = False) -> np.ndarray:
    """The joint density p(D, θ) = p(θ) Π t_i(θ), not normalised, or its logarithm, on a grid for plots.

    Args:
        problem: a problem with one Gaussian prior, or of mixture weights.
        grid: (m,) values of a scalar θ or of w₁ when K = 2; (m, d) vectors θ, or (m, K) weights.
        log: whether the logarithm is wanted.

    Returns:
        The density at every point of the grid, (m,).

    Raises:
        ValueError: if the problem has no such density, or the grid has another shape.

    Examples:
        >>> import cavity as cv
        >>> from cavity.exact_inference import posterior_density
        >>> posterior_density(cv.models.clutter([0.3, 1.8]), [0.0, 1.0], log=True).round(4).tolist()
        [-6.9678, -6.3626]
    """
    problem = problem_data.resolve_problem(problem)
    points = np.asarray(grid, float)
    mixture, prior = problem_data.mixture_data(problem), problem_data.read_gaussian_prior(problem)
    if mixture is not None:
        a = mixture.concentration
        weights = np.column_stack([points, 1.0 - points]) if points.ndim == 1 and a.size == 2 else points
        check_grid(weights, a.size)
        with np.errstate(divide="ignore", invalid="ignore"):
            # A concentration of 1 leaves no power of the weight, also where the weight is 0.
            powers = np.where(a == 1.0, 0.0, (a - 1.0) * np.log(weights)).sum(axis=1)
        value = powers + gammaln(a.sum()) - gammaln(a).sum() + log_likelihood(problem, weights)
    elif prior is not None:
        points = points[:, None] if points.ndim == 1 and prior.mean.size == 1 else points
        check_grid(points, prior.mean.size)
        value = problem_data.log_joint(problem, prior)(points)
    else:
        one_gaussian = "problems with one Gaussian prior"
        raise problem_data.unsupported("posterior_density", problem, one_gaussian, problem_data.MIXTURE)
    return value if log else np.exp(value)


def check_grid(grid: np.ndarray, size: int) -> None:
    """Refuse a grid that has not one row of `size` numbers per point."""
    if grid.ndim != 2 or grid.shape[1] != size:
        raise ValueError(f"grid must have one row of {size} numbers per point; found shape {grid.shape}.")


class HostIntegral(NamedTuple):
    """log ∫ f, mean and variance of the normalised f, points used, and what each round knew: (points, log ∫ f, mean).

    error: the largest disagreement left, relative to ∫ f; infinite where no mass was found.
    """

    log_z: float
    mean: float
    variance: float
    points: int
    rounds: list[tuple[int, float, float]]
    error: float


def prior_edges(mean: float, sd: float, landmarks: np.ndarray) -> np.ndarray:
    """Starting panels: width sd/4 within 10 sd of the mean, then doubling, and an edge at every landmark."""
    near, far = np.linspace(-10.0, 10.0, 81), 10.0 * 2.0 ** np.arange(1, 20)
    edges = mean + sd * np.concatenate([-far[::-1], near, far])
    inside = landmarks[(landmarks > edges[0]) & (landmarks < edges[-1])]
    return np.unique(np.concatenate([edges, inside]))


def integrate_on_host(log_f: Callable[[np.ndarray], np.ndarray], edges: np.ndarray) -> HostIntegral:
    """∫ exp(log_f(θ)) dθ between the first and the last edge; NaN counts as no mass."""

    def sample(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Points and log of (weight × f), both (panels, 33)."""
        half = 0.5 * (high - low)[:, None]
        nodes = 0.5 * ((1.0 - POINTS) * low[:, None] + (1.0 + POINTS) * high[:, None])
        values = log_f(nodes.ravel()).reshape(nodes.shape)
        return nodes, np.where(np.isnan(values), -np.inf, values) + np.log(WEIGHTS * half)

    low, high = edges[:-1], edges[1:]
    nodes, terms = sample(low, high)
    points = nodes.size
    settled_nodes, settled_terms = np.zeros(0), np.zeros(0)
    rounds: list[tuple[int, float, float]] = []
    log_z, mean, variance, error = -np.inf, np.nan, np.nan, np.inf
    for _ in range(MAX_ROUNDS):
        middle = 0.5 * (low + high)
        half_nodes, half_terms = sample(np.concatenate([low, middle]), np.concatenate([middle, high]))
        points += half_nodes.size
        all_nodes = np.concatenate([settled_nodes, half_nodes.ravel()])
        all_terms = np.concatenate([settled_terms, half_terms.ravel()])
        log_z = float(np.asarray(logsumexp(all_terms)))
        if not np.isfinite(log_z):
            break
        share = np.exp(all_terms - log_z)
        mean = float(share @ all_nodes)
        variance = float(share @ (all_nodes - mean) ** 2)
        rounds.append((points, log_z, mean))
        sd = np.sqrt(variance) or 1.0
        halves = panel_moments(half_nodes, half_terms, log_z, mean, sd).reshape(2, low.size, 3).sum(axis=0)
        gaps = np.abs(panel_moments(nodes, terms, log_z, mean, sd) - halves).max(axis=1)
        # Rounding of log f and of θ, some units in their last places, is an error of f that no cut removes.
        live = all_terms > log_z - 60.0
        rounding = np.finfo(float).eps * (8.0 + np.max(np.abs(all_terms[live])) + 8.0 * abs(mean) / sd)
        cut = (gaps > rounding) & (low < middle) & (middle < high)
        error = float(gaps.max())
        both = np.concatenate([cut, cut])
        settled_nodes = np.concatenate([settled_nodes, half_nodes[~both].ravel()])
        settled_terms = np.concatenate([settled_terms, half_terms[~both].ravel()])
        if not cut.any() or np.count_nonzero(cut) > MAX_CUTS:
            break
        low, high = np.concatenate([low, middle])[both], np.concatenate([middle, high])[both]
        nodes, terms = half_nodes[both], half_terms[both]
    return HostIntegral(log_z, mean, variance, points, rounds, error)


def panel_moments(nodes: np.ndarray, terms: np.ndarray, log_z: float, mean: float, sd: float) -> np.ndarray:
    """Shares of each panel in ∫ f, ∫ z f and ∫ z² f, z = (θ − mean)/sd; (panels, 3)."""
    # A panel that is not resolved may claim any mass; the bound keeps it finite.
    share = np.exp(np.minimum(terms - log_z, 300.0))
    z = (nodes - mean) / sd
    return np.stack([np.sum(share * z**k, axis=1) for k in range(3)], axis=1)
