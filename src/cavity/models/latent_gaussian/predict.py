"""Predictions of latent Gaussian models: the latent at new inputs, and what the likelihood makes of it (5.7).

Everything here is padded to few sizes, so that few programs are compiled.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64
from cavity.factors.base import Factor
from cavity.families.gaussian import Gaussian
from cavity.inference.solution import Solution
from cavity.kernels import Basis
from cavity.models.latent_gaussian.rows import bucket, padded
from cavity.posteriors.dense_algebra import response

#: rows predicted at a time: with all training rows, and with a basis
CHUNK, CHUNK_OF_BASIS = 1024, 8192

#: mean and variance of latents
Latents = tuple[np.ndarray, np.ndarray]


class DenseResponse(NamedTuple):
    """What prediction needs of a posterior over latents: α, with mean = K α, and (K + S⁻¹)⁻¹ = G diag(signs) Gᵀ."""

    alpha: jax.Array
    matrix: jax.Array
    signs: jax.Array

    @classmethod
    def of(cls, prior: Any, alpha: Any, sites: Any) -> "DenseResponse":
        """Of a prior over the latents and their sites (ν, τ), all copies together."""
        return cls(jnp.asarray(alpha), *response(prior, jnp.asarray(sites)))


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


def kernel_latents(kernel: Any, inputs: Any, known: DenseResponse, X: Any) -> Latents:
    """Mean and variance at the rows of X of a process that was observed at the inputs."""
    inputs = padded(inputs, known.alpha.size)
    parts = []
    for start in range(0, len(X), CHUNK):
        rows = np.asarray(X[start : start + CHUNK], float)
        filled = padded(rows, bucket(len(rows)))
        found = conditioned_latents(jnp.asarray(kernel(filled, inputs)), jnp.asarray(kernel.diagonal(filled)), known)
        parts.append((np.asarray(found[0])[: len(rows)], np.asarray(found[1])[: len(rows)]))
    return together(parts)


def basis_latents(kernel: Any, basis: Basis, mean: Any, covariance: Any, X: Any) -> Latents:
    """Mean and variance at the rows of X of a process that a basis carries; of its weights under q."""
    parts = []
    for start in range(0, len(X), CHUNK_OF_BASIS):
        rows = np.asarray(X[start : start + CHUNK_OF_BASIS], float)
        found = spanned_latents(*basis(kernel, padded(rows, bucket(len(rows)))), mean, covariance)
        parts.append((np.asarray(found[0])[: len(rows)], np.asarray(found[1])[: len(rows)]))
    return together(parts)


def weight_latents(mean: Any, covariance: Any, X: Any) -> Latents:
    """Mean and variance of wᵀx for the rows x of X."""
    X = np.asarray(X, float)
    return X @ mean, np.maximum(np.einsum("ij,ij->i", X @ covariance, X), 0.0)


def together(parts: list[Latents]) -> Latents:
    """The latents of all chunks."""
    means, variances = zip(*parts, strict=True)
    return np.concatenate(means), np.concatenate(variances)


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
    return DenseResponse.of(run.problem.prior, run.q.weights, group.copies[:, None] * jnp.asarray(sites))


@float64
def factor_predictions(factor: Factor, mean: np.ndarray, variance: np.ndarray) -> dict[str, np.ndarray]:
    """What the likelihood predicts from latents."""
    size = bucket(len(mean))
    found = compiled_prediction(factor, padded(mean, size), padded(variance, size))
    return {name: np.asarray(values)[: len(mean)] for name, values in found.items()}


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
