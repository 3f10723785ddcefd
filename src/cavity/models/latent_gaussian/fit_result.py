"""Fitted models: how a fit ended, what each row said, what it predicts, and the parameters a file keeps."""

import dataclasses
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity import factors
from cavity._core import checks
from cavity._core.precision import float64
from cavity.factors.base import Factor
from cavity.families.gaussian import Gaussian
from cavity.inference.solution import Solution
from cavity.inference.status import Result, Status
from cavity.kernels import Basis
from cavity.models.latent_gaussian.hyperparameters import as_numbers, inner
from cavity.models.latent_gaussian.rows import bucket, padded
from cavity.posteriors.dense_gaussian import response

#: rows predicted at a time: with all training rows, and with a basis
CHUNK, CHUNK_OF_BASIS = 1024, 8192

#: mean and variance of latents
Latents = tuple[np.ndarray, np.ndarray]


class DenseResponse(NamedTuple):
    """What prediction needs of a posterior over latents: α, with mean = K α, and (K + S⁻¹)⁻¹ = G diag(signs) Gᵀ."""

    alpha: jax.Array
    matrix: jax.Array
    signs: jax.Array


@jax.jit
def conditioned_latents(cross: jax.Array, variance: jax.Array, known: DenseResponse) -> tuple[jax.Array, jax.Array]:
    """Mean c α and variance k − Σ signs (c G)² of latents with prior variances k and covariances c."""
    explained = jnp.sum(known.signs * (cross @ known.matrix) ** 2, axis=1)
    return cross @ known.alpha, jnp.maximum(variance - explained, 0.0)


