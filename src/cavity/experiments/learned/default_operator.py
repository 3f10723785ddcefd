"""The recommended learner of this library on a fixed set of labels.

The only file of these experiments that knows how `cavity.learned` keeps what it has learned.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from cavity.experiments.learned.logistic_messages import FAMILY, Labelled, probability, slices_of
from cavity.learned.coordinates import changes
from cavity.learned.knowledge import Knowledge, forecast
from cavity.learned.oracles import Answers
from cavity.learned.quasi_random import quasi_random
from cavity.learned.residual_process import ResidualProcess

#: points of a scrambling, and scramblings, of a label without quadrature
POINTS, SCRAMBLINGS = 4096, 8
#: expected KL above which the operator would ask; nobody asks here
TOLERANCE = 1e-5


def default_operator(labels: Labelled, variance: np.ndarray | None = None) -> Knowledge:
    """variance: of the noise of every label's changes and log Z, (labels, targets); None for exact labels."""
    learner = ResidualProcess(TOLERANCE, 0, lambda family: variance is not None)
    spread = np.zeros(len(labels.cavities))
    if variance is not None:
        steps = jax.vmap(lambda c, p: changes(FAMILY, c, p))(
            jnp.asarray(labels.cavities), jnp.asarray(labels.projected)
        )
        targets = np.column_stack([np.asarray(steps), labels.log_z])
        # One number a label: the mean over targets, each in its deviations. What it is worth to each is learned.
        spread = np.mean(variance / targets.var(axis=0), axis=1)
    learner.learn(FAMILY, jnp.asarray(labels.cavities), (), Answers(labels.projected, labels.log_z, spread))
    return learner.knowledge(FAMILY, ())


@jax.jit
def asked(known: Knowledge, cavities: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Projections of all variables and expected KL, rows of cavities."""

    def one(cavity: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = forecast(known, FAMILY, cavity, ())
        return cavity + found.site, found.expected_kl

    return jax.lax.map(one, cavities, batch_size=100)


def asking(known: Knowledge, output: int) -> Callable[[np.ndarray], np.ndarray]:
    """The operator as a function from cavities to projections of one variable."""
    return lambda cavities: slices_of(np.asarray(asked(known, jnp.asarray(cavities))[0]), output)


def doubts(known: Knowledge, cavities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(expected KL, projections of all variables) of rows of cavities."""
    projected, expected = asked(known, jnp.asarray(cavities))
    return np.asarray(expected), np.asarray(projected)


def scrambled_labels(seed: int, cavities: np.ndarray, points: int) -> tuple[Labelled, np.ndarray]:
    """Labels that ask for draws of the factor only, and the variance of their noise."""
    found = quasi_random(seed, lambda z: (probability(z), z), FAMILY, cavities, points, SCRAMBLINGS)
    return Labelled(np.asarray(cavities), found.projected, found.log_z), found.variance
