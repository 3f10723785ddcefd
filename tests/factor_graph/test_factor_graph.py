"""Graphs of mixed variables: exact Gaussian answers, enumeration, quadrature, and clear refusals."""

import jax
import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

import cavity as cv
from cavity.factors import Logistic, Table


def joint_gaussian(prior_mean, prior_variance, rows, offsets, variances):
    """(log evidence, mean, covariance) of x with independent priors given rows·x + offset ~ N(0, variance)."""
    a, c, s = np.atleast_2d(rows), np.asarray(offsets), np.asarray(variances)
    prior = np.diag(prior_variance)
    observed = stats.multivariate_normal(a @ prior_mean + c, a @ prior @ a.T + np.diag(s))
    gain = prior @ a.T @ np.linalg.inv(a @ prior @ a.T + np.diag(s))
    return (observed.logpdf(np.zeros(len(c))), prior_mean - gain @ (a @ prior_mean + c), prior - gain @ a @ prior)


def test_a_chain_is_smoothed_exactly():
    """A random walk whose start alone has a prior, observed with noise: a tree, so everything is exact."""
    rng = np.random.default_rng(0)
    steps, q, r = 12, 0.3, 0.5
    y = np.cumsum(rng.normal(size=steps))
    graph = cv.FactorGraph()
    x = graph.gaussian(size=steps, name="x")
    start = graph.gaussian(0.4, 2.0)
    graph.linear(start, variance=q, out=x[0])
    graph.linear(x[:-1], variance=q, out=x[1:])
    graph.linear(x, variance=r, out=y)
    found = cv.infer(graph, cv.EP())
    covariance = 2.0 + q * (1 + np.minimum.outer(np.arange(steps), np.arange(steps)))
    seen = covariance + r * np.eye(steps)
    gain = covariance @ np.linalg.inv(seen)
    assert found.status == "converged"
    np.testing.assert_allclose(found.marginals[x].mean, 0.4 + gain @ (y - 0.4), atol=1e-9)
    np.testing.assert_allclose(found.marginals["x"].variance, np.diag(covariance - gain @ covariance), rtol=1e-9)
    evidence = stats.multivariate_normal(np.full(steps, 0.4), seen).logpdf(y)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-9)
    assert found.sweeps <= 5


def test_sums_of_several_with_weights_and_offset():
    graph = cv.FactorGraph()
    a, b = graph.gaussian(1.0, 2.0), graph.gaussian(-1.0, 0.5)
    total = graph.linear(a, b, weights=(2.0, -3.0), offset=0.7)
    graph.linear(total, variance=0.4, out=1.5)
    found = cv.infer(graph, cv.EP())
    row, offset = [2.0, -3.0], 0.7 - 1.5
    evidence, mean, covariance = joint_gaussian(np.array([1.0, -1.0]), np.array([2.0, 0.5]), row, [offset], [0.4])
    assert found.log_evidence == pytest.approx(evidence, abs=1e-12)
    np.testing.assert_allclose([found.marginals[a].mean, found.marginals[b].mean], mean, atol=1e-12)
    np.testing.assert_allclose(
        [found.marginals[a].variance, found.marginals[b].variance], np.diag(covariance), rtol=1e-12
    )
    np.testing.assert_allclose(found.marginals[total].mean, np.dot(row, mean) + 0.7, atol=1e-12)
    np.testing.assert_allclose(found.marginals[total].variance, np.array(row) @ covariance @ row, rtol=1e-12)