@jax.jit
def spanned_latents(
    rows: jax.Array, residual: jax.Array, mean: jax.Array, covariance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean aᵀm and variance aᵀV a + r of latents aᵀv + e."""
    return rows @ mean, jnp.maximum(jnp.sum((rows @ covariance) * rows, axis=1), 0.0) + residual


def in_chunks(latents: Callable[[np.ndarray], Any], X: Any, size: int) -> Latents:
    """Mean and variance of the latents at the rows of X, from a function of so many rows that are padded."""
    parts = []
    for start in range(0, len(X), size):
        rows = np.asarray(X[start : start + size], float)
        found = latents(padded(rows, bucket(len(rows))))
        parts.append((np.asarray(found[0])[: len(rows)], np.asarray(found[1])[: len(rows)]))
    means, variances = map(np.concatenate, zip(*parts, strict=True))
    return means, variances


def kernel_latents(kernel: Any, inputs: Any, known: DenseResponse, X: Any) -> Latents:
    """Mean and variance at the rows of X of a process that was observed at the inputs."""
    inputs = padded(inputs, known.alpha.size)

    def latents(rows: np.ndarray) -> Any:
        return conditioned_latents(jnp.asarray(kernel(rows, inputs)), jnp.asarray(kernel.diagonal(rows)), known)

    return in_chunks(latents, X, CHUNK)


def basis_latents(kernel: Any, basis: Basis, mean: Any, covariance: Any, X: Any) -> Latents:
    """Mean and variance at the rows of X of a process that a basis carries; of its weights under q."""
    return in_chunks(lambda rows: spanned_latents(*basis(kernel, rows), mean, covariance), X, CHUNK_OF_BASIS)


def weight_latents(mean: Any, covariance: Any, X: Any) -> Latents:
    """Mean and variance of wᵀx for the rows x of X."""
    X = np.asarray(X, float)
    return X @ mean, np.maximum(np.einsum("ij,ij->i", X @ covariance, X), 0.0)


class FromWeights(NamedTuple):
    """f = wᵀx."""

    def latents(self, solution: Solution, X: Any) -> Latents:
        """At the rows of X."""
        rows, mean = checks.array("X", X, (2,)), np.asarray(solution.q.mean)
        check_columns(rows, mean.size)
        return weight_latents(mean, np.asarray(solution.q.covariance), rows)


class FromKernelMatrix(NamedTuple):
    """Covariances with new latents are given by the user."""

    def latents(self, solution: Solution, cross: Any, variance: Any = None) -> Latents:
        """Latents of these prior variances, whose covariances with the training latents are the rows of `cross`."""
        if variance is None:
            raise ValueError(
                "A model made from a kernel_matrix predicts by predict(cross, variance): covariances of the new "
                "latents with the training latents, one row each, and their prior variances."
            )
        cross, variance = checks.array("cross", cross, (2,)), checks.array("variance", variance, (1,))
        known, n = dense_response(solution), solution.problem.groups[0].size
        if cross.shape != (variance.size, n):
            raise ValueError(f"cross must have shape ({variance.size}, {n}); found {cross.shape}.")
        wide = np.pad(cross, ((0, 0), (0, known.alpha.size - n)))
        size = bucket(len(variance))
        mean, spread = conditioned_latents(padded(wide, size), padded(variance, size), known)
        return np.asarray(mean)[: len(variance)], np.asarray(spread)[: len(variance)]


class FromKernel(NamedTuple):
    """Covariances with new latents come from a kernel and the training inputs."""

    kernel: Any
    inputs: Any

    def latents(self, solution: Solution, X: Any) -> Latents:
        """At the rows of X."""
        rows = checks.array("X", X, (2,))
        check_columns(rows, self.inputs.shape[1])
        return kernel_latents(self.kernel, self.inputs, dense_response(solution), rows)


class FromBasis(NamedTuple):
    """f = a(x)ᵀv + e: a basis carries the process, and what it leaves out stays as it was."""

    kernel: Any
    basis: Any

    def latents(self, solution: Solution, X: Any) -> Latents:
        """At the rows of X."""
        q = solution.q
        return basis_latents(self.kernel, self.basis, q.mean, q.covariance, checks.array("X", X, (2,)))


def check_columns(rows: Any, columns: int) -> None:
    """Refuse inputs that are not like those of training."""
    if rows.shape[1] != columns:
        raise ValueError(f"X must have {columns} columns, as in training; found {rows.shape[1]}.")


def dense_response(solution: Any) -> DenseResponse:
    """The response of the posterior as it was run, padding included."""
    run: Solution = solution.as_run
    (group,), (sites,) = run.problem.groups, run.sites
    return DenseResponse(
        jnp.asarray(run.q.weights), *response(run.problem.prior, group.copies[:, None] * jnp.asarray(sites))
    )


@float64
def factor_predictions(factor: Factor, mean: np.ndarray, variance: np.ndarray) -> dict[str, np.ndarray]:
    """What the likelihood predicts from latents."""
    size = bucket(len(mean))
    found = compiled_prediction(factor, padded(mean, size), padded(variance, size))
    return jax.tree.map(itemgetter(slice(len(mean))), jax.tree.map(np.asarray, found))


@jax.jit
def compiled_prediction(factor: Any, mean: jax.Array, variance: jax.Array) -> dict[str, jax.Array]:
    return factor.predict(mean, variance)


@float64
def log_predictive(factor: Factor, cavities: np.ndarray, data: np.ndarray) -> Any:
    """log ∫ t(f; y) cavity(f) df, a cavity (ν, τ) and a y per row; −∞ where the cavity is improper."""
    proper = cavities[:, 1] > 0
    safe = np.where(proper[:, None], cavities, [0.0, 1.0])
    size = bucket(len(data))
    found = np.asarray(compiled_log_z(factor, padded(safe, size), padded(np.asarray(data, float), size)))
    return np.where(proper, found[: len(data)], -np.inf)


@jax.jit
def compiled_log_z(factor: Factor, cavities: jax.Array, data: jax.Array) -> jax.Array:
    def log_z(cavity: jax.Array, datum: jax.Array) -> jax.Array:
        return factor.tilted(Gaussian(), cavity, datum, 1.0).log_z

    return jax.vmap(log_z)(cavities, data)


#: precision that stands for a latent without variance
POINT = 1e24
#: likelihoods that may be named in a file
LIKELIHOODS = ("Step", "Probit", "Logistic", "Gaussian", "StudentT", "Poisson", "OrdinalProbit")


@dataclasses.dataclass(eq=False, kw_only=True)
class FitResult(Result):
    """How a model was fitted. A fitted model is one of these, with what it needs to predict.

    Attributes:
        factor: the likelihood, with the values learned.
        status: how the fit ended.
        method: the method that answered, in words.
        log_evidence: estimate of log p(y).
        mismatch: the largest moment mismatch over all sites.
        sweeps: of the last run.
        residuals: the largest mismatch met, sweep by sweep.
        seconds: wall time of the fit.
        history: the points of the evidence search, in the order they were tried; of a stream its passes, with the rows
            each has read and from where it was resumed.
        sites: natural parameters (ν, τ) of one copy of every row's site; none where single rows are not kept, as of
            streams, and then the next three have no entries either.
        loo_log_predictive: log p(yᵢ | the others).
        latent_mean: of every row.
        latent_variance: of every row.
    """

    factor: Factor
    status: Status
    method: str
    log_evidence: float
    mismatch: float
    sweeps: int
    residuals: np.ndarray
    seconds: float
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    sites: np.ndarray = dataclasses.field(default_factory=partial(np.zeros, (0, 2)))
    loo_log_predictive: np.ndarray = dataclasses.field(default_factory=partial(np.zeros, 0))
    latent_mean: np.ndarray = dataclasses.field(default_factory=partial(np.zeros, 0))
    latent_variance: np.ndarray = dataclasses.field(default_factory=partial(np.zeros, 0))

    #: fields that a file keeps as arrays, and those that go into its header
    ARRAYS: ClassVar[tuple[str, ...]] = ("residuals", "sites", "loo_log_predictive", "latent_mean", "latent_variance")
    NUMBERS: ClassVar[tuple[str, ...]] = ("method", "log_evidence", "sweeps", "seconds", "history")

    def latent(self, X: Any) -> tuple[Any, Any]:
        """Mean and variance of the latent at the rows of X."""
        raise NotImplementedError

    def predict(self, X: Any) -> dict[str, np.ndarray]:
        """What the likelihood predicts at the rows of X."""
        return factor_predictions(self.factor, *self.latent(X))

    def cavities(self) -> np.ndarray:
        """(ν, τ) of every row's latent from all but one copy of its observation."""
        fixed = self.latent_variance <= 0  # a latent that is 0 whatever is observed
        variance = np.where(fixed, np.finfo(float).tiny, self.latent_variance)
        marginals = np.stack([self.latent_mean, np.ones_like(variance)], axis=1) / variance[:, None]
        return marginals - np.where(fixed[:, None], 0.0, self.sites)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(header, arrays): what a file holds; a mismatch, which may be infinite, is kept as text."""
        header = {name: getattr(self, name) for name in self.NUMBERS}
        header |= {"mismatch": repr(self.mismatch), "status": str(self.status), "factor": factor_spec(self.factor)}
        return header, {name: np.asarray(getattr(self, name)) for name in self.ARRAYS}

    @classmethod
    def fields_from_state(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        """The fields of what `state` wrote, by name."""
        fields: dict[str, Any] = {name: header[name] for name in cls.NUMBERS} | {
            name: arrays[name] for name in cls.ARRAYS
        }
        fields |= {"mismatch": float(header["mismatch"]), "status": Status(header["status"])}
        return fields | {"factor": factor_from_spec(header["factor"])}


def result_fields(
    solution: Solution, left_out: np.ndarray, latent: tuple[Any, Any], history: list[Any], seconds: float
) -> dict[str, Any]:
    """The fields of a `FitResult` for a solution whose first sites are the rows; the others are padding.

    Args:
        solution: of the padded problem.
        left_out: (n,), the multiplicity of rows that have no site because their latent is fixed at 0. They join
            evidence and predictions with the likelihood there.
        latent: mean and variance of the latents of all sites.
        history: the points of the search.
        seconds: since the fit began.
    """
    rows, (group,) = len(left_out), solution.problem.groups
    loo, mean, variance = np.array([solution.loo_log_predictive[0][:rows], latent[0][:rows], latent[1][:rows]])
    constant = 0.0
    if (fixed := left_out > 0).any():
        known = log_likelihood_at_zero(group.factor, group.data)[:rows]
        constant = float(left_out[fixed] @ known[fixed])
        loo[fixed], mean[fixed], variance[fixed] = known[fixed], 0.0, 0.0
    return {
        "status": solution.status,
        "method": str(solution.method),
        "log_evidence": float(solution.log_evidence) + constant,
        "mismatch": float(solution.mismatch),
        "sweeps": int(solution.sweeps),
        "residuals": np.asarray(solution.residuals),
        "seconds": seconds,
        "history": history,
        "sites": np.array(solution.sites[0][:rows]),
        "loo_log_predictive": loo,
        "latent_mean": mean,
        "latent_variance": variance,
    }


@float64
def log_likelihood_at_zero(factor: Factor, data: Any) -> np.ndarray:
    """log likelihood of every row for a latent at 0: the limit of ever narrower ones, ½ for a step."""
    cavity = jnp.array([0.0, POINT])
    return np.asarray(jax.vmap(lambda own: factor.tilted(Gaussian(), cavity, own, 1.0).log_z)(data))


def factor_spec(factor: Factor) -> dict[str, Any]:
    """The likelihood by name and parameters."""
    likelihood = as_numbers(inner(factor))
    name = type(likelihood).__name__
    if name not in LIKELIHOODS or type(likelihood) is not getattr(factors, name):
        raise TypeError(
            f"A model with the likelihood {name} cannot be stored; those that can: {', '.join(LIKELIHOODS)}."
        )
    values = {f.name: getattr(likelihood, f.name) for f in dataclasses.fields(likelihood)}  # type: ignore[arg-type]
    return {"class": name, **{key: np.asarray(value).tolist() for key, value in values.items()}}


def factor_from_spec(spec: dict[str, Any]) -> Factor:
    """The likelihood of a spec, its vectors, lists in JSON, arrays again; only likelihoods of this library."""
    name = spec.get("class")
    if name not in LIKELIHOODS:
        raise ValueError(f"There is no likelihood {name!r}; there are {', '.join(LIKELIHOODS)}.")
    given = {key: np.asarray(value, float) if isinstance(value, list) else value for key, value in spec.items()}
    del given["class"]
    return getattr(factors, name)(**given)
