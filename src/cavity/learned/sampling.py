"""Importance sampling on the host, with the incoming messages as proposals.

For factor × cavities, variables are drawn from their own cavities by a scrambled Sobol sequence, and a draw weighs what
the factor says of it: a thousand such draws tell more than half a million from a broad distribution.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import logsumexp
from scipy.stats import qmc

from cavity.factors.base import Factor
from cavity.factors.conditioned import Conditioned
from cavity.families.base import Family
from cavity.families.beta import Beta
from cavity.families.categorical import Categorical
from cavity.families.full_gaussian import FullGaussian
from cavity.families.gamma import Gamma
from cavity.families.gaussian import Gaussian
from cavity.learned.message_coordinates import cut, parts_of
from cavity.learned.oracles import Answers, Integrated, Oracle, stacked
from cavity.moments.quadrature import Quadrature, can_integrate

#: natural parameters, one array a variable
Pieces = list[np.ndarray]


class Question(NamedTuple):
    """One site: families and cavities of its variables, its data, and which arguments are numbers in them."""

    families: Sequence[Family]
    pieces: Pieces
    data: Any
    known: tuple[int, ...]


class Draws(NamedTuple):
    """values: one array a variable. log_weights: of each draw; both unnormalised."""

    values: list[np.ndarray]
    log_weights: np.ndarray


class Sampled(Oracle):
    """draws: of one try. Where fewer than `least_ess` of them count, variables are drawn again nearer to those that do,
    at most so many `tries`; a question that still fails is refused.
    """

    def __init__(self, draws: int = 4096, least_ess: float = 200.0, tries: int = 8) -> None:
        self.draws, self.least_ess, self.tries = draws, least_ess, tries

    def is_noisy(self, family: Family) -> bool:
        return True

    @abstractmethod
    def drawn(self, known: tuple[int, ...], variables: int) -> int:
        """How many variables, the first ones, are drawn from their cavities."""

    @abstractmethod
    def weighed(self, site: Question, values: list[np.ndarray], rng: np.random.Generator) -> Draws:
        """All variables, given those that were drawn, and what the factor and the other cavities say of them."""

    def answer(
        self, family: Family, cavities: np.ndarray, data: Any, known: tuple[int, ...], key: jax.Array
    ) -> Answers:
        families, found = parts_of(family), []
        for number, cavity in enumerate(np.asarray(cavities)):
            pieces = [np.asarray(piece) for piece in cut(family, jnp.asarray(cavity))]
            rng = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.fold_in(key, number))).tolist())
            own = jax.tree.map(lambda leaf, at=number: np.asarray(leaf)[at], data)
            try:
                found.append(self.one(Question(families, pieces, own, known), rng))
            except SamplerError as error:
                # What was found before is not lost.
                raise SamplerError(str(error), stacked(found) if found else None) from error.__cause__
        return stacked(found)

    def one(self, site: Question, rng: np.random.Generator) -> Answers:
        """The answer to one question."""
        families, pieces = site.families, site.pieces
        first = self.drawn(site.known, len(families))
        proposals = pieces[:first]
        for _ in range(self.tries):
            values, log_weights = self.proposed(families, pieces, proposals, rng)
            draws = self.weighed(site, values, rng)
            log_weights = log_weights + draws.log_weights
            total = logsumexp(log_weights)
            if not np.isfinite(total):
                break
            weights = np.exp(log_weights - total)
            ess = 1.0 / np.sum(weights**2)
            if ess >= self.least_ess:
                rows = zip(families, draws.values, strict=True)
                projected = [np.asarray(matched(own, values, weights)) for own, values in rows]
                return Answers(np.concatenate(projected), np.asarray(total - np.log(self.draws)), np.asarray(1.0 / ess))
            # Too few draws count: a step towards those that do, no longer than enough of them go along.
            weights = tempered(log_weights, self.least_ess)
            rows = zip(families[:first], values, strict=True)
            proposals = [widened(own, np.asarray(matched(own, values, weights))) for own, values in rows]
            if not all(np.isfinite(own).all() for own in proposals):
                break
        return Answers(np.full(sum(map(len, pieces)), np.nan), np.asarray(np.nan), np.asarray(np.inf))

    def proposed(
        self, families: Sequence[Family], pieces: Pieces, proposals: Pieces, rng: np.random.Generator
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Variables from their proposals, and log cavity/proposal of each draw."""
        values, log_weights, start = [], np.zeros(self.draws), 0
        sizes = [own.event_shape[0] if own.event_shape else 1 for own in families[: len(proposals)]]
        uniform = sobol(sum(sizes), self.draws, rng)
        for own, size, cavity, proposal in zip(families, sizes, pieces, proposals, strict=False):
            values.append(quantiles(own, proposal, uniform[:, start : start + size]))
            start += size
            if proposal is not cavity:
                gap = log_density(own, cavity, values[-1]) - log_density(own, proposal, values[-1])
                log_weights += np.asarray(gap)
        return values, log_weights


