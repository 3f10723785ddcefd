"""How far EP's answer is from the exact one: importance sampling of the exact posterior, where that can be done.

    log target(x) = log prior(x) + Σ multiplicityᵢ log tᵢ(x),     weight = target / proposal.

The mean weight estimates the evidence without bias and with a standard error. Under a Gaussian prior the proposal is a
mixture: what tempered particles found, a wide t around q, q itself and the prior, so that neither a mode q misses nor
a tail it cuts off goes without draws. Other families, and graphs, are drawn from q and the prior.
"""

import dataclasses
import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64
from cavity._core.system import Shared, one_blas_thread
from cavity._diagnostics.proposal import Component, fit_mixture, mixture, temper, widen_gaussian
from cavity._diagnostics.psis import effective_sample_size, smooth, stratified_log_mean, weighted_moments
from cavity.inference.pointwise import log_likelihood, pointwise_log_likelihood, require_densities
from cavity.inference.problem import Problem
from cavity.posteriors.base import Coordinates

if TYPE_CHECKING:
    from arviz import InferenceData

#: custom group of an InferenceData with the weighted draws as they are
WEIGHTED = "weighted"
#: ArviZ announces its next version, which the extra does not ask for
without_announcements = Shared(lambda: warnings.catch_warnings(action="ignore", category=FutureWarning))


def arviz() -> Any:
    """The package, or one sentence on how to get it."""
    try:
        with without_announcements():
            import arviz
    except ImportError:
        raise ImportError('to_arviz needs ArviZ, which is not installed: pip install "cavity[arviz]".') from None
    return arviz


def named(name: str, x: Any) -> dict[str, np.ndarray]:
    """One chain of draws by name: those of a dictionary, else one for all leaves, numbered where there are several."""
    if isinstance(x, dict):
        return {own: np.asarray(leaf)[None] for own, leaf in x.items()}
    leaves = jax.tree.leaves(x)
    names = [name] if len(leaves) == 1 else [f"{name}_{number}" for number in range(len(leaves))]
    return {own: np.asarray(leaf)[None] for own, leaf in zip(names, leaves, strict=True)}


def from_draws(problem: Problem, x: Any, shown: Any, attributes: dict[str, Any]) -> "InferenceData":
    """Draws of a problem's unknown as they are shown, with log t_i(x) of every site, called y."""
    require_densities("to_arviz", problem)
    return arviz().from_dict(
        posterior=named(problem.posterior.variable, shown),
        log_likelihood=named("y", pointwise_log_likelihood(problem, x)),
        attrs=attributes,
    )


def from_weighted(
    variable: str, x: Any, log_weights: np.ndarray, attributes: dict[str, Any], rng: np.random.Generator
) -> "InferenceData":
    """Draws resampled by their weights, as many as there are, and the weighted draws in a group of their own."""
    kept = rng.choice(log_weights.size, log_weights.size, p=np.exp(log_weights))
    resampled = jax.tree.map(lambda leaf: leaf[kept], x)
    found = arviz().from_dict(posterior=named(variable, resampled), attrs=attributes)
    weighted = named(variable, x) | {"log_weight": log_weights[None]}
    found.add_groups({WEIGHTED: arviz().convert_to_dataset(weighted)})
    return found


if TYPE_CHECKING:
    from cavity.inference.solution import Solution

#: degrees of freedom of the t components, and how much wider they are than what they surround
FREEDOM, WIDTH = 8.0, 1.2
#: shares of the proposal: fitted to the particles, t around q, q, prior
FITTED, AROUND, ITSELF, PRIOR = 0.5, 0.2, 0.2, 0.1
#: particles led from the prior to the posterior, the dimension up to which they get there, Gaussians fitted to them
PARTICLES, MAX_DIMENSION, MAX_COMPONENTS = 512, 20, 5
#: least log tᵢ that a particle feels: where tᵢ = 0 it still knows how many terms are against it
FLOOR = -30.0
#: a difference in log evidence too small to matter
TOLERANCE = 0.03
#: an interval is not trusted with fewer effective draws, or with a higher k̂ and one draw that has more of the weight
MIN_EFFECTIVE, MAX_K_HAT, MAX_SHARE = 100.0, 0.7, 0.01
#: half of the longest interval that tells agreement
MAX_HALF_LENGTH = 0.2
#: dimension up to which the modes of any posterior are found; beyond, factors must be log-concave
SEARCHED = 3
#: values longer than this get variances only
MAX_COVARIANCE = 50

AGREES, OFF, INCONCLUSIVE = "EP agrees", "EP is off", "inconclusive"


