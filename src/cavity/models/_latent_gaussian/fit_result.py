"""Fitted models: how a fit ended, the sites of its rows, what it predicts, and the parameters a file keeps."""

import dataclasses
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from cavity import factors
from cavity._core import checks
from cavity._core.precision import float64
from cavity._core.tiers import tiered_jit
from cavity.factors.base import Factor
from cavity.factors.wrappers import SiteWrapper, Tempered
from cavity.families.gaussian import Gaussian
from cavity.inference.solution import Solution
from cavity.inference.status import Result, Status
from cavity.models._latent_gaussian.evidence_search import as_numbers, inner
from cavity.models._latent_gaussian.rows import bucket, left_out, padded

#: mean and variance of latents
Latents = tuple[np.ndarray, np.ndarray]


def row_chunks(X: Any, size: int) -> Iterator[np.ndarray]:
    """The rows of X, so many at a time; the last ones are padded."""
    for start in range(0, len(X), size):
        rows = np.asarray(X[start : start + size], float)
        yield padded(rows, bucket(len(rows)))


@float64
def factor_predictions(factor: Factor, mean: np.ndarray, variance: np.ndarray) -> dict[str, np.ndarray]:
    """What the likelihood predicts from latents."""
    size = bucket(len(mean))
    found = compiled_prediction(factor, padded(mean, size), padded(variance, size))
    return jax.tree.map(itemgetter(slice(len(mean))), jax.tree.map(np.asarray, found))


@tiered_jit
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


@tiered_jit
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
        loo_log_predictive: log p(yᵢ | the others), of a whole observation also where a row counts as a fraction of one.
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

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(header, arrays): what a file holds; a mismatch, which may be infinite, is kept as text."""
        header = {name: getattr(self, name) for name in self.NUMBERS}
        header |= {"mismatch": repr(self.mismatch), "status": str(self.status), "factor": factor_spec(self.factor)}
        return header, {name: np.asarray(getattr(self, name)) for name in self.ARRAYS}

    @classmethod
    def fields_from_state(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        """The fields of what `state` wrote, by name."""
        fields: dict[str, Any] = {name: header[name] for name in cls.NUMBERS} | {
            name: checks.real_numbers(name, arrays[name]) for name in cls.ARRAYS
        }
        fields |= {"mismatch": float(header["mismatch"]), "status": Status(header["status"])}
        return fields | {"factor": factor_from_spec(header["factor"])}


def result_fields(
    solution: Solution, multiplicity: Any, latent: tuple[Any, Any], history: list[Any], seconds: float
) -> dict[str, Any]:
    """The fields of a `FitResult` for a solution whose first sites are the rows; the others are padding.

    Args:
        solution: of the padded problem.
        multiplicity: (n,), that of the rows. Those that have none in the problem, because their latent is fixed at 0,
            join evidence and predictions with the likelihood there.
        latent: mean and variance of the latents of all sites.
        history: the points of the search.
        seconds: since the fit began.
    """
    rows, (group,) = len(multiplicity), solution.problem.groups
    without, whole = left_out(multiplicity, group), whole_observations(group.factor, group.data)
    problem = dataclasses.replace(solution.problem, groups=(dataclasses.replace(group, data=whole),))
    (predicted,) = dataclasses.replace(solution, problem=problem).loo_log_predictive
    loo, mean, variance = np.array([predicted[:rows], latent[0][:rows], latent[1][:rows]])
    constant = 0.0
    if (fixed := without > 0).any():
        constant = float(without[fixed] @ log_likelihood_at_zero(group.factor, group.data)[:rows][fixed])
        loo[fixed] = log_likelihood_at_zero(group.factor, whole)[:rows][fixed]
        mean[fixed] = variance[fixed] = 0.0
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


def whole_observations(factor: Factor, data: Any) -> Any:
    """The data of a factor whose sites count as wholes, whatever fractions of one the weights of rows make of them."""
    if not isinstance(factor, SiteWrapper):
        return data
    own, number = data
    whole = np.ones_like(number) if isinstance(factor, Tempered) else number
    return whole_observations(factor.factor, own), whole


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
    name = spec.get("class") if isinstance(spec, dict) else None
    if name not in LIKELIHOODS:
        raise ValueError(f"There is no likelihood {name!r}; there are {', '.join(LIKELIHOODS)}.")
    given = {key: np.asarray(value, float) if isinstance(value, list) else value for key, value in spec.items()}
    del given["class"]
    kind = getattr(factors, name)
    if set(given) != {field.name for field in dataclasses.fields(kind)}:
        raise ValueError(f"A {name} needs other parameters than {', '.join(given) or 'none'}.")
    return kind(**given)
