"""Importance sampling on the host, with the incoming messages as proposals.

For factor × cavities, variables are drawn from their own cavities by a scrambled Sobol sequence, and a draw is weighted
by the factor: a thousand such draws tell more than half a million from a broad distribution.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import logsumexp, softmax
from scipy.stats import qmc

from cavity.factors.base import Factor, evaluate
from cavity.families.base import Family
from cavity.families.categorical import Categorical
from cavity.families.dirichlet import Beta, Dirichlet
from cavity.families.full_gaussian import FullGaussian
from cavity.families.gamma import Gamma
from cavity.families.gaussian import Gaussian
from cavity.learned.message_coordinates import parts_of, split_variables
from cavity.learned.oracles import Answers, Integrated, Oracle, stack_answers
from cavity.learned.simulation import Simulator, simulator_of
from cavity.moments.base import Moments
from cavity.moments.quadrature import Quadrature, can_integrate

#: effective sample size below which an answer is refused
LEAST_ESS = 200.0
#: draws of one answer that is sampled
DRAWS = 8192

#: natural parameters, and draws, one array per variable
Pieces = list[np.ndarray]
Draws = list[np.ndarray]


class SiteQuestion(NamedTuple):
    """One site: its factor, families and cavities of its variables, its data."""

    factor: Factor
    families: Sequence[Family]
    pieces: Pieces
    data: Any


class Sampled(Oracle):
    """draws: of one try. Where fewer than `least_ess` of them count, variables are drawn again nearer to those that do,
    at most so many `tries`; a question that still fails is refused.
    """

    def __init__(self, draws: int = 4096, least_ess: float = LEAST_ESS, tries: int = 8) -> None:
        self.draws, self.least_ess, self.tries = draws, least_ess, tries

    def is_noisy(self, factor: Factor, family: Family) -> bool:
        return True

    @abstractmethod
    def count_proposed(self, site: SiteQuestion) -> int:
        """How many variables, the first ones, are drawn from their cavities."""

    @abstractmethod
    def weigh(self, site: SiteQuestion, values: Draws, rng: np.random.Generator) -> tuple[Draws, np.ndarray]:
        """All variables, given those that were drawn, and the log of the factor and the other cavities at them."""

    def answer(self, factor: Factor, family: Family, cavities: np.ndarray, data: Any, key: jax.Array) -> Answers:
        families, found = parts_of(family), []
        for number, cavity in enumerate(np.asarray(cavities)):
            pieces = [np.asarray(piece) for piece in split_variables(family, jnp.asarray(cavity))]
            rng = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.fold_in(key, number))).tolist())
            own = jax.tree.map(lambda leaf, at=number: np.asarray(leaf)[at], data)
            try:
                found.append(self.answer_one(SiteQuestion(factor, families, pieces, own), rng))
            except SamplerError as error:
                # What was found before is not lost.
                raise SamplerError(str(error), stack_answers(found) if found else None) from error.__cause__
        return stack_answers(found)

    def answer_one(self, site: SiteQuestion, rng: np.random.Generator) -> Answers:
        """The answer to one question."""
        families, pieces = site.families, site.pieces
        first = self.count_proposed(site)
        proposals = pieces[:first]
        for _ in range(self.tries):
            values, log_ratio = self.draw(families, pieces, proposals, rng)
            draws, log_weights = self.weigh(site, values, rng)
            log_weights = log_ratio + log_weights
            total = logsumexp(log_weights)
            if not np.isfinite(total):
                break
            weights = np.exp(log_weights - total)
            ess = 1.0 / np.sum(weights**2)
            if ess >= self.least_ess:
                projected = [project_draws(own, found, weights) for own, found in zip(families, draws, strict=True)]
                log_z = np.asarray(total - np.log(self.draws))
                return Answers(np.concatenate(projected), log_z, np.asarray(1.0 / ess))
            # Too few draws count: a step towards those that do, no longer than enough of them go along.
            weights = temper_weights(log_weights, self.least_ess)
            rows = zip(families[:first], values, strict=True)
            proposals = [widen(own, np.asarray(project_draws(own, values, weights))) for own, values in rows]
            if not all(np.isfinite(own).all() for own in proposals):
                break
        return Answers(np.full(sum(map(len, pieces)), np.nan), np.asarray(np.nan), np.asarray(np.inf))

    def draw(
        self, families: Sequence[Family], pieces: Pieces, proposals: Pieces, rng: np.random.Generator
    ) -> tuple[Draws, np.ndarray]:
        """Variables from their proposals, and log cavity/proposal of each draw."""
        values, log_weights = [], np.zeros(self.draws)
        sizes = [math.prod(own.event_shape) for own in families[: len(proposals)]]
        # Scrambled points in the open unit cube.
        points = np.clip(qmc.Sobol(sum(sizes), scramble=True, rng=rng).random(self.draws), 1e-12, 1.0 - 1e-12)
        columns = np.split(points, np.cumsum(sizes)[:-1], axis=1)
        for own, uniform, cavity, proposal in zip(families, columns, pieces, proposals, strict=False):
            values.append(quantiles(own, proposal, uniform))
            if proposal is not cavity:
                log_weights += log_density(own, cavity, values[-1]) - log_density(own, proposal, values[-1])
        return values, log_weights


class Weighed(Sampled):
    """A factor with a log density, all of whose variables are drawn from their cavities."""

    def count_proposed(self, site: SiteQuestion) -> int:
        return len(site.families)

    def weigh(self, site: SiteQuestion, values: Draws, rng: np.random.Generator) -> tuple[Draws, np.ndarray]:
        x = tuple(map(jnp.asarray, values)) if len(values) > 1 else jnp.asarray(values[0])
        # NaN and +∞ stay: of such a question nothing is known, and it is refused.
        return values, np.asarray(log_factor(site.factor, x, site.data))


@jax.jit
def log_factor(factor: Factor, x: Any, data: Any) -> jax.Array:
    """log t of many values."""
    return jax.vmap(partial(evaluate, factor, "log_density"), in_axes=(0, None))(x, data)


class Simulated(Sampled):
    """A simulator: inputs are drawn from their own cavities and outputs by the program; a draw weighs as much as the
    outputs' cavities say.
    """

    def validate(self, factor: Factor) -> None:
        simulator_in(factor)

    def count_proposed(self, site: SiteQuestion) -> int:
        simulator, known = simulator_in(site.factor)
        return len(simulator.slots[0]) - len(known)

    def weigh(self, site: SiteQuestion, values: Draws, rng: np.random.Generator) -> tuple[Draws, np.ndarray]:
        simulator, known = simulator_in(site.factor)
        arguments, free = list(values), len(values)
        for place, value in zip(known, site.data.values if known else (), strict=True):
            arguments.insert(place, np.full(self.draws, float(value)))
        families, pieces = site.families[free:], site.pieces[free:]
        outputs = self.run(simulator, rng, arguments, families)
        log_weights = np.zeros(self.draws)
        for own, cavity, found in zip(families, pieces, outputs, strict=True):
            log_weights += log_density(own, cavity, found)
        return [*values, *outputs], log_weights

    def run(
        self, simulator: Simulator, rng: np.random.Generator, inputs: list[np.ndarray], families: Sequence[Family]
    ) -> list[np.ndarray]:
        """The program's outputs, checked."""
        name = f"the sampler {getattr(simulator.sampler, '__name__', type(simulator.sampler).__name__)}"
        shown = f"Its first inputs: {', '.join(np.array2string(own[:3], precision=4) for own in inputs)}."
        try:
            # Copies: the draws are weighed afterwards, whatever the program writes over its arguments.
            raw = simulator.sampler(rng, *(own.copy() for own in inputs))
            given = raw if isinstance(raw, tuple | list) else (raw,)
            masked = any(np.ma.is_masked(own) for own in given)
            outputs = [np.asarray(own) for own in given]
        except Exception as error:
            raise SamplerError(f"{name} raised {type(error).__name__}: {error}. {shown}") from error
        if masked:
            raise SamplerError(f"{name} gave masked values. {shown}")
        if any(own.dtype.kind not in "biuf" for own in outputs):
            kinds = ", ".join(str(own.dtype) for own in outputs)
            raise SamplerError(f"{name} must give arrays of real numbers; found {kinds}. {shown}")
        shapes, wanted = [own.shape for own in outputs], [(self.draws, *own.event_shape) for own in families]
        if shapes != wanted:
            seen = shapes if len(shapes) <= len(inputs) + len(wanted) else f"{len(shapes)} of them"
            raise SamplerError(f"{name} must give arrays of shapes {wanted}; found {seen}. {shown}")
        for family, own in zip(families, outputs, strict=True):
            bad = ~is_possible(family, own)
            if bad.any():
                failed = ", ".join(np.array2string(values[bad][0], precision=6) for values in inputs)
                kind = "" if isinstance(family, Gaussian | FullGaussian) else f" for a {type(family).__name__} variable"
                raise SamplerError(
                    f"{name} gave {own[bad][0]}{kind} in {bad.sum()} of {len(own)} draws, as for {failed}."
                )
        return outputs