@dataclasses.dataclass(frozen=True)
class Check:
    """How EP's answer compares with importance sampling; `str(check)` is the verdict in a sentence.

    Attributes:
        verdict: "EP agrees", "EP is off" or "inconclusive", about the log evidence.
        sentence: the verdict with its numbers, in words.
        log_evidence: estimate of log p(D), unbiased for p(D).
        standard_error: of `log_evidence`.
        interval: 95 %.
        difference: EP's log evidence less the estimate.
        k_hat: shape of the tail of the weights; it judges the proposal, not EP.
        effective_sample_size: (Σ w)² / Σ w².
        nonzero: share of the draws whose weight is not zero.
        mean: of the exact posterior; of a graph of mixed variables by their names, of discrete variables that of the
            number of the state.
        mean_error: standard error of `mean`.
        variance: of the exact posterior.
        variance_error: standard error of `variance`.
        covariance: of all entries of a value in a row; None where there are more than 50.
        covariance_error: standard error of `covariance`.
        draws: the values drawn.
        log_weights: their normalised log weights, the largest smoothed.
        variable: what a value is called.

    Examples:
        EP's evidence for clutter is near the exact one, and not equal to it:

        >>> import cavity as cv
        >>> solution = cv.infer(cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0]))
        >>> check = solution.check()
        >>> print(check.verdict, solution.log_evidence.round(2), round(check.log_evidence, 1), sep=", ")
        EP is off, -12.26, -12.2
    """

    verdict: str
    sentence: str
    log_evidence: float
    standard_error: float
    interval: tuple[float, float]
    difference: float
    k_hat: float
    effective_sample_size: float
    nonzero: float
    mean: Any
    mean_error: Any
    variance: Any
    variance_error: Any
    covariance: Any
    covariance_error: Any
    draws: Any
    log_weights: np.ndarray
    variable: str

    def __str__(self) -> str:
        return self.sentence

    def to_arviz(self, key: jax.Array | None = None) -> Any:
        """An arviz.InferenceData: draws resampled by their weights in `posterior`, the weighted ones in `weighted`.

        Args:
            key: random key for the resampling; a fixed one is used when None.

        Returns:
            The `arviz.InferenceData`, with log evidence, standard error, k̂ and verdict among its attributes.

        Raises:
            ImportError: ArviZ is not installed.
        """
        attributes = {
            "log_evidence": self.log_evidence,
            "standard_error": self.standard_error,
            "k_hat": self.k_hat,
            "verdict": self.verdict,
        }
        return from_weighted(self.variable, self.draws, self.log_weights, attributes, generator(key))


class Weighted(NamedTuple):
    """Values with their log weights, the stratum each was drawn from, and the number of coordinates drawn."""

    x: Any
    log_weights: np.ndarray
    stratum: np.ndarray
    dimension: int


def generator(key: jax.Array | None) -> np.random.Generator:
    """NumPy's generator for a random key, or for a fixed one."""
    return np.random.default_rng(np.asarray(jax.random.key_data(jax.random.key(0) if key is None else key)))


@float64
@one_blas_thread()
def check(solution: "Solution", draws: int = 4000, key: jax.Array | None = None) -> Check:
    """Importance sampling of the exact posterior, compared with the solution; behind `Solution.check`.

    Args:
        solution: one solution, not a stack.
        draws: importance draws, at least 100.
        key: random key; a fixed one is used when None.

    Returns:
        A `Check`.

    Raises:
        ValueError: the solution is a stack, or there are too few draws.
        MissingDensity: a factor has no log density.
    """
    if np.ndim(solution.code) > 0:
        raise ValueError(f"check takes one solution at a time; found a stack of shape {np.shape(solution.code)}.")
    if not isinstance(draws, int) or draws < 100:
        raise ValueError(f"draws must be a whole number of at least 100; found {draws!r}.")
    require_densities("check", solution.problem)
    problem = jax.tree.map(jnp.asarray, solution.problem)
    key = jax.random.key(0) if key is None else key
    checks.random_key("key", key)
    coordinates = problem.posterior.coordinates(problem.prior, jax.tree.map(jnp.asarray, solution.q))
    if coordinates is None:
        found = from_families(problem, solution.q, draws, key)
    else:
        found = from_coordinates(problem, Coordinates(*map(np.asarray, coordinates)), draws, key)
    found = found._replace(x=solution.by_name(found.x))
    searched = found.dimension <= SEARCHED or all(group.factor.is_log_concave() for group in solution.problem.groups)
    return judge_draws(found, float(solution.log_evidence), searched, problem.posterior.variable)


