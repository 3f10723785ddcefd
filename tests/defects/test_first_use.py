"""What a new user meets: runs that do not end, answers that are refused, defaults that mislead.

Each test states the right answer of a known defect, fails today, and whoever mends the defect takes the mark off.
"""

import itertools
import math

import jax
import numpy as np
import pytest
from command_line import call
from scipy.special import log_ndtr, ndtr
from scipy.stats import t as student

import cavity as cv

# ---------------------------------------------------------------- defects 6 and 15: Student's t in a factor graph

SCALE, DF, PRIOR = 0.5, 4.0, 100.0


def line(outliers):
    """y = 1 + 2x + noise in 12 rows, the first of which (but one) are too high by 3."""
    x = np.linspace(-2, 2, 12)
    y = 1 + 2 * x + SCALE * np.random.default_rng(0).standard_t(DF, 12)
    y[1 : 1 + outliers] += 3.0
    return x, y


def exact_line(x, y):
    """Posterior means of offset and slope, on a grid."""
    grid = np.linspace(-4, 6, 401)
    offset, slope = np.meshgrid(grid, grid, indexing="ij")
    log_p = -(offset**2 + slope**2) / (2 * PRIOR)
    for one, own in zip(x, y, strict=True):
        log_p = log_p + student.logpdf((own - offset - slope * one) / SCALE, DF)
    p = np.exp(log_p - log_p.max())
    return np.array([(p * offset).sum(), (p * slope).sum()]) / p.sum()


@pytest.mark.parametrize("outliers", [1, 0])
def test_a_graph_fits_a_line_under_student_t_noise(outliers):
    """The latent Gaussian model with the same q converges on these rows, within 1e-3 of the exact means."""
    x, y = line(outliers)
    graph = cv.FactorGraph()
    weights = graph.vector(np.zeros(2), PRIOR * np.eye(2), name="weights")
    values = graph.inner(weights, np.stack([np.ones(12), x], axis=1))
    graph.add(cv.factors.StudentT(SCALE, DF), values, data=y)
    solution = cv.infer(graph, cv.EP())
    assert solution.status == "converged"
    np.testing.assert_allclose(solution.marginals["weights"].mean, exact_line(x, y), atol=2e-3)


# ---------------------------------------------------------------- defect 7: sites that are skipped for ever


def test_sweeps_that_skip_the_same_sites_again_and_again_are_given_up():
    rng = np.random.default_rng(0)
    X = math.sqrt(0.2) * rng.random((80, 2))
    y = np.where(rng.random(80) < 0.5, 1.0, -1.0)
    problem = cv.models.latent_gaussian(y, cv.factors.Step(0.05), X=X, kernel=cv.kernels.RBF(0.1))
    solution = cv.infer(problem, cv.EP())
    assert solution.converged or solution.sweeps <= 50


# ---------------------------------------------------------------- defect 9: default probabilities


@pytest.mark.parametrize(
    "make",
    [lambda: cv.GPClassifier(kernel=cv.kernels.RBF(1.0), optimize=False), lambda: cv.BayesPointMachine()],
    ids=["GPClassifier", "BayesPointMachine"],
)
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="defect 9: by default, overlap of classes is taken for wrong labels"
)
def test_default_probabilities_are_right_for_labels_as_they_are_observed(make):
    """Of a label that says + with probability ¾ on one side and ¼ on the other, by the expected log loss.

    The best possible is 0.562, logistic regression has 0.608, and one half for every row log 2 = 0.693.
    """

    def positive(X):
        return np.where(X[:, 0] > 0, 0.75, 0.25)

    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(80, 1)), np.linspace(-2, 2, 200)[:, None]
    found = make().fit(X, rng.random(80) < positive(X)).predict_proba(new)
    p = positive(new)
    loss = -np.mean(p * np.log(found[:, 1]) + (1 - p) * np.log(found[:, 0]))
    assert loss < 0.66


# ---------------------------------------------------------------- defect 13: questions to a graph's solution


@pytest.fixture(scope="module")
def above_a_half():
    """N(0, 1) above ½."""
    with jax.enable_x64(True):
        graph = cv.FactorGraph()
        graph.greater(graph.gaussian(0.0, 1.0, name="a"), 0.5)
        return cv.infer(graph, cv.EP())


def test_the_solution_of_a_graph_can_be_checked(above_a_half):
    check = above_a_half.check()
    assert check.verdict == "EP agrees"
    assert check.log_evidence == pytest.approx(float(log_ndtr(-0.5)), abs=5 * check.standard_error + 1e-9)


def test_the_solution_of_a_graph_can_be_handed_to_arviz(above_a_half):
    pytest.importorskip("arviz")
    data = above_a_half.to_arviz(draws=1000)
    mean = math.exp(-0.125) / math.sqrt(2 * math.pi) / ndtr(-0.5)
    (drawn,) = (data.posterior[name] for name in data.posterior.data_vars)
    assert float(drawn.mean()) == pytest.approx(mean, abs=0.1)


# ---------------------------------------------------------------- defect 14: a line that does not go through 0


@pytest.mark.xfail(strict=True, raises=AssertionError, reason='defect 14: kernel="linear" has no bias')
def test_a_linear_regressor_finds_a_line_with_an_offset():
    x = np.random.default_rng(0).uniform(4, 6, size=(40, 1))
    assert cv.GPRegressor(kernel="linear").fit(x, 2 * x[:, 0] + 1).score(x, 2 * x[:, 0] + 1) > 0.99