def test_a_vector_of_weights_is_bayesian_regression():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(9, 3)), rng.normal(size=9)
    graph = cv.FactorGraph()
    w = graph.vector(np.zeros(3), np.diag([1.0, 2.0, 0.5]), name="w")
    graph.linear(graph.inner(w, x, offset=0.3), variance=0.2, out=y)
    found = cv.infer(graph, cv.EP())
    precision = np.diag([1.0, 0.5, 2.0]) + x.T @ x / 0.2
    np.testing.assert_allclose(found.marginals["w"].variance, np.linalg.inv(precision), rtol=1e-9)
    np.testing.assert_allclose(found.marginals["w"].mean, np.linalg.solve(precision, x.T @ (y - 0.3) / 0.2), rtol=1e-9)
    seen = x @ np.diag([1.0, 2.0, 0.5]) @ x.T + 0.2 * np.eye(9)
    assert found.log_evidence == pytest.approx(stats.multivariate_normal(np.full(9, 0.3), seen).logpdf(y), abs=1e-9)


@pytest.mark.parametrize("known", [True, False], ids=["with priors", "states without a prior"])
def test_a_linear_dynamic_system_is_smoothed_exactly(known):
    """Four states of two numbers, seen through a matrix of three rows: against the joint Gaussian of all of them."""
    rng = np.random.default_rng(3)
    step, see = np.array([[0.9, 0.3], [-0.2, 0.8]]), rng.normal(size=(3, 2))
    drift, noise, error = np.array([0.1, -0.3]), np.array([[0.3, 0.1], [0.1, 0.2]]), np.diag([0.5, 0.4, 0.3])
    prior, later, y = np.diag([1.0, 2.0]), 9.0 * np.eye(2), rng.normal(size=(4, 3))
    graph = cv.FactorGraph()
    states = [graph.vector(np.zeros(2), prior)]
    for _ in range(3):
        after = graph.vector(np.ones(2), later) if known else None
        states.append(graph.product(step, states[-1], offset=drift, covariance=noise, out=after))
    for state, seen in zip(states, y, strict=True):
        graph.product(see, state, covariance=error, out=seen)
    found = cv.infer(graph, cv.EP(tol=1e-12))
    assert found.status == "converged"
    # Rows R x = c + N(0, W) of everything that is said.
    rows, values, spreads = [np.eye(8)[:2]], [np.zeros(2)], [prior]
    for t in range(3):
        row = np.zeros((2, 8))
        row[:, 2 * t : 2 * t + 2], row[:, 2 * t + 2 : 2 * t + 4] = -step, np.eye(2)
        rows, values, spreads = [*rows, row], [*values, drift], [*spreads, noise]
        if known:
            rows, values, spreads = [*rows, np.eye(8)[2 * t + 2 : 2 * t + 4]], [*values, np.ones(2)], [*spreads, later]
    for t in range(4):
        row = np.zeros((3, 8))
        row[:, 2 * t : 2 * t + 2] = see
        rows, values, spreads = [*rows, row], [*values, y[t]], [*spreads, error]
    precision = sum(row.T @ np.linalg.solve(own, row) for row, own in zip(rows, spreads, strict=True))
    pull = sum(row.T @ np.linalg.solve(own, c) for row, own, c in zip(rows, spreads, values, strict=True))
    covariance = np.linalg.inv(precision)
    mean = covariance @ pull
    for t, state in enumerate(states):
        place = slice(2 * t, 2 * t + 2)
        np.testing.assert_allclose(found.marginals[state].mean, mean[place], rtol=1e-9)
        np.testing.assert_allclose(found.marginals[state].variance, covariance[place, place], rtol=1e-9)
    constants = sum(
        -0.5 * (c @ np.linalg.solve(own, c) + np.linalg.slogdet(own)[1] + len(c) * np.log(2 * np.pi))
        for c, own in zip(values, spreads, strict=True)
    )
    log_z = constants + 0.5 * (pull @ mean + np.linalg.slogdet(covariance)[1] + 8 * np.log(2 * np.pi))
    assert float(found.log_evidence) == pytest.approx(log_z, abs=1e-8)


