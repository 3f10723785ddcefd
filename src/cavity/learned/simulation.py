"""A simulator as a factor: only a program that draws outputs for given inputs, and no density.

For factor × cavities, inputs are drawn from their own cavities and outputs by the program; a draw weighs as much as
the outputs' cavities say. Inputs come from a scrambled Sobol sequence: a thousand of them tell more than half a million
draws from a broad distribution (`Broad`, the sampler of the paper, keeps these for comparison).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import logsumexp
from scipy.stats import qmc

from cavity.families.base import Family
from cavity.families.beta import Beta
from cavity.families.categorical import Categorical
from cavity.families.full_gaussian import FullGaussian
from cavity.families.gamma import Gamma
from cavity.families.gaussian import Gaussian
from cavity.learned.coordinates import cut, parts_of
from cavity.learned.oracles import Answers, Oracle

#: a sampler takes a generator and one array of draws for each input, and gives one for each output
Sampler = Callable[..., Any]
#: natural parameters, one array a variable
Pieces = list[np.ndarray]


class SamplerError(RuntimeError):
    """The program failed; the message holds the inputs it failed on."""


class Draws(NamedTuple):
    """values: one array a variable. log_weights: of each draw; both unnormalised."""

    values: list[np.ndarray]
    log_weights: np.ndarray


class Simulated(Oracle):
    """Importance sampling with the incoming messages as proposals.

    sampler: (generator, *inputs) → outputs, arrays with one row a draw. inputs: how many of the variables are inputs;
    they come first. draws: of one try. Where fewer than `least_ess` of them count, inputs are drawn again
    nearer to those that do, at most so many `tries`; a question that still fails is refused.
    """

    def __init__(
        self, sampler: Sampler, inputs: int, draws: int = 4096, least_ess: float = 200.0, tries: int = 8
    ) -> None:
        self.sampler, self.inputs, self.draws, self.least_ess, self.tries = sampler, inputs, draws, least_ess, tries

    def answer(self, family: Family, cavities: np.ndarray, data: Any, key: jax.Array) -> Answers:
        families = parts_of(family)
        found = []
        for number, cavity in enumerate(np.asarray(cavities)):
            pieces = [np.asarray(piece) for piece in cut(family, jnp.asarray(cavity))]
            rng = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.fold_in(key, number))).tolist())
            found.append(self.one(families, pieces, rng))
        return Answers(*(np.stack(column) for column in zip(*found, strict=True)))

    def one(self, families: Sequence[Family], pieces: Pieces, rng: np.random.Generator) -> Answers:
        """The answer to one question."""
        proposals = pieces[: self.inputs]
        for _ in range(self.tries):
            draws = self.drawn(families, pieces, proposals, rng)
            total = logsumexp(draws.log_weights)
            if not np.isfinite(total):
                break
            weights = np.exp(draws.log_weights - total)
            ess = 1.0 / np.sum(weights**2)
            if ess >= self.least_ess:
                rows = zip(families, draws.values, strict=True)
                projected = [matched(own, values, weights) for own, values in rows]
                return Answers(np.concatenate(projected), np.asarray(total - np.log(self.draws)), np.asarray(1.0 / ess))
            # Too few draws count: a step towards those that do, no longer than enough of them go along.
            weights = tempered(draws.log_weights, self.least_ess)
            rows = zip(families[: self.inputs], draws.values[: self.inputs], strict=True)
            proposals = [widened(own, matched(own, values, weights)) for own, values in rows]
            if not all(np.isfinite(own).all() for own in proposals):
                break
        return Answers(np.full(sum(map(len, pieces)), np.nan), np.asarray(np.nan), np.asarray(np.inf))

    def drawn(
        self,
        families: Sequence[Family],
        pieces: list[np.ndarray],
        proposals: list[np.ndarray],
        rng: np.random.Generator,
    ) -> Draws:
        """Inputs from the proposals, outputs from the program, and what both weigh."""
        inputs, log_weights = [], np.zeros(self.draws)
        sizes = [own.event_shape[0] if own.event_shape else 1 for own in families[: self.inputs]]
        uniform = sobol(sum(sizes), self.draws, rng)
        start = 0
        for own, size, cavity, proposal in zip(families, sizes, pieces, proposals, strict=False):
            values = quantiles(own, proposal, uniform[:, start : start + size])
            start += size
            inputs.append(values)
            if proposal is not cavity:
                log_weights += log_density(own, cavity, values) - log_density(own, proposal, values)
        outputs = self.run(rng, inputs, families[self.inputs :])
        for own, cavity, values in zip(families[self.inputs :], pieces[self.inputs :], outputs, strict=True):
            log_weights += log_density(own, cavity, values)
        return Draws([*inputs, *outputs], log_weights)

    def run(self, rng: np.random.Generator, inputs: list[np.ndarray], families: Sequence[Family]) -> list[np.ndarray]:
        """The program's outputs, checked."""
        shown = ", ".join(np.array2string(own[:3], precision=4) for own in inputs)
        try:
            raw = self.sampler(rng, *inputs)
        except Exception as error:
            raise SamplerError(
                f"the sampler raised {type(error).__name__}: {error}. Its first inputs: {shown}."
            ) from error
        outputs = [np.asarray(own) for own in (raw if isinstance(raw, tuple | list) else (raw,))]
        wanted = [(len(inputs[0]), *own.event_shape) for own in families]
        if [own.shape for own in outputs] != wanted:
            raise SamplerError(
                f"the sampler must give arrays of shapes {wanted}; found {[own.shape for own in outputs]}. "
                f"Its first inputs: {shown}."
            )
        for own in outputs:
            bad = ~np.isfinite(own.reshape(len(own), -1)).all(axis=1)
            if bad.any():
                failed = ", ".join(np.array2string(np.asarray(values)[bad][0], precision=6) for values in inputs)
                raise SamplerError(
                    f"the sampler gave {own[bad][0]} in {bad.sum()} of {len(own)} draws, as for {failed}."
                )
        return outputs


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
    raise TypeError(f"a simulator's input may be Gaussian, FullGaussian, Gamma, Beta or Categorical; found {family!r}.")


def log_density(family: Family, eta: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of many values; 0 everywhere where nothing is known."""
    if not bool(family.is_proper(jnp.asarray(eta))):
        return np.zeros(len(values))
    return np.asarray(jax.vmap(lambda x: family.log_density(jnp.asarray(eta), x))(jnp.asarray(values)))


def matched(family: Family, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Natural parameters of the member nearest to weighted draws."""
    statistics = np.asarray(jax.vmap(family.statistics)(jnp.asarray(values)))
    if isinstance(family, Gaussian):
        mean = weights @ values
        return np.asarray(family.from_mean(mean, weights @ (values - mean) ** 2))
    if isinstance(family, FullGaussian):
        mean = weights @ values
        return np.asarray(family.from_mean(mean, (weights[:, None] * (values - mean)).T @ (values - mean)))
    return np.asarray(family.natural(jnp.asarray(weights @ statistics)))


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
