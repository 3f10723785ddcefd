"""Rows for the tests of streams: batches of them, a fit, and what weight-space EP as printed makes of them."""

import numpy as np
import pytest
from rank_one_ep import WeightEP, weight_ep

import cavity
from cavity.factors import Step
from cavity.models.streaming import stream_linear_models

#: rows of a chunk in these tests, so that few rows make many chunks
SMALL = 64
EPSILON = 0.1
RNG = np.random.default_rng(4)
ROWS = RNG.standard_normal((200, 3)) * [1.0, 2.0, 0.5]
LABELS = np.sign(ROWS @ [1.0, -0.5, 0.3]) * np.where(RNG.random(200) < 0.07, -1.0, 1.0)
TIGHT = cavity.EP(tol=1e-12)


def cut(X, y, *lengths):
    """(X, y) in batches of these lengths, over and over."""
    places, start = [], 0
    while start < len(X):
        places.append(slice(start, start + lengths[len(places) % len(lengths)]))
        start = places[-1].stop
    return [(X[own], y[own]) for own in places]


def streamed(batches, **changes):
    """The model of a stream."""
    (model,), _ = stream_linear_models(batches, **{"factor": Step(EPSILON), "method": TIGHT, **changes})
    return model


def reference(X=ROWS, y=LABELS, sweeps=500) -> WeightEP:
    """EP for the weights (5.37–5.52), one row after another; one sweep is ADF."""
    return weight_ep(y[:, None] * X, EPSILON, tol=1e-13, max_sweeps=sweeps)


def check(model, expected, tolerance=1e-11, constant=0.0):
    """The model has the mean, covariance and log evidence of the reference."""
    np.testing.assert_allclose(model.mean, expected.mean, atol=tolerance)
    np.testing.assert_allclose(model.covariance, expected.covariance, atol=tolerance)
    assert model.log_evidence == pytest.approx(expected.log_evidence + constant, abs=100 * tolerance)