def test_a_vector_known_through_its_product_alone():
    """y = A x has a prior and x none: x is A⁻¹ y, and the integral over x of the noise leaves 1/|det A|."""
    a, prior, noise = np.array([[2.0, 0.5], [0.0, 1.5]]), np.array([[1.0, 0.2], [0.2, 0.5]]), 0.1 * np.eye(2)
    graph = cv.FactorGraph()
    x, y = graph.vector(dimension=2), graph.vector(np.array([1.0, -1.0]), prior)
    graph.product(a, x, covariance=noise, out=y)
    found = cv.infer(graph, cv.EP())
    back = np.linalg.inv(a)
    np.testing.assert_allclose(found.marginals[x].mean, back @ [1.0, -1.0], rtol=1e-9)
    np.testing.assert_allclose(found.marginals[x].variance, back @ (prior + noise) @ back.T, atol=1e-12)
    np.testing.assert_allclose(found.marginals[y].variance, prior, rtol=1e-9)
    assert float(found.log_evidence) == pytest.approx(-np.log(3.0), abs=1e-9)


def test_products_that_do_not_fit_are_refused():
    graph = cv.FactorGraph()
    x = graph.vector(np.zeros(2), np.eye(2))
    with pytest.raises(ValueError, match="matrix must have"):
        graph.product(np.eye(3), x, covariance=np.eye(3))
    with pytest.raises(ValueError, match="covariance must be 3 × 3"):
        graph.product(np.ones((3, 2)), x, covariance=np.eye(2))
    with pytest.raises(ValueError, match="must be positive definite"):
        graph.product(np.eye(2), x, covariance=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="or a dimension alone"):
        graph.vector(np.zeros(2))


def test_comparison_of_two_is_exact():
    """One comparison: the tilted distribution is a bivariate normal cut by a line."""
    graph = cv.FactorGraph()
    a, b = graph.gaussian(1.0, 4.0), graph.gaussian(2.0, 1.0)
    graph.greater(graph.linear(a, b, weights=(1, -1)), 0.5)
    found = cv.infer(graph, cv.EP())
    z = (1.0 - 2.0 - 0.5) / np.sqrt(5.0)
    v = stats.norm.pdf(z) / stats.norm.cdf(z)
    assert found.log_evidence == pytest.approx(stats.norm.logcdf(z), abs=1e-12)
    assert found.marginals[a].mean == pytest.approx(1.0 + 4.0 / np.sqrt(5.0) * v, abs=1e-10)
    assert found.marginals[a].variance == pytest.approx(4.0 * (1 - 4.0 / 5.0 * v * (v + z)), rel=1e-10)
    assert found.marginals[b].mean == pytest.approx(2.0 - 1.0 / np.sqrt(5.0) * v, abs=1e-10)


def test_factors_of_single_variables_are_integrated():
    """A logistic likelihood has no closed form: quadrature is found by itself."""
    graph = cv.FactorGraph()
    z = graph.gaussian([0.3, -0.2], [1.5, 0.4])
    graph.add(Logistic(), z, data=np.array([1.0, -1.0]))
    found = cv.infer(graph, cv.EP())
    for k, (m, v, y) in enumerate([(0.3, 1.5, 1.0), (-0.2, 0.4, -1.0)]):
        density = lambda t, m=m, v=v, y=y: stats.norm.pdf(t, m, np.sqrt(v)) / (1 + np.exp(-y * t))  # noqa: E731
        mass = integrate.quad(density, -15, 15, epsabs=1e-13)[0]
        mean = integrate.quad(lambda t, f=density: t * f(t), -15, 15, epsabs=1e-13)[0] / mass
        assert found.marginals[z].mean[k] == pytest.approx(mean, abs=1e-9)


