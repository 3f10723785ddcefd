"""Latent Gaussian models: yᵢ depends on one latent fᵢ each, and the latents are jointly Gaussian (thesis 5.1–5.4).

Either f = X w with w ~ N(0, prior_variance I), held as a Gaussian over the weights (5.3), or f ~ N(0, K) with a kernel
matrix K, held as a Gaussian over the latents (5.4). The two agree where K = prior_variance X Xᵀ. For many rows a basis
may carry the process: it is then held as a Gaussian over the basis's weights, like a linear model.

A model lies on the host and holds what its problem is made of. `infer` runs that problem padded; its solution predicts.

Another number of rows in the same bucket compiles nothing, and padding is never seen: the problem, and everything in
a solution, are of the n rows. Only concrete values on the host are padded. Inside `jit`, `vmap` or `grad`, and for
arrays that lie on an accelerator, a problem is run as it is, because nothing could be taken off the result there.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, host_state, is_far, is_traced, to_numpy
from cavity.factors.base import Factor
from cavity.families.gaussian import Gaussian
from cavity.inference.methods import Method
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.solution import ModelSolution, Solution
from cavity.kernels import Basis, Kernel, Spanned
from cavity.models._latent_gaussian.exact_gp import (
    DenseResponse,
    check_kernel_room,
    conditioned_latents,
    covariance_matrix,
    kernel_latents,
    kernel_problem,
)
from cavity.models._latent_gaussian.fit_result import Latents, factor_predictions
from cavity.models._latent_gaussian.linear_model import weight_latents, weight_precision, weight_problem
from cavity.models._latent_gaussian.lost_digits import warn_of_lost_digits
from cavity.models._latent_gaussian.rows import bucket, padded, padded_with_zeros
from cavity.models._latent_gaussian.sparse_gp import basis_latents, basis_problem, check_finite_rows
from cavity.moments.base import ClosedForm, Moments
from cavity.moments.quadrature import Quadrature, default_moments
from cavity.posteriors.dense_algebra import Dense, response
from cavity.posteriors.weight_gaussian import WeightPrior

#: up to so many rows a problem is padded: beyond, a run costs more than a compilation
MOST_PADDED = 1024


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
        jnp.asarray(run.q.weights), *response(run.problem.prior, group.multiplicities[:, None] * jnp.asarray(sites))
    )


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


@dataclasses.dataclass(frozen=True, eq=False)
class LatentGaussian:
    """A latent Gaussian model. It lies on the host and is no pytree: `jit` and `vmap` take its `problem()`.

    Attributes:
        group: what is observed of the latents, one site each.
        latents: what the latents are before that, as `build` takes it: a covariance matrix, a basis or weights.
        build: the problem of group and latents, padded to a number of sites.
        prediction: how the model comes from q to the latents of new observations.
    """

    group: SiteGroup
    latents: Any
    build: Callable[[SiteGroup, Any, int], Problem]
    prediction: Any

    __getstate__ = host_state

    @float64
    def problem(self) -> Problem:
        """The problem, not padded."""
        return self.build(self.group, self.latents, self.group.size)

    def with_moments(self, moments: Moments) -> "LatentGaussian":
        """The same model integrated by `moments`."""
        return dataclasses.replace(self, group=dataclasses.replace(self.group, moments=moments))

    def padded_problem(self, method: Method, init: Any = None) -> tuple[Problem, Any]:
        """The problem as `infer` runs it, and where it starts; padding has multiplicity 0.

        Args:
            method: one whose schedule names sites is given the problem as it is.
            init: sites to start from, a `Solution` or one array per group, or None.
        """
        group, n = self.group, self.group.size
        given = init.sites if isinstance(init, Solution) else init
        known = given is None or [np.shape(own) for own in given] == [(n, group.family.size)]
        fit = known and isinstance(group.moments, ClosedForm | Quadrature) and not method.names_sites
        size = padded_size(n, group, self.latents, given) if fit else n
        return self.build(group, self.latents, size), init if size == n else pad_start(init, size)

    def interpret(self, solution: Solution) -> LatentGaussianSolution:
        """The solution of this model's problem, with predictions; `infer(model)` returns it."""
        own, n = solution, self.group.size
        if not is_traced(solution.code) and np.ndim(solution.code) == 0:
            warn_of_lost_digits(solution)
        if solution.problem.groups[0].size != n:
            own = without_padding(solution, self.problem(), n)
        return LatentGaussianSolution.of(own, prediction=self.prediction, as_run=solution)


