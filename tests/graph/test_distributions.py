"""Variables that govern others, in small models: against the exact posterior, or other ways to write the model."""

import numpy as np
import pytest
from scipy import stats

import cavity as cv


def test_unknown_mean_and_precision():
    """Twenty numbers. EP against the exact posterior on a grid: means within 0.02 sd, log evidence within 0.03."""
    y = np.random.default_rng(3).normal(1.3, 0.7, size=20)
    graph = cv.FactorGraph()
    mean, precision = graph.gaussian(0.0, 4.0), graph.gamma(2.0, 1.0)
    graph.normal(mean, precision, out=y)
    found = cv.infer(graph, cv.EP())
    m, t = np.linspace(-1.0, 3.5, 1501)[:, None], np.linspace(-4.0, 3.0, 1501)[None, :]
    log_p = stats.norm.logpdf(m, 0.0, 2.0) + stats.gamma.logpdf(np.exp(t), 2.0) + t
    log_p = log_p + stats.norm.logpdf(y[:, None, None], m, np.exp(-t / 2)).sum(axis=0)
    p = np.exp(log_p)
    evidence = np.log(p.sum() * (m[1, 0] - m[0, 0]) * (t[0, 1] - t[0, 0]))
    p = p / p.sum()
    assert found.status == "converged"
    assert found.log_evidence == pytest.approx(evidence, abs=0.03)
    for variable, values, width in ((mean, m, 0.01), (precision, np.exp(t), 0.08)):
        exact = (p * values).sum()
        variance = (p * (values - exact) ** 2).sum()
        assert found.marginals[variable].mean == pytest.approx(exact, abs=0.02 * variance**0.5)
        assert found.marginals[variable].variance == pytest.approx(variance, rel=width)


def test_a_known_precision_is_the_limit():
    y = np.array([0.3, -1.2, 2.0])
    graphs = cv.FactorGraph(), cv.FactorGraph()
    for graph, known in zip(graphs, (False, True), strict=True):
        mean = graph.gaussian(0.5, 2.0, name="mean")
        out = graph.gaussian(size=3)
        if known:
            graph.linear(mean, variance=0.25, out=out)
        else:
            graph.normal(mean, graph.gamma(4e7, 1e7), out=out)
        graph.linear(out, variance=0.1, out=y)
    (first, second) = (cv.infer(graph, cv.EP()) for graph in graphs)
    assert first.log_evidence == pytest.approx(second.log_evidence, abs=1e-6)
    assert first.marginals["mean"].mean == pytest.approx(second.marginals["mean"].mean, abs=1e-6)
    assert first.marginals["mean"].variance == pytest.approx(second.marginals["mean"].variance, rel=1e-6)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda g: g.normal(0.0, 2.0), "precision of normal must be a Gamma variable, found float; .*linear"),
        (lambda g: g.normal(0.0, g.beta()), "precision of normal must be a Gamma variable, found Beta"),
    ],
)
def test_wrong_kinds_of_arguments_are_refused(make, sentence):
    with pytest.raises(TypeError, match=sentence):
        make(cv.FactorGraph())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda g: g.normal(np.nan, g.gamma(1.0, 1.0)), "mean must be finite"),
        (lambda g: g.normal("one", g.gamma(1.0, 1.0)), "mean must be numbers"),
        (lambda g: g.normal(np.zeros(3), g.gamma(1.0, 1.0, size=2)), r"do not fit together: mean \(3,\), precision"),
    ],
)
def test_wrong_values_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(cv.FactorGraph())
