"""The operator of this library on a fixed set of labels: a Gaussian process on changes of messages.

The only file of these experiments that knows how `cavity.learned` keeps what it has learned.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from cavity.experiments.learned.logistic_messages import FAMILY, Labelled, probability
from cavity.learned.coordinates import changes
from cavity.learned.knowledge import Knowledge, Labels, guess, inputs_of, learned
from cavity.learned.quasi_random import quasi_random
from cavity.learned.tuning import tune

#: points of a scrambling, and scramblings, of a label without quadrature
POINTS, SCRAMBLINGS = 4096, 8


@jax.jit
def numbers(cavities: jax.Array, projected: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Inputs and targets of labels, without log Z."""
    return jax.vmap(lambda c, p: (inputs_of(FAMILY, c, ()), changes(FAMILY, c, p)))(cavities, projected)


def default_operator(labels: Labelled, variance: np.ndarray | None = None) -> Knowledge:
    """variance: of the noise of every label's targets, (labels, targets); None for exact labels."""
    inputs, steps = (np.asarray(own) for own in numbers(jnp.asarray(labels.cavities), jnp.asarray(labels.projected)))
    targets = np.column_stack([steps, labels.log_z])
    # One number a label: the mean over targets, each in its deviations.
    spread = np.zeros(len(inputs)) if variance is None else np.mean(variance / targets.var(axis=0), axis=1)
    found = Labels(inputs, targets, spread)
    return learned(found, tune(*found), len(inputs))


@jax.jit
def asked(known: Knowledge, cavities: jax.Array) -> jax.Array:
    """Projections of all variables, rows of cavities."""
    return jax.lax.map(lambda cavity: guess(known, FAMILY, cavity, ()).projected, cavities, batch_size=100)


@jax.jit
def doubted(known: Knowledge, cavities: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`doubts`."""

    def one(cavity: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = guess(known, FAMILY, cavity, ())
        return found.expected_kl, found.projected

    return jax.lax.map(one, cavities, batch_size=100)


def doubts(known: Knowledge, cavities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(expected KL, projections of all variables) of rows of cavities."""
    expected, projected = doubted(known, jnp.asarray(cavities))
    return np.asarray(expected), np.asarray(projected)


def predictor(known: Knowledge, output: int, cavities: np.ndarray) -> np.ndarray:
    """Projections of one variable."""
    return np.asarray(asked(known, jnp.asarray(cavities)))[:, FAMILY.slices[output]]


def asking(known: Knowledge, output: int) -> partial:
    """The operator as a function of cavities."""
    return partial(predictor, known, output)


def scrambled_labels(seed: int, cavities: np.ndarray, points: int) -> tuple[Labelled, np.ndarray]:
    """Labels that ask for draws of the factor only, and the variance of their noise."""
    found = quasi_random(seed, lambda z: (probability(z), z), FAMILY, cavities, points, SCRAMBLINGS)
    return Labelled(np.asarray(cavities), found.projected, found.log_z), found.variance
