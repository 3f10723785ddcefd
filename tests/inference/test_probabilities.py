"""What was seen is labels, orders or intervals: its evidence is a probability, and its logarithm at most 0."""

import numpy as np
import pytest

import cavity as cv


def interval(rng):
    """An interval that holds nearly all of the mass, or next to none."""
    scale = 10.0 ** rng.uniform(-3, 3)
    mean, reach = scale * rng.normal() * 10.0 ** rng.uniform(-2, 6), scale * 10.0 ** rng.uniform(-0.5, 1.5)
    return cv.models.truncation(mean, scale**2, mean - reach, mean + reach * rng.uniform(0.1, 1.0))


def labels(rng):
    """Labels of which the prior is all but sure, or that it takes for impossible."""
    factor = (cv.factors.Probit(), cv.factors.Logistic(), cv.factors.Step(1e-12))[rng.integers(3)]
    mean, variance = rng.choice([-1.0, 1.0, 1.0]) * 10.0 ** rng.uniform(-1, 3), 10.0 ** rng.uniform(-3, 3)
    return cv.models.posterior(factor, np.ones(4), prior_mean=mean, prior_variance=variance)


def order(rng):
    """A comparison whose outcome was all but sure, of skills far from 0."""
    graph = cv.FactorGraph()
    far = 10.0 ** rng.uniform(0, 8)
    one, other = graph.gaussian(far + rng.uniform(0.0, 30.0), 1.0), graph.gaussian(far, 1.0)
    graph.greater(graph.linear(one, other, weights=(1.0, -1.0), variance=0.5), 0.0)
    return graph


@pytest.mark.parametrize("draw", [interval, labels, order])
def test_the_log_evidence_of_a_probability_is_never_above_0(draw):
    found = [cv.infer(draw(np.random.default_rng(seed)), cv.EP()) for seed in range(40)]
    assert [own.log_evidence for own in found if own.log_evidence > 0] == []
    assert max(own.log_evidence for own in found) > -1e-3  # near the bound, where rounding would show
