"""A Gaussian process held as a Gaussian over the latents of its rows, with a dense covariance matrix.

Its prior and what a kernel matrix must be, how it predicts, and its fit, in which at a fixed point of EP

    ∂ log Z / ∂θ  =  ½ tr[(α αᵀ − (K + S⁻¹)⁻¹) ∂K/∂θ].
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, is_far, is_traced, to_numpy
from cavity._core.system import check_room, is_accelerator, one_blas_thread
from cavity._core.tiers import tiered_jit
from cavity._numerics.blocked import cholesky, identity, sample_gaussian, symmetric_from_columns
from cavity.factors.base import Factor
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.schedule import Blocks, InOrder, Schedule
from cavity.inference.solution import Solution
from cavity.kernels import Kernel
from cavity.kernels.parameters import without_bounds
from cavity.models._latent_gaussian.evidence_search import SearchOptions, SearchSpace, check_free, fit_evidence, inner
from cavity.models._latent_gaussian.fit_result import FitResult, Latents, result_fields, row_chunks
from cavity.models._latent_gaussian.lost_digits import warn_of_lost_digits
from cavity.models._latent_gaussian.rows import bucket, padded, padded_group, padded_with_zeros, weighted_sites
from cavity.posteriors.dense_algebra import KernelPrior, dense, information, response, window_sizes
from cavity.posteriors.dense_gaussian import DenseGaussian

#: arrays of n × n numbers that a run of the kernel form holds at a time
SQUARES = 6.6
#: from so many latents on an accelerator visits them in blocks
MANY_LATENTS = 512
#: a kernel matrix may miss positive definiteness by this much of its largest entry, times n: rounding
ROUNDING = 1e-12
#: rows predicted at a time, with all training rows
CHUNK = 1024
#: smallest singular value of rows of features, scaled to length 1, that are linearly independent by far
INDEPENDENT = 1e-3


def kernel_problem(group: SiteGroup, k: Any, size: int, varies: np.ndarray | None = None) -> Problem:
    """f ~ N(0, K) with one site a latent, padded to `size`.

    A latent of no prior variance is 0 whatever is observed: like padding it is replaced by an independent one, and what
    is observed of it is a constant of the evidence.

    Args:
        group: the sites of the rows.
        k: of the rows, or of padded ones.
        size: the number of latents; that of the rows leaves K as it is, unless `varies` is given.
        varies: which rows have any variance, as `varying` finds them; all of them if None.
    """
    prior, groups = kernel_prior(k, size, varies), (padded_group(group, size, varies),)
    return Problem(prior, groups, DenseGaussian(), schedule=kernel_schedule(size))


def kernel_prior(k: Any, size: int, varies: np.ndarray | None = None) -> KernelPrior:
    """The prior of `kernel_problem`."""
    n = len(k)
    if n == size and varies is None:
        return KernelPrior(k)
    kept = np.ones(n, bool) if varies is None else varies
    wide = k if n == size else np.pad(k, (0, size - n))
    return KernelPrior(with_independent(wide, np.pad(kept, (0, size - len(kept)))))


@tiered_jit
def with_independent(k: jax.Array, kept: jax.Array) -> jax.Array:
    """K with independent latents of variance 1 in the place of those that are not kept."""
    return jnp.where(kept[:, None] & kept, k, jnp.eye(kept.size))


def varying(k: Any, n: int) -> np.ndarray:
    """Which of the first n latents have any variance."""
    return np.asarray((k if is_far(k) else np.asarray(k)).diagonal())[:n] > 0


def kernel_schedule(n: int) -> Schedule:
    """One site after another; on an accelerator sixteen blocks or so, where steps that small would cost most.

    The sites of a block are visited together, from the same q; they are few enough that it takes hardly more sweeps.
    """
    width = window_sizes(n)[0]
    return Blocks(width if width % 2 else width // 2) if n >= MANY_LATENTS and is_accelerator() else InOrder()


def check_kernel_room(n: int) -> None:
    """Refuse a kernel matrix that leaves no room for the run."""
    check_room("The kernel form", n, SQUARES, "Beyond, take inducing points or random features.")


def covariance_matrix(matrix: Any, n: int, name: str = "kernel_matrix") -> Any:
    """A symmetric positive semi-definite matrix, up to rounding."""
    k = checks.array(name, matrix, (2,))
    if k.shape != (n, n):
        raise ValueError(f"{name} must have shape ({n}, {n}), one row per observation; found {k.shape}.")
    if not is_traced(k):
        check_covariance(name, k)
    return k


def check_covariance(name: str, k: Any) -> None:
    """Refuse a matrix that is not finite, not symmetric, has a latent of no variance, or is indefinite."""
    if not (jnp if is_far(k) else np).isfinite(k).all():
        raise ValueError(f"{name} must be finite: with these inputs and parameters the kernel overflows.")
    checks.symmetric(name, k)
    variances = np.asarray(k.diagonal())
    if (flat := variances <= 0).any():
        where = f"found {variances[flat][0]:g} at {int(flat.argmax())}"
        raise ValueError(f"{name} must have a positive diagonal, a latent of no variance observes nothing; {where}.")
    if not has_cholesky_factor(k, ROUNDING * len(k) * float(abs(k).max())):
        raise ValueError(f"{name} must be positive semi-definite; its smallest eigenvalue is negative beyond rounding.")


def has_cholesky_factor(k: Any, moved_by: float = 0.0) -> bool:
    """Whether the matrix is positive definite, its diagonal moved by what rounding may have done to it."""
    if is_far(k):
        lower = cholesky(jnp.where(identity(len(k)), k + moved_by, k))
        return bool(jnp.isfinite(lower[-1, -1]))
    moved = k.copy()
    moved[np.diag_indices_from(moved)] += moved_by
    try:
        np.linalg.cholesky(moved)
    except np.linalg.LinAlgError:
        return False
    return True


class DenseResponse(NamedTuple):
    """What prediction needs of a posterior over latents: α, with mean = K α, and (K + S⁻¹)⁻¹ = G diag(signs) Gᵀ."""

    alpha: Any
    matrix: Any
    signs: Any


@tiered_jit
def conditioned_latents(cross: jax.Array, variance: jax.Array, known: DenseResponse) -> tuple[jax.Array, jax.Array]:
    """Mean c α and variance k − Σ signs (c G)² of latents with prior variances k and covariances c."""
    explained = jnp.sum(known.signs * (cross @ known.matrix) ** 2, axis=1)
    return cross @ known.alpha, jnp.maximum(variance - explained, 0.0)


def kernel_latents(kernel: Any, inputs: Any, known: DenseResponse, X: Any) -> Latents:
    """Mean and variance at the rows of X of a process that was observed at the inputs."""
    inputs, means, variances = padded(inputs, known.alpha.size), [], []
    for rows in row_chunks(X, CHUNK):
        cross, prior = jnp.asarray(kernel(rows, inputs)), jnp.asarray(kernel.diagonal(rows))
        mean, variance = conditioned_latents(cross, prior, known)
        means.append(np.asarray(mean))
        variances.append(np.asarray(variance))
    return np.concatenate(means)[: len(X)], np.concatenate(variances)[: len(X)]


class SeenThroughFeatures(NamedTuple):
    """What prediction needs of latents f = Φ v with linearly independent rows Φ: Φᵀ = Q R, and N(mean, covariance).

    A new latent φᵀv is bᵀf of b = R⁻¹ Qᵀ φ, and what φ has outside of the rows' space, which keeps its prior:

        mean bᵀ mean,    variance bᵀ covariance b + |φ − Q Qᵀ φ|².

    Neither is a difference of prior variances, which may be far above that of q.
    """

    directions: jax.Array
    triangle: jax.Array
    mean: jax.Array
    covariance: jax.Array


@tiered_jit
def seen_through_features(kernel: Kernel, inputs: jax.Array, mean: jax.Array, sites: jax.Array) -> SeenThroughFeatures:
    """The latents at the inputs, of this mean under q and with these weighted sites."""
    q = dense(kernel.matrix(inputs, None), *sites.T)
    directions, triangle = jnp.linalg.qr(kernel.features(inputs, iter(())).T)
    return SeenThroughFeatures(directions, triangle, mean, symmetric_from_columns(q.covariance))


@tiered_jit
def latents_through_features(kernel: Kernel, X: jax.Array, known: SeenThroughFeatures) -> tuple[jax.Array, jax.Array]:
    """Mean and variance at the rows of X."""
    rows = kernel.features(X, iter(()))
    along = rows @ known.directions
    left = rows - along @ known.directions.T
    shares = jax.scipy.linalg.solve_triangular(known.triangle, along.T).T
    return shares @ known.mean, jnp.sum((shares @ known.covariance) * shares, axis=1) + jnp.sum(left**2, axis=1)


@float64
def has_independent_features(kernel: Any, X: np.ndarray) -> bool:
    """Whether the rows have features, and these are linearly independent by far."""
    count = kernel.feature_count(X.shape[1]) if isinstance(kernel, Kernel) else None
    if count is None or count < len(X):
        return False
    rows = np.asarray(kernel.features(jnp.asarray(X), iter(())))
    lengths = np.linalg.norm(rows, axis=1)
    return bool((lengths > 0).all() and np.linalg.svd(rows / lengths[:, None], compute_uv=False)[-1] > INDEPENDENT)


@tiered_jit
def covariance_gradient(problem: Problem, q: Any, sites: jax.Array) -> jax.Array:
    """½ (α αᵀ − (K + S⁻¹)⁻¹): what a change of the prior covariance, entry by entry, does to the log evidence."""
    (group,) = problem.groups
    return 0.5 * (jnp.outer(q.weights, q.weights) - information(q, group.multiplicities * sites[:, 1]))


@dataclasses.dataclass(eq=False, kw_only=True)
class ExactGP(FitResult):
    """f ~ GP(0, kernel) observed through `factor` at the rows of X.

    Attributes:
        X: the inputs it was fitted to.
        kernel: with the parameters learned.
        multiplicity: how many equal observations each row stands for.
        alpha: the latent's mean is k(x, X) alpha.
    """

    X: np.ndarray
    kernel: Any
    multiplicity: np.ndarray
    alpha: np.ndarray

    ARRAYS: ClassVar[tuple[str, ...]] = (*FitResult.ARRAYS, "X", "multiplicity", "alpha")
    #: what carries the process, in words
    carrier: ClassVar[str] = "exact"

    @float64
    def latent(self, X: Any) -> tuple[Any, Any]:
        """Mean and variance of the latent at the rows of X."""
        if self.features is None:
            return kernel_latents(self.kernel, self.X, self.response, X)
        found = [
            latents_through_features(without_bounds(self.kernel), rows, self.features) for rows in row_chunks(X, CHUNK)
        ]
        mean, variance = (np.concatenate(parts)[: len(X)] for parts in zip(*found, strict=True))
        return mean, variance

    @float64
    def sample(self, X: Any, key: jax.Array, draws: int) -> Any:
        """Draws of the latent at the rows of X, jointly."""
        alpha, matrix, signs = self.response
        cross = jnp.asarray(self.kernel(X, padded(self.X, alpha.size)))
        spread = cross @ matrix
        covariance = jnp.asarray(self.kernel(X)) - (spread * signs) @ spread.T
        return sample_gaussian(key, cross @ alpha, covariance, draws)

    @functools.cached_property
    def response(self) -> DenseResponse:
        """All that prediction needs beside the kernel, padded."""
        n, size = len(self.X), bucket(len(self.X))
        k = self.kernel(padded(self.X, size))
        varies = varying(k, n)
        prior, multiplicity = kernel_prior(k, size, varies), np.where(varies, self.multiplicity, 0.0)
        sites = padded_with_zeros(self.sites * multiplicity[:, None], size)
        with one_blas_thread():  # the same bits in every process
            found = response(prior, jnp.asarray(sites))
            return to_numpy(DenseResponse(padded_with_zeros(self.alpha, size), *found))

    @functools.cached_property
    def features(self) -> SeenThroughFeatures | None:
        """What prediction needs where the rows have independent features."""
        if not has_independent_features(self.kernel, self.X):
            return None
        with one_blas_thread():  # the same bits in every process
            sites = self.sites * self.multiplicity[:, None]
            return to_numpy(seen_through_features(without_bounds(self.kernel), self.X, self.latent_mean, sites))

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed on demand, which is large."""
        return {name: value for name, value in vars(self).items() if name not in ("response", "features")}

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(header, arrays): what a file holds."""
        header, arrays = super().state()
        return {**header, "kernel": self.kernel.spec()}, arrays

    @classmethod
    def from_state(
        cls, header: dict[str, Any], arrays: dict[str, np.ndarray], kernel_from_spec: Callable[[dict[str, Any]], Any]
    ) -> "ExactGP":
        """The model that was stored."""
        return cls(kernel=kernel_from_spec(header["kernel"]), **cls.fields_from_state(header, arrays))


@float64
@one_blas_thread()
def fit_exact_gp(
    X: Any,
    y: Any,
    *,
    kernel: Any,
    factor: Factor,
    sample_weight: Any = None,
    optimize: bool = True,
    free: tuple[str, ...] = (),
    deviations: Any = None,
    **search: Unpack[SearchOptions],
) -> ExactGP:
    """Fit by EP; with `optimize`, kernel parameters and the likelihood's `free` ones maximise the log evidence.

    Args:
        X: (n, d) inputs.
        y: (n,) observations.
        kernel: the covariance function, with the parameters the search starts from.
        factor: the likelihood of one observation.
        sample_weight: (n,), how often each row counts; fractions raise its likelihood to that power. 1 by default.
        optimize: whether the evidence is maximised.
        free: parameters of the likelihood that are learned.
        deviations: standard deviations of a normal prior on theta around its start; None or infinite: flat.
        **search: method, restarts, seed, mapped, callback, search_callback, as for `fit_evidence`.
    """
    began = time.perf_counter()
    check_free(factor, free)
    X = np.array(X, float)
    n, size = len(X), bucket(len(X))
    check_kernel_room(size)
    sites, inputs = weighted_sites(y, factor, sample_weight), padded(X, size)
    check_kernel(kernel, inputs, n, "kernel(X)")

    def build(theta: np.ndarray, factor: Factor, others: np.ndarray) -> Problem:
        k = kernel.with_theta(theta)(inputs)
        return kernel_problem(dataclasses.replace(sites, factor=factor), k, size, varying(k, n))

    def gradient(theta: np.ndarray, others: np.ndarray, solution: Solution) -> tuple[Any, Any]:
        if not theta.size:
            return theta, others
        # What does not take part has no weight here: padding adds nothing.
        pull = covariance_gradient(solution.problem, solution.q, solution.sites[0])
        return kernel.with_theta(theta).pullback(inputs, pull), others

    space = SearchSpace(kernel.theta, kernel.bounds, sites.factor, free, deviations)
    found = fit_evidence(space, build, gradient, optimize=optimize, **search)
    learned, solution = kernel.with_theta(found.theta), found.solution
    warn_of_lost_digits(solution, learned=bool(free))
    if found.history:
        check_kernel(learned, inputs, n, "kernel_(X), where the search ended,")
    latent = solution.q.mean, solution.q.variance
    return ExactGP(
        X=X,
        kernel=learned,
        factor=inner(found.factor),
        multiplicity=sites.multiplicity,
        alpha=np.array(solution.q.weights[:n]),
        **result_fields(solution, sites.multiplicity, latent, found.history, time.perf_counter() - began),
    )


def check_kernel(kernel: Any, inputs: np.ndarray, n: int, name: str) -> None:
    """Refuse a kernel that is not positive semi-definite on those of the first n inputs that have any variance."""
    k = kernel(inputs)
    k = (k if is_far(k) else np.asarray(k))[:n, :n]
    some = np.asarray(k.diagonal()) != 0
    if some.any():
        check_covariance(name, k if some.all() else k[np.ix_(some, some)])
