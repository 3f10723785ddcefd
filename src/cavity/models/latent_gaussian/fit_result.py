"""What every fitted machine keeps: the likelihood, the sites, the evidence and the account of the run."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity import factors
from cavity._core.precision import float64
from cavity.factors.base import Factor
from cavity.families.gaussian import Gaussian
from cavity.inference.solution import Solution
from cavity.inference.status import FIXED_POINTS, Status
from cavity.models.latent_gaussian.parameters import as_numbers, inner


@dataclasses.dataclass(frozen=True)
class FitResult:
    """How a machine was fitted.

    method: the method that answered, in words.
    sites: natural parameters (nu, tau) of one copy of every row's site. loo_log_predictive: log p(yᵢ | the others).
    history: the points of the evidence search, in the order they were tried; of a stream its passes, with the rows each
        has read and from where it was resumed.
    """

    status: Status
    method: str
    log_evidence: float
    mismatch: float
    sweeps: int
    residuals: np.ndarray
    sites: np.ndarray
    loo_log_predictive: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    history: list[dict[str, Any]]
    seconds: float

    @property
    def converged(self) -> bool:
        """Whether a fixed point was reached."""
        return self.status in FIXED_POINTS

    def cavities(self) -> np.ndarray:
        """(ν, τ) of every row's latent from all but one copy of its observation."""
        fixed = self.variance <= 0  # a latent that is 0 whatever is observed
        spread = np.where(fixed, np.finfo(float).tiny, self.variance)
        marginals = np.stack([self.mean, np.ones_like(self.mean)], axis=1) / spread[:, None]
        return marginals - np.where(fixed[:, None], 0.0, self.sites)


class Accounted:
    """Mixed into machines: what a machine does not have itself it answers from its account."""

    account: FitResult

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "account":
            raise AttributeError(name)
        return getattr(self.account, name)


def account(
    solution: Solution,
    rows: int,
    latent: tuple[Any, Any],
    left_out: np.ndarray,
    history: list[Any],
    seconds: float,
) -> FitResult:
    """The account of a solution whose first `rows` sites are the data.

    left_out: copies of rows that have no site because their latent is fixed at 0. They join evidence and predictions
    with the likelihood there.
    """
    (group,) = solution.problem.groups
    loo, mean, variance = (np.array(values[:rows]) for values in (solution.loo_log_predictive[0], *latent))
    constant = 0.0
    if (fixed := left_out > 0).any():
        known = at_zero(group.factor, group.data)[:rows]
        constant = float(left_out[fixed] @ known[fixed])
        loo[fixed], mean[fixed], variance[fixed] = known[fixed], 0.0, 0.0
    return FitResult(
        status=solution.status,
        method=str(solution.method),
        log_evidence=float(solution.log_evidence) + constant,
        mismatch=float(solution.mismatch),
        sweeps=int(solution.sweeps),
        residuals=np.asarray(solution.residuals),
        sites=np.array(solution.sites[0][:rows]),
        loo_log_predictive=loo,
        mean=mean,
        variance=variance,
        history=history,
        seconds=seconds,
    )


#: precision that stands for a latent without variance
POINT = 1e24


@float64
def at_zero(factor: Factor, data: Any) -> np.ndarray:
    """log likelihood of every row for a latent at 0: the limit of ever narrower ones, ½ for a step."""
    cavity = jnp.array([0.0, POINT])
    return np.asarray(jax.vmap(lambda own: factor.tilted(Gaussian(), cavity, own, 1.0).log_z)(data))


#: fields of an account that are arrays, and those that go into a header
ARRAYS = ("residuals", "sites", "loo_log_predictive", "mean", "variance")
NUMBERS = ("method", "log_evidence", "mismatch", "sweeps", "seconds", "history")


def account_state(account: FitResult) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(header, arrays) from which `account_from_state` rebuilds the account; infinities are kept as text."""
    header = {name: getattr(account, name) for name in NUMBERS}
    header["mismatch"] = repr(account.mismatch)
    return {**header, "status": str(account.status)}, {name: getattr(account, name) for name in ARRAYS}


def account_from_state(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> FitResult:
    """The account that was stored."""
    fields: dict[str, Any] = {name: header[name] for name in NUMBERS} | {name: arrays[name] for name in ARRAYS}
    return FitResult(**fields | {"status": Status(header["status"]), "mismatch": float(header["mismatch"])})


#: likelihoods that may be named in a file
LIKELIHOODS = ("Step", "Probit", "Logistic", "Gaussian", "StudentT", "Poisson", "OrdinalProbit")


def factor_spec(factor: Factor) -> dict[str, Any]:
    """The likelihood by name and parameters."""
    likelihood = as_numbers(inner(factor))
    name = type(likelihood).__name__
    if name not in LIKELIHOODS or type(likelihood) is not getattr(factors, name):
        raise TypeError(
            f"A machine with the likelihood {name} cannot be stored; those that can: {', '.join(LIKELIHOODS)}."
        )
    values = {f.name: getattr(likelihood, f.name) for f in dataclasses.fields(likelihood)}  # type: ignore[arg-type]
    return {"class": name, **{key: np.asarray(value).tolist() for key, value in values.items()}}


def factor_from_spec(spec: dict[str, Any]) -> Factor:
    """The likelihood of a spec; only those of this library."""
    given = dict(spec)
    name = given.pop("class", None)
    if name not in LIKELIHOODS:
        raise ValueError(f"There is no likelihood {name!r}; there are {', '.join(LIKELIHOODS)}.")
    return getattr(factors, name)(**given)
