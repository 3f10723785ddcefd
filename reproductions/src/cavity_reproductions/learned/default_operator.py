"""The recommended learner of this library on a fixed set of labels.

The only file of these experiments that knows how `cavity.learned` keeps what it has learned.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.families import Product
from cavity.learned.gp_state import GPState, forecast
from cavity.learned.learner import GPLearner
from cavity.learned.oracles import Answers
from cavity.learned.sampling import Simulated
from cavity.learned.simulation import Simulator
from cavity.moments import Batch
from cavity_reproductions.learned.logistic_messages import FACTOR, FAMILY, Labelled, probability, slices_of

#: points of a label without quadrature
POINTS = 8192
#: a sampler's input comes first: FAMILY with its variables exchanged, and the places of their natural parameters
TURNED, TURN = Product(FAMILY.families[::-1]), np.array([2, 3, 0, 1])
#: expected KL above which the operator would ask; nobody asks here
TOLERANCE = 1e-5


def default_operator(labels: Labelled, spread: np.ndarray | None = None) -> GPState:
    """spread: 1/ESS of every label, from which its noise is learned; None for exact labels."""
    learner = GPLearner(TOLERANCE)
    batch = Batch(FACTOR, FAMILY, jnp.asarray(labels.cavities), (), np.zeros(len(labels.cavities), bool), False)
    answers = Answers(labels.projected, labels.log_z, np.zeros(len(labels.cavities)) if spread is None else spread)
    learner.learn(batch, answers)
    return learner.state(batch, spread is not None)


@jax.jit
def asked(known: GPState, cavities: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Projections of all variables and expected KL, rows of cavities."""

    def one(cavity: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = forecast(known, FAMILY, cavity, ())
        return cavity + found.site, found.expected_kl

    return jax.lax.map(one, cavities, batch_size=100)


def asking(known: GPState, output: int) -> Callable[[np.ndarray], np.ndarray]:
    """The operator as a function from cavities to projections of one variable."""
    return lambda cavities: slices_of(np.asarray(asked(known, jnp.asarray(cavities))[0]), output)


def doubts(known: GPState, cavities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(expected KL, projections of all variables) of rows of cavities."""
    projected, expected = asked(known, jnp.asarray(cavities))
    return np.asarray(expected), np.asarray(projected)


@float64
def scrambled_labels(seed: int, cavities: np.ndarray, points: int) -> tuple[Labelled, np.ndarray]:
    """Labels by the oracle of samplers, which knows the factor only as a program, and 1/ESS of each."""
    program = Simulator(lambda rng, z: np.asarray(probability(jnp.asarray(z))), 1, 1)
    rows = np.asarray(cavities, float)
    found = Simulated(points, 0.0).answer(program, TURNED, rows[:, TURN], None, jax.random.key(seed))
    return Labelled(rows, found.projected[:, TURN], found.log_z), found.spread
