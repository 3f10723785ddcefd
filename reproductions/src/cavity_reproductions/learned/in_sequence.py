"""Logistic regressions one after another, with factors that go on learning from one to the next."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import cavity
from cavity._core.precision import float64
from cavity.factors.logistic import Logistic
from cavity.families import Beta, Gaussian, Product
from cavity.inference.solution import Solution
from cavity.learned import JustInTime, LearnedFactor, just_in_time
from cavity.learned.embedding_operator import ONLINE, EmbeddingLearner, Settings
from cavity.learned.message_coordinates import Target
from cavity.moments import Batch
from cavity_reproductions.learned.broad_proposal import Broad

#: the operators compared
DEFAULT, PAPER = "default operator", "paper's operator"
TUPLE = Product((Beta(), Gaussian()))
#: sweeps of the paper's runs; ours end when they have converged
SWEEPS = 10


def incoming(cavity: jax.Array, label: jax.Array) -> jax.Array:
    """What comes in at p = σ(z) when the label is ±1: Beta(2, 1) or Beta(1, 2) from p, the cavity from z."""
    return jnp.concatenate([jnp.where(label > 0, jnp.array([2.0, 1.0]), jnp.array([1.0, 2.0])), cavity])


def default(tol_kl: float = 1e-5) -> LearnedFactor:
    """As users get it, with quadrature for an oracle."""
    return just_in_time(Logistic(), oracle=cavity.Quadrature(), tol_kl=tol_kl)


def paper(first: int, threshold: float, draws: int, settings: Settings = ONLINE, seed: int = 0) -> LearnedFactor:
    """As the paper has it: sampler, initial batch, threshold on the log predictive variance."""
    learner = EmbeddingLearner(Target(TUPLE, 1), incoming, first, threshold, settings, jax.random.key(seed))
    moments = JustInTime(Broad(draws), tol_kl=1.0, key=jax.random.key(seed + 1), learner=learner)
    return LearnedFactor(Logistic(), moments)


class Answer(NamedTuple):
    """Of one problem. doubts: the operator's, one row a sweep. consults, audits: so far. seconds: of inference."""

    mean: np.ndarray
    covariance: np.ndarray
    doubts: np.ndarray
    consults: int
    audits: int
    seconds: float


def solved(
    factor: LearnedFactor, X: np.ndarray, y: np.ndarray, sweeps: int | None = None, watch: bool = False
) -> Answer:
    """EP with all sites of a sweep at once; sweeps: so many, or None to converge. watch: record the doubts."""
    problem = cavity.models.latent_gaussian(y, factor, X=X)
    method = cavity.EP(schedule=cavity.Parallel())
    if sweeps is not None:
        method = cavity.EP(schedule=cavity.Parallel(), max_sweeps=sweeps, tol=1e-300)
    doubts: list[np.ndarray] = []
    callback: Callable[[Solution], Any] | None = None
    if watch:
        callback = lambda solution: doubts.append(doubts_of(factor, solution))  # noqa: E731
    began = time.perf_counter()
    found = cavity.infer(problem, method, callback=callback)
    seconds = time.perf_counter() - began
    report = factor.report()
    rows = np.array(doubts) if doubts else np.zeros((0, len(y)))
    return Answer(np.asarray(found.mean), np.asarray(found.covariance), rows, report.queries, report.audits, seconds)


@float64
def doubts_of(factor: LearnedFactor, solution: Solution) -> np.ndarray:
    """What the operator says of its own error at all sites of a solution."""
    problem, group = solution.problem, solution.problem.groups[0]
    local = problem.posterior.marginals(problem.prior, solution.q, group.scope, jnp.arange(group.size))
    data, nobody = jax.tree.map(jnp.asarray, group.data), np.zeros(group.size, bool)
    batch = Batch(group.factor, group.family, local - solution.sites[0], data, nobody, False)
    return np.asarray(factor.moments.predictions(batch).expected_kl)


def log_divergence(mean: np.ndarray, covariance: np.ndarray, found: Answer) -> float:
    """log KL of the Gaussian (mean, covariance) from the one found."""
    precision, gap = np.linalg.inv(found.covariance), found.mean - mean
    ratio = precision @ covariance
    kl = 0.5 * (np.trace(ratio) - len(mean) + gap @ precision @ gap - np.linalg.slogdet(ratio)[1])
    return float(np.log(max(kl, 1e-40)))
