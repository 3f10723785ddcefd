"""Laplace's method (2.5–2.9): a Gaussian with the curvature of the posterior at its mode.

    clutter           EM to the mode, then (3.63–3.66)
    mixture weights   the same in the softmax basis (MacKay 1998)
    other             Newton's method with derivatives by JAX, under any Gaussian prior

The trace applies (3.66) to every θ on the way, although the gradient is not zero there. Where −H is not positive
definite the evidence and covariance are nan and the note says so.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from scipy.special import gammaln, logsumexp, roots_hermitenorm, softmax

from cavity._core.precision import float64
from cavity.exact_inference import problem_data
from cavity.exact_inference.problem_data import ClutterData, Estimate, GaussianPrior, MixtureData
from cavity.families.gaussian import LOG_2PI
from cavity.inference.pointwise import sum_log_terms
from cavity.inference.problem import Problem

NOT_A_MAXIMUM = "The curvature −H is not positive definite: no Gaussian fits at this point."
#: points of the tensor rule for the mean of a logistic-normal, at most
MAX_HERMITE = 400_000
#: rise of the log density that a Newton step promises (in squared posterior standard deviations) near the mode
SMALL_GAIN = 1e-9
#: halvings of a step before it is given up
MAX_HALVINGS = 40


@float64
def laplace(problem: Any, start: Any = None, tolerance: float = 1e-12, max_iterations: int = 5000) -> Estimate:
    """N(θ̂, −H⁻¹) and p(D) ≈ p(D, θ̂) (2π)^{d/2} |−H|^{−1/2} (3.65–3.66).

    Args:
        problem: a problem of `cavity.models`, or anything with a `.problem()`.
        start: θ (or the weights w) from which the mode is searched; by default the posterior mean if nothing were
            clutter, the prior mean for other problems.
        tolerance: the last step of EM, in posterior standard deviations (mixture weights: absolute).
        max_iterations: steps at most.

    Returns:
        The estimate; its note says what went wrong, if anything did.

    Raises:
        ValueError: if the method does not know the problem.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> round(baselines.laplace(problem).mean, 3)
        1.766
    """
    problem = problem_data.resolve_problem(problem)
    if (mixture := problem_data.mixture_data(problem)) is not None:
        return mixture_laplace(mixture, start, tolerance, max_iterations)
    if (clutter := problem_data.clutter_data(problem)) is not None:
        return clutter_laplace(clutter, start, tolerance, max_iterations)
    if (prior := problem_data.read_gaussian_prior(problem)) is not None:
        return newton_laplace(problem, prior, start, max_iterations)
    raise problem_data.unsupported("laplace", problem, problem_data.GAUSSIAN, problem_data.MIXTURE)


def gaussian_integral(value: float, hessian: np.ndarray) -> tuple[float, np.ndarray]:
    """(log of (3.66), −H⁻¹), or nan where −H is not positive definite."""
    if np.all(np.isfinite(hessian)):
        eigenvalues, basis = np.linalg.eigh(-hessian)
        if eigenvalues[0] > 0:
            log_z = value + 0.5 * (eigenvalues.size * LOG_2PI - np.sum(np.log(eigenvalues)))
            return float(log_z), (basis / eigenvalues) @ basis.T
    return math.nan, np.full_like(hessian, math.nan)


def clutter_curvature(data: ClutterData, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """log p(D, θ), the next θ of EM and H (3.63), all from one visit of the terms."""
    r, rest = data.responsibilities(theta)
    value = data.prior.log_density(theta[None])[0]
    value += data.multiplicity @ np.logaddexp(data.log_signal(theta), data.log_background)
    following, precision = data.conditional(r)
    gap = data.x - theta
    return float(value), following, (gap.T * (data.multiplicity * r * rest)) @ gap - precision


def clutter_laplace(data: ClutterData, start: Any, tolerance: float, max_iterations: int) -> Estimate:
    """EM: r_i at θ (3.64), then θ = (Λ₀ + Σ r_i)⁻¹ (Λ₀ m₀ + Σ r_i x_i)."""
    theta = data.default_start() if start is None else np.asarray(start, float).reshape(data.x.shape[1])
    scale = np.sqrt(np.sum(data.multiplicity) + np.max(np.linalg.eigvalsh(data.prior.precision)))

    def settled(theta: np.ndarray, following: np.ndarray) -> bool:
        rounding = 8 * np.finfo(float).eps * np.max(np.abs(theta))
        return np.max(np.abs(following - theta)) <= tolerance / scale + rounding

    return em_to_mode(data, clutter_curvature, data.prior.shaped, settled, theta, max_iterations)


def em_to_mode(
    data: Any, curvature: Callable, moments: Callable, settled: Callable, theta: np.ndarray, max_iterations: int
) -> Estimate:
    """EM from θ until it has settled, and the Gaussian there.

    curvature(data, θ): log p(D, θ), the next θ and H. moments(θ, −H⁻¹): what is estimated of them.
    """
    trace: list[tuple[int, float, Any]] = []
    note = f"EM did not reach the mode within {max_iterations} iterations."
    log_z, mean, covariance = math.nan, theta, None
    for iteration in range(1, max_iterations + 1):
        value, following, hessian = curvature(data, theta)
        log_z, spread = gaussian_integral(value, hessian)
        mean, covariance = moments(theta, spread)
        trace.append((iteration * len(data.multiplicity), log_z, mean))
        if settled(theta, following):
            note = ""
            break
        theta = following
    return Estimate(log_z, mean, covariance, trace[-1][0], trace, NOT_A_MAXIMUM if math.isnan(log_z) else note)


def softmax_curvature(data: MixtureData, w: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Log density in the softmax basis, the next w of EM and the Hessian, at weights w.

    w = softmax(b) with the last b fixed at 0. The Jacobian of dw/db is Π_k w_k, so the density of b is
        Γ(A)/ΠΓ(a_k) Π_k w_k^{a_k} Π_i Σ_k w_k p_ik,
        H = Σ_i (diag r_i − r_i r_iᵀ) − (A + n)(diag w − w wᵀ),        r_ik = w_k p_ik / Σ_j w_j p_ij,
    the last row and column left out.
    Which component is the reference does not matter: the change between two is linear with determinant ±1.
    """
    a, multiplicity = data.concentration, data.multiplicity
    with np.errstate(divide="ignore"):
        log_parts = np.log(w) + data.log_densities
    log_terms = np.asarray(logsumexp(log_parts, axis=1))
    r = np.exp(log_parts - log_terms[:, None])
    value = multiplicity @ log_terms + a @ np.log(w) + gammaln(a.sum()) - gammaln(a).sum()
    total = a.sum() + multiplicity.sum()
    shares = multiplicity @ r
    hessian = np.diag(shares) - (r.T * multiplicity) @ r - total * (np.diag(w) - np.outer(w, w))
    return float(value), (a + shares) / total, hessian[:-1, :-1]