def padded_size(n: int, *arrays: Any) -> int:
    """How many sites a problem of these arrays has as it is run: n where it is not padded."""
    leaves = jax.tree.leaves(arrays)
    return n if n > MOST_PADDED or is_traced(leaves) or any(map(is_far, leaves)) else bucket(n)


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


@float64
def latent_gaussian(
    y: Any,
    likelihood: Factor,
    *,
    kernel_matrix: Any = None,
    X: Any = None,
    kernel: Any = None,
    basis: Basis | None = None,
    prior_variance: Any = None,
    multiplicity: Any = None,
    moments: Moments | None = None,
) -> LatentGaussian:
    """∏ t(fᵢ; yᵢ) under f ~ N(0, kernel_matrix), f ~ N(0, kernel(X, X)), or f = X w with w ~ N(0, prior_variance).

    Args:
        y: what the likelihood takes, one entry per observation: labels −1/+1, counts, numbers, classes.
        likelihood: one of `cavity.factors`: Step, Probit, Logistic, Gaussian, StudentT, Poisson, OrdinalProbit, or your
            own.
        kernel_matrix: (n, n), symmetric, positive semi-definite.
        X: (n, d). Alone: a linear model without bias; `mean` and `covariance` are then those of the weights.
        kernel: with X: a covariance function such as `cavity.kernels.RBF()`.
        basis: with X and kernel: `cavity.kernels.InducingInputs(Z)` or `RandomFeatures.draw(...)`, which carry the
            process at a cost of O(n m²) per sweep; `mean` and `covariance` are then those of its weights. EP with
            inducing inputs is FITC; `PowerEP(p)` for p → 0 the variational approximation.
        prior_variance: of the weights: a number, one per feature, or a covariance matrix; 1 by default.
        multiplicity: how many equal observations each row stands for; one each by default.
        moments: how tilted distributions are integrated; by default the likelihood's own way, else `Quadrature()`.

    Returns:
        The model, for `infer`, whose solution then predicts.

    Raises:
        TypeError: `likelihood`, `kernel` or `basis` is none.
        ValueError: y, X, the kernel matrix or the prior do not go together, or hold what cannot be.

    Examples:
        Two labels of correlation 1/4 agree with probability 1/4 + arcsin(1/4)/(2π) = 0.2902:

        >>> import cavity as cv
        >>> import numpy as np
        >>> model = cv.models.latent_gaussian([1.0, 1.0], cv.factors.Probit(), kernel_matrix=[[1.0, 0.5], [0.5, 1.0]])
        >>> solution = cv.infer(model)
        >>> print(np.exp(solution.log_evidence).round(4))
        0.2902
        >>> solution.predict(cross=[[0.5, 0.5]], variance=[1.0])["probability"].round(3)
        array([0.639])
    """
    if not isinstance(likelihood, Factor):
        raise TypeError(
            f"likelihood must be a factor such as cavity.factors.Probit(); found {type(likelihood).__name__}."
        )
    data = jax.tree.map(observation_array, np.asarray(y) if isinstance(y, list) else y)
    sizes = {np.shape(leaf)[0] for leaf in jax.tree.leaves(data)}
    if len(sizes) != 1:
        raise ValueError(f"y must hold arrays of one length; found lengths {sorted(sizes)}.")
    (n,) = sizes
    if moments is None:
        moments = default_moments(likelihood)
    group = to_numpy(SiteGroup(likelihood, data, Gaussian(), moments, multiplicity))
    if prior_variance is not None and (kernel_matrix is not None or kernel is not None):
        raise ValueError("prior_variance is that of weights, and a kernel has none: scale the kernel instead.")
    if kernel_matrix is not None:
        if X is not None or kernel is not None:
            raise ValueError("Give kernel_matrix, or X, or X and kernel; found kernel_matrix and another of them.")
        check_kernel_room(n)
        k = covariance_matrix(kernel_matrix, n)
        return LatentGaussian(group, to_numpy(k), kernel_problem, FromKernelMatrix())
    if X is None:
        raise ValueError("The prior of the latents is missing: give kernel_matrix, or X, or X and kernel.")
    rows = checks.array("X", X, (2,))
    if rows.shape[0] != n:
        raise ValueError(f"X must have one row per observation, {n}; found {rows.shape[0]}.")
    if kernel is not None:
        if not isinstance(kernel, Kernel):
            raise TypeError(
                f"kernel must be a kernel of cavity.kernels; found {type(kernel).__name__}. The values of any other "
                "covariance function can be given as kernel_matrix."
            )
        if basis is not None:
            spanned = spanned_rows(group, rows, kernel, basis)
            return LatentGaussian(group, to_numpy(spanned), basis_problem, FromBasis(kernel, basis))
        check_kernel_room(n)
        k = covariance_matrix(at_rows(kernel, rows, axes=2), n, name="kernel(X)")
        return LatentGaussian(group, to_numpy(k), kernel_problem, FromKernel(kernel, rows))
    if basis is not None:
        raise ValueError("basis carries a process with a kernel: give X, kernel and basis.")
    if not is_traced(rows) and (empty := ~np.asarray(rows).any(axis=1)).any():
        raise ValueError(
            f"X must not have rows of zeros only, where wᵀx is 0 whatever w; found row {int(empty.argmax())}."
        )
    precision = weight_precision(1.0 if prior_variance is None else prior_variance, rows.shape[1])
    prior = WeightPrior(rows, jnp.zeros(rows.shape[1]), precision)
    return LatentGaussian(group, to_numpy(prior), weight_problem, FromWeights())


