"""Exact inference by a junction tree against enumeration of all states."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

from cavity.discrete import DiscreteGraph
from cavity.discrete.exact._program import plan_program
from cavity.discrete.exact._weighted_tables import Summed, evaluate, free_tables
from cavity.discrete.exact.junction_tree import calibrate, exact_discrete, exact_map, junction_tree


def random_graph(seed: int) -> DiscreteGraph:
    """Mixed cardinalities, scopes of 0 to 4 variables, zeros, evidence and likelihoods; often not connected."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(1, 5, rng.integers(1, 8))
    graph = DiscreteGraph(cards)
    scopes = [
        rng.choice(len(cards), rng.integers(0, min(len(cards), 4) + 1), replace=False) for _ in range(rng.integers(9))
    ]
    for scope in [*scopes, *scopes[:1]]:
        shape = tuple(cards[scope])
        graph.add_factor(scope, np.exp(rng.normal(0, 2, shape)) * (rng.random(shape) > 0.1))
    seen = {v: int(rng.integers(cards[v])) for v in range(len(cards)) if rng.random() < 0.15}
    soft = {v: rng.random(cards[v]) for v in range(len(cards)) if rng.random() < 0.2}
    return graph.given(seen, likelihoods=soft)


def enumerated(graph: DiscreteGraph) -> np.ndarray:
    """Log weights of all states."""
    cards = graph.cardinalities.tolist()

    def spread(scope: tuple[int, ...], values: np.ndarray) -> np.ndarray:
        return values.transpose(np.argsort(scope)).reshape([k if v in scope else 1 for v, k in enumerate(cards)])

    total = np.zeros(cards)
    for scope, values in graph:
        total = total + spread(scope, values)
    for v, weights in graph.likelihoods.items():
        total = total + spread((v,), weights)
    for v, state in graph.evidence.items():
        total = total + spread((v,), np.where(np.arange(cards[v]) == state, 0.0, -np.inf))
    return total


def marginal(log_weights: np.ndarray, *kept: int) -> np.ndarray:
    """Marginal of some variables, in ascending order."""
    axes = tuple(axis for axis in range(log_weights.ndim) if axis not in kept)
    return np.exp(logsumexp(log_weights, axis=axes) - logsumexp(log_weights))


def ising(rows: int, columns: int, coupling: float, seed: int = 0) -> DiscreteGraph:
    """A grid of spins with couplings ± `coupling` and fields in ±1."""
    rng = np.random.default_rng(seed)
    graph = DiscreteGraph([2] * (rows * columns))
    number = np.arange(rows * columns).reshape(rows, columns)
    pairs = np.concatenate(
        [
            np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1),
            np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1),
        ]
    )
    spins = np.array([-1.0, 1.0])
    strengths = coupling * rng.choice([-1.0, 1.0], len(pairs)) * rng.uniform(0.8, 1.0, len(pairs))
    graph.add_factors(pairs, strengths[:, None, None] * np.multiply.outer(spins, spins), log=True)
    graph.add_factors(number.reshape(-1, 1), rng.uniform(-1, 1, (rows * columns, 1)) * spins, log=True)
    return graph


