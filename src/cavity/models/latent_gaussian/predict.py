"""Predictions of latent Gaussian models: the latent at new inputs, and what the likelihood makes of it (5.7)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cavity._core import checks
from cavity._core.precision import float64, to_numpy
from cavity._core.pytrees import register
from cavity.inference.problem import Problem
from cavity.inference.solution import ModelSolution, Solution
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