def at_rows(evaluate: Callable[[Any], Any], rows: Any, axes: int = 1) -> Any:
    """What a kernel or a basis says of these rows; asked of padded ones, which share a program.

    Args:
        evaluate: from rows to arrays.
        rows: one observation each.
        axes: how many axes of the arrays are the rows: two of a kernel matrix.
    """
    n = len(rows)
    size = padded_size(n, rows)
    found = evaluate(padded(rows, size))
    return found if size == n else jax.tree.map(lambda part: np.asarray(part)[(slice(n),) * axes], found)


def spanned_rows(group: SiteGroup, rows: Any, kernel: Kernel, basis: Basis) -> Spanned:
    """What the latents of a group are made of where a basis carries them."""
    if not isinstance(basis, Basis):
        raise TypeError(
            f"basis must be one of cavity.kernels, such as InducingInputs(Z); found {type(basis).__name__}."
        )
    if not isinstance(group.moments, ClosedForm):
        raise TypeError(
            f"basis needs a likelihood that is integrated in closed form; {type(group.factor).__name__} has "
            f"{type(group.moments).__name__}."
        )
    spanned = at_rows(partial(basis, kernel), rows)
    if not is_traced(spanned):
        check_finite_rows("kernel(X)", spanned.rows)
        if (flat := ~np.asarray(spanned.rows).any(axis=1)).any():
            where = f"found 0 at {int(flat.argmax())}"
            raise ValueError(
                f"kernel(X) must have a positive diagonal, a latent of no variance observes nothing; {where}."
            )
    return spanned


def observation_array(leaf: Any) -> Any:
    """One array of observations as float64."""
    return checks.array("y", leaf, tuple(range(1, max(np.ndim(leaf), 1) + 1)))