@pytest.mark.xfail(strict=True, raises=AssertionError, reason='defect 14: kernel="linear" has no bias')
def test_a_linear_classifier_finds_a_boundary_that_is_not_at_zero():
    x = np.linspace(4, 6, 40)[:, None]
    model = cv.GPClassifier(kernel="linear", optimize=False).fit(x, x[:, 0] > 5)
    assert model.score(x, x[:, 0] > 5) >= 0.95


# ---------------------------------------------------------------- defect 15: hierarchies


def exact_hierarchy(y):
    """E[u] of every group and E[tau], on grids: tau ~ Gamma(1, 1), u ~ N(0, 1/tau), P(y) = Φ(y u); y (rows, groups)."""
    tau = np.exp(np.linspace(-9, 4, 400))
    u = np.linspace(-30, 30, 6001)
    prior = np.sqrt(tau)[:, None] * np.exp(-0.5 * tau[:, None] * u**2)
    likelihood = ndtr(y.T[:, :, None] * u).prod(axis=1)
    total, first = prior @ likelihood.T, prior @ (likelihood * u).T
    weight = tau * np.exp(-tau) * total.prod(axis=1)
    weight /= weight.sum()
    return weight @ (first / total), weight @ tau


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="defect 15: a hierarchical probit model is improper after one sweep"
)
def test_a_hierarchical_probit_model_converges():
    y = np.array([[-1.0, -1, 1], [1, 1, -1], [1, -1, 1], [-1, -1, -1]])
    graph = cv.FactorGraph()
    tau = graph.gamma(1.0, 1.0, name="tau")
    u = graph.gaussian(size=3, name="u")
    graph.normal(0.0, tau, out=u)
    graph.add(cv.factors.Probit(), u[np.tile(np.arange(3), 4)], data=y.ravel())
    solution = cv.infer(graph, cv.EP())
    assert solution.status == "converged"
    means, precision = exact_hierarchy(y)
    np.testing.assert_allclose(solution.marginals["u"].mean, means, atol=0.02)
    assert float(solution.marginals["tau"].mean) == pytest.approx(precision, abs=0.02)


# ---------------------------------------------------------------- defect 16: `cavity infer`

#: variable → (parents, P(first state) for every state of the parents, the last of them fastest)
ASIA = {
    "asia": ((), [0.01]),
    "tub": (("asia",), [0.05, 0.01]),
    "smoke": ((), [0.5]),
    "lung": (("smoke",), [0.1, 0.01]),
    "bronc": (("smoke",), [0.6, 0.3]),
    "either": (("lung", "tub"), [1.0, 1.0, 1.0, 0.0]),
    "xray": (("either",), [0.98, 0.05]),
    "dysp": (("bronc", "either"), [0.9, 0.8, 0.7, 0.1]),
}


def uai_text(network):
    """A network of binary variables as a .uai file has it."""
    names = list(network)
    scopes = [[*map(names.index, parents), names.index(name)] for name, (parents, _) in network.items()]
    tables = [np.stack([p, 1 - np.array(p)], axis=-1).ravel().tolist() for _, p in network.values()]
    lines = ["BAYES", str(len(names)), " ".join("2" * len(names)), str(len(names))]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope in scopes]
    lines += [f"{len(table)}\n{' '.join(map(repr, table))}" for table in tables]
    return "\n".join(lines) + "\n"


def enumerated(network):
    """P(first state) of every variable."""
    names, found = list(network), np.zeros(len(network))
    for states in itertools.product((0, 1), repeat=len(names)):
        weight = 1.0
        for (parents, p), own in zip(network.values(), states, strict=True):
            row = sum(states[names.index(name)] << k for k, name in enumerate(reversed(parents)))
            weight *= p[row] if own == 0 else 1 - p[row]
        found += weight * (np.array(states) == 0)
    return found


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="defect 16: loopy belief propagation where exact sums take no time"
)
def test_the_command_line_answers_a_small_network_exactly(tmp_path):
    (tmp_path / "asia.uai").write_text(uai_text(ASIA))
    result = call("infer", tmp_path / "asia.uai", "--out", tmp_path / "asia.MAR")
    assert result.exit_code == 0, result.output
    words = (tmp_path / "asia.MAR").read_text().split()
    assert words[:2] == ["MAR", "8"]
    found = np.array(words[2:], float).reshape(8, 3)[:, 1]
    np.testing.assert_allclose(found, enumerated(ASIA), atol=1e-9)  # of dysp 0.4360


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="defect 16: a run that ends at max_sweeps does not say what to try"
)
def test_a_run_that_ends_at_max_sweeps_says_what_to_try(tmp_path):
    """Five spins, all connected, with strong couplings of random sign."""
    rng = np.random.default_rng(0)
    pairs = list(itertools.combinations(range(5), 2))
    lines = ["MARKOV", "5", "2 2 2 2 2", str(len(pairs)), *(f"2 {i} {j}" for i, j in pairs)]
    for _ in pairs:
        weights = np.exp(rng.choice([-4.0, 4.0]) * np.array([1, -1, -1, 1]) + 0.2 * rng.normal(size=4))
        lines.append(f"4\n{' '.join(map(repr, weights.tolist()))}")
    (tmp_path / "spins.uai").write_text("\n".join(lines) + "\n")
    result = call("infer", tmp_path / "spins.uai", "--approximation", "tree", "--method", "ep")
    assert result.exit_code == 0 and "max sweeps" in result.output
    assert "--approximation" in result.output or "--method" in result.output


# Left out, because no quick and repeatable run shows them:
# 7: the 100 seconds on 20,480 rows; the test above shows the same run in small.
# 8: what `Auto` does on 350 random hard problems, most of which are ended by a time budget.
# 15: `Auto` without an answer in nine minutes; the tests above show the runs of EP behind it.