def test_discrete_variables_beside_others():
    graph = cv.FactorGraph()
    a, b = graph.categorical([0.2, 0.8]), graph.categorical([0.5, 0.3, 0.2])
    table = np.array([[1.0, 2.0, 0.0], [0.5, 1.0, 4.0]])
    with np.errstate(divide="ignore"):
        graph.add(Table(), a, b, data=np.log(table))
    x = graph.gaussian(0.0, 1.0)
    graph.linear(x, variance=1.0, out=0.5)
    found = cv.infer(graph, cv.EP())
    joint = table * np.outer([0.2, 0.8], [0.5, 0.3, 0.2])
    np.testing.assert_allclose(found.marginals[a].moments, joint.sum(axis=1) / joint.sum(), atol=1e-12)
    np.testing.assert_allclose(found.marginals[b].moments, joint.sum(axis=0) / joint.sum(), atol=1e-12)
    evidence = np.log(joint.sum()) + stats.norm.logpdf(0.5, 0.0, np.sqrt(2.0))
    assert found.log_evidence == pytest.approx(evidence, abs=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "gamma", "beta", "dirichlet", "categorical"])
def test_equal_variables_share_what_they_know(kind):
    """Two copies of one variable: the product of both priors, normalised by its own integral."""
    graph = cv.FactorGraph()
    priors = {
        "gaussian": [(0.5, 2.0), (1.5, 0.3)],
        "gamma": [(2.0, 1.0), (3.5, 0.7)],
        "beta": [(2.0, 1.5), (1.2, 3.0)],
        "dirichlet": [([2.0, 1.5, 1.0],), ([1.2, 3.0, 2.0],)],
        "categorical": [([0.2, 0.5, 0.3],), ([0.6, 0.0, 0.4],)],
    }[kind]
    a, b = (getattr(graph, kind)(*prior) for prior in priors)
    graph.equal(a, b)
    found = cv.infer(graph, cv.EP())
    if kind == "gaussian":
        precision = 1 / 2.0 + 1 / 0.3
        assert found.marginals[a].variance == pytest.approx(1 / precision)
        assert found.log_evidence == pytest.approx(stats.norm.logpdf(1.0, 0.0, np.sqrt(2.3)), abs=1e-12)
    elif kind == "categorical":
        joint = np.array(priors[0][0]) * priors[1][0]
        np.testing.assert_allclose(found.marginals[b].moments, joint / joint.sum(), atol=1e-14)
        assert found.log_evidence == pytest.approx(np.log(joint.sum()), abs=1e-12)
    elif kind == "gamma":
        np.testing.assert_allclose(found.marginals[a].parameters, (2.0 + 3.5 - 1.0, 1.7), rtol=1e-12)
        both = lambda t: stats.gamma.pdf(t, 2.0) * stats.gamma.pdf(t, 3.5, scale=1 / 0.7)  # noqa: E731
        assert found.log_evidence == pytest.approx(np.log(integrate.quad(both, 0, 60)[0]), abs=1e-9)
    elif kind == "beta":
        np.testing.assert_allclose(found.marginals[b].parameters, (2.2, 3.5), rtol=1e-12)
        both = lambda t: stats.beta.pdf(t, 2.0, 1.5) * stats.beta.pdf(t, 1.2, 3.0)  # noqa: E731
        assert found.log_evidence == pytest.approx(np.log(integrate.quad(both, 0, 1)[0]), abs=1e-9)
    else:
        np.testing.assert_allclose(found.marginals[a].parameters[0], [2.2, 3.5, 2.0], rtol=1e-12)


def test_calls_of_one_kind_are_one_group():
    graph = cv.FactorGraph()
    x = graph.gaussian(0.0, 1.0, size=6)
    for k in range(5):
        graph.linear(x[k], variance=0.1 * (k + 1), out=x[k + 1])
    graph.linear(x[0], variance=1.0, out=2.0)
    assert [group.size for group in graph.problem().groups] == [5, 1]


def test_the_problem_of_a_graph_of_several_families_is_had_outside_a_scope():
    graph = cv.FactorGraph()
    graph.normal(graph.gaussian(0.0, 4.0), graph.gamma(2.0, 1.0), out=[0.3, 0.8])
    with jax.enable_x64(False):
        problem = graph.problem()
    assert [np.asarray(own).tolist() for own in problem.prior.etas] == [[[0.0, 0.25]], [[2.0, 1.0]]]
    assert all(np.asarray(own).dtype == np.float64 for own in problem.prior.etas)


