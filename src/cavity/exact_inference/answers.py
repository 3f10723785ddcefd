"""Exact answers, against which every approximation is measured.

    scalar θ              adaptive quadrature (2.2), about 1e-12
    mixture weights       the product Π_i Σ_k w_k p_ik expanded by counts: a mixture of Dirichlets, O(n^K)
    clutter of a vector   all 2^n assignments of points to signal or clutter, n ≤ 14

The last two look at every term once, so their cost is not counted in evaluations: those are n.
"""

import math
from typing import Any

import jax
import numpy as np
from scipy.special import gammaln, logsumexp

from cavity.discrete import DiscreteGraph, exact_discrete
from cavity.exact_inference.adaptive import integrate_on_host, prior_edges
from cavity.exact_inference.problem_data import (
    CLUTTER,
    MIXTURE,
    SCALAR,
    ClutterData,
    Estimate,
    GaussianPrior,
    MixtureData,
    clutter_data,
    log_joint,
    mixture_data,
    read_gaussian_prior,
    repetitions,
    resolve_problem,
    site_count,
    unsupported,
)
from cavity.inference.pointwise import log_likelihood
from cavity.inference.problem import Problem

#: points of a clutter problem whose assignments are enumerated, at most
MAX_ENUMERATED = 14
#: steps of the expansion by counts, at most
MAX_EXPANSION = 1_000_000_000
#: edges put at data values, at most
MAX_LANDMARKS = 64


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
    problem = resolve_problem(problem)
    if (mixture := mixture_data(problem)) is not None:
        return expand_mixture(mixture)
    prior = read_gaussian_prior(problem)
    if prior is not None and prior.mean.size == 1:
        return by_quadrature(problem, prior)
    if (clutter := clutter_data(problem)) is not None:
        return enumerate_clutter(clutter)
    raise unsupported("exact", problem, SCALAR, CLUTTER, MIXTURE)


def by_quadrature(problem: Problem, prior: GaussianPrior) -> Estimate:
    """log ∫ p(θ) Π t_i(θ) dθ and its moments for one variable.

    Panels start at the values of the data as well: a narrow mode of a wide prior lies among them.
    """
    joint = log_joint(problem, prior)
    edges = prior_edges(float(prior.mean[0]), float(prior.precision[0, 0] ** -0.5), landmarks(problem))
    result = integrate_on_host(lambda theta: joint(theta[:, None]), edges)
    sites = site_count(problem)
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
    rows = data.log_densities[repetitions("exact", data.copies)]
    n, components = rows.shape
    if n * (n + 1) ** (components - 1) > MAX_EXPANSION:
        raise ValueError(
            f"exact expands n (n + 1)^(K − 1) ≤ {MAX_EXPANSION:.0e} coefficients; found n = {n} and K = {components}."
        )
    # Rows are used up to their largest entry, which keeps the logarithms small and their rounding with them.
    top = rows.max(axis=1)
    counts, log_coefficients = polynomial(rows - top[:, None])
    prior = data.concentration
    concentration = prior + counts
    log_beta = np.sum(gammaln(concentration), axis=1) - gammaln(prior.sum() + n)
    log_terms = log_coefficients + log_beta - (np.sum(gammaln(prior)) - gammaln(prior.sum()))
    log_z = float(logsumexp(log_terms))
    weight = np.exp(log_terms - log_z)
    means = concentration / (prior.sum() + n)
    mean = weight @ means
    gaps = means - mean
    within = np.diag(mean) - np.einsum("c,ci,cj->ij", weight, means, means)
    covariance = within / (prior.sum() + n + 1.0) + np.einsum("c,ci,cj->ij", weight, gaps, gaps)
    log_evidence = log_z + float(np.sum(top))
    return Estimate(log_evidence, mean, covariance, n, [(n, log_evidence, mean)])


def polynomial(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts c (one row a monomial) and log C(c) of Π_i Σ_k w_k exp(rows_ik)."""
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
    index = repetitions("exact", data.copies)
    n = index.size
    if n > MAX_ENUMERATED:
        raise ValueError(
            f"exact enumerates 2^n assignments of a vector clutter problem, n ≤ {MAX_ENUMERATED}; found {n}."
        )
    # In the eigenbasis of the prior precision every Λ is diagonal.
    eigenvalues, basis = np.linalg.eigh(data.prior.precision)
    x = (data.x[index] - data.prior.mean) @ basis
    signal = ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(bool)
    precision = eigenvalues + signal.sum(axis=1)[:, None]
    means = (signal @ x) / precision
    squares = sum((column - means[:, [j]]) ** 2 for j, column in enumerate(x.T))
    log_choice = np.where(signal, data.log_signal_constant - 0.5 * squares, data.log_background[index]).sum(axis=1)
    log_terms = log_choice - 0.5 * np.sum(eigenvalues * means**2 + np.log(precision / eigenvalues), axis=1)
    log_z = float(logsumexp(log_terms))
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
    problem = resolve_problem(problem)
    points = np.asarray(grid, float)
    mixture, prior = mixture_data(problem), read_gaussian_prior(problem)
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
        value = log_joint(problem, prior)(points)
    else:
        raise unsupported("posterior_density", problem, "problems with one Gaussian prior", MIXTURE)
    return value if log else np.exp(value)


def check_grid(grid: np.ndarray, size: int) -> None:
    """Refuse a grid that has not one row of `size` numbers per point."""
    if grid.ndim != 2 or grid.shape[1] != size:
        raise ValueError(f"grid must have one row of {size} numbers per point; found shape {grid.shape}.")
