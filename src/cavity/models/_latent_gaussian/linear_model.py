"""A linear model f = wᵀx held as a Gaussian over its weights: fitted, continued with further rows, refined."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, ClassVar, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, is_traced, library_of
from cavity._core.system import is_accelerator
from cavity._core.tiers import tiered_jit
from cavity.factors.base import Factor
from cavity.inference.infer import infer
from cavity.inference.methods import ADF, Method
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.schedule import Blocks, InOrder, Parallel, Schedule
from cavity.inference.solution import Solution
from cavity.models._latent_gaussian.evidence_search import (
    SearchOptions,
    SearchSpace,
    as_numbers,
    check_free,
    fit_evidence,
    inner,
    rule_of,
    solve_from,
)
from cavity.models._latent_gaussian.exact_gp import MANY_LATENTS, has_cholesky_factor
from cavity.models._latent_gaussian.fit_result import FitResult, Latents, result_fields
from cavity.models._latent_gaussian.lost_digits import warn_of_lost_digits
from cavity.models._latent_gaussian.rows import (
    bucket,
    feature_bucket,
    padded,
    padded_group,
    padded_with_zeros,
    weighted_sites,
)
from cavity.posteriors.weight_gaussian import WeightGaussian, WeightPrior

#: where the search may move the prior variance of the weights, as a factor
VARIANCES = (1e-6, 1e6)
#: from so many rows, and so many per weight, a linear model is visited in parallel
MANY, MANY_PER_WEIGHT = 2000, 100
#: how many blocks an accelerator visits otherwise
BLOCKS = 16


@dataclasses.dataclass(frozen=True)
class LinearRows:
    """Padded rows of a linear model, without those that are all zero: wᵀ0 is 0 whatever is observed.

    Features are padded too, by columns of zeros: their weights keep their prior, and nothing else sees them.

    Attributes:
        X: (size, columns), the rows after padding.
        sites: what is observed of them, padded.
        d: the features before padding.
        multiplicity: (n,), how many equal factors each row stands for, those that are all zero too.
    """

    X: np.ndarray
    sites: SiteGroup
    d: int
    multiplicity: np.ndarray

    @classmethod
    def of(cls, X: Any, y: Any, factor: Factor, sample_weight: Any = None, size: int | None = None) -> "LinearRows":
        """As for `weighted_sites`; size: the number of rows after padding, None for a bucket."""
        X = np.asarray(X, float)
        (n, d), size = X.shape, bucket(len(X)) if size is None else size
        empty = ~X.any(axis=1)
        filled = np.zeros((size, feature_bucket(d)))
        filled[:n, :d] = X
        if empty.any():
            filled[:n][empty, :d] = X[np.argmin(empty)] if not empty.all() else 1.0
        filled[n:] = filled[0]
        sites = weighted_sites(y, as_numbers(factor), sample_weight)
        return cls(filled, padded_group(sites, size, ~empty), d, np.asarray(sites.multiplicity))

    def problem(self, shift: np.ndarray, precision: np.ndarray, factor: Factor | None = None) -> Problem:
        """These rows under a Gaussian prior of the weights, given by its natural parameters."""
        wide = np.eye(self.X.shape[1])
        wide[: self.d, : self.d] = precision
        prior = WeightPrior(jnp.asarray(self.X), jnp.asarray(padded_with_zeros(shift, len(wide))), jnp.asarray(wide))
        group = self.sites if factor is None else dataclasses.replace(self.sites, factor=factor)
        return weight_problem(group, prior, len(self.X), self.d)


def weight_problem(group: SiteGroup, prior: WeightPrior, size: int, features: int | None = None) -> Problem:
    """f = X w with one site a row of X, padded to `size`; features: how many are no padding themselves, None: all."""
    prior = prior._replace(rows=padded(prior.rows, size))
    schedule = weight_schedule(size, prior.rows.shape[1] if features is None else features)
    return Problem(prior, (padded_group(group, size),), WeightGaussian(), schedule=schedule)


def weight_schedule(n: int, d: int) -> Schedule:
    """The faster kind for a linear model: parallel where every site is a small part of the whole, else sequential.

    A parallel sweep costs a sixth to a tenth of a sequential one, but where a site weighs much it may not converge. On
    an accelerator blocks take the place of single sites, as in the kernel form.
    """
    if n >= max(MANY, MANY_PER_WEIGHT * d):
        return Parallel()
    return Blocks(-(-n // BLOCKS)) if n >= MANY_LATENTS and is_accelerator() else InOrder()


def weight_precision(prior_variance: Any, d: int) -> jax.Array:
    """The inverse prior covariance of the weights."""
    if np.ndim(prior_variance) == 2:
        given = checks.array("prior_variance", prior_variance, (2,))
        if given.shape != (d, d):
            raise ValueError(f"prior_variance must have shape ({d}, {d}); found {given.shape}.")
        if not is_traced(given):
            checks.symmetric("prior_variance", given)
            if not has_cholesky_factor(given):
                raise ValueError("prior_variance must be positive definite; found a matrix that is not.")
        return jnp.linalg.inv(jnp.asarray(given))
    whole = jnp.atleast_1d(prior_variance) if is_traced(prior_variance) else np.atleast_1d(prior_variance)
    given = checks.array("prior_variance", whole, (1,))
    if given.shape not in {(1,), (d,)}:
        raise ValueError(f"prior_variance must be a number or one per feature, {d}; found {given.shape}.")
    if not is_traced(given) and not (np.asarray(given) > 0).all():
        raise ValueError(f"prior_variance must be positive; found {np.asarray(given).min()}.")
    library = library_of(given)
    return library.diag(library.broadcast_to(1.0 / given, (d,)))


def weight_latents(mean: Any, covariance: Any, X: Any) -> Latents:
    """Mean and variance of wᵀx for the rows x of X."""
    X = np.asarray(X, float)
    return X @ mean, np.maximum(np.einsum("ij,ij->i", X @ covariance, X), 0.0)


@dataclasses.dataclass(eq=False, kw_only=True)
class LinearModel(FitResult):
    """w ~ N(0, prior_variance) observed through `factor` along the rows it was fitted to.

    Attributes:
        mean: of the weights under q.
        covariance: of the weights under q.
        shift: covariance⁻¹ mean, so that further rows can be absorbed and old ones deleted.
        precision: covariance⁻¹.
        prior_variance: of the weights: one for all, one per feature, or a covariance matrix.
    """

    mean: np.ndarray
    covariance: np.ndarray
    shift: np.ndarray
    precision: np.ndarray
    prior_variance: np.ndarray

    ARRAYS: ClassVar[tuple[str, ...]] = (
        *FitResult.ARRAYS, "mean", "covariance", "shift", "precision", "prior_variance"
    )  # fmt: skip

    def latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of wᵀx for the rows of X."""
        return weight_latents(self.mean, self.covariance, X)

    @float64
    def sample(self, X: Any, key: jax.Array, draws: int) -> Any:
        """Draws of wᵀx at the rows of X, jointly."""
        noise = jax.random.normal(key, (draws, self.mean.size), dtype=float)
        weights = self.mean + noise @ np.linalg.cholesky(self.covariance).T
        return weights @ np.asarray(X, float).T

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> "LinearModel":
        """The model that was stored."""
        return cls(**cls.fields_from_state(header, arrays))

    @float64
    def absorb(self, X: Any, y: Any, *, sample_weight: Any = None, method: Method | None = None) -> "LinearModel":
        """The model after one pass over new rows from its present q (assumed-density filtering); evidences add up."""
        began = time.perf_counter()
        rows = LinearRows.of(X, y, self.factor, sample_weight)
        solution = infer(rows.problem(self.shift, self.precision), ADF() if method is None else method)
        found = fitted_linear_model(rows, solution, self.prior_variance, [], began)
        return dataclasses.replace(found, log_evidence=found.log_evidence + self.log_evidence)

    @float64
    def refine(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        method: Method | None = None,
        callback: Callable[[Solution], Any] | None = None,
    ) -> "LinearModel":
        """EP on the rows the model has seen, started from the sites it has for them.

        Args:
            X: all rows the model has seen, in order.
            y: their observations.
            sample_weight: (n,), their weights.
            method: as in a fit, None tries one after another.
            callback: called with the solution after every sweep.
        """
        began = time.perf_counter()
        rows = LinearRows.of(X, y, self.factor, sample_weight)
        seen, n = len(self.sites), len(rows.multiplicity)
        if seen != n:
            raise ValueError(f"X must be the {seen} rows the model has seen, in their order; found {n}.")
        problem = rows.problem(np.zeros(rows.d), np.asarray(weight_precision(self.prior_variance, rows.d)))
        solution = solve_from((padded_with_zeros(self.sites, len(rows.X)),), problem, rule_of(method), callback)
        return fitted_linear_model(rows, solution, self.prior_variance, [], began)


