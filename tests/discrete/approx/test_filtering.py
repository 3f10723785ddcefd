"""The filter of Boyen & Koller against one written out by hand, and against exact filtering where it is exact."""

import itertools
import math

import numpy as np
import pytest

from cavity.discrete import DiscreteGraph, exact_discrete

CHAINS, LENGTH = 3, 10


class Coupled:
    """Three binary chains, each moving by itself and by its neighbours, each observed with noise.

    moves: (chain, own state, left, right, next state), first: (chain, state), seen: (slice, chain), noise: its table.
    """

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.moves = rng.dirichlet([0.5, 0.5], (CHAINS, 2, 2, 2))
        self.first = rng.dirichlet([1.0, 1.0], CHAINS)
        self.noise = np.array([[0.8, 0.2], [0.3, 0.7]])
        self.seen = rng.integers(2, size=(LENGTH, CHAINS))

    def parents(self, chain: int) -> list[int]:
        return [chain, (chain - 1) % CHAINS, (chain + 1) % CHAINS]

    def graph(self, length: int = LENGTH) -> tuple[DiscreteGraph, list[list[str]]]:
        """Hidden variables h, observed ones y with evidence; the slices by name."""
        graph = DiscreteGraph()
        slices, evidence = [], {}
        for t in range(length):
            slices.append([f"h{t}.{c}" for c in range(CHAINS)] + [f"y{t}.{c}" for c in range(CHAINS)])
            for name in slices[-1]:
                graph.add_variable(2, name)
            for c in range(CHAINS):
                if t == 0:
                    graph.add_factor([f"h0.{c}"], self.first[c])
                else:
                    before = [f"h{t - 1}.{parent}" for parent in self.parents(c)]
                    graph.add_factor([*before, f"h{t}.{c}"], self.moves[c])
                graph.add_factor([f"h{t}.{c}", f"y{t}.{c}"], self.noise)
                evidence[f"y{t}.{c}"] = int(self.seen[t, c])
        return graph.given(evidence), slices

    def by_hand(self, *, joint: bool) -> tuple[np.ndarray, float]:
        """P(h_t,c = 1 | evidence up to t) and Σ log Z: sums over all states, with or without the projection."""
        states = list(itertools.product(range(2), repeat=CHAINS))
        q, log_z, marginals = np.ones(len(states)), 0.0, []
        for t in range(LENGTH):
            new = np.zeros(len(states))
            for place, state in enumerate(states):
                seen = math.prod(self.noise[state[c], self.seen[t, c]] for c in range(CHAINS))
                if t == 0:
                    new[place] = seen * math.prod(self.first[c, state[c]] for c in range(CHAINS))
                    continue
                for old_place, old in enumerate(states):
                    moved = math.prod(
                        self.moves[(c, *(old[parent] for parent in self.parents(c)), state[c])] for c in range(CHAINS)
                    )
                    new[place] += q[old_place] * moved * seen
            log_z += math.log(new.sum())
            new /= new.sum()
            on = np.array([sum(new[k] for k, state in enumerate(states) if state[c]) for c in range(CHAINS)])
            marginals.append(on)
            independent = [math.prod(on[c] if state[c] else 1 - on[c] for c in range(CHAINS)) for state in states]
            q = new if joint else np.array(independent)
        return np.array(marginals), log_z


def on(marginals: list[list[np.ndarray]]) -> np.ndarray:
    """The probability of state 1 of the hidden variables."""
    return np.array([[values[1] for values in own[:CHAINS]] for own in marginals])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_is_the_filter_of_boyen_and_koller(seed):
    model = Coupled(seed)
    graph, slices = model.graph()
    found = graph.filter(slices)
    marginals, log_z = model.by_hand(joint=False)
    np.testing.assert_allclose(on(found.marginals), marginals, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.log_evidence, log_z, rtol=1e-12)
    # The projection loses something, else this test would say nothing.
    assert np.abs(marginals - model.by_hand(joint=True)[0]).max() > 1e-4


