"""Variables that govern others, in small models: against the exact posterior, or other ways to write the model."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import betaln, gammaln

import cavity as cv
from cavity.factors import Logistic


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


def test_logistic_regression_through_probabilities():
    """Coins of probability σ(x·w): the same fixed point as with the logistic likelihood itself."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(12, 3))
    y = rng.random(12) < 1 / (1 + np.exp(-x @ [1.0, -2.0, 0.5]))
    long, short = cv.FactorGraph(), cv.FactorGraph()
    for graph in (long, short):
        w = graph.vector(np.zeros(3), 4.0 * np.eye(3), name="w")
        z = graph.inner(w, x, offset=0.2)
        if graph is long:
            graph.bernoulli(graph.logistic(z), out=y)
        else:
            graph.add(Logistic(), z, data=np.where(y, 1.0, -1.0))
    (first, second) = (cv.infer(graph, cv.EP(tol=1e-11)) for graph in (long, short))
    assert first.status == second.status == "converged"
    assert first.log_evidence == pytest.approx(second.log_evidence, abs=1e-8)
    np.testing.assert_allclose(first.marginals["w"].mean, second.marginals["w"].mean, atol=1e-8)
    np.testing.assert_allclose(first.marginals["w"].variance, second.marginals["w"].variance, atol=1e-8)
    # A long Monte Carlo run, a million draws from the prior. Twelve points for three weights leave a skewed posterior:
    # EP's log evidence is low by 0.023, and errors of the run are a tenth of that.
    draws = rng.normal(0.0, 2.0, (1_000_000, 3))
    log_weights = -np.logaddexp(0.0, -np.where(y, 1.0, -1.0) * (draws @ x.T + 0.2)).sum(axis=1)
    weights = np.exp(log_weights)
    mean = weights @ draws / weights.sum()
    gap = draws - mean
    covariance = (weights[:, None] * gap).T @ gap / weights.sum()
    deviation = np.sqrt(np.diag(covariance))
    assert first.log_evidence == pytest.approx(np.log(weights.mean()), abs=0.03)
    np.testing.assert_allclose((first.marginals["w"].mean - mean) / deviation, 0.0, atol=0.05)
    np.testing.assert_allclose(np.sqrt(np.diag(first.marginals["w"].variance)), deviation, rtol=0.05)


def test_a_coin_with_a_beta_prior_is_exact():
    graph = cv.FactorGraph()
    p = graph.beta(2.0, 3.0)
    graph.bernoulli(p, out=[1, 0, 1, True])
    unseen = graph.bernoulli(p)
    found = cv.infer(graph, cv.EP())
    np.testing.assert_allclose(found.marginals[p].parameters, (5.0, 4.0), rtol=1e-12)
    np.testing.assert_allclose(found.marginals[unseen].moments, (4 / 9, 5 / 9), rtol=1e-12)
    # What is only predicted does not change the evidence.
    assert found.log_evidence == pytest.approx(betaln(5.0, 4.0) - betaln(2.0, 3.0), abs=1e-12)


def test_choices_with_a_dirichlet_prior_are_exact():
    graph = cv.FactorGraph()
    weights = graph.dirichlet([1.0, 2.0, 0.5])
    graph.choice(weights, out=[0, 2, 2, 1, 2])
    found = cv.infer(graph, cv.EP())
    np.testing.assert_allclose(found.marginals[weights].parameters[0], [2.0, 3.0, 3.5], rtol=1e-12)
    shapes, counts = np.array([1.0, 2.0, 0.5]), np.array([1, 1, 3])
    evidence = gammaln(shapes + counts).sum() - gammaln(8.5) - gammaln(shapes).sum() + gammaln(3.5)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-12)


def test_a_noisy_coin():
    """A coin seen through an error of one in five: three flips, against the sum over what they may have been."""
    graph = cv.FactorGraph()
    p = graph.beta(2.0, 1.5)
    flips = graph.categorical([[0.2, 0.8], [0.8, 0.2], [0.2, 0.8]])
    graph.bernoulli(p, out=flips)
    found = cv.infer(graph, cv.EP())

    def density(t):
        return stats.beta.pdf(t, 2.0, 1.5) * (0.2 + 0.6 * t) ** 2 * (0.8 - 0.6 * t)

    total = integrate.quad(density, 0, 1)[0]
    mean = integrate.quad(lambda t: t * density(t), 0, 1)[0] / total
    assert found.status == "converged"
    assert found.log_evidence == pytest.approx(np.log(total), abs=2e-3)
    assert found.marginals[p].mean == pytest.approx(mean, abs=2e-3)