@tiered_jit
def precision_gradient(problem: Problem, q: Any) -> jax.Array:
    """½ diag(Λ₀⁻¹ − covariance − mean meanᵀ): what a change of the prior precisions does to the log evidence."""
    prior = problem.posterior.flat(problem.prior)
    change = jnp.diagonal(prior.covariance) - jnp.diagonal(q.covariance) + prior.mean**2 - q.mean**2
    return 0.5 * change


@float64
def fit_linear_model(
    X: Any,
    y: Any,
    *,
    factor: Factor,
    prior_variance: Any = 1.0,
    sample_weight: Any = None,
    optimize: bool = False,
    free: tuple[str, ...] = (),
    **search: Unpack[SearchOptions],
) -> LinearModel:
    """Fit by EP; `optimize` maximises the evidence over `free`.

    Args:
        prior_variance: of the weights: a number, one per feature, or a covariance matrix.
        free: what is learned: parameters of the likelihood, or "prior_variance", which is then scaled.
        X, y, factor, sample_weight, optimize, **search: as for `fit_exact_gp`.
    """
    began = time.perf_counter()
    likelihood_free = tuple(name for name in free if name != "prior_variance")
    check_free(factor, likelihood_free)
    rows = LinearRows.of(X, y, factor, sample_weight)
    scales = int("prior_variance" in free)
    base = np.asarray(weight_precision(prior_variance, rows.d))

    def scale_of(theta: np.ndarray) -> float:
        return float(np.exp(theta[0])) if scales else 1.0

    def build(theta: np.ndarray, factor: Factor, others: np.ndarray) -> Problem:
        return rows.problem(np.zeros(rows.d), base / scale_of(theta), factor)

    def gradient(theta: np.ndarray, others: np.ndarray, solution: Solution) -> tuple[Any, Any]:
        if not scales:
            return theta, others
        pull = np.asarray(precision_gradient(solution.problem, solution.q))[: rows.d]
        return np.atleast_1d(-np.sum(pull * np.diagonal(base)) / scale_of(theta)), others

    space = SearchSpace(
        np.zeros(scales), np.log([VARIANCES] * scales).reshape(-1, 2), rows.sites.factor, likelihood_free
    )
    found = fit_evidence(space, build, gradient, optimize=optimize, **search)
    variance = np.asarray(prior_variance, float) * scale_of(found.theta)
    return fitted_linear_model(rows, found.solution, np.atleast_1d(variance), found.history, began)


def fitted_linear_model(
    rows: LinearRows, solution: Solution, prior_variance: np.ndarray, history: list[Any], began: float
) -> LinearModel:
    """The model that a solution for these rows makes; began: when the fit did."""
    warn_of_lost_digits(solution)
    d, (group,) = rows.d, solution.problem.groups
    along, shift, precision = (np.asarray(part)[..., :d] for part in solution.problem.prior)
    sites = np.asarray(group.multiplicities)[:, None] * solution.sites[0]
    latent = solution.view("latent_mean"), solution.view("latent_variance")
    return LinearModel(
        mean=np.array(solution.q.mean[:d]),
        covariance=np.array(solution.q.covariance[:d, :d]),
        shift=shift + along.T @ sites[:, 0],
        precision=precision[:d] + along.T @ (sites[:, 1:] * along),
        factor=inner(group.factor),
        prior_variance=prior_variance,
        **result_fields(solution, rows.multiplicity, latent, history, time.perf_counter() - began),
    )