class Weighed(Sampled):
    """A factor with a log density, all of whose variables are drawn from their cavities."""

    def __init__(self, factor: Factor, draws: int = 4096, least_ess: float = 200.0, tries: int = 8) -> None:
        super().__init__(draws, least_ess, tries)
        self.factor = factor
        self._compiled: dict[tuple[int, ...], Any] = {}

    def drawn(self, known: tuple[int, ...], variables: int) -> int:
        return variables

    def weighed(self, site: Question, values: list[np.ndarray], rng: np.random.Generator) -> Draws:
        known = site.known
        if known not in self._compiled:
            factor = Conditioned(self.factor, known) if known else self.factor
            self._compiled[known] = jax.jit(jax.vmap(factor.log_density, in_axes=(0, None)))
        x = tuple(map(jnp.asarray, values)) if len(values) > 1 else jnp.asarray(values[0])
        found = np.asarray(self._compiled[known](x, site.data))
        return Draws(values, np.where(np.isnan(found), -np.inf, found))


class Automatic(Oracle):
    """A factor with a log density: by quadrature over one or two variables it can be used for, else by draws."""

    def __init__(self, factor: Factor, draws: int, least_ess: float, batch: int) -> None:
        self.by_rule = Integrated(factor, Quadrature(), least_ess, batch)
        self.by_draws = Weighed(factor, draws, least_ess)

    def is_noisy(self, family: Family) -> bool:
        return len(parts_of(family)) > 2 or not can_integrate(family)

    def answer(
        self, family: Family, cavities: np.ndarray, data: Any, known: tuple[int, ...], key: jax.Array
    ) -> Answers:
        return (self.by_draws if self.is_noisy(family) else self.by_rule).answer(family, cavities, data, known, key)


class SamplerError(RuntimeError):
    """The program failed; the message holds the inputs it failed on. found: answers to the questions before."""

    def __init__(self, message: str, found: Answers | None = None) -> None:
        super().__init__(message)
        self.found = found


def sobol(dimension: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Scrambled points in the open unit cube."""
    points = qmc.Sobol(dimension, scramble=True, rng=rng).random(draws)
    return np.clip(points, 1e-12, 1.0 - 1e-12)


def quantiles(family: Family, eta: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Draws of a member at uniform points, one row a draw."""
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
def matched(family: Family, values: Any, weights: Any) -> jax.Array:
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


def tempered(log_weights: np.ndarray, least: float) -> np.ndarray:
    """Normalised weights to the largest power of at most 1 for which so many draws count."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        weights = np.exp(middle * log_weights - logsumexp(middle * log_weights))
        low, high = (middle, high) if 1.0 / np.sum(weights**2) >= least else (low, middle)
    return np.exp(low * log_weights - logsumexp(low * log_weights))


def widened(family: Family, eta: np.ndarray) -> np.ndarray:
    """A member with a wider spread around the same place, to draw from."""
    return eta if isinstance(family, Categorical) else eta / 2.0
