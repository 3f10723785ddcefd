"""Gaussian processes, with a dense covariance matrix or carried by a basis, f = a(x)ᵀv + e: fitted, and predicting."""

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
from cavity.factors.wrappers import add_noise_variance
from cavity.inference.problem import Problem
from cavity.inference.solution import Solution
from cavity.kernels import Basis, InducingInputs, Kernel, RandomFeatures
from cavity.models.latent_gaussian.assembly import (
    PaddedRows,
    basis_problem,
    check_covariance,
    check_finite_rows,
    check_kernel_room,
    kernel_prior,
    kernel_problem,
)
from cavity.models.latent_gaussian.evidence_search import SearchOptions, fit_evidence
from cavity.models.latent_gaussian.fit_result import (
    DenseResponse,
    FitResult,
    basis_latents,
    kernel_latents,
    result_fields,
)
from cavity.models.latent_gaussian.hyperparameters import (
    SearchSpace,
    check_free,
    covariance_gradient,
    inner,
    spanned_gradient,
)
from cavity.models.latent_gaussian.rows import bucket, padded, padded_with_zeros
from cavity.numerics.blocked import sample_gaussian
from cavity.posteriors.dense_gaussian import response

#: bases that may be named in a file
BASES: dict[str, type[Basis]] = {"InducingInputs": InducingInputs, "RandomFeatures": RandomFeatures}


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
        return sample_gaussian(key, cross @ alpha, covariance, draws)

    @functools.cached_property
    @float64
    def response(self) -> DenseResponse:
        """All that prediction needs beside the kernel, padded."""
        rows = PaddedRows(padded(self.X, bucket(len(self.X))), None, self.factor, self.multiplicity)
        prior, multiplicity = kernel_prior(rows, self.kernel)
        size = len(rows.X)
        sites = padded_with_zeros(self.sites, size) * multiplicity[:, None]
        return DenseResponse(jnp.asarray(padded_with_zeros(self.alpha, size)), *response(prior, jnp.asarray(sites)))

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


