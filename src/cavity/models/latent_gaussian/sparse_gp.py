"""The low-rank machine: a latent Gaussian model carried by a basis, f = a(x)ᵀv + e, fitted, ready to predict."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.factors.base import Factor
from cavity.factors.convolved import GaussianConvolved, add_noise_variance
from cavity.factors.tempered import Tempered
from cavity.families.gaussian import Gaussian
from cavity.inference.methods import Method
from cavity.inference.problem import Problem, SiteGroup, as_mask
from cavity.inference.solution import Solution
from cavity.kernels import Basis, InducingInputs, Kernel, RandomFeatures
from cavity.models.latent_gaussian.build import check_finite_rows, standard_prior, weight_schedule
from cavity.models.latent_gaussian.evidence_search import Search, Watch, final_fit
from cavity.models.latent_gaussian.fit_result import (
    Accounted,
    FitResult,
    account,
    account_from_state,
    account_state,
    factor_from_spec,
    factor_spec,
)
from cavity.models.latent_gaussian.gradient import likelihood_gradient, spanned_gradient
from cavity.models.latent_gaussian.hyperparameters import Hyperparameters
from cavity.models.latent_gaussian.padding import bucket, padded, padded_with_zeros
from cavity.models.latent_gaussian.parameters import as_numbers, check_free, unpack
from cavity.moments.closed_form import ClosedForm
from cavity.posteriors.weight_gaussian import WeightGaussian

#: bases that may be named in a file
BASES: dict[str, type[Basis]] = {"InducingInputs": InducingInputs, "RandomFeatures": RandomFeatures}
#: rows predicted at a time
CHUNK = 8192


@dataclasses.dataclass(frozen=True)
class SparseGP(Accounted):
    """f = a(x)ᵀv + e observed through `factor`; q(v) = N(weight_mean, weight_covariance), e ~ N(0, r(x)) as before.

    `account` speaks of g = aᵀv, which the sites see; residual: r of the rows it was fitted to.
    """

    kernel: Any
    basis: Basis
    factor: Factor
    weight_mean: np.ndarray
    weight_covariance: np.ndarray
    residual: np.ndarray
    account: FitResult

    @float64
    def latent(self, X: Any) -> tuple[Any, Any]:
        """Mean and variance of the latent at the rows of X."""
        parts = []
        for start in range(0, len(X), CHUNK):
            rows = np.asarray(X[start : start + CHUNK], float)
            spanned = self.basis(self.kernel, padded(rows, bucket(len(rows))))
            found = latent_moments(*spanned, self.weight_mean, self.weight_covariance)
            parts.append([np.asarray(part)[: len(rows)] for part in found])
        mean, variance = (np.concatenate(column) for column in zip(*parts, strict=True))
        return mean, variance

    @float64
    def sample(self, X: Any, key: jax.Array, draws: int) -> Any:
        """Draws of the latent at the rows of X, jointly."""
        rows = self.basis(self.kernel, X).rows
        covariance = self.basis.covariance(self.kernel, X) - rows @ rows.T + rows @ self.weight_covariance @ rows.T
        values, vectors = jnp.linalg.eigh(covariance)
        noise = jax.random.normal(key, (draws, len(X)), dtype=float)
        return rows @ self.weight_mean + (noise * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T

    def cavities(self) -> np.ndarray:
        """(ν, τ) of every row's latent from all but one copy of its observation."""
        return add_noise_variance(self.account.cavities(), self.residual)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(header, arrays): what a file holds."""
        header, arrays = account_state(self.account)
        header |= {
            "kernel": self.kernel.spec(),
            "factor": factor_spec(self.factor),
            "basis": type(self.basis).__name__,
        }
        own = {name: getattr(self, name) for name in ("weight_mean", "weight_covariance", "residual")}
        return header, arrays | own | {f"basis_{name}": value for name, value in self.basis.arrays().items()}

    @classmethod
    def from_state(
        cls, header: dict[str, Any], arrays: dict[str, np.ndarray], kernel_from_spec: Callable[[dict[str, Any]], Any]
    ) -> "SparseGP":
        """The machine that was stored."""
        of_basis = {name.removeprefix("basis_"): value for name, value in arrays.items() if name.startswith("basis_")}
        return cls(
            kernel=kernel_from_spec(header["kernel"]),
            basis=BASES[header["basis"]].from_arrays(of_basis),
            factor=factor_from_spec(header["factor"]),
            account=account_from_state(header, arrays),
            **{name: arrays[name] for name in ("weight_mean", "weight_covariance", "residual")},
        )


@float64
def fit_sparse_gp(
    X: Any,
    y: Any,
    *,
    kernel: Kernel,
    factor: Factor,
    basis: Basis,
    learn_inputs: bool = False,
    copies: Any = None,
    exponents: Any = None,
    method: Method | None = None,
    optimize: bool = True,
    free: tuple[str, ...] = (),
    deviations: Any = None,
    restarts: int = 0,
    seed: int = 0,
    progress: Callable[..., Any] | None = None,
    watch: Watch = None,
) -> SparseGP:
    """Fit by EP; with `optimize`, kernel parameters and the likelihood's `free` ones maximise the log evidence.

    learn_inputs: whether the search moves inducing inputs too, within the range of X.
    Everything else is as in `fit_exact_gp`.
    """
    began = time.perf_counter()
    check_free(factor, free)
    X = np.asarray(X, float)
    if learn_inputs and not isinstance(basis, InducingInputs):
        raise TypeError(f"learn_inputs needs inducing inputs; found {type(basis).__name__}.")
    rows = LowRankRows.of(X, y, copies, exponents, factor)
    low, span = X.min(axis=0), np.ptp(X, axis=0)
    shares = shares_of(basis.inputs, low, span) if isinstance(basis, InducingInputs) and learn_inputs else np.zeros(0)
    hyper = Hyperparameters(kernel, rows.term, free, deviations, shares)

    def split(vector: np.ndarray) -> tuple[Kernel, np.ndarray, Basis]:
        own, likelihood, shares = hyper.split(vector)
        moved = InducingInputs(low + span * shares.reshape(-1, span.size)) if learn_inputs else basis
        return kernel.with_theta(own), likelihood, moved

    def build(vector: np.ndarray) -> Problem:
        own, likelihood, moved = split(vector)
        return rows.problem(unpack(rows.term, free, likelihood), moved, own)

    def slope(vector: np.ndarray, solution: Solution) -> np.ndarray:
        own, likelihood, moved = split(vector)
        found, power = (solution.problem, solution.q, solution.sites[0]), solution.method.power
        theta, inputs = np.zeros(0), np.zeros(0)
        if kernel.theta.size or learn_inputs:
            theta, pull = moved.pullback(own, rows.X, spanned_gradient(*found, power=power))
            inputs = np.ravel(span * np.asarray(pull.inputs)) if isinstance(pull, InducingInputs) else inputs
        likely = likelihood_gradient(*found, free, jnp.asarray(likelihood), power) if free else np.zeros(0)
        return np.concatenate([np.asarray(theta), np.asarray(likely), inputs[: hyper.others.size]])

    check_finite_rows("kernel(X)", build(hyper.start).prior.rows)
    search = Search(build, slope, method, hyper.log_prior, progress)
    vector, solution = final_fit(
        search, hyper.start, hyper.limits, optimize=optimize, restarts=restarts, seed=seed, watch=watch
    )
    own, likelihood, moved = split(vector)
    return rows.machine(solution, own, moved, as_numbers(unpack(rows.term, free, likelihood)), search.history, began)


def shares_of(inputs: Any, low: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Inducing inputs as shares of the range of X, one flat vector: the search wants numbers without a unit."""
    share = (np.asarray(inputs) - low) / np.where(span > 0, span, 1.0)
    return np.clip(share, 0.0, 1.0).ravel()


