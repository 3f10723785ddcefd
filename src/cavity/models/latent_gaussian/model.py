"""A latent Gaussian model as `infer` takes it: a problem that is padded for the run, and a solution that predicts.

Another number of rows in the same bucket compiles nothing, and padding is seen by nobody: the problem, and all that a
solution has, are of the n rows. Only concrete values on the host are padded. Inside `jit`, `vmap` or `grad`, and for
arrays that lie on an accelerator, a problem is run as it is, because nothing could be taken off the result there.
"""

import dataclasses
from typing import Any

import jax
import numpy as np

from cavity._core.precision import float64, is_far, is_traced, to_numpy
from cavity._core.pytrees import pytree_dataclass
from cavity.inference.methods import Method
from cavity.inference.problem import Problem, as_mask
from cavity.inference.solution import ModelSolution, Solution
from cavity.models.latent_gaussian.assembly import kernel_schedule, weight_schedule
from cavity.models.latent_gaussian.fit_result import factor_predictions
from cavity.models.latent_gaussian.rows import bucket, padded, padded_with_zeros
from cavity.moments.closed_form import ClosedForm
from cavity.moments.quadrature import Quadrature
from cavity.posteriors.dense_algebra import Dense, KernelPrior

#: up to so many rows a problem is padded: beyond, a run costs more than a compilation
MOST_PADDED = 1024


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class LatentGaussianSolution(ModelSolution):
    """The solution of a latent Gaussian model, which predicts.

    Attributes:
        prediction: how the model comes from q to the latents of new observations.
        as_run: the solution of the problem that was run, which may be padded.
    """

    prediction: Any
    as_run: Solution

    @property
    def loo_log_predictive(self) -> tuple[Any, ...]:
        """log p(yᵢ | all data but i) of every row, from the cavities of this state: one factor is left out."""
        (own,), (sites,) = self.as_run.loo_log_predictive, self.sites
        return (own[..., : np.shape(sites)[-2]],)

    @float64
    def predict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Mean and variance of the latent for new observations, and what the likelihood predicts from them.

        Args:
            X: rows of inputs, as in training. A model made from a `kernel_matrix` takes `cross` and `variance` instead:
                covariances of the new latents with those of training, one row each, and their prior variances.

        Returns:
            "latent_mean" and "latent_variance", then the likelihood's own, such as "probability".

        Raises:
            TypeError: inside `jax.jit`, `jax.vmap` or `jax.grad`.
        """
        if is_traced((self.q, args, kwargs)):
            raise TypeError(
                "predict works on the host: return the solution from jax.jit or jax.vmap, and ask it there."
            )
        mean, variance = self.prediction.latents(self, *args, **kwargs)
        found = factor_predictions(self.problem.groups[0].factor, mean, variance)
        return {"latent_mean": mean, "latent_variance": variance, **found}


@pytree_dataclass
class LatentGaussian(Problem):
    """A latent Gaussian model: a problem that knows how to predict. A pytree of arrays, as problems are.

    Attributes:
        prediction: how the model comes from q to the latents of new observations.
    """

    prediction: Any = None

    def problem(self) -> Problem:
        """The problem alone."""
        return Problem(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Problem)})

    def padded_problem(self, method: Method, init: Any = None) -> tuple[Problem, Any]:
        """The problem as `infer` runs it, and where it starts; padding has multiplicity 0.

        Args:
            method: one whose schedule names sites is given the problem as it is.
            init: sites to start from, a `Solution` or one array per group, or None.
        """
        (group,), problem = self.groups, self.problem()
        n = group.size
        given = init.sites if isinstance(init, Solution) else init
        known = given is None or [np.shape(own) for own in given] == [(n, group.family.size)]
        leaves = jax.tree.leaves((problem, given))
        if bucket(n) == n or n > MOST_PADDED or is_traced(leaves) or any(map(is_far, leaves)) or not known:
            return problem, init
        if not isinstance(group.moments, ClosedForm | Quadrature) or method.names_sites:
            return problem, init
        return pad_problem(problem, bucket(n)), pad_start(init, bucket(n))

    def interpret(self, solution: Solution) -> LatentGaussianSolution:
        """The solution of this model's problem, with predictions; `infer(model)` returns it."""
        own, n = solution, self.groups[0].size
        if solution.problem.groups[0].size != n:
            own = without_padding(solution, self.problem(), n)
        return LatentGaussianSolution.of(own, prediction=self.prediction, as_run=solution)


def pad_problem(problem: Problem, size: int) -> Problem:
    """The problem with so many sites; further ones are repetitions of the first, of multiplicity 0."""
    (group,), prior = problem.groups, problem.prior
    n = group.size
    multiplicity = np.ones(n) if group.multiplicity is None else np.asarray(group.multiplicity, float)
    group = dataclasses.replace(
        group, data=padded(group.data, size), multiplicity=as_mask(padded_with_zeros(multiplicity, size))
    )
    if isinstance(prior, KernelPrior):
        covariance: Any = np.eye(size)
        covariance[:n, :n] = np.asarray(prior.covariance)
        return dataclasses.replace(
            problem, prior=KernelPrior(covariance), groups=(group,), schedule=kernel_schedule(size)
        )
    rows = padded(prior.rows, size)
    schedule = weight_schedule(*rows.shape)
    return dataclasses.replace(problem, prior=prior._replace(rows=rows), groups=(group,), schedule=schedule)


def pad_start(init: Any, size: int) -> Any:
    """Sites to start from, with flat ones at the end."""
    if init is None:
        return None
    if not isinstance(init, Solution):
        return tuple(padded_with_zeros(np.asarray(own, float), size) for own in init)
    sites, memory = pad_start(init.sites, size), pad_start(init.memory, size)
    return dataclasses.replace(init, sites=sites, memory=memory)


def without_padding(solution: Solution, problem: Problem, n: int) -> Solution:
    """The solution of a padded problem as one of the problem of n rows."""
    size, solution = solution.problem.groups[0].size, to_numpy(solution)

    def rows(part: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[:n], part)

    by_row = ("sites", "log_scales", "site_mismatch", "info", "memory")
    changes: dict[str, Any] = {name: rows(getattr(solution, name)) for name in by_row}
    q = solution.q
    if isinstance(q, Dense):
        starts = np.cumsum([0, *(block.shape[1] for block in q.covariance)])
        pairs = zip(starts, q.covariance, strict=False)
        covariance = tuple(block[: n - start, : n - start] for start, block in pairs if start < n)
        latents = {name: rows(getattr(q, name)) for name in ("mean", "variance", "weak", "weights")}
        changes["q"] = q._replace(covariance=covariance, **latents)
    changes["evaluations"] = solution.evaluations * n // size
    return dataclasses.replace(solution, problem=problem, **changes)
