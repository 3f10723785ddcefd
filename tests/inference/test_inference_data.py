"""What is handed to ArviZ."""

import importlib.util
import sys

import numpy as np
import pytest
from scipy.special import log_ndtr

import cavity as cv

needs_arviz = pytest.mark.skipif(importlib.util.find_spec("arviz") is None, reason="ArviZ is not installed")


@pytest.fixture(scope="module")
def machine():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 2))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    return X, y, cv.infer(cv.models.latent_gaussian(y=y, likelihood=cv.factors.Probit(), X=X))


@needs_arviz
def test_draws_of_q_with_log_likelihood_and_attributes(machine):
    X, y, solution = machine
    found = solution.to_arviz(draws=2000)
    weights = found.posterior["weights"].values
    assert weights.shape == (1, 2000, 2)
    np.testing.assert_allclose(weights[0].mean(axis=0), solution.mean, atol=0.1)
    np.testing.assert_allclose(found.log_likelihood["y"].values[0], log_ndtr(weights[0] @ X.T * y), rtol=1e-10)
    assert found.attrs["log_evidence"] == float(solution.log_evidence)
    assert found.attrs["status"] == "converged" and found.attrs["method"] == "EP"


@needs_arviz
def test_resampled_draws_have_the_corrected_moments(machine):
    check = machine[2].check()
    found = check.to_arviz()
    resampled = found.posterior["weights"].values[0]
    error = np.sqrt(check.variance / check.effective_sample_size)
    assert np.all(np.abs(resampled.mean(axis=0) - check.mean) < 5 * error)
    weight = np.exp(found.weighted["log_weight"].values[0])
    np.testing.assert_allclose(weight @ found.weighted["weights"].values[0], check.mean)
    assert found.attrs["verdict"] == check.verdict


@needs_arviz
def test_a_scalar_is_called_x():
    assert list(cv.infer(cv.models.clutter([1.0, 2.0, 2.5])).to_arviz(draws=10).posterior) == ["x"]


def test_without_arviz_one_sentence_says_how_to_get_it(machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r'pip install "cavity\[arviz\]"'):
        machine[2].to_arviz()
