"""Predictions of latent Gaussian models: the latent at new inputs, and what the likelihood makes of it (5.7)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, to_numpy
from cavity._core.pytrees import register
from cavity.factors.base import Factor
from cavity.families.gaussian import Gaussian
from cavity.inference.problem import Problem
from cavity.inference.solution import ModelSolution, Solution
from cavity.models.latent_gaussian.padding import bucket, padded
from cavity.posteriors.dense_algebra import response


class Latent(NamedTuple):
    """Mean and variance of the latent at new inputs."""

    mean: Any
    variance: Any


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class LatentGaussianSolution(ModelSolution):
    """The solution of a latent Gaussian model, which predicts.

    Attributes:
        prediction: how the model comes from q to the latents of new observations.
    """

    prediction: Any

    @float64
    def predict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Mean and variance of the latent for new observations, and what the likelihood predicts from them.

        Args:
            X: rows of inputs, as in training. A model made from a `kernel_matrix` takes `cross` and `variance` instead:
                covariances of the new latents with those of training, one row each, and their prior variances.

        Returns:
            "latent_mean" and "latent_variance", then the likelihood's own, such as "probability".
        """
        return to_numpy(self.prediction.predict(self, *args, **kwargs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentGaussian(Problem):
    """A latent Gaussian model: a problem that knows how to predict. A pytree of arrays, as problems are.

    Attributes:
        prediction: how the model comes from q to the latents of new observations.
    """

    prediction: Any

    def problem(self) -> Problem:
        """The problem alone."""
        return Problem(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Problem)})

    def interpret(self, solution: Solution) -> LatentGaussianSolution:
        """The solution of this model's problem, with predictions; `infer(model)` returns it."""
        return LatentGaussianSolution.of(solution, prediction=self.prediction)


register(
    LatentGaussian,
    data_fields=["prior", "groups", "prediction"],
    meta_fields=["posterior", "schedule", "shortcut"],
)


class FromWeights(NamedTuple):
    """f = wᵀx."""

    def predict(self, solution: Solution, X: Any) -> dict[str, Any]:
        """Mean and variance of wᵀx for the rows x of X, and the likelihood's predictions."""
        q = solution.q
        rows = jnp.asarray(checks.array("X", X, (2,)))
        if rows.shape[1] != q.mean.size:
            raise ValueError(f"X must have {q.mean.size} columns, as in training; found {rows.shape[1]}.")
        return observed(solution, Latent(rows @ q.mean, jnp.sum((rows @ q.covariance) * rows, axis=1)))


class FromKernelMatrix(NamedTuple):
    """Covariances with new latents are given by the user."""

    def predict(self, solution: Solution, cross: Any, variance: Any = None) -> dict[str, Any]:
        """The latents whose prior covariances with the training latents are the rows of `cross`.

        variance: their prior variances.
        """
        if variance is None:
            raise ValueError(
                "A model made from a kernel_matrix predicts by predict(cross, variance): covariances of the new "
                "latents with the training latents, one row each, and their prior variances."
            )
        cross = jnp.asarray(checks.array("cross", cross, (2,)))
        variance = jnp.asarray(checks.array("variance", variance, (1,)))
        if cross.shape != (variance.size, solution.q.mean.size):
            raise ValueError(f"cross must have shape ({variance.size}, {solution.q.mean.size}); found {cross.shape}.")
        return observed(solution, conditioned(solution, cross, variance))


class FromKernel(NamedTuple):
    """Covariances with new latents come from a kernel and the training inputs."""

    kernel: Any
    inputs: Any

    def predict(self, solution: Solution, X: Any) -> dict[str, Any]:
        """The latents at the rows of X."""
        rows = checks.array("X", X, (2,))
        if rows.shape[1] != self.inputs.shape[1]:
            raise ValueError(f"X must have {self.inputs.shape[1]} columns, as in training; found {rows.shape[1]}.")
        cross = jnp.asarray(self.kernel(rows, self.inputs))
        return observed(solution, conditioned(solution, cross, jnp.asarray(self.kernel.diagonal(rows))))


class FromBasis(NamedTuple):
    """f = a(x)ᵀv + e: a basis carries the process, and what it leaves out stays as it was."""

    kernel: Any
    basis: Any

    def predict(self, solution: Solution, X: Any) -> dict[str, Any]:
        """The latents at the rows of X."""
        rows, residual = self.basis(self.kernel, checks.array("X", X, (2,)))
        spread = jnp.sum((rows @ solution.q.covariance) * rows, axis=1) + residual
        return observed(solution, Latent(rows @ solution.q.mean, spread))


def conditioned(solution: Solution, cross: jax.Array, variance: jax.Array) -> Latent:
    """Mean c α and variance k − c (K + S⁻¹)⁻¹ cᵀ of latents with prior variances k and covariances c."""
    (group,), (sites,) = solution.problem.groups, solution.sites
    matrix, signs = response(solution.problem.prior, group.copies[:, None] * jnp.asarray(sites))
    left = variance - jnp.sum(signs * (cross @ matrix) ** 2, axis=1)
    return Latent(cross @ jnp.asarray(solution.q.weights), jnp.maximum(left, 0.0))


def observed(solution: Solution, latent: Latent) -> dict[str, Any]:
    """Latent mean and variance, with what the likelihood predicts from them where it says so."""
    factor = solution.problem.groups[0].factor
    return {"latent_mean": latent.mean, "latent_variance": latent.variance, **factor.predict(*latent)}


@float64
def factor_predictions(factor: Factor, mean: np.ndarray, variance: np.ndarray) -> dict[str, np.ndarray]:
    """What the likelihood makes of latents, padded to few sizes so that few are compiled."""
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