def test_what_nothing_is_said_of_is_not_called_converged():
    graph = cv.FactorGraph()
    known, open_end = graph.gaussian(0.0, 1.0), graph.gaussian()
    graph.linear(known, variance=1.0, out=0.3)
    assert cv.infer(graph, cv.EP()).status == "improper_posterior"
    assert open_end.shape == ()


def refused(make):
    graph = cv.FactorGraph()
    make(graph, graph.gaussian(0.0, 1.0, size=3, name="x"), graph.gamma(1.0, 1.0, name="g"))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda g, x, t: g.gaussian(0.0, -1.0), "variance must be positive"),
        (lambda g, x, t: g.gaussian(0.0), "both or neither"),
        (lambda g, x, t: g.gaussian(np.nan, 1.0), "mean must be finite"),
        (lambda g, x, t: g.gaussian([1.0, 2.0], 1.0, size=3), "does not fit"),
        (lambda g, x, t: g.gaussian(0.0, 1.0, name="x"), "already a variable"),
        (lambda g, x, t: g.vector([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "positive definite"),
        (lambda g, x, t: g.linear(x[:2], x), "do not fit together"),
        (lambda g, x, t: g.linear(x, weights=(1, 2)), "one weight per part"),
        (lambda g, x, t: g.linear(x, weights=(0.0,)), "variance of Linear must be positive"),
        (lambda g, x, t: g.linear(x, variance=-1.0), "must not be negative"),
        (lambda g, x, t: g.linear(x[0], x[0]), "one variable twice"),
        (lambda g, x, t: g.within(x, 1.0, 0.0), "lower below upper"),
        (
            lambda g, x, t: g.add(Logistic(), cv.FactorGraph().gaussian(0.0, 1.0, name="z"), data=1.0),
            "of another graph",
        ),
        (lambda g, x, t: g.problem(), "no factors"),
        (lambda g, x, t: cv.FactorGraph().problem(), "no variables"),
    ],
)
def test_bad_statements_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        refused(make)


def test_a_missing_rule_names_factor_families_and_options():
    with pytest.raises(
        TypeError, match=r"no rule for Linear between GaussianWithUniform × GammaWithUniform.*Closed forms"
    ):
        refused(lambda g, x, t: g.linear(x[0], out=t))


@pytest.mark.parametrize("exponent", range(1, 6))
def test_a_narrow_interval_has_its_evidence_and_moments(exponent):
    lower, upper = 0.3, 0.3 + 10.0**-exponent
    graph = cv.FactorGraph()
    x = graph.gaussian(0.0, 1.0)
    graph.within(x, lower, upper)
    found = cv.infer(graph, cv.EP())
    with mpmath.workdps(40):
        z, first, second = (
            mpmath.quad(lambda t, k=k: (t - lower) ** k * mpmath.npdf(t), [lower, upper]) for k in range(3)
        )
        log_z, mean, variance = float(mpmath.log(z)), float(first / z), float(second / z - (first / z) ** 2)
    assert found.status == "converged"
    assert found.log_evidence == pytest.approx(log_z, abs=1e-6)
    assert found.marginals[x].mean - lower == pytest.approx(mean, abs=1e-12)
    assert found.marginals[x].variance == pytest.approx(variance, rel=1e-6)


@pytest.mark.parametrize(("variance", "width"), [(1.0, 1e-9), (1e16, 1.0)])
def test_an_interval_beside_which_the_prior_has_no_digits_is_refused(variance, width):
    graph = cv.FactorGraph()
    with pytest.raises(ValueError, match="lower and upper must be further apart"):
        graph.within(graph.gaussian([0.0, 0.0], [1.0, variance]), [-1.0, 0.0], [1.0, width])
