"""Importance sampling with a fixed broad proposal: the sampler of Jitkrittum et al. (2), kept for comparison.

Draws x come from one distribution whatever the messages are, and weigh

    w(x) = factor(x) ∏ m(x) / r(x).

Where the outputs of a factor are drawn by a program from its inputs, the factor cancels and r is that of the inputs.
The paper has r = N(0, 200) and 10⁵ to 5·10⁵ draws. With messages much narrower than r few draws count; ESS says so.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from cavity._core.precision import float64
from cavity.factors.base import Factor
from cavity.families.base import Family
from cavity.families.gaussian import Gaussian
from cavity.learned.message_coordinates import parts_of, split_variables
from cavity.learned.oracles import Answers, Oracle, stack_answers
from cavity.learned.sampling import project_draws

#: key, number of draws → values (one array per variable, or one array) and log factor(x)/r(x)
Draw = Callable[[jax.Array, int], tuple[Any, jax.Array]]

#: cavities of a compiled batch
BATCH = 50
#: mean and variance of the paper's proposal
MEAN, VARIANCE = 0.0, 200.0


class BroadSamples(NamedTuple):
    """projected: natural parameters of the projections, one row a cavity. log_z, ess: of each."""

    projected: Any
    log_z: Any
    ess: Any


def run_program(program: Callable[[jax.Array], Any]) -> Draw:
    """Inputs from N(0, 200), all variables by a program without randomness of its own: z ↦ (σ(z), z), say."""

    def draw(key: jax.Array, count: int) -> tuple[Any, jax.Array]:
        inputs, log_r = draw_broad(key, count)
        return program(inputs), -log_r

    return draw


def weigh_density(log_density: Callable[[Any], jax.Array]) -> Draw:
    """One variable on the line from N(0, 200), weighed by the density of a factor."""

    def draw(key: jax.Array, count: int) -> tuple[Any, jax.Array]:
        values, log_r = draw_broad(key, count)
        return values, jax.vmap(log_density)(values) - log_r

    return draw


class Broad(Oracle):
    """The paper's sampler for factors of one variable on the line. It refuses nothing, however few draws count."""

    def __init__(self, draws: int = 500_000) -> None:
        self.draws = draws

    def is_noisy(self, factor: Factor, family: Family) -> bool:
        return True

    def answer(self, factor: Factor, family: Family, cavities: np.ndarray, data: Any, key: jax.Array) -> Answers:
        keys = jax.random.split(key, len(cavities))
        rows = [
            sample_density(
                factor,
                family,
                self.draws,
                jnp.asarray(cavity),
                jax.tree.map(lambda leaf, at=k: jnp.asarray(leaf)[at], data),
                keys[k],
            )
            for k, cavity in enumerate(cavities)
        ]
        return stack_answers([Answers(np.asarray(row.projected), np.asarray(row.log_z), 1.0 / row.ess) for row in rows])


@partial(jax.jit, static_argnames=("family", "draws"))
def sample_density(
    factor: Factor, family: Family, draws: int, cavity: jax.Array, data: Any, key: jax.Array
) -> BroadSamples:
    """One question about a factor with a log density."""
    return sample_one(weigh_density(lambda x: factor.log_density(x, data)), family, draws, key, cavity)


def draw_broad(key: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Draws from N(0, 200) and log r there."""
    line = Gaussian()
    eta = line.from_mean(MEAN, VARIANCE)
    values = line.sample(key, eta, (count,))
    return values, line.log_density(eta, values)


@float64
def sample_projections(
    key: jax.Array, draw: Draw, family: Family, cavities: np.ndarray, draws: int = 100_000
) -> BroadSamples:
    """Projections of factor × cavity for rows of cavities, every one by draws of its own."""
    keys = jax.random.split(key, len(cavities))
    found = []
    for start in range(0, len(cavities), BATCH):
        places = np.resize(np.arange(start, min(start + BATCH, len(cavities))), BATCH)
        batch = sample_batch(draw, family, draws, keys[places], jnp.asarray(np.asarray(cavities, float)[places]))
        found.append([np.asarray(own)[: len(cavities) - start] for own in batch])
    return BroadSamples(*(np.concatenate(own) for own in zip(*found, strict=True)))


@partial(jax.jit, static_argnums=(0, 1, 2))
def sample_batch(draw: Draw, family: Family, draws: int, keys: jax.Array, cavities: jax.Array) -> BroadSamples:
    """A batch, one cavity after another: the draws of all would not fit into memory."""
    return jax.lax.map(lambda row: sample_one(draw, family, draws, *row), (keys, cavities))


def sample_one(draw: Draw, family: Family, draws: int, key: jax.Array, cavity: jax.Array) -> BroadSamples:
    """One question."""
    values, log_weights = draw(key, draws)
    rows = values if isinstance(values, tuple) else (values,)
    parts = list(zip(parts_of(family), split_variables(family, cavity), rows, strict=True))
    for own, piece, x in parts:
        log_weights = log_weights + own.log_density(piece, x)
    total = logsumexp(log_weights)
    weights = jnp.exp(log_weights - total)
    projected = jnp.concatenate([project_draws(own, x, weights) for own, _, x in parts])
    return BroadSamples(projected, total - jnp.log(draws), 1.0 / jnp.sum(weights**2))
