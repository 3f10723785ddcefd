"""A Gaussian process with a dense covariance matrix: fitted, ready to predict."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, ClassVar, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64, is_far
from cavity._core.system import one_blas_thread
from cavity.factors.base import Factor
from cavity.inference.problem import Problem
from cavity.inference.solution import Solution
from cavity.models.latent_gaussian.assembly import (
    PaddedRows,
    check_covariance,
    check_kernel_room,
    kernel_prior,
    kernel_problem,
)
from cavity.models.latent_gaussian.evidence_search import SearchOptions, fit_evidence
from cavity.models.latent_gaussian.fit_result import DenseResponse, FitResult, kernel_latents, result_fields
from cavity.models.latent_gaussian.hyperparameters import SearchSpace, check_free, covariance_gradient, inner
from cavity.models.latent_gaussian.rows import bucket, padded, padded_with_zeros


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
        return kernel_latents(self.kernel, self.X, self.response, X)

    @float64
    def sample(self, X: Any, key: jax.Array, draws: int) -> Any:
        """Draws of the latent at the rows of X, jointly."""
        alpha, matrix, signs = self.response
        cross = jnp.asarray(self.kernel(X, padded(self.X, alpha.size)))
        spread = cross @ matrix
        covariance = jnp.asarray(self.kernel(X)) - (spread * signs) @ spread.T
        values, vectors = jnp.linalg.eigh(covariance)
        noise = jax.random.normal(key, (draws, len(X)), dtype=float)
        return cross @ alpha + (noise * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T

    @functools.cached_property
    @float64
    def response(self) -> DenseResponse:
        """All that prediction needs beside the kernel, padded."""
        rows = PaddedRows(padded(self.X, bucket(len(self.X))), None, self.factor, self.multiplicity)
        prior, multiplicity = kernel_prior(rows, self.kernel)
        size = len(rows.X)
        sites = padded_with_zeros(self.sites, size) * multiplicity[:, None]
        return DenseResponse.of(prior, padded_with_zeros(self.alpha, size), sites)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed on demand: arrays of JAX lose their digits on the way through pickle."""
        return {name: value for name, value in vars(self).items() if name != "response"}

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
        deviations: of a normal prior on the kernel's theta around its start, one per number; None or infinite: flat.
        **search: method, restarts, seed, mapped, callback, search_callback, as for `fit_evidence`.
    """
    began = time.perf_counter()
    check_free(factor, free)
    check_kernel_room(bucket(len(X)))
    rows = PaddedRows.of(X, y, factor, sample_weight)
    check_kernel(kernel, rows, "kernel(X)")

    def build(theta: np.ndarray, factor: Factor, others: np.ndarray) -> Problem:
        return kernel_problem(rows, kernel.with_theta(theta), factor)

    def gradient(theta: np.ndarray, others: np.ndarray, solution: Solution) -> tuple[Any, Any]:
        if not theta.size:
            return theta, others
        # What does not take part has no weight here: padding adds nothing.
        pull = covariance_gradient(solution.problem, solution.q, solution.sites[0])
        return kernel.with_theta(theta).pullback(rows.X, pull), others

    space = SearchSpace(kernel.theta, kernel.bounds, rows.factor, free, deviations)
    found = fit_evidence(space, build, gradient, optimize=optimize, **search)
    learned, solution = kernel.with_theta(found.theta), found.solution
    if found.history:
        check_kernel(learned, rows, "kernel_(X), where the search ended,")
    left_out = rows.multiplicity * (np.asarray(solution.problem.groups[0].multiplicity[: rows.count]) == 0)
    latent = solution.mean, solution.variance
    return ExactGP(
        X=np.array(X, float),
        kernel=learned,
        factor=inner(found.factor),
        multiplicity=rows.multiplicity,
        alpha=np.array(solution.q.weights[: rows.count]),
        **result_fields(solution, left_out, latent, found.history, time.perf_counter() - began),
    )


def check_kernel(kernel: Any, rows: PaddedRows, name: str) -> None:
    """Refuse a kernel that is not positive semi-definite on those of the rows that have any variance."""
    k = kernel(rows.X)
    k = (k if is_far(k) else np.asarray(k))[: rows.count, : rows.count]
    some = np.asarray(k.diagonal()) != 0
    if some.any():
        check_covariance(name, k if some.all() else k[np.ix_(some, some)])