@dataclasses.dataclass(eq=False, kw_only=True)
class SparseGP(FitResult):
    """f = a(x)ᵀv + e observed through `factor`; q(v) = N(weight_mean, weight_covariance), e ~ N(0, r(x)) as before.

    `latent_mean` and `latent_variance` are those of g = aᵀv, which the sites see.

    Attributes:
        kernel: with the parameters learned.
        basis: what carries the process.
        weight_mean: of v under q.
        weight_covariance: of v under q.
        residual: r of the rows it was fitted to.
    """

    kernel: Any
    basis: Basis
    weight_mean: np.ndarray
    weight_covariance: np.ndarray
    residual: np.ndarray

    ARRAYS: ClassVar[tuple[str, ...]] = (*FitResult.ARRAYS, "weight_mean", "weight_covariance", "residual")

    @property
    def carrier(self) -> str:
        """What carries the process, in words."""
        kind = "inducing inputs" if isinstance(self.basis, InducingInputs) else "random features"
        return f"{self.basis.width} {kind}"

    @float64
    def latent(self, X: Any) -> tuple[Any, Any]:
        """Mean and variance of the latent at the rows of X."""
        return basis_latents(self.kernel, self.basis, self.weight_mean, self.weight_covariance, X)

    @float64
    def sample(self, X: Any, key: jax.Array, draws: int) -> Any:
        """Draws of the latent at the rows of X, jointly."""
        rows = self.basis(self.kernel, X).rows
        covariance = self.basis.covariance(self.kernel, X) - rows @ rows.T + rows @ self.weight_covariance @ rows.T
        return sample_gaussian(key, rows @ self.weight_mean, covariance, draws)

    def cavities(self) -> np.ndarray:
        """(ν, τ) of every row's latent from all but one copy of its observation."""
        return add_noise_variance(super().cavities(), self.residual)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(header, arrays): what a file holds."""
        header, arrays = super().state()
        header |= {"kernel": self.kernel.spec(), "basis": type(self.basis).__name__}
        return header, arrays | {f"basis_{name}": value for name, value in self.basis.arrays().items()}

    @classmethod
    def from_state(
        cls, header: dict[str, Any], arrays: dict[str, np.ndarray], kernel_from_spec: Callable[[dict[str, Any]], Any]
    ) -> "SparseGP":
        """The model that was stored."""
        of_basis = {name.removeprefix("basis_"): value for name, value in arrays.items() if name.startswith("basis_")}
        kernel, basis = kernel_from_spec(header["kernel"]), BASES[header["basis"]].from_arrays(of_basis)
        return cls(kernel=kernel, basis=basis, **cls.fields_from_state(header, arrays))


@float64
def fit_sparse_gp(
    X: Any,
    y: Any,
    *,
    kernel: Kernel,
    factor: Factor,
    basis: Basis,
    learn_inputs: bool = False,
    sample_weight: Any = None,
    optimize: bool = True,
    free: tuple[str, ...] = (),
    deviations: Any = None,
    **search: Unpack[SearchOptions],
) -> SparseGP:
    """Fit by EP; with `optimize`, kernel parameters and the likelihood's `free` ones maximise the log evidence.

    Args:
        basis: what carries the process.
        learn_inputs: whether the search moves inducing inputs too, within the range of X.
        X, y, kernel, factor, sample_weight, optimize, free, deviations, **search: as for `fit_exact_gp`.
    """
    began = time.perf_counter()
    check_free(factor, free)
    X = np.asarray(X, float)
    if learn_inputs and not isinstance(basis, InducingInputs):
        raise TypeError(f"learn_inputs needs inducing inputs; found {type(basis).__name__}.")
    rows = PaddedRows.of(X, y, factor, sample_weight)
    low, span = X.min(axis=0), np.ptp(X, axis=0)
    shares = shares_of(basis.inputs, low, span) if isinstance(basis, InducingInputs) and learn_inputs else np.zeros(0)
    space = SearchSpace(kernel.theta, kernel.bounds, rows.factor, free, deviations, shares)

    def moved(others: np.ndarray) -> Basis:
        return InducingInputs(low + span * others.reshape(-1, span.size)) if learn_inputs else basis

    def build(theta: np.ndarray, factor: Factor, others: np.ndarray) -> Problem:
        return basis_problem(rows, moved(others), kernel.with_theta(theta), factor)

    def gradient(theta: np.ndarray, others: np.ndarray, solution: Solution) -> tuple[Any, Any]:
        if not theta.size and not learn_inputs:
            return theta, others
        pull = spanned_gradient(solution.problem, solution.q, solution.sites[0], power=solution.method.power)
        by_theta, by_basis = moved(others).pullback(kernel.with_theta(theta), rows.X, pull)
        if learn_inputs and isinstance(by_basis, InducingInputs):
            return by_theta, np.ravel(span * np.asarray(by_basis.inputs))
        return by_theta, others

    check_finite_rows("kernel(X)", build(space.theta, space.likelihood(space.start), space.others).prior.rows)
    found = fit_evidence(space, build, gradient, optimize=optimize, **search)
    solution = found.solution
    (group,) = solution.problem.groups
    left_out = rows.multiplicity * (np.asarray(group.multiplicity[: rows.count]) == 0)
    latent = solution.view("latent_mean"), solution.view("latent_variance")
    return SparseGP(
        kernel=kernel.with_theta(found.theta),
        basis=moved(found.others),
        factor=inner(found.factor),
        weight_mean=np.array(solution.q.mean),
        weight_covariance=np.array(solution.q.covariance),
        residual=np.array(group.data[1][: rows.count]),
        **result_fields(solution, left_out, latent, found.history, time.perf_counter() - began),
    )


def shares_of(inputs: Any, low: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Inducing inputs as shares of the range of X, one flat vector: the search wants numbers without a unit."""
    share = (np.asarray(inputs) - low) / np.where(span > 0, span, 1.0)
    return np.clip(share, 0.0, 1.0).ravel()
