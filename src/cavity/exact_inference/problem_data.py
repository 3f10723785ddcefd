"""The result type of all baselines, and readers of the problems they know.

A reader returns None when the problem is of another kind, so that a method can try what it knows in turn and end with
`unsupported`. Everything read is NumPy in double precision; the terms of problems that are only known by their
`log_density` come from `cavity.inference.pointwise`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from cavity._core.precision import float64
from cavity.factors.base import FactorError
from cavity.factors.clutter import Clutter
from cavity.factors.probabilities import Mixture
from cavity.families import DiagonalGaussian, Dirichlet, FullGaussian, Gaussian, SphericalGaussian
from cavity.families.gaussian import LOG_2PI
from cavity.inference.pointwise import log_likelihood
from cavity.inference.problem import Problem, SiteGroup
from cavity.posteriors.shared import Shared

#: how far below its peak a log prior leaves nothing: a density may overflow there
UNLIKELY = 300.0
CLUTTER = "problems of cavity.models.clutter"
MIXTURE = "problems of cavity.models.mixture_weights"
GAUSSIAN = "problems with one Gaussian prior whose factors have a log_density"
SCALAR = "problems with a scalar Gaussian prior whose factors have a log_density"


class Estimate(NamedTuple):
    """The answer of a baseline.

    Attributes:
        log_evidence: log p(D), nan where the method has none.
        mean: a number for a scalar θ, else an array.
        covariance: a number for a scalar θ, else a matrix.
        evaluations: factor evaluations, one term at one θ each.
        trace: (evaluations, log_evidence, mean) along the run.
        note: a sentence to read with the result, mostly empty.

    Examples:
        >>> import cavity as cv
        >>> from cavity import baselines
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0])
        >>> found = baselines.importance(problem, samples=1000)
        >>> found.evaluations, len(found.trace) > 1
        (5000, True)
    """

    log_evidence: float
    mean: Any
    covariance: Any
    evaluations: int
    trace: list[tuple[int, float, Any]]
    note: str = ""


class GaussianPrior(NamedTuple):
    """N(θ; mean, precision⁻¹); `scalar` says whether a value θ is a number or a vector."""

    mean: np.ndarray
    precision: np.ndarray
    scalar: bool

    @property
    def log_det(self) -> float:
        return float(np.linalg.slogdet(self.precision)[1])

    def log_density(self, theta: np.ndarray) -> np.ndarray:
        """log N(θ; mean, precision⁻¹) for θ of shape (m, d)."""
        gap = theta - self.mean
        quadratic = np.einsum("mi,ij,mj->m", gap, self.precision, gap)
        return -0.5 * (quadratic - self.log_det + self.mean.size * LOG_2PI)

    def shaped(self, mean: np.ndarray, covariance: np.ndarray) -> tuple[Any, Any]:
        """Mean and covariance as numbers for a scalar θ, else as arrays."""
        return (float(mean[0]), float(covariance[0, 0])) if self.scalar else (mean, covariance)


class ClutterData(NamedTuple):
    """x (n, d), its clutter parameters, how often each term counts, and the prior."""

    x: np.ndarray
    w: float
    clutter_variance: float
    multiplicity: np.ndarray
    prior: GaussianPrior

    @property
    def log_background(self) -> np.ndarray:
        """log w N(x_i; 0, c I)."""
        c = self.clutter_variance
        with np.errstate(divide="ignore"):
            return np.log(self.w) - 0.5 * (np.sum(self.x**2, axis=1) / c + self.x.shape[1] * (LOG_2PI + np.log(c)))

    @property
    def log_signal_constant(self) -> float:
        """log (1 − w) − d/2 log 2π."""
        return (math.log1p(-self.w) if self.w < 1 else -math.inf) - 0.5 * self.x.shape[1] * LOG_2PI

    def log_signal(self, theta: np.ndarray, spread: float = 0.0) -> np.ndarray:
        """log (1 − w) + E log N(x_i; θ, I), where `spread` is the trace of the covariance of θ."""
        return self.log_signal_constant - 0.5 * (np.sum((self.x - theta) ** 2, axis=1) + spread)

    def responsibilities(self, theta: np.ndarray, spread: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """(r_i, 1 − r_i) of (3.64); both keep their digits when tiny."""
        odds = self.log_signal(theta, spread) - self.log_background
        return expit(odds), expit(-odds)

    def conditional(self, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and precision of θ when point i counts as `share_i` observations of it (3.71–3.72)."""
        share = self.multiplicity * share
        precision = self.prior.precision + np.sum(share) * np.eye(self.x.shape[1])
        return np.linalg.solve(precision, self.prior.precision @ self.prior.mean + share @ self.x), precision

    def default_start(self) -> np.ndarray:
        """The posterior mean if no observation were clutter."""
        return self.conditional(np.ones(len(self.x)))[0]


