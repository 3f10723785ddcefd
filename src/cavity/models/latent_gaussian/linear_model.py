"""The linear machine: a latent Gaussian model f = wᵀx over its weights, fitted, streamed or refined."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.factors.base import Factor
from cavity.factors.tempered import Tempered
from cavity.families.gaussian import Gaussian
from cavity.inference.infer import infer
from cavity.inference.methods import ADF, Method
from cavity.inference.problem import Problem, SiteGroup, as_mask
from cavity.inference.solution import Solution
from cavity.models.latent_gaussian.build import weight_precision, weight_schedule
from cavity.models.latent_gaussian.evidence_search import Search, Watch, final_fit, rule_of, solve
from cavity.models.latent_gaussian.fit_result import (
    Accounted,
    FitResult,
    account,
    account_from_state,
    account_state,
    factor_from_spec,
    factor_spec,
)
from cavity.models.latent_gaussian.gradient import likelihood_gradient, precision_gradient
from cavity.models.latent_gaussian.padding import bucket, feature_bucket, padded, padded_with_zeros
from cavity.models.latent_gaussian.parameters import as_numbers, bounds, check_free, log_prior, pack, unpack
from cavity.moments.closed_form import ClosedForm
from cavity.posteriors.weight_gaussian import WeightGaussian, WeightPrior

#: where the search may move the prior variance of the weights
VARIANCES = (1e-6, 1e6)


@dataclasses.dataclass(frozen=True)
class LinearModel(Accounted):
    """w ~ N(0, prior_variance) observed through `factor` along the rows it was fitted to; q(w) = N(mean, covariance).

    shift, precision: natural parameters of q, so that further rows can be absorbed and old ones deleted.
    """

    mean: np.ndarray
    covariance: np.ndarray
    shift: np.ndarray
    precision: np.ndarray
    factor: Factor
    prior_variance: np.ndarray
    account: FitResult

    def latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of wᵀx for the rows of X."""
        X = np.asarray(X, float)
        return X @ self.mean, np.maximum(np.einsum("ij,ij->i", X @ self.covariance, X), 0.0)

    @float64
    def sample(self, X: Any, key: jax.Array, draws: int) -> Any:
        """Draws of wᵀx at the rows of X, jointly."""
        noise = jax.random.normal(key, (draws, self.mean.size), dtype=float)
        weights = self.mean + noise @ np.linalg.cholesky(self.covariance).T
        return weights @ np.asarray(X, float).T

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(header, arrays): what a file holds."""
        header, arrays = account_state(self.account)
        own = ("mean", "covariance", "shift", "precision", "prior_variance")
        weights = {f"weight_{name}": np.asarray(getattr(self, name)) for name in own}
        return {**header, "factor": factor_spec(self.factor)}, arrays | weights

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> "LinearModel":
        """The machine that was stored."""
        own = {name.removeprefix("weight_"): value for name, value in arrays.items() if name.startswith("weight_")}
        return cls(factor=factor_from_spec(header["factor"]), account=account_from_state(header, arrays), **own)


@float64
def fit_linear_model(
    X: Any,
    y: Any,
    *,
    factor: Factor,
    prior_variance: Any = 1.0,
    copies: Any = None,
    exponents: Any = None,
    method: Method | None = None,
    optimize: bool = False,
    free: tuple[str, ...] = (),
    seed: int = 0,
    progress: Callable[..., Any] | None = None,
    watch: Watch = None,
) -> LinearModel:
    """Fit by EP. `optimize` maximises the evidence over `free`: parameters of the likelihood, or "prior_variance".

    copies: how many equal observations a row stands for. exponents: the power its factor is raised to.
    progress: called with every `Evaluation` of the search. watch: called after every sweep of the last run.
    """
    began = time.perf_counter()
    likelihood_free = tuple(name for name in free if name != "prior_variance")
    check_free(factor, likelihood_free)
    rows = Rows.of(X, y, copies, exponents, factor)
    scaled = "prior_variance" in free
    base = np.asarray(weight_precision(prior_variance, rows.d))

    def split(vector: np.ndarray) -> tuple[float, np.ndarray]:
        return (float(np.exp(vector[0])), vector[1:]) if scaled else (1.0, vector)

    def build(vector: np.ndarray) -> Problem:
        scale, likelihood = split(vector)
        return rows.problem(unpack(rows.term, likelihood_free, likelihood), np.zeros(len(base)), base / scale)

    def slope(vector: np.ndarray, solution: Solution) -> np.ndarray:
        scale, likelihood = split(vector)
        parts = [np.zeros(0)]
        if scaled:
            pull = np.asarray(precision_gradient(solution.problem, solution.q))[: rows.d]
            parts.append(np.atleast_1d(-np.sum(pull * np.diagonal(base)) / scale))
        if likelihood_free:
            found = likelihood_gradient(
                solution.problem,
                solution.q,
                solution.sites[0],
                likelihood_free,
                jnp.asarray(likelihood),
                solution.method.power,
            )
            parts.append(np.asarray(found))
        return np.concatenate(parts)

    def prior(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = log_prior(rows.term, likelihood_free, split(vector)[1])
        return value, np.concatenate([np.zeros(int(scaled)), gradient])

    vector = np.concatenate([np.zeros(int(scaled)), pack(rows.term, likelihood_free)])
    limits = np.concatenate([np.log([VARIANCES] * int(scaled)).reshape(-1, 2), bounds(rows.term, likelihood_free)])
    search = Search(build, slope, method, prior, progress)
    vector, solution = final_fit(search, vector, limits, optimize=optimize, seed=seed, watch=watch)
    variance = np.broadcast_to(np.asarray(prior_variance, float) * split(vector)[0], np.shape(prior_variance) or (1,))
    return rows.machine(solution, variance, search.history, began)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows padded to a bucket, without those that are all zero: wᵀ0 is 0 whatever is observed.

    Features are padded too, by columns of zeros: their weights keep their prior, and nothing else sees them.
    d: the features before that.
    """

    X: np.ndarray
    d: int
    data: Any
    term: Factor
    held: np.ndarray
    left_out: np.ndarray

    @classmethod
    def of(cls, X: Any, y: Any, copies: Any, exponents: Any, factor: Factor, size: int | None = None) -> "Rows":
        """size: the number of rows after padding; None for a bucket."""
        X = np.asarray(X, float)
        (n, d), size = X.shape, bucket(len(X)) if size is None else size
        copies = np.ones(n) if copies is None else np.asarray(copies, float)
        empty = ~X.any(axis=1)
        filled = np.zeros((size, feature_bucket(d)))
        filled[:n, :d] = X
        if empty.any():
            filled[:n][empty, :d] = X[np.argmin(empty)] if not empty.all() else 1.0
        filled[n:] = filled[0]
        term = factor if exponents is None else Tempered(factor)
        data = padded(y if exponents is None else (y, exponents), size)
        return cls(filled, d, data, term, np.where(empty, 0.0, copies), np.where(empty, copies, 0.0))

    def group(self, term: Factor) -> SiteGroup:
        """The sites of these rows."""
        return SiteGroup(
            as_numbers(term),
            self.data,
            Gaussian(),
            ClosedForm(),
            multiplicity=as_mask(padded_with_zeros(self.held, len(self.X))),
        )

    def problem(self, term: Factor, shift: np.ndarray, precision: np.ndarray) -> Problem:
        """These rows under a Gaussian prior of the weights."""
        group = self.group(term)
        wide = np.eye(self.X.shape[1])
        wide[: self.d, : self.d] = precision
        prior = WeightPrior(jnp.asarray(self.X), jnp.asarray(padded_with_zeros(shift, len(wide))), jnp.asarray(wide))
        return Problem(prior, (group,), WeightGaussian(), schedule=weight_schedule(len(self.X), self.d))

    def machine(self, solution: Solution, variance: np.ndarray, history: list[Any], began: float) -> LinearModel:
        """The machine a solution for these rows makes."""
        n, d = len(self.held), self.d
        (group,) = solution.problem.groups
        rows, shift, precision = (np.asarray(part)[..., :d] for part in solution.problem.prior)
        sites = np.asarray(group.copies)[:, None] * solution.sites[0]
        latent = solution.view("latent_mean"), solution.view("latent_variance")
        return LinearModel(
            mean=np.array(solution.q.mean[:d]),
            covariance=np.array(solution.q.covariance[:d, :d]),
            shift=shift + rows.T @ sites[:, 0],
            precision=precision[:d] + rows.T @ (sites[:, 1:] * rows),
            factor=as_numbers(group.factor),
            prior_variance=variance,
            account=account(solution, n, latent, self.left_out, history, time.perf_counter() - began),
        )


