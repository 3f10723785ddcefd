"""The kernel machine: a latent Gaussian model with a covariance function, fitted, ready to predict."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64, is_far
from cavity._core.threads import one_blas_thread
from cavity.factors.base import Factor
from cavity.factors.tempered import Tempered
from cavity.families.gaussian import Gaussian
from cavity.inference.methods import Method
from cavity.inference.problem import Problem, SiteGroup, as_mask
from cavity.inference.solution import Solution
from cavity.models.latent_gaussian.build import check_covariance, check_kernel_room, kernel_schedule
from cavity.models.latent_gaussian.evidence_search import Mapped, Search, Watch, final_fit
from cavity.models.latent_gaussian.fit_result import (
    Accounted,
    FitResult,
    account,
    account_from_state,
    account_state,
    factor_from_spec,
    factor_spec,
)
from cavity.models.latent_gaussian.gradient import covariance_gradient, likelihood_gradient
from cavity.models.latent_gaussian.hyperparameters import Hyperparameters
from cavity.models.latent_gaussian.padding import bucket, padded, padded_with_zeros
from cavity.models.latent_gaussian.parameters import as_numbers, check_free, unpack
from cavity.moments.closed_form import ClosedForm
from cavity.posteriors.dense_algebra import KernelPrior, response
from cavity.posteriors.dense_gaussian import DenseGaussian

#: rows predicted at a time
CHUNK = 1024


@dataclasses.dataclass(frozen=True)
class ExactGP(Accounted):
    """f ~ GP(0, kernel) observed through `factor` at the rows of X. `alpha`: the latent's mean is k(x, X) alpha."""

    X: np.ndarray
    kernel: Any
    factor: Factor
    copies: np.ndarray
    alpha: np.ndarray
    account: FitResult

    @float64
    def latent(self, X: Any) -> tuple[Any, Any]:
        """Mean and variance of the latent at the rows of X."""
        alpha, matrix, signs = self._response()
        known = padded(self.X, alpha.size)
        parts = []
        for start in range(0, len(X), CHUNK):
            rows = np.asarray(X[start : start + CHUNK], float)
            filled = padded(rows, bucket(len(rows)))
            cross = jnp.asarray(self.kernel(filled, known))
            diagonal = jnp.asarray(self.kernel.diagonal(filled))
            parts.append([np.asarray(part)[: len(rows)] for part in conditioned(cross, diagonal, alpha, matrix, signs)])
        mean, variance = (np.concatenate(column) for column in zip(*parts, strict=True))
        return mean, variance

    @float64
    def sample(self, X: Any, key: jax.Array, draws: int) -> Any:
        """Draws of the latent at the rows of X, jointly."""
        alpha, matrix, signs = self._response()
        cross = jnp.asarray(self.kernel(X, padded(self.X, alpha.size)))
        spread = cross @ matrix
        covariance = jnp.asarray(self.kernel(X)) - (spread * signs) @ spread.T
        values, vectors = jnp.linalg.eigh(covariance)
        noise = jax.random.normal(key, (draws, len(X)), dtype=float)
        return cross @ alpha + (noise * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T

    @float64
    def _response(self) -> tuple[Any, Any, Any]:
        """(α, G, signs) padded, computed once: the rest of what prediction needs follows from sites and kernel."""
        known = self.__dict__.get("_known")
        if known is None:
            size = bucket(len(self.X))
            prior, held = prior_matrix(self.kernel, padded(self.X, size), self.copies)
            sites = padded_with_zeros(self.account.sites, size) * held[:, None]
            known = jnp.asarray(padded_with_zeros(self.alpha, size)), *response(prior, jnp.asarray(sites))
            object.__setattr__(self, "_known", known)
        return known

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(header, arrays): what a file holds."""
        header, arrays = account_state(self.account)
        header |= {"kernel": self.kernel.spec(), "factor": factor_spec(self.factor)}
        return header, arrays | {"X": self.X, "copies": self.copies, "alpha": self.alpha}

    @classmethod
    def from_state(
        cls, header: dict[str, Any], arrays: dict[str, np.ndarray], kernel_from_spec: Callable[[dict[str, Any]], Any]
    ) -> "ExactGP":
        """The machine that was stored."""
        kernel, factor = kernel_from_spec(header["kernel"]), factor_from_spec(header["factor"])
        own = account_from_state(header, arrays)
        return cls(arrays["X"], kernel, factor, arrays["copies"], arrays["alpha"], own)


@float64
@one_blas_thread()
def fit_exact_gp(
    X: Any,
    y: Any,
    *,
    kernel: Any,
    factor: Factor,
    copies: Any = None,
    exponents: Any = None,
    method: Method | None = None,
    optimize: bool = True,
    free: tuple[str, ...] = (),
    deviations: Any = None,
    restarts: int = 0,
    seed: int = 0,
    mapped: Mapped = map,
    progress: Callable[..., Any] | None = None,
    watch: Watch = None,
) -> ExactGP:
    """Fit by EP; with `optimize`, kernel parameters and the likelihood's `free` ones maximise the log evidence.

    method: None is `Auto()` (`account.method` says what answered); any other is used alone.
    copies: how many equal observations a row stands for. exponents: the power its factor is raised to.
    deviations: of a normal prior on the kernel's theta around its start, one a number; None or infinite: flat.
    mapped: makes the searches from all starts, `map` or what does the same elsewhere, as `cavity.distributed.map` does.
    progress: called with every `Evaluation` of the search. watch: called after every sweep of the last run.
    """
    began = time.perf_counter()
    check_free(factor, free)
    n, size = len(X), bucket(len(X))
    check_kernel_room(size)
    rows = padded(np.asarray(X, float), size)
    check_kernel(kernel, rows, n, "kernel(X)")
    copies = np.ones(n) if copies is None else np.asarray(copies, float)
    term: Factor = factor if exponents is None else Tempered(factor)
    data = padded(y if exponents is None else (y, exponents), size)

    hyper = Hyperparameters(kernel, term, free, deviations)

    def build(vector: np.ndarray) -> Problem:
        own, likelihood, _ = hyper.split(vector)
        prior, held = prior_matrix(kernel.with_theta(own), rows, copies)
        group = SiteGroup(
            as_numbers(unpack(term, free, likelihood)),
            data,
            Gaussian(),
            ClosedForm(),
            multiplicity=as_mask(held),
        )
        return Problem(prior, (group,), DenseGaussian(), schedule=kernel_schedule(size))

    def slope(vector: np.ndarray, solution: Solution) -> np.ndarray:
        own, likelihood, _ = hyper.split(vector)
        parts = [np.zeros(0)]
        if own.size:
            # What does not take part has no weight here: padding adds nothing.
            pull = covariance_gradient(solution.problem, solution.q, solution.sites[0])
            parts.append(np.asarray(kernel.with_theta(own).pullback(rows, pull)))
        if free:
            power = solution.method.power
            found = likelihood_gradient(
                solution.problem, solution.q, solution.sites[0], free, jnp.asarray(likelihood), power
            )
            parts.append(np.asarray(found))
        return np.concatenate(parts)

    search = Search(build, slope, method, hyper.log_prior, progress)
    vector, solution = final_fit(
        search, hyper.start, hyper.limits, optimize=optimize, restarts=restarts, seed=seed, watch=watch, mapped=mapped
    )
    own, likelihood, _ = hyper.split(vector)
    if search.history:
        check_kernel(kernel.with_theta(own), rows, n, "kernel_(X), where the search ended,")
    fitted = as_numbers(unpack(term, free, likelihood))
    left_out = copies * (np.asarray(solution.problem.groups[0].multiplicity[:n]) == 0)
    latent = solution.mean, solution.variance
    kept = account(solution, n, latent, left_out, search.history, time.perf_counter() - began)
    return ExactGP(np.array(X, float), kernel.with_theta(own), fitted, copies, np.array(solution.q.weights[:n]), kept)


def check_kernel(kernel: Any, rows: np.ndarray, n: int, name: str) -> None:
    """Refuse a kernel that is not positive semi-definite on those of the first n rows that have any variance."""
    k = kernel(rows)
    k = (k if is_far(k) else np.asarray(k))[:n, :n]
    some = np.asarray(k.diagonal()) != 0
    if some.any():
        check_covariance(name, k if some.all() else k[np.ix_(some, some)])


def prior_matrix(kernel: Any, X: np.ndarray, copies: np.ndarray) -> tuple[KernelPrior, np.ndarray]:
    """K of padded rows, and the copies that take part, 0 for padding: `copies` are those of the rows before it.

    A latent of no prior variance is 0 whatever is observed: its row is replaced like padding by an independent latent,
    and what is observed of it joins the evidence as a constant.
    """
    k, taken = with_independent(jnp.asarray(kernel(X)), np.arange(len(X)) < len(copies))
    return KernelPrior(k), np.where(taken, padded_with_zeros(copies, len(X)), 0.0)


@jax.jit
def with_independent(k: jax.Array, real: jax.Array) -> tuple[jax.Array, jax.Array]:
    """K with independent latents of variance 1 for padding and for those of no variance, and which are neither."""
    taken = real & (jnp.diagonal(k) > 0)
    return jnp.where(taken[:, None] & taken, k, jnp.eye(taken.size)), taken


@jax.jit
def conditioned(
    cross: jax.Array, variance: jax.Array, alpha: jax.Array, matrix: jax.Array, signs: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean c α and variance k − Σ signs (c G)² of latents with prior variances k and covariances c."""
    return cross @ alpha, jnp.maximum(variance - jnp.sum(signs * (cross @ matrix) ** 2, axis=1), 0.0)