def is_possible(family: Family, values: np.ndarray) -> np.ndarray:
    """Which rows of values a variable of this family can have: finite ones, and within the bounds of the others."""
    with np.errstate(invalid="ignore"):
        possible = np.array(np.isfinite(values))
        if isinstance(family, Categorical):
            possible &= (values == np.floor(values)) & (values >= 0) & (values < family.states)
        elif isinstance(family, Beta | Dirichlet):
            possible &= (values >= 0) & (values <= 1)
        elif isinstance(family, Gamma):
            possible &= values >= 0
    return np.all(possible.reshape(len(values), -1), axis=1)


def simulator_in(factor: Factor) -> tuple[Simulator, tuple[int, ...]]:
    """A factor that must be a simulator, and the places of its arguments that are numbers."""
    simulator, places = simulator_of(factor)
    if simulator is None:
        raise TypeError(f"a simulator is needed; found {type(factor).__name__}.")
    return simulator, places


class Automatic(Oracle):
    """A simulator by running it; a factor with a log density by quadrature over one or two variables, else by draws."""

    def __init__(self, draws: int) -> None:
        self.by_program, self.by_draws = Simulated(draws), Weighed(draws)
        self.by_rule = Integrated(Quadrature(), LEAST_ESS)

    def choose(self, factor: Factor, family: Family) -> Oracle:
        """The oracle for a factor."""
        if simulator_of(factor)[0] is not None:
            return self.by_program
        return self.by_draws if len(parts_of(family)) > 2 or not can_integrate(family) else self.by_rule

    def is_noisy(self, factor: Factor, family: Family) -> bool:
        return self.choose(factor, family).is_noisy(factor, family)

    def answer(self, factor: Factor, family: Family, cavities: np.ndarray, data: Any, key: jax.Array) -> Answers:
        return self.choose(factor, family).answer(factor, family, cavities, data, key)