@pytest.mark.parametrize("seed", [0, 1])
def test_a_slice_in_one_cluster_is_filtered_exactly(seed):
    model = Coupled(seed)
    graph, slices = model.graph()
    found = graph.filter(slices, clusters=[own[:CHAINS] for own in slices])
    marginals, log_z = model.by_hand(joint=True)
    np.testing.assert_allclose(on(found.marginals), marginals, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.log_evidence, log_z, rtol=1e-10)
    whole = exact_discrete(graph)
    np.testing.assert_allclose(found.log_evidence, whole.log_evidence, rtol=1e-10)
    last = [whole.marginals[graph.variables.number(name)][1] for name in slices[-1][:CHAINS]]
    np.testing.assert_allclose(on(found.marginals)[-1], last, rtol=0, atol=1e-10)
    shorter, own = model.graph(4)
    middle = exact_discrete(shorter).marginals[shorter.variables.number(own[3][1])]
    np.testing.assert_allclose(found.marginals[3][1], middle, rtol=0, atol=1e-10)


def test_clusters_lie_between_the_two():
    errors = {"none": [], "pair": []}
    for seed in range(10):
        model = Coupled(seed)
        graph, slices = model.graph()
        truth = model.by_hand(joint=True)[0]
        errors["none"].append(np.abs(on(graph.filter(slices).marginals) - truth).mean())
        pairs = [[own[0], own[2]] for own in slices]
        errors["pair"].append(np.abs(on(graph.filter(slices, clusters=pairs).marginals) - truth).mean())
    assert 0 < np.mean(errors["pair"]) < np.mean(errors["none"])


def test_a_cluster_keeps_the_order_of_its_variables_and_of_the_slice():
    graph = DiscreteGraph([2, 3, 4])
    rng = np.random.default_rng(0)
    graph.add_factor([0, 1, 2], rng.random((2, 3, 4)))
    graph.add_factor([], 2.0)
    truth = exact_discrete(graph)
    found = graph.filter([[2, 0, 1]], clusters=[[1, 2]])
    for values, variable in zip(found.marginals[0], [2, 0, 1], strict=True):
        np.testing.assert_allclose(values, truth.marginals[variable], rtol=1e-12)
    np.testing.assert_allclose(found.log_evidence, truth.log_evidence, rtol=1e-12)


def test_likelihoods_and_old_evidence_are_used_once():
    graph = DiscreteGraph([3, 3, 3])
    rng = np.random.default_rng(1)
    for pair in ([0, 1], [1, 2]):
        graph.add_factor(pair, rng.random((3, 3)))
    given = graph.given({0: 2}, likelihoods={1: [0.2, 0.5, 0.0], 2: [0.3, 0.3, 0.9]})
    truth, found = exact_discrete(given), given.filter([[0], [1], [2]])
    np.testing.assert_allclose(found.log_evidence, truth.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(found.marginals[2][0], truth.marginals[2], rtol=1e-12)
    np.testing.assert_array_equal(found.marginals[0][0], [0.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("slices", "clusters", "said"),
    [
        ([[0, 1], [2]], None, "slices must name every variable; x3 is in none."),
        ([[0, 1], [1, 2], [3]], None, "x1 is in slices 0 and 1"),
        ([[0], [1], [2, 3]], None, r"the one over x0, x2 touches slices \[0, 2\]"),
        ([[0, 1], [2, 3]], [[1, 2]], "a cluster must lie within one slice; x1, x2 are of several."),
        ([[0, 1], [2, 3]], [[0, 1], [1]], "clusters must be disjoint; x1 is in two."),
        ([[0, 1], [2, "z"]], None, "there is no variable named 'z'"),
        ([[0], [1], [2, 3]], [[2, 3]], r"the one over x0, x2 touches slices \[0, 2\]"),
    ],
)
def test_bad_input_is_refused(slices, clusters, said):
    graph = DiscreteGraph([2] * 4)
    graph.add_factor([0, 2], np.ones((2, 2)))
    with pytest.raises(ValueError, match=said):
        graph.filter(slices, clusters=clusters)


def test_what_does_not_fit_is_refused():
    graph = DiscreteGraph([2] * 30)
    graph.add_factors(np.stack([np.arange(29), np.arange(1, 30)], axis=1), np.ones((29, 2, 2)))
    with pytest.raises(ValueError, match="a cluster has 1073741824 joint states, more than 16777216"):
        graph.filter([range(30)], clusters=[range(30)])
    with pytest.raises(ValueError, match="the limit is memory=10"):
        graph.filter([range(30)], memory=10)
    assert graph.filter([range(30)]).log_evidence == pytest.approx(30 * math.log(2))
