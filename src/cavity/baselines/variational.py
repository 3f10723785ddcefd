"""Variational bounds: on the integrand (variational Bayes, 2.15–2.23) and on the integral (Jensen, 2.13).

Each term is bounded below by a weighted geometric mean of its parts (3.67), whatever the weights q_ij:
    Σ_j f_ij(θ) ≥ Π_j (f_ij(θ)/q_ij)^{q_ij}.
The bound times a conjugate prior can be integrated; the weights are improved by EM.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, entr, gammaln, roots_hermitenorm, softmax

from cavity._core.precision import float64
from cavity.baselines._laplace import laplace
from cavity.exact_inference import problem_data
from cavity.exact_inference.answers import integrate_on_host, prior_edges
from cavity.exact_inference.problem_data import ClutterData, Estimate, MixtureData
from cavity.families.gaussian import LOG_2PI
from cavity.inference.pointwise import sum_log_terms
from cavity.inference.problem import Problem


def variational_bayes(
    problem: Any, start: Any = None, tolerance: float = 1e-11, max_iterations: int = 20_000
) -> Estimate:
    """Variational Bayes; log_evidence is a lower bound on log p(D), growing along the trace.

    Args:
        problem: a problem of `cavity.models`, or anything with a `.problem()`.
        start: θ (or the weights w) at which the first weights q_ij are taken; by default the posterior mean if nothing
            were clutter, the prior mean for mixture weights.
        tolerance: the largest change of a q_ij in the last iteration.
        max_iterations: iterations at most.

    Returns:
        The estimate; its note says what went wrong, if anything did.

    Raises:
        ValueError: if the method does not know the problem.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> round(baselines.variational_bayes(problem).mean, 3)
        1.783
    """
    problem = problem_data.resolve_problem(problem)
    if (mixture := problem_data.mixture_data(problem)) is not None:
        return mixture_bayes(mixture, start, tolerance, max_iterations)
    if (clutter := problem_data.clutter_data(problem)) is not None:
        return clutter_bayes(clutter, start, tolerance, max_iterations)
    raise problem_data.unsupported("variational_bayes", problem, problem_data.CLUTTER, problem_data.MIXTURE)


def times_log(q: np.ndarray, log_value: np.ndarray | float) -> np.ndarray:
    """q × log_value, with 0 × −inf = 0: a part that cannot occur and is given no weight leaves the bound alone."""
    return q * np.where(q > 0, log_value, 0.0)


def clutter_bound(data: ClutterData, q1: np.ndarray, q2: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """log ∫ p(θ) Π_i bound_i(θ) dθ, with mean m and covariance V of the integrand (3.71–3.76).

    The product is exp of a quadratic in θ; with Λ = Λ₀ + K₁ I the integral is its value at m times √(|Λ₀|/|Λ|):
        Σ_i q_i1 log (1−w) N(x_i; m, I) + Σ_i q_i2 log w N(x_i; 0, c I) − Σ_ij q_ij log q_ij
        − ½ (m − m₀)ᵀ Λ₀ (m − m₀) + ½ log |Λ₀|/|Λ|.
    This is (3.74–3.76) for any Gaussian prior, without the divisions by K_j, and with w and 1 − w of (3.76), which the
    print exchanges, put right.
    """
    mean, precision = data.conditional(q1)
    terms = times_log(q1, data.log_signal(mean)) + times_log(q2, data.log_background) + entr(q1) + entr(q2)
    gap = mean - data.prior.mean
    log_det = np.linalg.slogdet(precision)[1]
    value = data.multiplicity @ terms - 0.5 * (gap @ data.prior.precision @ gap + log_det - data.prior.log_det)
    return float(value), mean, np.linalg.inv(precision)


def clutter_bayes(data: ClutterData, start: Any, tolerance: float, max_iterations: int) -> Estimate:
    """EM on the bound: q_i1 : q_i2 = (1−w) exp E log N(x_i; θ, I) : w N(x_i; 0, c I)."""
    theta = data.default_start() if start is None else np.asarray(start, float).reshape(data.x.shape[1])
    q1, q2 = data.responsibilities(theta)
    trace: list[tuple[int, float, Any]] = []
    note = f"The bound still grew after {max_iterations} iterations."
    value, mean, covariance = clutter_bound(data, q1, q2)
    for iteration in range(1, max_iterations + 1):
        trace.append((iteration * len(data.x), value, data.prior.shaped(mean, covariance)[0]))
        new1, new2 = data.responsibilities(mean, float(np.trace(covariance)))
        change = float(np.max(np.abs(new1 - q1)))
        q1, q2 = new1, new2
        value, mean, covariance = clutter_bound(data, q1, q2)
        if change <= tolerance:
            note = ""
            break
    evaluations = trace[-1][0] + len(data.x)
    shaped = data.prior.shaped(mean, covariance)
    return Estimate(value, *shaped, evaluations, [*trace, (evaluations, value, shaped[0])], note)


def dirichlet_log_normaliser(concentration: np.ndarray) -> float:
    """log of the normaliser of a Dirichlet."""
    return float(np.sum(gammaln(concentration)) - gammaln(np.sum(concentration)))


def mixture_weights_q(data: MixtureData, concentration: np.ndarray) -> np.ndarray:
    """q_ik ∝ p_ik exp E[log w_k] = p_ik exp Ψ(a_k), which is tightest for q(w) = Dirichlet(concentration)."""
    return softmax(data.log_densities + digamma(concentration), axis=1)


def mixture_bayes(data: MixtureData, start: Any, tolerance: float, max_iterations: int) -> Estimate:
    """q(w) = Dirichlet(a + Σ_i q_i); log p(D) ≥ log B(a + Σ q_i)/B(a) + Σ_ik q_ik log p_ik/q_ik."""
    prior = data.concentration
    first = prior / prior.sum() if start is None else np.asarray(start, float)
    with np.errstate(divide="ignore"):
        q = softmax(data.log_densities + np.log(first), axis=1)
    trace: list[tuple[int, float, Any]] = []
    note = f"The bound still grew after {max_iterations} iterations."
    mean, covariance = problem_data.dirichlet_moments(prior)
    for iteration in range(1, max_iterations + 1):
        concentration = prior + data.multiplicity @ q
        terms = np.sum(times_log(q, data.log_densities) + entr(q), axis=1)
        value = dirichlet_log_normaliser(concentration) - dirichlet_log_normaliser(prior)
        value += float(data.multiplicity @ terms)
        mean, covariance = problem_data.dirichlet_moments(concentration)
        trace.append((iteration * len(q), value, mean))
        following = mixture_weights_q(data, concentration)
        if np.max(np.abs(following - q)) <= tolerance:
            note = ""
            break
        q = following
    return Estimate(trace[-1][1], mean, covariance, trace[-1][0], trace, note)


def variational_bound_by_quadrature(problem: Any, estimate: Estimate) -> float:
    """log ∫ p(θ) Π_i bound_i(θ) dθ integrated numerically, for the bounds that are tightest at the estimate's q.

    A check of `variational_bayes` that uses none of its integrals: scalar clutter problems and mixtures with K = 2.

    Args:
        problem: a problem of `cavity.models`, or anything with a `.problem()`.
        estimate: made by `variational_bayes`.

    Returns:
        The bound on log p(D).

    Raises:
        ValueError: if the method does not know the problem.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> found = baselines.variational_bayes(problem)
        >>> bool(abs(baselines.variational_bound_by_quadrature(problem, found) - found.log_evidence) < 1e-8)
        True
    """
    problem = problem_data.resolve_problem(problem)
    clutter, mixture = problem_data.clutter_data(problem), problem_data.mixture_data(problem)
    if clutter is not None and clutter.prior.mean.size == 1:
        return clutter_bound_by_quadrature(clutter, estimate)
    if mixture is not None and mixture.concentration.size == 2:
        return mixture_bound_by_quadrature(mixture, estimate)
    supported = f"scalar {problem_data.CLUTTER}", f"{problem_data.MIXTURE} with K = 2"
    raise problem_data.unsupported("variational_bound_by_quadrature", problem, *supported)


def clutter_bound_by_quadrature(data: ClutterData, estimate: Estimate) -> float:
    """∫ p(θ) Π_i (3.67) dθ."""
    q1, q2 = data.responsibilities(np.reshape(estimate.mean, 1), float(np.reshape(estimate.covariance, ())))
    constant = data.multiplicity @ (times_log(q2, data.log_background) + entr(q1) + entr(q2))

    def log_bound(theta: np.ndarray) -> np.ndarray:
        signal = data.log_signal_constant - 0.5 * (data.x[:, 0] - theta[:, None]) ** 2
        return data.prior.log_density(theta[:, None]) + constant + times_log(q1, signal) @ data.multiplicity

    edges = prior_edges(float(data.prior.mean[0]), float(data.prior.precision[0, 0] ** -0.5), data.x[:, 0])
    return integrate_on_host(log_bound, edges).log_z


def mixture_bound_by_quadrature(data: MixtureData, estimate: Estimate) -> float:
    """∫ p(w) Π_i Π_k (w_k p_ik/q_ik)^{q_ik} dw over the logit of w₁."""
    spread = np.diag(estimate.covariance)
    total = np.sum(estimate.mean * (1.0 - estimate.mean)) / np.sum(spread) - 1.0
    q = mixture_weights_q(data, total * estimate.mean)
    constant = data.multiplicity @ np.sum(times_log(q, data.log_densities) + entr(q), axis=1)
    powers = data.concentration + data.multiplicity @ q

    def log_bound(logit: np.ndarray) -> np.ndarray:
        # dw = w (1 − w) dlogit: the powers are a_k + Σ q_ik, not one less, and nothing is singular at the ends.
        log_w = -np.logaddexp(0.0, np.stack([-logit, logit], axis=1))
        return log_w @ powers + constant - dirichlet_log_normaliser(data.concentration)

    return integrate_on_host(log_bound, prior_edges(0.0, 1.0, np.zeros(0))).log_z


def expected_joint(problem: Problem, prior: Any, nodes: Any, weights: Any, start: Any, u: jax.Array) -> jax.Array:
    """−(E_q[log p(D, θ)] + entropy of q) for q = N(m₁ + s₁ u₁, (s₁ exp u₂)²), (m₁, s₁) the start."""
    m, s = start[0] + start[1] * u[0], start[1] * jnp.exp(u[1])
    terms = jax.vmap(lambda z: sum_log_terms(problem, m + s * z))(nodes)
    log_prior = 0.5 * (jnp.log(prior[1]) - LOG_2PI - prior[1] * ((m - prior[0]) ** 2 + s**2))
    return -(weights @ terms + log_prior + jnp.log(s) + 0.5 * (LOG_2PI + 1.0))


_expected_joint = jax.jit(jax.value_and_grad(expected_joint, argnums=5))


@float64
def jensen(problem: Any, start: tuple[float, float] | None = None, nodes: int = 128) -> Estimate:
    """The Gaussian q with the largest E_q[log p(D, θ)/q(θ)] ≤ log p(D) (2.13), for a scalar θ.

    Args:
        problem: a problem of `cavity.models`, or anything with a `.problem()`.
        start: (mean, variance) of the first q; by default that of variational Bayes for clutter, else of Laplace's
            method.
        nodes: points of the Gauss–Hermite rule for E_q[log t_i].

    Returns:
        The estimate; its note says what went wrong, if anything did.

    Raises:
        ValueError: if the method does not know the problem.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> found = baselines.jensen(problem)
        >>> bool(found.log_evidence < cv.exact(problem).log_evidence)
        True
    """
    problem = problem_data.resolve_problem(problem)
    prior = problem_data.read_gaussian_prior(problem)
    if prior is None or not prior.scalar:
        raise problem_data.unsupported("jensen", problem, problem_data.SCALAR)
    visits = 0
    if start is None:
        rough = variational_bayes(problem) if problem_data.clutter_data(problem) is not None else laplace(problem)
        visits, start = rough.evaluations, (rough.mean, rough.covariance)
        if not math.isfinite(rough.covariance):
            start = float(prior.mean[0]), float(1.0 / prior.precision[0, 0])
    z, weights = roots_hermitenorm(nodes)
    first = np.array([start[0], math.sqrt(start[1])])
    natural = np.array([prior.mean[0], prior.precision[0, 0]])
    sites, trace, count = problem_data.site_count(problem), [], visits

    def objective(u: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal count
        count += nodes * sites
        value, slope = _expected_joint(problem, natural, z, weights / weights.sum(), first, u)
        if not np.isfinite(value):
            return np.inf, np.zeros(2)
        trace.append((count, -float(value), float(first[0] + first[1] * u[0])))
        return float(value), np.asarray(slope)

    if not np.isfinite(objective(np.zeros(2))[0]):
        note = "A term is zero where q is not: the bound is −inf for every Gaussian."
        return Estimate(-math.inf, math.nan, math.nan, count, [], note)
    found = minimize(objective, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 500})
    slope = float(np.max(np.abs(found.jac)))
    note = "" if slope <= 1e-5 else f"The bound is not at its maximum: slope {slope:.1e}."
    m, s = first[0] + first[1] * found.x[0], first[1] * math.exp(found.x[1])
    return Estimate(-float(found.fun), float(m), float(s**2), count, trace, note)