def as_oracle(oracle: Moments | Oracle | None, draws: int) -> Oracle:
    """The oracle that is meant; `Automatic` where none is named."""
    if not isinstance(draws, int) or draws < 2 * LEAST_ESS:
        raise ValueError(f"draws must be an integer of at least {2 * LEAST_ESS:.0f}; found {draws!r}.")
    if oracle is None:
        return Automatic(draws)
    if not isinstance(oracle, Moments | Oracle):
        raise TypeError(f"oracle must be a strategy such as cavity.Quadrature(); found {type(oracle).__name__}.")
    return Integrated(oracle, LEAST_ESS) if isinstance(oracle, Moments) else oracle


class SamplerError(RuntimeError):
    """A simulator failed: it raised, or gave something other than finite arrays of the right shape.

    The message says what it did and for which inputs. What was learned before the failure is kept.

    Args:
        message: what happened.
        found: answers to the questions before the one that failed.

    Examples:
        >>> import cavity
        >>> broken = cavity.learned.just_in_time(lambda rng, x: x[:3], inputs=1, outputs=1)
        >>> graph = cavity.FactorGraph()
        >>> graph.add(broken, graph.gaussian(0.0, 1.0), graph.gaussian(1.0, 1.0))
        >>> try:
        ...     cavity.infer(graph, cavity.EP())
        ... except cavity.learned.SamplerError as error:
        ...     print(str(error).split(";")[0])
        the sampler <lambda> must give arrays of shapes [(8192,)]
    """

    def __init__(self, message: str, found: Answers | None = None) -> None:
        super().__init__(message)
        self.found = found


