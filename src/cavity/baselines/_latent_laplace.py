"""Laplace's method for latent Gaussian models: f ~ N(0, K), independent terms t_i(f_i) (Rasmussen & Williams 3.4).

With g and −W the first and second derivatives of Σ log t_i and a = K⁻¹ f, the log posterior and a step of Newton's
method from (a, f) are, up to a constant,

    ψ = Σ log t_i(f_i) − ½ aᵀ f,      Δf = Σ_W (g − a),      Δa = (g − a) − W Δf,      Σ_W = (K⁻¹ + W)⁻¹.

K is never inverted, so it may be singular: a linear kernel X Xᵀ with few features is allowed.
"""

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from cavity._core import checks
from cavity._core.precision import float64
from cavity._core.tiers import tiered_jit
from cavity.baselines._laplace import NOT_A_MAXIMUM, SMALL_GAIN, first_rise
from cavity.factors.base import Factor


class Curvature(NamedTuple):
    """(K⁻¹ + W)⁻¹ for W of any sign, by two Cholesky factors with positive W first.

    With W₊ the positive part of W: `lower` of I + W₊½ K W₊½ gives Σ₊ = (K⁻¹ + W₊)⁻¹; `negative` are the indices with
    W < 0 and `lower_negative` is that of I − U Σ₊ U there, U = (−W)½. `root` is W₊½, `root_negative` is U.
    """

    K: np.ndarray
    root: np.ndarray
    lower: np.ndarray
    negative: np.ndarray
    root_negative: np.ndarray
    lower_negative: np.ndarray

    @property
    def log_det(self) -> float:
        """log |I + K W|."""
        return 2.0 * float(np.sum(np.log(np.diag(self.lower))) + np.sum(np.log(np.diag(self.lower_negative))))

    def conditional(self, cross: np.ndarray, other: np.ndarray, prior: np.ndarray, diagonal: bool) -> np.ndarray:
        """Posterior covariance of two sets of latents, (p, q), or of equal pairs (p,) when `diagonal`.

        cross, other: their prior covariances (p, n), (q, n) with the observed latents; prior: the one between them.
        """
        product = "pn,pn->p" if diagonal else "pn,qn->pq"
        left, right = (solve_triangular(self.lower, (self.root * c).T, lower=True).T for c in (cross, other))
        result = prior - np.einsum(product, left, right)
        if self.negative.size:
            # Σ₊ between each set and the latents with W < 0, whose terms widen the posterior again.
            observed = solve_triangular(self.lower, self.root[:, None] * self.K[:, self.negative], lower=True)
            pair = (c[:, self.negative] - v @ observed for c, v in ((cross, left), (other, right)))
            lower, root = self.lower_negative, self.root_negative
            left, right = (solve_triangular(lower, (root * c).T, lower=True).T for c in pair)
            result = result + np.einsum(product, left, right)
        return result

    def covariance(self) -> np.ndarray:
        """Σ_W, the posterior covariance of the observed latents."""
        return self.conditional(self.K, self.K, self.K, diagonal=False)


