"""Likelihoods of one number with data that are hard for given latents, and the terms the referee makes of them.

Hard are labels that are wrong, data far from all others, narrow terms, and terms with two bumps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from recompute import Term, Verdict, term, term_of

import cavity as cv


class Case(NamedTuple):
    """A problem; a referee, called with (sites, power, restricted, strengths); its exact log evidence or None."""

    problem: Any
    judge: Callable[..., Verdict]
    exact: Callable[[], float | None]


Draw = Callable[[np.random.Generator, bool], Case]


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


class Likelihood(NamedTuple):
    """A factor, its data for given latents, the referee's term, and whether rows stand for several."""

    factor: Any
    data: Any
    term: Term
    weighted: bool = False


def labels(rng: np.random.Generator, f: np.ndarray) -> np.ndarray:
    """Signs of the latents, of which up to 30 % are wrong."""
    return np.where(f > 0, 1.0, -1.0) * np.where(rng.random(f.size) < rng.uniform(0, 0.3), -1.0, 1.0)


def known(factor: Any, data: Any, weighted: bool = False) -> Likelihood:
    return Likelihood(factor, data, term_of(factor, data), weighted)


def step(rng: np.random.Generator, f: np.ndarray) -> Likelihood:
    return known(cv.factors.Step(float(rng.choice([0.02, 0.1, 0.3]))), labels(rng, f))


def probit(rng: np.random.Generator, f: np.ndarray) -> Likelihood:
    return known(cv.factors.Probit(float(rng.choice([0.0, 0.0, 0.05]))), labels(rng, f))


def logistic(rng: np.random.Generator, f: np.ndarray) -> Likelihood:
    return known(cv.factors.Logistic(float(rng.choice([0.0, 0.0, 0.05]))), labels(rng, f), weighted=True)


def gaussian(rng: np.random.Generator, f: np.ndarray) -> Likelihood:
    sd = log_uniform(rng, 1e-3, 3.0)
    return known(cv.factors.Gaussian(sd**2), f + sd * rng.standard_normal(f.size), weighted=True)


def student_t(rng: np.random.Generator, f: np.ndarray) -> Likelihood:
    scale, df = log_uniform(rng, 0.1, 1.0), float(rng.choice([1.0, 2.0, 4.0]))
    far = np.where(rng.random(f.size) < 0.15, log_uniform(rng, 1.0, 10.0), 0.0)
    return known(cv.factors.StudentT(scale, df), f + scale * rng.standard_t(df, f.size) + far)


def poisson(rng: np.random.Generator, f: np.ndarray) -> Likelihood:
    rate = np.exp(np.clip(f, -5.0, 6.0)) * np.where(rng.random(f.size) < 0.1, 10.0, 1.0)
    return known(cv.factors.Poisson(), rng.poisson(rate).astype(float), weighted=True)


def ordinal(rng: np.random.Generator, f: np.ndarray) -> Likelihood:
    thresholds = np.sort(rng.normal(0.0, 1.5, 3)) + 0.05 * np.arange(3)
    scale = log_uniform(rng, 0.1, 1.0)
    classes = np.searchsorted(thresholds, f + scale * rng.standard_normal(f.size)).astype(float)
    wrong = rng.random(f.size) < 0.1
    return known(
        cv.factors.OrdinalProbit(thresholds, scale), np.where(wrong, rng.integers(0, 4, f.size), classes).astype(float)
    )


def clutter(rng: np.random.Generator, f: np.ndarray) -> Likelihood:
    w = rng.uniform(0.2, 0.7)
    y = np.where(rng.random(f.size) < w, rng.normal(0.0, 10**0.5, f.size), f + rng.standard_normal(f.size))
    return known(cv.factors.Clutter(w, 10.0), y)


def truncation(rng: np.random.Generator, f: np.ndarray) -> Likelihood:
    low = f - log_uniform(rng, 0.02, 5.0) * rng.random(f.size)
    high = f + log_uniform(rng, 0.02, 5.0) * rng.random(f.size) + 1e-3
    return known(cv.factors.Truncation(), (low, high))


def log_two_bumps(f: Any, y: Any) -> Any:
    """A distance of which the sign is not known: bumps at y and −y, on a floor."""
    bumps = jnp.logaddexp(-0.5 * ((f - y) / 0.5) ** 2, -0.5 * ((f + y) / 0.5) ** 2)
    return jnp.logaddexp(bumps, jnp.log(1e-3))


TWO_BUMPS = cv.factors.from_log_density(log_two_bumps)


def two_bumps(rng: np.random.Generator, f: np.ndarray) -> Likelihood:
    y = np.abs(f) + 0.5 * rng.standard_normal(f.size)
    column = y[:, None]

    def log_density(x: np.ndarray) -> np.ndarray:
        bumps = np.logaddexp(-0.5 * ((x - column) / 0.5) ** 2, -0.5 * ((x + column) / 0.5) ** 2)
        return np.logaddexp(bumps, np.log(1e-3))

    return Likelihood(TWO_BUMPS, y, term(log_density, y, 0.5, y.size, (y, -y)))


LIKELIHOODS = (step, probit, logistic, gaussian, student_t, poisson, ordinal, clutter, truncation, two_bumps)
