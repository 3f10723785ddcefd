"""What every solution can be asked, of all kinds of models: check, to_arviz, energy, leave-one-out."""

import importlib.util

import numpy as np
import pytest
from scipy.special import log_ndtr

import cavity as cv

needs_arviz = pytest.mark.skipif(importlib.util.find_spec("arviz") is None, reason="ArviZ is not installed")


def mixed():
    """A mean and a precision of three numbers, a coin and what it chose: Gaussian, Gamma and Beta in one graph."""
    graph = cv.FactorGraph()
    mean, precision = graph.gaussian(0.0, 4.0, name="mean"), graph.gamma(4.0, 2.0, name="precision")
    graph.normal(mean, precision, out=np.array([0.3, 0.8, 1.1]))
    graph.bernoulli(graph.beta(2.0, 3.0, name="coin"), out=np.array([1, 1, 0, 1]))
    return graph


def network():
    """Three variables in a chain, of two and of three states, so that q stores them apart."""
    graph = cv.DiscreteGraph()
    for states, name in ((2, "a"), (3, "b"), (2, "c")):
        graph.add_variable(states, name)
    graph.add_factor(["a", "b"], [[1.0, 2.0, 0.5], [3.0, 1.0, 1.0]])
    graph.add_factor(["b", "c"], [[1.0, 2.0], [0.2, 1.0], [1.5, 0.0]])
    graph.add_factor(["a"], [0.5, 0.7])
    return graph


def classifier(**prior):
    labels = np.array([1.0, -1.0, 1.0])
    return cv.models.latent_gaussian(labels, cv.factors.Probit(), **prior)


ROWS = np.array([[1.0, 0.2], [-0.5, 1.0], [0.3, 0.4]])
MODELS = {
    "clutter": lambda: cv.models.clutter([1.0, 1.4, 1.9], w=0.1),
    "weights of a mixture": lambda: cv.models.mixture_weights(np.array([[0.2, 0.5], [0.7, 0.1]])),
    "truncation": lambda: cv.models.truncation(0.0, 1.0, lower=0.3),
    "kernel matrix": lambda: classifier(kernel_matrix=ROWS @ ROWS.T + np.eye(3)),
    "kernel": lambda: classifier(X=ROWS, kernel=cv.kernels.RBF(1.0)),
    "linear": lambda: classifier(X=ROWS),
    "basis": lambda: classifier(
        X=ROWS, kernel=cv.kernels.RBF(1.0), basis=cv.kernels.InducingInputs(np.array([[0.0, 0.0], [1.0, 1.0]]))
    ),
    "mixed graph": mixed,
    "network": network,
    "clusters": lambda: network().approximate(cv.Clusters([["a", "b"]])),
    "tree": lambda: network().approximate("tree"),
}


@pytest.fixture(scope="module", params=list(MODELS))
def answered(request):
    return request.param, cv.infer(MODELS[request.param](), cv.EP())


def test_every_solution_is_checked_or_says_why_not(answered):
    name, solution = answered
    assert solution.converged
    if name == "tree":
        with pytest.raises(TypeError, match=r"tree approximation.*cavity\.exact"):
            solution.check()
        return
    check = solution.check()
    # EP is not exact, but on these small problems it is within 0.05, ten standard errors of the check.
    assert check.standard_error < 0.02 and np.isfinite(check.k_hat)
    assert check.log_evidence == pytest.approx(float(solution.log_evidence), abs=0.05 + 5 * check.standard_error)


@needs_arviz
def test_every_solution_is_handed_to_arviz_or_says_why_not(answered):
    name, solution = answered
    if name == "tree":
        with pytest.raises(TypeError, match="tree approximation"):
            solution.to_arviz(draws=20)
        return
    found = solution.to_arviz(draws=20)
    assert all(values.shape[:2] == (1, 20) for values in found.posterior.values())
    sites = sum(len(own) for own in solution.sites)
    assert sum(values.shape[2] for values in found.log_likelihood.values()) == sites


def test_every_solution_has_an_energy_and_leaves_factors_out(answered):
    _, solution = answered
    assert float(solution.energy().value) == pytest.approx(-float(solution.log_evidence), abs=1e-8)
    assert float(solution.energy().norm) < 1e-6
    left_out = solution.loo_log_predictive
    assert [len(own) for own in left_out] == [len(own) for own in solution.sites]
    assert all(np.isfinite(own).all() for own in left_out)


def test_the_check_of_a_mixed_graph_speaks_of_its_variables():
    graph = cv.FactorGraph()
    above = graph.gaussian(0.0, 1.0, size=2, name="above")
    graph.greater(above, np.array([0.5, -1.0]))
    check = cv.infer(graph).check(draws=20_000)
    assert check.verdict == "EP agrees"
    assert check.log_evidence == pytest.approx(log_ndtr([-0.5, 1.0]).sum(), abs=5 * check.standard_error)
    right = np.exp(-0.5 * np.array([0.5, -1.0]) ** 2 - log_ndtr([-0.5, 1.0])) / np.sqrt(2 * np.pi)
    assert np.all(np.abs(check.mean["above"] - right) < 5 * check.mean_error["above"])


def test_the_check_of_a_network_is_about_its_own_states():
    """The number of a state, averaged, from exact enumeration; clusters are taken apart again."""
    exact = cv.exact(network())
    right = [own @ np.arange(len(own)) for own in exact.marginals]
    for model in (network(), network().approximate(cv.Clusters([["c", "a"]]))):
        check = cv.infer(model).check(draws=20_000)
        assert np.all(np.abs(check.mean - right) < 5 * check.mean_error)
        assert check.log_evidence == pytest.approx(exact.log_evidence, abs=5 * check.standard_error)


def test_a_variable_without_a_prior_is_drawn_from_q():
    """N(y; x, 1) of a variable of which nothing else is known has evidence 1."""
    graph = cv.FactorGraph()
    graph.linear(graph.gaussian(name="x"), out=3.0, variance=1.0)
    check = cv.infer(graph).check()
    assert check.log_evidence == pytest.approx(0.0, abs=1e-9) and check.verdict == "EP agrees"


def test_a_factor_without_a_density_is_named_as_the_reason():
    graph = cv.FactorGraph()
    first = graph.gaussian(0.0, 1.0)
    graph.linear(first, out=np.array(1.0), variance=1.0)
    graph.linear(first, graph.gaussian(0.0, 1.0), out=graph.gaussian(0.0, 1.0))
    solution = cv.infer(graph)
    for ask in (solution.check, solution.to_arviz):
        with pytest.raises(TypeError, match="that of Linear is missing"):
            ask()