def quantiles(family: Family, eta: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Draws of a member at uniform points, one row per draw."""
    if isinstance(family, Gaussian):
        return eta[0] / eta[1] + stats.norm.ppf(uniform[:, 0]) / np.sqrt(eta[1])
    if isinstance(family, FullGaussian):
        mean, covariance = (np.asarray(own) for own in family.coordinates(jnp.asarray(eta)))
        return mean + stats.norm.ppf(uniform) @ np.linalg.cholesky(covariance).T
    if isinstance(family, Gamma):
        return stats.gamma.ppf(uniform[:, 0], eta[0], scale=1.0 / eta[1])
    if isinstance(family, Beta):
        return stats.beta.ppf(uniform[:, 0], *eta)
    if isinstance(family, Categorical):
        shares = np.asarray(family.moments(jnp.asarray(eta)))
        return np.minimum(np.searchsorted(np.cumsum(shares), uniform[:, 0]), family.states - 1)
    raise TypeError(f"draws can be Gaussian, FullGaussian, Gamma, Beta or Categorical; found {family!r}.")


@partial(jax.jit, static_argnames="family")
def log_density(family: Family, eta: jax.Array | np.ndarray, values: jax.Array | np.ndarray) -> jax.Array:
    """Of many values; 0 everywhere where nothing is known."""
    densities = jax.vmap(lambda x: family.log_density(jnp.asarray(eta), x))(jnp.asarray(values))
    return jnp.where(family.is_proper(jnp.asarray(eta)), densities, 0.0)


@partial(jax.jit, static_argnames="family")
def project_draws(family: Family, values: Any, weights: Any) -> jax.Array:
    """Natural parameters of the member nearest to weighted draws; Gaussians by central moments, which keep their digits
    far out.
    """
    values, weights = jnp.asarray(values), jnp.asarray(weights)
    if isinstance(family, Gaussian | FullGaussian):
        mean = weights @ values
        gap = values - mean
        spread = (weights[:, None] * gap).T @ gap if family.event_shape else weights @ gap**2
        return family.from_mean(mean, spread)
    # Draws that weigh nothing may lie where the statistics are infinite.
    statistics = jnp.where(weights[:, None] > 0, jax.vmap(family.statistics)(values), 0.0)
    return family.natural(weights @ statistics)


def temper_weights(log_weights: np.ndarray, least: float) -> np.ndarray:
    """Normalised weights to the largest power of at most 1 for which so many draws count."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        weights = softmax(middle * log_weights)
        low, high = (middle, high) if 1.0 / np.sum(weights**2) >= least else (low, middle)
    return softmax(low * log_weights)


def widen(family: Family, eta: np.ndarray) -> np.ndarray:
    """A member with a wider spread around the same place, to draw from."""
    return eta if isinstance(family, Categorical) else eta / 2.0