@pytest.mark.parametrize("seed", range(150))
def test_equals_enumeration(seed: int):
    graph = random_graph(seed)
    log_weights = enumerated(graph)
    if log_weights.max() == -np.inf:
        for solve in (exact_discrete, exact_map):
            with pytest.raises(ValueError, match="probability zero"):
                solve(graph)
        return
    found = exact_discrete(graph)
    np.testing.assert_allclose(found.log_evidence, logsumexp(log_weights), rtol=0, atol=1e-12)
    n = log_weights.ndim
    for i in range(n):
        np.testing.assert_allclose(found.marginals[i], marginal(log_weights, i), rtol=1e-12, atol=1e-300)
        for j in range(n):
            wanted = np.diag(found.marginals[i]) if i == j else marginal(log_weights, i, j)
            np.testing.assert_allclose(found.pair(i, j), wanted.T if i > j else wanted, rtol=1e-11, atol=1e-300)
    states, weight = exact_map(graph)
    np.testing.assert_allclose(weight, log_weights.max(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(log_weights[tuple(states)], weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_strong_couplings(seed: int):
    """J = ±15: weights of neighbouring states differ by e^60 and more, those of a clique by e^200."""
    graph = ising(4, 4, 15.0, seed)
    log_weights = enumerated(graph)
    found = exact_discrete(graph)
    np.testing.assert_allclose(found.log_evidence, logsumexp(log_weights), rtol=1e-14)
    for v in range(16):
        np.testing.assert_allclose(found.marginals[v], marginal(log_weights, v), rtol=1e-12)
    for i, j in [(0, 1), (0, 15), (3, 12), (15, 5)]:
        np.testing.assert_allclose(
            found.pair(i, j),
            marginal(log_weights, min(i, j), max(i, j)).T if i > j else marginal(log_weights, i, j),
            rtol=1e-12,
        )


def test_nothing_is_lost_below_the_smallest_number():
    """A chain says e^−900 to a state that the factor at its other end then prefers by e^1000."""
    graph = DiscreteGraph([2, 2, 2])
    agree = np.array([[0.0, -2000.0], [-2000.0, 0.0]])
    graph.add_factor([0], [0.0, -900.0], log=True)
    graph.add_factor([0, 1], agree, log=True)
    graph.add_factor([1, 2], agree, log=True)
    graph.add_factor([2], [-1000.0, 0.0], log=True)
    found = exact_discrete(graph)
    for v in range(3):
        np.testing.assert_allclose(found.marginals[v], [np.exp(-100.0), 1.0], rtol=1e-12)
    np.testing.assert_allclose(found.log_evidence, -900.0, rtol=1e-14)
    np.testing.assert_allclose(found.pair(0, 2)[0, 0], np.exp(-100.0), rtol=1e-12)


def in_weights(graph: DiscreteGraph) -> Summed | None:
    """The answer without logarithms."""
    start = free_tables(graph)
    _, program = plan_program(start.scopes, start.children, tuple(start.states.items()), math.inf)
    return evaluate(program, start)


def test_weights_and_logarithms_agree():
    """The two arithmetics, where weights can be used; strong couplings are left to the logarithms."""
    compared = 0
    for graph in [*(random_graph(seed) for seed in range(60)), ising(5, 6, 2.0)]:
        tree = junction_tree(graph)
        try:
            logs = calibrate(tree)
        except ValueError:
            with pytest.raises(ValueError, match="probability zero"):
                in_weights(graph)
            continue
        weights = in_weights(graph)
        assert weights is not None
        np.testing.assert_allclose(weights.log_sum, math.fsum(logs.constants), rtol=0, atol=1e-12)
        assert weights.marginals.keys() == logs.marginals.keys()
        for v, wanted in logs.marginals.items():
            np.testing.assert_allclose(weights.marginals[v], wanted, rtol=1e-12)
        compared += 1
    assert compared > 40
    assert in_weights(ising(12, 12, 60.0)) is None


def test_a_grid_of_144():
    """Each marginal by conditioning: p(x_v = s) = Z(x_v = s) / Z. The order differs with the evidence."""
    graph = ising(12, 12, 1.0)
    found = exact_discrete(graph)
    assert found.width <= 16
    for v in (0, 50, 77, 143):
        shares = [exact_discrete(graph.given({v: s})).log_evidence - found.log_evidence for s in (0, 1)]
        np.testing.assert_allclose(found.marginals[v], np.exp(shares), rtol=1e-11)
    far = found.pair(0, 143)
    both = exact_discrete(graph.given({0: 1, 143: 0})).log_evidence - found.log_evidence
    np.testing.assert_allclose(far[1, 0], math.exp(both), rtol=1e-11)
    np.testing.assert_allclose(far.sum(axis=0), found.marginals[143], rtol=1e-11)
    states, weight = exact_map(graph)
    flips = [exact_map(graph.given({v: 1 - int(states[v])}))[1] for v in (0, 50)]
    assert max(flips) <= weight


def test_a_large_table_is_reduced_as_a_small_one():
    """Tables of more than 4096 entries with axes of unequal length, one clique and several."""
    rng = np.random.default_rng(3)
    graph = DiscreteGraph([3, 4, 5, 6, 7, 4])
    graph.add_factor([4, 0, 2, 3, 1], rng.random((7, 3, 5, 6, 4)))
    for scope in ([], [5, 2, 0]):
        graph.add_factor(scope, rng.random(tuple(graph.cardinalities[scope])))
        log_weights = enumerated(graph)
        found = exact_discrete(graph)
        np.testing.assert_allclose(found.log_evidence, logsumexp(log_weights), rtol=1e-13)
        for v in range(6):
            np.testing.assert_allclose(found.marginals[v], marginal(log_weights, v), rtol=1e-12)
        assert exact_map(graph)[1] == pytest.approx(log_weights.max(), abs=1e-12)


def test_the_tree_holds_what_a_junction_tree_must():
    """Every factor fits a clique, no clique lies in another, and a variable's cliques are connected."""
    for seed in range(30):
        graph = random_graph(seed).given()
        tree = junction_tree(graph)
        scopes = [set(clique.variables) for clique in tree.cliques]
        for scope, _ in graph:
            free = {v for v in scope if graph.cardinalities[v] > 1}
            assert not free or any(free <= held for held in scopes)
        for a, own in enumerate(scopes):
            assert not any(own <= other for b, other in enumerate(scopes) if a != b)
            parent = tree.cliques[a].parent
            if parent >= 0:
                assert parent > a and set(tree.cliques[a].separator) == own & scopes[parent]
        for v, home in tree.frame.home.items():
            assert all(a == home or v in scopes[tree.cliques[a].parent] for a, held in enumerate(scopes) if v in held)


def test_constants_and_lone_variables():
    graph = DiscreteGraph([3, 1, 2])
    graph.add_factor([], 5.0)
    graph.add_factor([1], [2.0])
    found = exact_discrete(graph)
    np.testing.assert_allclose(found.log_evidence, math.log(5 * 2 * 3 * 2), rtol=1e-15)
    np.testing.assert_allclose(found.marginals[0], np.full(3, 1 / 3))
    assert found.marginals[1].tolist() == [1.0] and found.width == 0 and found.table_size == 3
    nothing = exact_discrete(DiscreteGraph())
    assert nothing.marginals == [] and nothing.log_evidence == 0.0


def test_observed_variables_make_the_tree_narrower():
    graph = ising(6, 6, 0.5)
    column = {6 * row + 3: 0 for row in range(6)}
    assert exact_discrete(graph.given(column)).width <= 3 < exact_discrete(graph).width
    observed = exact_discrete(graph.given(column))
    assert observed.marginals[3].tolist() == [1.0, 0.0]
    np.testing.assert_allclose(observed.pair(3, 4), np.outer([1.0, 0.0], observed.marginals[4]))


def test_names():
    graph = DiscreteGraph()
    graph.add_variable(["dry", "wet"], "grass")
    graph.add_variable(["no", "yes"], "rain")
    graph.add_factor(["rain"], [0.8, 0.2])
    graph.add_factor(["rain", "grass"], [[0.9, 0.1], [0.2, 0.8]])
    found = exact_discrete(graph)
    np.testing.assert_allclose(found.pair("grass", "rain"), [[0.72, 0.04], [0.08, 0.16]], rtol=1e-14)
    with pytest.raises(ValueError, match="no variable named 'snow'"):
        found.pair("snow", "rain")


def test_refused_beyond_the_memory():
    graph = ising(12, 12, 1.0)
    with pytest.raises(
        ValueError, match=r"^exact inference needs 1?[\d.e+]+ bytes \(width 1\d, .* entries\); the limit"
    ):
        exact_discrete(graph, memory=1e6)
    with pytest.raises(ValueError, match=r"needs more than .* bytes .*limit is memory=1e\+04"):
        exact_map(graph, memory=1e4)


@pytest.mark.parametrize("solve", [exact_discrete, exact_map])
def test_contradictory_evidence(solve):
    graph = DiscreteGraph([2, 2])
    graph.add_factor([0, 1], [[1.0, 0.0], [0.0, 1.0]])
    for evidence in ({0: 0, 1: 1}, {0: 0}):
        impossible = graph.given(evidence, likelihoods={1: [0.0, 1.0]})
        with pytest.raises(ValueError, match="the evidence has probability zero"):
            solve(impossible)