def from_coordinates(problem: Problem, at: Coordinates, draws: int, key: jax.Array) -> Weighted:
    """Draws in minimal coordinates from a mixture made for this problem."""
    rng = generator(key)
    d = at.mean.size

    def value(z: np.ndarray) -> np.ndarray:
        return at.centre + (z @ at.root.T).reshape(len(z), *at.centre.shape)

    around = widen_gaussian(at.mean, at.covariance, FREEDOM, WIDTH)
    parts = [
        (AROUND, around),
        (ITSELF, widen_gaussian(at.mean, at.covariance, math.inf, 1.0)),
        (PRIOR, prior := Component(np.zeros(d), np.eye(d))),
    ]
    if d <= MAX_DIMENSION:
        particles = temper(lambda z: log_likelihood(problem, value(z), FLOOR), d, rng, PARTICLES)
        if particles is not None:
            count = max(1, min(MAX_COMPONENTS, PARTICLES // (20 * d)))
            for share, mean, covariance in fit_mixture(particles.z, rng, count):
                parts.append((FITTED * share, widen_gaussian(mean, covariance, FREEDOM, WIDTH)))
    drawn = mixture(parts).draw(rng, draws)
    x = value(drawn.z)
    return Weighted(x, weigh(prior.log_density(drawn.z) - drawn.log_density, problem, x), drawn.stratum, d)


def weigh(log_ratio: np.ndarray, problem: Problem, x: Any) -> np.ndarray:
    """log weights of draws x, for log prior/proposal; NaN where the likelihood is NaN or +∞ and the prior is not 0."""
    log_t = log_likelihood(problem, x)
    log_t = np.where(log_t < math.inf, log_t, math.nan)
    return np.where(log_ratio > -math.inf, log_ratio + log_t, -math.inf)


def from_families(problem: Problem, q: Any, draws: int, key: jax.Array) -> Weighted:
    """Draws from 0.8 q + 0.2 prior through what the families offer; from q alone where a variable has no prior."""
    flat, q = problem.posterior.flat(problem.prior), jax.tree.map(jnp.asarray, q)
    proper = [own for own in (q, flat) if bool(problem.posterior.is_normalisable(own))]
    if not proper:
        raise ValueError("check draws from q or from the prior, and both are improper.")
    held = list(zip((0.8, 0.2) if len(proper) == 2 else (1.0,), proper, strict=True))
    counts = [max(2, round(share * draws)) for share, _ in held]
    keys = jax.random.split(key, len(held))
    stacks = [
        problem.posterior.sample(own_key, problem.prior, own, count)
        for own_key, (_, own), count in zip(keys, held, counts, strict=True)
    ]
    x = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *stacks)
    densities = jnp.stack([problem.posterior.log_density(problem.prior, own, x) for _, own in held])
    shares = jnp.log(jnp.asarray(counts) / sum(counts))
    proposal = jax.nn.logsumexp(densities + shares[:, None], axis=0)
    # The weights of discrete variables alone are factors like others: that prior is not normalised.
    log_prior = problem.posterior.log_density(problem.prior, flat, x) + problem.posterior.log_mass(problem.prior)
    log_weights = weigh(np.asarray(log_prior - proposal), problem, x)
    dimension = sum(leaf[0].size for leaf in jax.tree.leaves(x))
    return Weighted(jax.tree.map(np.asarray, x), log_weights, np.repeat(np.arange(len(held)), counts), dimension)


def judge_draws(found: Weighted, ep: float, searched: bool, variable: str) -> Check:
    """The estimates from weighted draws, and the verdict on EP's log evidence."""
    unknown = np.isnan(found.log_weights)
    found = found._replace(log_weights=np.where(unknown, -math.inf, found.log_weights))
    log_evidence, error = stratified_log_mean(found.log_weights, found.stratum)
    smoothed = smooth(found.log_weights)
    effective = effective_sample_size(found.log_weights)
    moments = weighted_moments(found.x, np.exp(smoothed.log_weights), MAX_COVARIANCE)
    carried = smoothed.k_hat > MAX_K_HAT and math.exp(smoothed.log_weights.max()) > MAX_SHARE
    trusted = effective >= MIN_EFFECTIVE and not carried
    verdict, sentence = judgement(ep, log_evidence, 1.96 * error, trusted, searched)
    if unknown.any():
        share = f"{unknown.sum()} of {unknown.size} draws"
        verdict, sentence = INCONCLUSIVE, f"the log density of some factor is NaN or infinite at {share}."
    return Check(
        verdict=verdict,
        sentence=f"{verdict}: {sentence}",
        log_evidence=log_evidence,
        standard_error=error,
        interval=(log_evidence - 1.96 * error, log_evidence + 1.96 * error),
        difference=ep - log_evidence,
        k_hat=smoothed.k_hat,
        effective_sample_size=effective,
        nonzero=float(np.mean(found.log_weights > -math.inf)),
        draws=found.x,
        log_weights=smoothed.log_weights,
        variable=variable,
        **moments._asdict(),
    )


def judgement(ep: float, estimate: float, half: float, trusted: bool, searched: bool) -> tuple[str, str]:
    """Verdict and its reason.

    trusted: whether the weights allow an interval. searched: whether no mode can have been missed. A missed mode can
    only add to the evidence, so that EP's is too low if it lies below the interval, searched or not.
    """
    if not math.isfinite(estimate):
        return INCONCLUSIVE, "none of the draws has a likelihood above zero."
    given = f"importance sampling gives {estimate:.3f} ± {half:.3f}"
    said = f"its log evidence is {ep:.3f}, {given}" if math.isfinite(ep) else f"it has no finite log evidence, {given}"
    if not trusted:
        return INCONCLUSIVE, f"{said}, but a few draws carry that estimate and its interval cannot be trusted."
    if not math.isfinite(ep) or ep < estimate - half - TOLERANCE or (searched and ep > estimate + half + TOLERANCE):
        return OFF, f"{said}."
    if not searched:
        return INCONCLUSIVE, f"{said}, but there may be other modes in so many dimensions that no draw has come near."
    if half > MAX_HALF_LENGTH:
        return INCONCLUSIVE, f"{said}, too wide an interval to tell."
    return AGREES, f"{said}."