@dataclasses.dataclass(frozen=True)
class LowRankRows:
    """Rows padded to a bucket, with what is observed of them. Padding has no copies."""

    X: np.ndarray
    data: Any
    term: Factor
    copies: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, y: Any, copies: Any, exponents: Any, factor: Factor) -> "LowRankRows":
        n, size = len(X), bucket(len(X))
        copies = np.ones(n) if copies is None else np.asarray(copies, float)
        term = factor if exponents is None else Tempered(factor)
        data = padded(y if exponents is None else (y, exponents), size)
        return cls(padded(X, size), data, term, copies)

    def problem(self, term: Factor, basis: Basis, kernel: Kernel) -> Problem:
        """The rows under a basis. A latent of no variance is 0 whatever is observed: it has no copies here."""
        spanned = basis(kernel, self.X)
        some = np.asarray(jnp.any(spanned.rows != 0, axis=1))
        held = np.where(some, padded_with_zeros(self.copies, len(self.X)), 0.0)
        group = SiteGroup(
            GaussianConvolved(as_numbers(term)),
            (self.data, spanned.residual),
            Gaussian(),
            ClosedForm(),
            multiplicity=as_mask(held),
        )
        rows = jnp.where(some[:, None], spanned.rows, 1.0)
        return Problem(standard_prior(rows), (group,), WeightGaussian(), schedule=weight_schedule(*rows.shape))

    def machine(
        self, solution: Solution, kernel: Kernel, basis: Basis, factor: Factor, history: list[Any], began: float
    ) -> SparseGP:
        """The machine a solution for these rows makes."""
        n = len(self.copies)
        (group,) = solution.problem.groups
        left_out = self.copies * (np.asarray(group.multiplicity[:n]) == 0)
        latent = solution.view("latent_mean"), solution.view("latent_variance")
        return SparseGP(
            kernel=kernel,
            basis=basis,
            factor=factor,
            weight_mean=np.array(solution.q.mean),
            weight_covariance=np.array(solution.q.covariance),
            residual=np.array(group.data[1][:n]),
            account=account(solution, n, latent, left_out, history, time.perf_counter() - began),
        )


@jax.jit
def latent_moments(
    rows: jax.Array, residual: jax.Array, mean: jax.Array, covariance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean aᵀm and variance aᵀV a + r of latents."""
    return rows @ mean, jnp.maximum(jnp.sum((rows @ covariance) * rows, axis=1), 0.0) + residual