def test_compound_gamma():
    """A chain of two rates with one number at its end: a tree of exact messages, so E[x] and E[r] are exact."""
    graph = cv.FactorGraph()
    rate = graph.gamma(3.0, 2.0)
    middle = graph.gamma_from(2.5, rate)
    graph.gamma_from(4.0, middle, out=1.3)
    found = cv.infer(graph, cv.EP())

    def density(x):
        """The rate integrated out: a compound gamma."""
        log_p = 3.0 * np.log(2.0) + gammaln(5.5) - gammaln(3.0) - gammaln(2.5) + 1.5 * np.log(x) - 5.5 * np.log(2.0 + x)
        return np.exp(log_p) * stats.gamma.pdf(1.3, 4.0, scale=1 / x)

    total = integrate.quad(density, 0, np.inf, epsabs=1e-13)[0]
    mean = integrate.quad(lambda x: x * density(x), 0, np.inf, epsabs=1e-13)[0] / total
    mean_rate = integrate.quad(lambda x: 5.5 / (2.0 + x) * density(x), 0, np.inf, epsabs=1e-13)[0] / total
    assert found.status == "converged"
    assert found.log_evidence == pytest.approx(np.log(total), abs=1e-9)
    assert found.marginals[middle].mean == pytest.approx(mean, rel=1e-9)
    assert found.marginals[rate].mean == pytest.approx(mean_rate, rel=1e-9)


def test_many_draws_of_one_rate():
    """Conjugate: shapes and rates add up."""
    x = np.array([0.4, 1.7, 0.9])
    graph = cv.FactorGraph()
    rate = graph.gamma(3.0, 2.0)
    graph.gamma_from([1.5, 2.0, 2.5], rate, out=x)
    found = cv.infer(graph, cv.EP())
    np.testing.assert_allclose(found.marginals[rate].parameters, (9.0, 5.0), rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda g: g.normal(0.0, 2.0), "precision of normal must be a Gamma variable, found float; .*linear"),
        (lambda g: g.normal(0.0, g.beta()), "precision of normal must be a Gamma variable, found Beta"),
        (lambda g: g.logistic(g.beta()), "z of logistic must be a Gaussian variable, found Beta"),
        (lambda g: g.logistic(g.gaussian(), out=0.3), "out of logistic must be a Beta variable, found float"),
        (lambda g: g.bernoulli(0.3), "p of bernoulli must be a Beta variable, found float; .*categorical"),
        (lambda g: g.choice([0.3, 0.7]), "weights of choice must be a Dirichlet variable, found list"),
        (lambda g: g.gamma_from(1.0, 2.0), "rate of gamma_from must be a Gamma variable, found float"),
        (lambda g: g.bernoulli(g.beta(), out=g.categorical(3)), "no rule for Bernoulli between Categorical × Beta"),
        (lambda g: g.gamma_from(1.0, g.gamma(1.0, 1.0), out=g.categorical(3)), "no rule for GammaRate between"),
    ],
)
def test_wrong_kinds_of_arguments_are_refused(make, sentence):
    with pytest.raises(TypeError, match=sentence):
        make(cv.FactorGraph())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda g: g.normal(np.nan, g.gamma(1.0, 1.0)), "mean must be finite"),
        (lambda g: g.normal("one", g.gamma(1.0, 1.0)), "mean must be real numbers"),
        (lambda g: g.normal(np.zeros(3), g.gamma(1.0, 1.0, size=2)), r"do not fit together: mean \(3,\), precision"),
        (lambda g: g.bernoulli(g.beta(), out=[0, 2]), "y of Bernoulli must be 0 or 1"),
        (lambda g: g.bernoulli(g.beta(), out=0.5), "y of Bernoulli must be 0 or 1"),
        (lambda g: g.choice(g.dirichlet([1.0, 1.0]), out=2), "states below 2; found 2"),
        (lambda g: g.choice(g.dirichlet([1.0, 1.0]), out=-1), "must be states"),
        (lambda g: g.gamma_from(-1.0, g.gamma(1.0, 1.0)), "shape of GammaRate must be positive"),
        (lambda g: g.gamma_from(1.0, g.gamma(1.0, 1.0), out=-2.0), "x of GammaRate must be positive"),
        (lambda g: g.gamma(1.0), "both or neither"),
    ],
)
def test_wrong_values_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(cv.FactorGraph())
