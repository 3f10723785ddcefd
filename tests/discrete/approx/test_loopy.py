"""EP with a disconnected approximation is loopy belief propagation: exact on trees, Bethe's estimate elsewhere."""

import numpy as np
import pytest
from scipy.special import logsumexp
from small_graphs import enumerated, grid_edges, joint_table, random_graph, spin_graph

import cavity as cv

#: one shape, so that one program serves
CHAIN = [(0, 1), (1, 2), (1, 3), (3, 4), (3, 5), (5, 6)]


def textbook(graph, edges, sweeps=500):
    """Messages between pairs, all at once, in plain NumPy; beliefs and Bethe's log Z."""
    n, tables, fields = len(graph.cardinalities), {}, np.zeros((len(graph.cardinalities), 2))
    for factor in graph:
        if len(factor.scope) == 1:
            fields[factor.scope[0]] += factor.log_values
        else:
            tables[factor.scope] = factor.log_values
            tables[factor.scope[::-1]] = factor.log_values.T
    messages = {edge: np.zeros(2) for edge in tables}
    neighbours = {i: [a for a, b in tables if b == i] for i in range(n)}
    for _ in range(sweeps):
        new = {}
        for i, j in tables:
            incoming = fields[i] + sum(messages[k, i] for k in neighbours[i] if k != j)
            found = logsumexp(tables[i, j] + np.asarray(incoming)[:, None], axis=0)
            new[i, j] = found - logsumexp(found)
        messages = new
    log_beliefs = [fields[i] + sum(messages[k, i] for k in neighbours[i]) for i in range(n)]
    beliefs = [np.exp(b - logsumexp(b)) for b in log_beliefs]
    bethe = 0.0
    for i in range(n):
        b = beliefs[i]
        bethe += (len(neighbours[i]) - 1) * np.sum(b * np.log(b)) + np.sum(b * fields[i]) * (1 - len(neighbours[i]))
    for i, j in [tuple(edge) for edge in np.asarray(edges).tolist()]:
        out_i = fields[i] + sum(messages[k, i] for k in neighbours[i] if k != j)
        out_j = fields[j] + sum(messages[k, j] for k in neighbours[j] if k != i)
        pair = tables[i, j] + np.asarray(out_i)[:, None] + np.asarray(out_j)
        pair = np.exp(pair - logsumexp(pair))
        bethe += np.sum(pair * (tables[i, j] + fields[i][:, None] + fields[j] - np.log(pair)))
    return np.array(beliefs), bethe


@pytest.mark.parametrize("coupling", [0.5, 8.0])
def test_exact_on_a_tree(coupling):
    rng = np.random.default_rng(0)
    graph = spin_graph(CHAIN, coupling * rng.normal(size=6), rng.normal(size=7))
    log_z, marginals = enumerated(graph)
    found = cv.infer(graph, cv.EP())
    assert found.status == "converged"
    np.testing.assert_allclose(found.marginals, marginals, atol=1e-12)
    assert abs(found.log_evidence - log_z) < 1e-12 * max(1.0, abs(log_z))