class MixtureData(NamedTuple):
    """log p_k(x_i) (n, K), how often each term counts, and the concentration of the Dirichlet prior."""

    log_densities: np.ndarray
    multiplicity: np.ndarray
    concentration: np.ndarray


def resolve_problem(problem: Any) -> Problem:
    """The problem itself, or that of anything with a `.problem()`, after its own checks."""
    found = problem.problem() if hasattr(problem, "problem") else problem
    if not isinstance(found, Problem):
        raise TypeError(f"problem must be a cavity Problem or have a method problem(); found {type(problem).__name__}.")
    float64(found.validate)()
    return found


def unsupported(method: str, problem: Problem, *supported: str) -> TypeError:
    """The one sentence for a problem of another kind."""
    family = getattr(problem.posterior, "family", problem.posterior)
    terms = ", ".join(sorted({type(group.factor).__name__ for group in problem.groups}))
    found = f"{terms} factors under {type(family).__name__}"
    return TypeError(f"{method} supports {' and '.join(supported)}; found {found}.")


def copies_of(group: SiteGroup) -> np.ndarray:
    """The number of equal factors that every site of a group stands for, as an array."""
    return np.ones(group.size) if group.multiplicity is None else np.asarray(group.multiplicity, float)


def repetitions(method: str, multiplicity: np.ndarray) -> np.ndarray:
    """Index of the site of every single factor; a fraction of a factor cannot be assigned to a component."""
    broken = multiplicity != np.rint(multiplicity)
    if broken.any():
        raise ValueError(f"{method} needs whole multiplicities; found {multiplicity[broken][0]}.")
    return np.repeat(np.arange(multiplicity.size), multiplicity.astype(int))


def read_gaussian_prior(problem: Problem) -> GaussianPrior | None:
    """The prior of a problem in which every group acts on one Gaussian variable."""
    if not isinstance(problem.posterior, Shared) or any(group.scope is not None for group in problem.groups):
        return None
    family, eta = problem.posterior.family, np.asarray(problem.prior, float)
    if isinstance(family, Gaussian):
        return GaussianPrior(eta[:1] / eta[1], eta[1:, None], True)
    if not isinstance(family, SphericalGaussian | DiagonalGaussian | FullGaussian):
        return None
    d = family.dimension
    rest = eta[d:]
    precision = rest.reshape(d, d) if isinstance(family, FullGaussian) else rest * np.eye(d)
    return GaussianPrior(np.linalg.solve(precision, eta[:d]), precision, False)


def clutter_data(problem: Problem) -> ClutterData | None:
    """The parts of a clutter problem, under any Gaussian prior."""
    prior = read_gaussian_prior(problem)
    group = problem.groups[0]
    if prior is None or len(problem.groups) != 1 or not isinstance(group.factor, Clutter):
        return None
    x = np.asarray(group.data, float).reshape(group.size, -1)
    return ClutterData(x, float(group.factor.w), float(group.factor.clutter_variance), copies_of(group), prior)


def mixture_data(problem: Problem) -> MixtureData | None:
    """The parts of a mixture-weight problem."""
    if not isinstance(problem.posterior, Shared) or len(problem.groups) != 1:
        return None
    group = problem.groups[0]
    if not isinstance(group.factor, Mixture) or not isinstance(problem.posterior.family, Dirichlet):
        return None
    return MixtureData(np.asarray(group.data, float), copies_of(group), np.asarray(problem.prior, float))


def dirichlet_moments(concentration: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of Dirichlet(concentration)."""
    total = np.sum(concentration)
    mean = concentration / total
    return mean, (np.diag(mean) - np.outer(mean, mean)) / (total + 1.0)


def site_count(problem: Problem) -> int:
    """Terms evaluated at one θ."""
    return sum(group.size for group in problem.groups)


def log_joint(problem: Problem, prior: GaussianPrior) -> Callable[[np.ndarray], np.ndarray]:
    """θ (m, d) ↦ log p(θ) + Σ log t_i(θ); NaN and +∞ are refused where the prior leaves anything."""
    peak = prior.log_density(prior.mean[None])[0]

    def value(theta: np.ndarray) -> np.ndarray:
        log_prior = prior.log_density(theta)
        log_t = log_likelihood(problem, theta[:, 0] if prior.scalar else theta)
        unknown = ~(log_t < np.inf) & (log_prior > peak - UNLIKELY)
        if unknown.any():
            raise FactorError(
                f"the log density of some factor is NaN or infinite at {theta[unknown][0]}: there is no exact answer."
            )
        return np.where(log_t < np.inf, log_prior + log_t, -np.inf)

    return value


def checkpoints(total: int, count: int = 40) -> list[int]:
    """Up to `count` sample sizes, evenly spaced in the logarithm, the last being `total`."""
    return [int(size) for size in np.unique(np.rint(np.geomspace(min(10, total), total, count)).astype(int))]