@float64
def absorb_rows(
    machine: LinearModel, X: Any, y: Any, *, copies: Any = None, exponents: Any = None, method: Method | None = None
) -> LinearModel:
    """The machine after one pass over new rows from its present q (assumed-density filtering); evidences add up."""
    began = time.perf_counter()
    rows = Rows.of(X, y, copies, exponents, machine.factor)
    method = ADF() if method is None else method
    solution = infer(rows.problem(rows.term, machine.shift, machine.precision), method)
    updated = rows.machine(solution, machine.prior_variance, [], began)
    total = updated.account.log_evidence + machine.account.log_evidence
    return dataclasses.replace(updated, account=dataclasses.replace(updated.account, log_evidence=total))


@float64
def refine(
    machine: LinearModel,
    X: Any,
    y: Any,
    *,
    copies: Any = None,
    exponents: Any = None,
    method: Method | None = None,
    watch: Watch = None,
) -> LinearModel:
    """EP on the rows the machine has seen, started from the sites it has for them: `X` are all its rows, in order.

    method: as in a fit, None tries one after another. watch: called after every sweep.
    """
    began = time.perf_counter()
    rows = Rows.of(X, y, copies, exponents, machine.factor)
    sites = machine.account.sites
    if len(sites) != len(rows.held):
        raise ValueError(
            f"X must be the {len(sites)} rows the machine has seen, in their order; found {len(rows.held)}."
        )
    precision = np.asarray(weight_precision(machine.prior_variance, rows.d))
    problem = rows.problem(rows.term, np.zeros(rows.d), precision)
    solution = solve(problem, rule_of(method), padded_with_zeros(sites, len(rows.X)), watch)
    return rows.machine(solution, machine.prior_variance, [], began)
