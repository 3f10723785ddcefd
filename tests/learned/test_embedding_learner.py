"""The paper's operator behind a just-in-time factor: queried messages are the oracle's, others are predicted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cavity_reproductions.learned.in_sequence import TUPLE, incoming

import cavity as cv
from cavity.factors import Logistic
from cavity.families import Gaussian
from cavity.learned import JustInTime, LearnedFactor
from cavity.learned.embedding_operator import EmbeddingLearner, Settings, proper_ratio
from cavity.learned.message_coordinates import Target
from cavity.learned.oracles import Integrated

SWEEPS, COUNT = 4, 20


def factor_with(threshold, first):
    learner = EmbeddingLearner(Target(TUPLE, 1), incoming, first, threshold, Settings(30, 40))
    oracle = Integrated(cv.Quadrature(), 200.0)
    return LearnedFactor(Logistic(), JustInTime(oracle, tol_kl=1.0, key=jax.random.key(0), learner=learner))


def run(likelihood, sweeps, moments=None):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(COUNT, 2))
    y = np.where(rng.random(COUNT) < 1 / (1 + np.exp(-x @ [1.0, -1.0])), 1.0, -1.0)
    method = cv.EP(schedule=cv.Parallel(), max_sweeps=sweeps, tol=1e-300)
    return cv.infer(cv.models.latent_gaussian(y, likelihood, X=x, moments=moments), method)


@pytest.mark.parametrize(("threshold", "first"), [(-np.inf, 5), (np.inf, 10**6)], ids=["unsure", "untrained"])
def test_what_is_always_asked_about_is_exact(threshold, first):
    """Every message comes from the oracle, one sweep later: the posteriors of exact EP after as many updates."""
    factor = factor_with(threshold, first)
    found, exact = run(factor, SWEEPS + 1), run(Logistic(), SWEEPS, cv.Quadrature())
    np.testing.assert_allclose(found.mean, exact.mean, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, exact.covariance, rtol=1e-6)
    assert factor.report().queries == COUNT * (SWEEPS + 1)


def test_a_loose_threshold_asks_for_the_first_batch_only():
    factor = factor_with(100.0, COUNT // 2)
    found = run(factor, SWEEPS)
    assert factor.report().queries == factor.report().labels == COUNT // 2
    assert factor.report().audits == 0
    assert np.isfinite(found.mean).all()


def test_a_ratio_that_would_be_improper_keeps_the_mean():
    cavity, projected = jnp.array([1.0, 2.0]), jnp.array([1.5, 1.0])
    site = proper_ratio(Gaussian(), projected, cavity)
    assert float(site[1]) == 0.0
    assert float((cavity + site)[0] / (cavity + site)[1]) == pytest.approx(1.5)
    np.testing.assert_allclose(proper_ratio(Gaussian(), jnp.array([3.0, 2.5]), cavity), [2.0, 0.5])
