"""Factors some of whose arguments are numbers: their log density still sees all of them."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import cavity as cv
from cavity.factors import Conditioned, from_log_density
from cavity.factors.wrappers import ObservedArguments


def log_normal(x, data):
    """N(x₀; x₁ x₂, data)."""
    return -0.5 * ((x[0] - x[1] * x[2]) ** 2 / data + jnp.log(2 * jnp.pi * data))


def test_all_arguments_are_seen_in_their_places():
    given = Conditioned(from_log_density(lambda x, data: x[0] + 10 * x[1] + 100 * x[2] + data), (0, 2))
    assert float(given.log_density(5.0, ObservedArguments((1.0, 2.0), 3000.0))) == 3251.0
    assert float(Conditioned(given.factor, (1,)).log_density((1.0, 2.0), ObservedArguments((5.0,), 3000.0))) == 3251.0


def test_constants_in_a_graph():
    """A line through the origin with known noise: conjugate, so that the answer is known."""
    x, y = np.array([1.0, 2.0, -0.5]), np.array([0.8, 2.3, 0.1])
    graph = cv.FactorGraph()
    slope = graph.gaussian(0.2, 2.0)
    graph.add(from_log_density(log_normal), y, slope, x, data=0.25)
    found = cv.infer(graph, cv.EP())
    precision = 0.5 + x @ x / 0.25
    assert found.marginals[slope].variance == pytest.approx(1 / precision, rel=1e-8)
    assert found.marginals[slope].mean == pytest.approx((0.1 + x @ y / 0.25) / precision, rel=1e-8)
    evidence = stats.multivariate_normal(0.2 * x, 2.0 * np.outer(x, x) + 0.25 * np.eye(3)).logpdf(y)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-8)


def test_two_variables_and_a_constant():
    """One site, so EP gives the exact evidence: that of N(y; slope·x, ¼) with y ~ N(1, ½)."""
    graph = cv.FactorGraph()
    y, slope = graph.gaussian(1.0, 0.5), graph.gaussian(0.2, 2.0)
    graph.add(from_log_density(log_normal), y, slope, 3.0, data=0.25)
    found = cv.infer(graph, cv.EP())
    total = 0.5 + 9.0 * 2.0 + 0.25
    assert found.log_evidence == pytest.approx(stats.norm.logpdf(1.0, 0.6, np.sqrt(total)), abs=1e-8)
    assert found.marginals[slope].mean == pytest.approx(0.2 + 2.0 * 3.0 / total * (1.0 - 0.6), abs=1e-8)


def test_bad_constants_are_refused():
    graph = cv.FactorGraph()
    x = graph.gaussian(0.0, 1.0, size=3)
    with pytest.raises(ValueError, match=r"argument 1 must be finite; found nan"):
        graph.add(from_log_density(log_normal), x, np.nan, 1.0, data=1.0)
    with pytest.raises(ValueError, match=r"do not fit together: argument 0 \(3,\), argument 1 \(2,\)"):
        graph.add(from_log_density(log_normal), x, np.ones(2), 1.0, data=1.0)
    with pytest.raises(TypeError, match="some may be numbers"):
        graph.add(from_log_density(log_normal), x, "one", 1.0, data=1.0)
    with pytest.raises(TypeError, match="variables it sees"):
        graph.add(from_log_density(log_normal), 1.0, 1.0, 1.0, data=1.0)