SCHEDULES = [
    cv.InOrder(),
    cv.Parallel(),
    cv.Shuffled(),
    cv.LargestMismatchFirst(),
    cv.OneMessage(),
    cv.OneMessage(cv.Parallel()),
    "tree by tree",
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_every_schedule_ends_at_the_textbook_fixed_point(schedule):
    rng = np.random.default_rng(1)
    edges = grid_edges(3, 3)
    graph = spin_graph(edges, 0.5 * rng.normal(size=12), 0.3 * rng.normal(size=9))
    schedule = graph.tree_by_tree() if schedule == "tree by tree" else schedule
    beliefs, bethe = textbook(graph, edges)
    found = cv.infer(graph, cv.EP(schedule=schedule, tol=1e-12))
    np.testing.assert_allclose(found.marginals, beliefs, atol=1e-11)
    assert abs(found.log_evidence - bethe) < 1e-10


def test_tree_by_tree_is_exact_on_a_tree_after_one_sweep():
    rng = np.random.default_rng(9)
    graph = spin_graph(CHAIN, 2 * rng.normal(size=6), rng.normal(size=7))
    found = cv.infer(graph, cv.EP(schedule=graph.tree_by_tree(), max_sweeps=1))
    np.testing.assert_allclose(found.marginals, enumerated(graph)[1], atol=1e-12)
    one_pass = cv.infer(graph, cv.EP(max_sweeps=1))
    assert np.abs(one_pass.marginals - found.marginals).max() > 1e-3


def test_one_message_changes_one_message():
    """Visits for the first variable of each factor only: nothing is said to the second, as counted by hand."""
    graph = cv.DiscreteGraph([2, 2])
    graph.add_factor([0, 1], [[1.0, 2.0], [3.0, 5.0]])
    graph.add_factor([0], [0.2, 0.8])
    first, second = cv.OneMessage().parts(graph.problem().groups[0].family)
    assert first.tolist() == [True] * 4 + [False] * 4 and second.tolist() == [False] * 4 + [True] * 4
    found = cv.infer(graph, cv.EP(schedule=cv.OneMessage()))
    np.testing.assert_allclose(found.marginals, enumerated(graph)[1], atol=1e-14)


def test_the_pair_of_a_factor_has_the_marginals_of_q():
    rng = np.random.default_rng(2)
    graph = spin_graph(grid_edges(3, 3), 0.5 * rng.normal(size=12), 0.3 * rng.normal(size=9))
    found = cv.infer(graph, cv.EP(tol=1e-12))
    pair = found.pair(1, 4)
    np.testing.assert_allclose(pair.sum(axis=1), found.marginals[1], atol=1e-10)
    np.testing.assert_allclose(pair.T, found.pair(4, 1), atol=1e-14)
    with pytest.raises(ValueError, match="does not hold the pair"):
        found.pair(0, 8)


def test_mixed_cardinalities_zeros_and_evidence_on_a_tree():
    rng = np.random.default_rng(3)
    graph = cv.DiscreteGraph([3, 2, 4, 1, 2])
    for scope in ([0, 1], [1, 2], [1, 3, 4]):
        weights = rng.gamma(1.0, size=graph.cardinalities[scope])
        weights.flat[1] = 0.0
        graph.add_factor(scope, weights)
    for given in (graph, graph.given({2: 1}), graph.given({4: 0}, likelihoods={0: [1.0, 0.0, 2.0]})):
        log_z, marginals = enumerated(given)
        found = cv.infer(given, cv.EP())
        assert abs(found.log_evidence - log_z) < 1e-12
        for own, true in zip(found.marginals, marginals, strict=True):
            np.testing.assert_allclose(own, true, atol=1e-12)
            assert ((own == 0) == (true == 0)).all()  # zeros are exact


def test_new_evidence_does_not_compile(caplog):
    import jax

    rng = np.random.default_rng(5)
    graph = spin_graph(CHAIN, rng.normal(size=6), rng.normal(size=7))
    cv.infer(graph.given({0: 1}), cv.EP())
    with jax.log_compiles():
        found = cv.infer(graph.given({5: 0}), cv.EP())
    assert not [line for line in caplog.messages if "compilation of jit(advance)" in line]
    np.testing.assert_allclose(found.log_evidence, enumerated(graph.given({5: 0}))[0], rtol=1e-12)


def test_strong_couplings_make_sweeps_circle():
    """Four spins of which every two are told to differ: full steps never settle, half steps do (thesis 4.1)."""
    edges = [(i, j) for i in range(4) for j in range(i)]
    graph = spin_graph(edges, -np.ones(6), np.array([0.1, -0.05, 0.02, 0.08]))
    circling, settled = cv.infer(graph, cv.EP()), cv.infer(graph, cv.EP(damping=0.5))
    assert circling.status == "max_sweeps" and settled.converged
    assert np.min(circling.residuals[50:]) > 1e-3


def test_auto_finds_fixed_points_where_sweeps_circle():
    rng = np.random.default_rng(0)
    for _ in range(3):
        graph = spin_graph(grid_edges(4, 4), 2.0 * rng.normal(size=24), 0.3 * rng.normal(size=16))
        found = cv.infer(graph)
        assert found.converged and np.isfinite(found.log_evidence)
        # Belief propagation leaves its fixed point where it is: one whole sweep of all messages at once.
        again = cv.infer(graph, cv.EP(max_sweeps=1, schedule=cv.Parallel()), init=found)
        np.testing.assert_allclose(again.marginals, found.marginals, atol=1e-5)


def test_random_graphs_are_answered_or_refused():
    rng = np.random.default_rng(6)
    for _ in range(4):
        graph = random_graph(rng)
        if np.isfinite(logsumexp(joint_table(graph))):
            found = cv.infer(graph, cv.EP(max_sweeps=50))
            assert all(abs(own.sum() - 1) < 1e-12 for own in found.marginals)


EQUAL = [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize(
    "form", ["disconnected", "tree", cv.Clusters([[0, 1]])], ids=["disconnected", "tree", "clusters"]
)
@pytest.mark.parametrize("evidence", [{0: 0, 2: 1}, {0: 0, 1: 1}], ids=str)
def test_evidence_of_probability_zero_is_refused(form, evidence):
    graph = cv.DiscreteGraph([2, 2, 2])
    graph.add_factor([0, 1], EQUAL)
    graph.add_factor([1, 2], EQUAL)
    with pytest.raises(ValueError, match="the evidence has probability zero"):
        cv.infer(graph.given(evidence).approximate(form))


@pytest.mark.parametrize("form", ["disconnected", "tree"])
def test_a_graph_that_needs_no_sites(form):
    graph = cv.DiscreteGraph([1, 2, 3])
    graph.add_factor([], 3.0)
    for _ in range(2):
        graph.add_factor([1], [1.0, 2.0])
    found = cv.infer(graph.approximate(form))
    assert found.status == "converged"
    assert abs(found.log_evidence - np.log(3 * 5 * 3)) < 1e-12
    np.testing.assert_allclose(found.marginals[1], [0.2, 0.8], atol=1e-12)
    with pytest.raises(ValueError, match="no variables"):
        cv.infer(cv.DiscreteGraph().approximate(form))