class LatentLaplace(NamedTuple):
    """q(f) = N(mean, covariance) at the mode of the posterior, and what `predict` needs.

    log_evidence: (3.32) of Rasmussen & Williams, nan where the point found is no maximum. evaluations: derivatives of
    one term at one value each. trace: (evaluations, log_evidence, mean) of every step. note: empty when all is well.
    """

    log_evidence: float
    mean: np.ndarray
    covariance: np.ndarray
    evaluations: int
    trace: list[tuple[int, float, np.ndarray]]
    note: str
    weights: np.ndarray
    curvature: Curvature | None

    @property
    def variance(self) -> np.ndarray:
        return np.diag(self.covariance).copy()

    def predict(self, cross: Any, prior_variance: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean k*ᵀ a and variance k** − k*ᵀ (K + W⁻¹)⁻¹ k* of new latents (3.21, 3.24 there).

        cross: prior covariances (m, n) of new with observed latents; prior_variance: the new ones' own (m,).
        """
        found = np.asarray(checks.array("cross", cross, (2,)))
        prior = np.asarray(checks.array("prior_variance", prior_variance, (1,)))
        if found.shape != (prior.size, self.mean.size):
            expected = (prior.size, self.mean.size)
            raise ValueError(f"cross must have shape {expected}, (new, observed) latents; found {found.shape}.")
        if self.curvature is None:
            return found @ self.weights, np.full(prior.size, math.nan)
        return found @ self.weights, self.curvature.conditional(found, found, prior, diagonal=True)


@float64
def latent_laplace(
    K: Any, y: Any, factor: Factor, tolerance: float = 1e-10, max_iterations: int = 200
) -> LatentLaplace:
    """Laplace's method for f ~ N(0, K) and terms `factor.log_density(f_i, y_i)`, smooth in f_i.

    Where W has negative entries (heavy tails) and K⁻¹ + W is not positive definite, a step uses W₊ instead; steps are
    halved until ψ rises, so the method ends at a local maximum.

    Args:
        K: (n, n), prior covariance of the latents.
        y: data of the terms, with n as leading axis.
        factor: the terms.
        tolerance: the last step, in posterior standard deviations.
        max_iterations: steps at most.

    Returns:
        The Gaussian at the mode, with the log evidence; its note says what went wrong, if anything did.

    Raises:
        ValueError: if K is no covariance, or a term jumps.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> K = cv.kernels.RBF()([[0.0], [1.0], [2.0]])
        >>> found = baselines.latent_laplace(K, np.array([1, 1, -1]), cv.factors.Logistic())
        >>> round(found.log_evidence, 3)
        -2.123
    """
    K, y = latent_model(K, y, factor)
    refuse_jumps(factor, y, np.sqrt(np.diag(K)))
    n = len(K)

    def look(a: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        f = K @ a
        values, g, second = (np.asarray(part, float) for part in terms_and_derivatives(factor, y, f))
        return float(np.sum(values) - 0.5 * a @ f), a, f, g, -second

    here, evaluations, trace = look(np.zeros(n)), n, []
    note = f"Newton's method did not reach the mode within {max_iterations} steps."
    for _ in range(max_iterations):
        height, a, f, g, W = here
        curvature = curved(K, W)
        trace.append((evaluations, math.nan if curvature is None else height - 0.5 * curvature.log_det, f))
        used, used_W = (curvature, W) if curvature is not None else (positive_part(K, W), np.maximum(W, 0.0))
        slope = g - a
        covariance = used.covariance()
        step_f = covariance @ slope
        if np.max(np.abs(step_f) / np.sqrt(np.maximum(np.diag(covariance), np.finfo(float).tiny))) <= tolerance:
            note = "" if curvature is not None else NOT_A_MAXIMUM
            break
        gain, hidden = float(step_f @ slope), SMALL_GAIN * (1 + abs(height))
        there, tried = first_rise(look, a, slope - used_W * step_f, height, gain, hidden)
        evaluations += n * tried
        if there is None:
            note = "Newton's method found no step that raises the log posterior."
            break
        here = there
    height, a, f, _, W = here
    curvature = curved(K, W)
    if curvature is None:
        empty = np.full((n, n), math.nan)
        return LatentLaplace(math.nan, f, empty, evaluations, trace, note or NOT_A_MAXIMUM, a, None)
    log_z = height - 0.5 * curvature.log_det
    return LatentLaplace(log_z, f, curvature.covariance(), evaluations, trace, note, a, curvature)


def curved(K: np.ndarray, W: np.ndarray) -> Curvature | None:
    """Factors of K⁻¹ + W, or None where it is not positive definite."""
    first = positive_part(K, W)
    negative = np.flatnonzero(W < 0)
    if not negative.size:
        return first
    rows = K[negative]
    spread = first.conditional(rows, rows, rows[:, negative], diagonal=False)
    root = np.sqrt(-W[negative])
    try:
        lower = cholesky(np.eye(negative.size) - root[:, None] * spread * root, lower=True)
    except LinAlgError:
        return None
    return first._replace(negative=negative, root_negative=root, lower_negative=lower)


def positive_part(K: np.ndarray, W: np.ndarray) -> Curvature:
    """Factors of K⁻¹ + max(W, 0)."""
    root = np.sqrt(np.maximum(W, 0.0))
    lower = cholesky(np.eye(len(K)) + root[:, None] * K * root, lower=True)
    return Curvature(K, root, lower, np.zeros(0, int), np.zeros(0), np.zeros((0, 0)))


@tiered_jit
def terms_and_derivatives(factor: Factor, y: Any, f: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """log t_i(f_i) and its first two derivatives, (n,) each."""
    first = jax.grad(factor.log_density)
    return jax.vmap(factor.log_density)(f, y), jax.vmap(first)(f, y), jax.vmap(jax.grad(first))(f, y)


def latent_model(K: Any, y: Any, factor: Factor) -> tuple[np.ndarray, Any]:
    """K, symmetric and without negative eigenvalues, and the data of as many sites as it has rows."""
    found = np.asarray(checks.array("K", K, (2,)))
    n = len(found)
    if found.shape != (n, n):
        raise ValueError(f"K must be square; found shape {found.shape}.")
    checks.symmetric("K", found)
    if (lowest := np.linalg.eigvalsh(found)[0]) < -1e-10 * n * np.max(np.abs(found)):
        raise ValueError(f"K must have no negative eigenvalue; found {lowest:.3g}.")
    data = jax.tree.map(lambda leaf: np.asarray(checks.array("y", leaf, tuple(range(1, np.ndim(leaf) + 1)) or (1,))), y)
    for leaf in jax.tree.leaves(data):
        if len(leaf) != n:
            raise ValueError(f"y must have one entry for each of the {n} rows of K; found {len(leaf)}.")
    factor.validate(data)
    return 0.5 * (found + found.T), data


def refuse_jumps(factor: Factor, y: Any, sd: np.ndarray) -> None:
    """One sentence for a density that changes without a slope: it has no mode to fit a Gaussian to."""
    probes = [terms_and_derivatives(factor, y, place * sd) for place in (-1.0, -0.01, 0.01, 1.0)]
    values, slopes = (np.stack([np.asarray(probe[part]) for probe in probes]) for part in (0, 1))
    # A slope that is not a number comes from differentiating log 0.
    if not np.any(np.nan_to_num(slopes)) and np.any(values != values[0]):
        name = type(factor).__name__
        raise TypeError(f"latent_laplace needs a log density with a slope; that of {name} changes by jumps only.")
