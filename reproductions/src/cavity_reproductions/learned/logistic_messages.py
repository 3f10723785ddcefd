"""Messages of Bayesian logistic regression, w ~ N(0, I): what comes in at the factor p = σ(z), and what goes out.

p hears Beta(2, 1) or Beta(1, 2) from its label, z hears N(m, v) from the weights. All sites of a sweep see the same
posterior, as in the paper's program. Exact projections are those of `LogisticLink`, by quadrature.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid

from cavity._core.precision import float64
from cavity.factors.logistic import Logistic
from cavity.factors.probabilities import LogisticLink
from cavity.families import Beta, Gaussian, Product
from cavity_reproductions.learned.broad_proposal import run_program, sample_projections

FAMILY = Product((Beta(), Gaussian()))
#: places of the two variables in FAMILY
P, Z = 0, 1
FACTOR = LogisticLink()
#: messages integrated at a time
BATCH = 64


def probability(z: jax.Array) -> jax.Array:
    """σ(z), kept below 1: beyond z = 37 it would round to 1, where log(1 − p) is no number."""
    return jnp.minimum(sigmoid(z), 1.0 - jnp.finfo(float).epsneg)


DRAW = run_program(lambda z: (probability(z), z))


class Labelled(NamedTuple):
    """cavities, projected: natural parameters, rows of FAMILY. log_z: of each."""

    cavities: np.ndarray
    projected: np.ndarray
    log_z: np.ndarray

    def at(self, rows: np.ndarray) -> "Labelled":
        """Some of them."""
        return Labelled(*(own[rows] for own in self))

    def of(self, output: int) -> np.ndarray:
        """Projections of one variable."""
        return slices_of(self.projected, output)


class Run(NamedTuple):
    """cavities: (sweeps, sites, 4). mean, covariance: of w after the last sweep."""

    cavities: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


@jax.jit
def exact(cavities: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Projections and log Z of a batch of cavities, by quadrature."""

    def one(cavity: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = FACTOR.tilted(FAMILY, cavity, (), 1.0)
        return cavity + found.site, found.log_z

    return jax.vmap(one)(cavities)


@float64
def labelled(cavities: np.ndarray) -> Labelled:
    """With exact projections, in batches of one length, so that the rule is compiled once."""
    rows, found = np.asarray(cavities, float), []
    for start in range(0, len(rows), BATCH):
        batch = np.resize(rows[start : start + BATCH], (BATCH, FAMILY.size))
        count = min(BATCH, len(rows) - start)
        found.append([np.asarray(own)[:count] for own in exact(jnp.asarray(batch))])
    return Labelled(rows, *(np.concatenate(own) for own in zip(*found, strict=True)))


def by_sampler(key: jax.Array, cavities: np.ndarray, draws: int) -> Labelled:
    """With projections by the paper's sampler."""
    found = sample_projections(key, DRAW, FAMILY, cavities, draws)
    return Labelled(np.asarray(cavities, float), found.projected, found.log_z)


@float64
def run_ep(X: np.ndarray, y: np.ndarray, sweeps: int) -> Run:
    """Parallel EP from flat sites, and every incoming message on the way. y: −1 or +1."""
    return Run(*(np.asarray(own) for own in compiled_ep(jnp.asarray(X, float), jnp.asarray(y, float), sweeps)))


@partial(jax.jit, static_argnums=2)
def compiled_ep(X: jax.Array, y: jax.Array, sweeps: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`run_ep`."""
    shapes = jnp.where(y[:, None] > 0, jnp.array([2.0, 1.0]), jnp.array([1.0, 2.0]))

    def posterior(sites: jax.Array) -> tuple[jax.Array, jax.Array]:
        covariance = jnp.linalg.inv(jnp.eye(X.shape[1]) + (X.T * sites[:, 1]) @ X)
        return covariance @ (X.T @ sites[:, 0]), covariance

    def sweep(sites: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        mean, covariance = posterior(sites)
        variance = jnp.sum((X @ covariance) * X, axis=1)
        natural = jnp.stack([X @ mean / variance, 1.0 / variance], axis=1) - sites
        cavities = jnp.concatenate([shapes, natural], axis=1)
        # To z the factor with its Beta message is the logistic likelihood of the label, which has a quicker rule.
        return jax.vmap(lambda own, label: Logistic().tilted(Gaussian(), own, label, 1.0).site)(natural, y), cavities

    sites, cavities = jax.lax.scan(sweep, jnp.zeros((len(X), 2)), None, length=sweeps)
    return cavities, *posterior(sites)


def random_problem(seed: int, d: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """w ~ N(0, I), x ~ N(0, I), y = ±1 with probability σ(±w·x)."""
    rng = np.random.default_rng(seed)
    w, X = rng.normal(size=d), rng.normal(size=(n, d))
    return X, np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-X @ w)), 1.0, -1.0)


def collected(seed: int, d: int, n: int, problems: int, kept_sweeps: int = 5) -> list[np.ndarray]:
    """Incoming messages of the first sweeps, one array a problem."""
    seeds = np.random.SeedSequence([seed, d, n]).generate_state(problems)
    return [run_ep(*random_problem(int(own), d, n), kept_sweeps).cavities.reshape(-1, FAMILY.size) for own in seeds]


def split(seed: int, problems: list[np.ndarray], train: int, test: int) -> tuple[np.ndarray, np.ndarray]:
    """Random messages to train with and to test with, from different problems: three fifths of them, and the others."""
    rng = np.random.default_rng(seed)
    border = (3 * len(problems)) // 5
    parts = np.concatenate(problems[:border]), np.concatenate(problems[border:])
    first, second = (
        part[rng.choice(len(part), min(size, len(part)), replace=False)]
        for part, size in zip(parts, (train, test), strict=True)
    )
    return first, second


def slices_of(etas: np.ndarray, output: int) -> np.ndarray:
    """The natural parameters of one variable."""
    return etas[..., FAMILY.slices[output]]


@float64
def log_kl(output: int, labels: Labelled, found: np.ndarray) -> np.ndarray:
    """log KL(label ‖ found) of one variable, not below log 1e-40; what is no distribution is infinitely far."""
    errors = np.asarray(FAMILY.families[output].kl(jnp.asarray(labels.of(output)), jnp.asarray(found)))
    return np.log(np.maximum(np.where(np.isfinite(errors), errors, 1e300), 1e-40))