def mixture_laplace(data: MixtureData, start: Any, tolerance: float, max_iterations: int) -> Estimate:
    """EM for the mode in the softmax basis, w_k = (a_k + Σ_i r_ik)/(A + n); q is logistic-normal."""
    w = data.concentration / data.concentration.sum() if start is None else np.asarray(start, float)

    def moments(w: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return logistic_normal(np.log(w[:-1] / w[-1]), spread)

    def settled(w: np.ndarray, following: np.ndarray) -> bool:
        return np.max(np.abs(following - w)) <= tolerance

    found = em_to_mode(data, softmax_curvature, moments, settled, w, max_iterations)
    if not math.isnan(found.log_evidence) and np.isnan(found.mean).any():
        return found._replace(note=f"The mean of a logistic-normal with K = {w.size} is not integrated.")
    return found


def logistic_normal(centre: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of softmax(b, 0), b ~ N(centre, spread), by a tensor Gauss–Hermite rule."""
    d = centre.size
    order = min(64, int(MAX_HERMITE ** (1.0 / d)))
    if np.isnan(spread).any() or order < 5:
        return np.full(d + 1, math.nan), np.full((d + 1, d + 1), math.nan)
    points, weights = roots_hermitenorm(order)
    white = np.stack([axis.ravel() for axis in np.meshgrid(*[points] * d, indexing="ij")], axis=1)
    weight = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * d, indexing="ij")), axis=0).ravel()
    b = centre + white @ np.linalg.cholesky(spread).T
    w = softmax(np.column_stack([b, np.zeros(len(b))]), axis=1)
    mean = weight @ w
    return mean, ((w - mean).T * weight) @ (w - mean)


@partial(jax.jit, static_argnums=3)
def derivatives(problem: Problem, mean: jax.Array, precision: jax.Array, scalar: bool, theta: jax.Array) -> Any:
    """log joint at θ (d,) with gradient and Hessian."""

    def joint(value: jax.Array) -> jax.Array:
        gap = value - mean
        return sum_log_terms(problem, value[0] if scalar else value) - 0.5 * gap @ precision @ gap

    return joint(theta), jax.grad(joint)(theta), jax.hessian(joint)(theta)


def newton_laplace(problem: Problem, prior: GaussianPrior, start: Any, max_iterations: int) -> Estimate:
    """Newton's method with |eigenvalues| of the curvature, so that every step climbs, and halved steps."""
    d = prior.mean.size
    constant = 0.5 * (prior.log_det - d * LOG_2PI)

    def look(theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        value, gradient, hessian = derivatives(problem, prior.mean, prior.precision, prior.scalar, theta)
        return float(value) + constant, theta, np.asarray(gradient), np.asarray(hessian)

    sites, visits = problem_data.site_count(problem), 1
    here = look(prior.mean if start is None else np.asarray(start, float).reshape(d))
    trace: list[tuple[int, float, Any]] = []
    note = "No mode was found: the gradient is not zero at the last θ."
    for _ in range(max_iterations):
        value, theta, gradient, hessian = here
        trace.append((visits * sites, gaussian_integral(value, hessian)[0], prior.shaped(theta, np.eye(d))[0]))
        if not all(np.all(np.isfinite(part)) for part in here):
            break
        eigenvalues, basis = np.linalg.eigh(-hessian)
        sizes = np.maximum(np.abs(eigenvalues), 1e-12 * np.max(np.abs(eigenvalues)))
        step = basis @ ((basis.T @ gradient) / sizes)
        gain = float(gradient @ step)
        if gain <= SMALL_GAIN:
            note = ""
        if gain <= SMALL_GAIN**2:
            break
        there, tried = first_rise(look, theta, step, value, gain, SMALL_GAIN)
        visits += tried
        if there is None:
            break
        here = there
    log_z, covariance = gaussian_integral(here[0], here[3])
    if math.isnan(log_z):
        note = NOT_A_MAXIMUM
    return Estimate(log_z, *prior.shaped(here[1], covariance), visits * sites, trace, note)


def first_rise(
    look: Callable[[np.ndarray], Any], start: np.ndarray, step: np.ndarray, height: float, gain: float, hidden: float
) -> tuple[Any, int]:
    """What there is at the first start + step/2^k that is higher, and how many were looked at; None if none is.

    look: gives the height first. A gain up to `hidden`, which rounding would hide, is not tested for: Newton's method
    is in its quadratic end there, and a full step right without being seen to be.
    """
    for halving in range(MAX_HALVINGS):
        there = look(start + step * 0.5**halving)
        if gain <= hidden or there[0] > height + 1e-4 * gain * 0.5**halving:
            return there, halving + 1
    return None, MAX_HALVINGS
