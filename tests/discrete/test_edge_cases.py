"""Graphs at the edge of what a graph is: nothing to sum, nothing possible, one state, one table for everything."""

import math

import numpy as np
import pytest
from command_line import call
from small_graphs import enumerated, joint_table

import cavity as cv
from cavity.discrete import exact_map

FORMS = {"disconnected": "disconnected", "tree": "tree", "clusters": cv.Clusters([[0, 1]])}
EQUAL, DIFFERENT = np.eye(2), 1.0 - np.eye(2)


def graph_of(cardinalities, *factors):
    graph = cv.DiscreteGraph(cardinalities)
    for scope, values in factors:
        graph.add_factor(scope, values)
    return graph


def two_pairs(*more):
    """Two pairs that are not connected, a variable with one state and one that no factor names; one shape for all."""
    rng = np.random.default_rng(0)
    pairs = [([0, 1], rng.random((2, 2))), ([3, 2], rng.random((2, 2)))]
    return graph_of([2, 2, 2, 2, 1, 3], *pairs, ([4], [2.0]), *more)


ORDINARY = {
    "not connected": two_pairs(),
    "all observed": two_pairs().given({0: 0, 1: 1, 2: 1, 3: 0, 4: 0, 5: 2}),
    "states ruled out": two_pairs().given({5: 1}, likelihoods={1: [0.0, 2.0], 3: [1.0, 3.0]}),
    "observed twice over": two_pairs().given({1: 1}, likelihoods={1: [0.3, 0.7]}),
    "constants": two_pairs(([], 3.0), ([], 0.5)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ORDINARY)
def test_without_loops_every_form_is_exact(name, form):
    graph = ORDINARY[name]
    log_z, marginals = enumerated(graph)
    exact, found = cv.exact(graph), cv.infer(graph.approximate(FORMS[form]), cv.EP())
    assert found.status == "converged"
    for answer in (found, exact):
        assert abs(answer.log_evidence - log_z) < 1e-12
        for own, wanted in zip(answer.marginals, marginals, strict=True):
            np.testing.assert_allclose(own, wanted, atol=1e-12)
    assert exact_map(graph)[1] == pytest.approx(joint_table(graph).max(), abs=1e-12)


def test_two_tables_over_one_pair_are_joined_by_a_group():
    """Belief propagation takes them for a loop, which a group, a tree and a cluster do not."""
    graph = two_pairs(([1, 0], [[0.2, 0.9], [0.7, 0.4]]))
    log_z, _ = enumerated(graph)
    joined = graph.approximate(groups=[[0, 3]])
    for approximation in (joined, *(graph.approximate(FORMS[form]) for form in ("tree", "clusters"))):
        assert abs(cv.infer(approximation, cv.EP()).log_evidence - log_z) < 1e-12
    assert abs(cv.exact(graph).log_evidence - log_z) < 1e-12


CHAIN = graph_of([2, 2, 2], ([0, 1], EQUAL), ([1, 2], EQUAL))
IMPOSSIBLE = {
    "evidence": CHAIN.given({0: 0, 2: 1}),
    "all observed": CHAIN.given({0: 0, 1: 0, 2: 1}),
    "likelihood": CHAIN.given({0: 0}, likelihoods={2: [0.0, 1.0]}),
    "likelihood of zeros": CHAIN.given(likelihoods={1: [0.0, 0.0]}),
    "own factors": graph_of([2, 2], ([0], [1.0, 0.0]), ([0], [0.0, 1.0]), ([0, 1], np.ones((2, 2)))),
    "table of zeros": graph_of([2, 2], ([0, 1], np.zeros((2, 2)))),
    "constant": graph_of([2, 2], ([], 0.0), ([0, 1], np.ones((2, 2)))),
    "one state": graph_of([1, 2], ([0], [0.0]), ([0, 1], np.ones((1, 2)))),
}
WAYS = {
    **{form: lambda graph, own=own: cv.infer(graph.approximate(own), cv.EP()) for form, own in FORMS.items()},
    "exact": cv.exact,
    "map": exact_map,
    "filter": lambda graph: graph.filter([range(len(graph.variables))]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_is_impossible_is_said_so_everywhere(name, way):
    with pytest.raises(ValueError, match=r"^the evidence has probability zero: "):
        WAYS[way](IMPOSSIBLE[name])


def test_a_contradiction_around_a_loop():
    """Three variables cannot all differ. Messages see no zero that is none; they must not make a number of it."""
    triangle = graph_of([2, 2, 2], *((pair, DIFFERENT) for pair in ([0, 1], [1, 2], [0, 2])), ([0], [0.3, 0.7]))
    for way in ("exact", "map", "filter"):
        with pytest.raises(ValueError, match="probability zero"):
            WAYS[way](triangle)
    loopy = cv.infer(triangle, cv.EP(max_sweeps=30))
    assert np.isfinite(loopy.log_evidence) and np.isfinite(loopy.marginals).all()
    np.testing.assert_allclose(np.sum(loopy.marginals, axis=1), 1.0, atol=1e-12)
    assert WAYS["tree"](triangle).status == "nonfinite_factor"


def test_a_factor_of_twenty_variables():
    """Belief propagation is exact here. A tree would pass messages for each of the joint states."""
    rng = np.random.default_rng(0)
    graph = graph_of([2] * 20, (range(20), rng.random((2,) * 20)))
    graph.add_factors(np.arange(20)[:, None], rng.random((20, 2)) + 0.1)
    exact, found = cv.exact(graph), cv.infer(graph, cv.EP())
    assert found.status == "converged" and found.sweeps <= 2
    np.testing.assert_allclose(found.marginals, exact.marginals, atol=1e-12)
    assert abs(found.log_evidence - exact.log_evidence) < 1e-12
    with pytest.raises(ValueError, match=r"over 20 variables has 1048576\. Use the form"):
        graph.approximate("tree").problem()


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda g: g.add_factor([0, 0], np.ones((2, 2))), r"a scope names a variable twice: \[0, 0\]"),
        (lambda g: g.add_factor(0, [1.0, 1.0]), "scope must be a list of variables; found 0"),
        (lambda g: g.add_factor([], [1.0]), r"values must have shape \(1,\)"),
        (lambda g: g.given({0: 2}), "states of x0 are numbered 0 to 1; found 2"),
        (lambda g: g.given({0: -1}), "states of x0 are numbered 0 to 1; found -1"),
        (lambda g: g.given({7: 0}), "variables are numbered 0 to 2; found 7"),
        (lambda g: g.given([(0, 1)]), "evidence must be a dict by variable; found list"),
        (lambda g: g.given(likelihoods={0: [1.0]}), "likelihood of x0 must have 2 weights"),
        (lambda g: cv.DiscreteGraph().given({0: 0}), "the graph has no variables"),
        (lambda g: cv.DiscreteGraph([2]).approximate(groups=[[0]]), "groups name factors; the graph has none"),
        (lambda g: cv.exact(g, memory=math.nan), "the limit is memory=nan"),
        (lambda g: cv.exact(g, memory=0), "the limit is memory=0"),
    ],
)
def test_bad_input_gets_one_sentence(ask, sentence):
    with pytest.raises(ValueError, match=sentence):
        ask(CHAIN)


CHAIN_FILE = "MARKOV\n3\n2 2 2\n2\n2 0 1\n2 1 2\n4 1 0 0 1\n4 1 0 0 1\n"


@pytest.mark.parametrize(
    ("model", "evidence", "sentence"),
    [
        (CHAIN_FILE, "2 0 0 2 1\n", "the evidence has probability zero"),
        (CHAIN_FILE, "1 0 2\n", "variable 0 has 2 states"),
        (CHAIN_FILE, "1 3 0\n", "evidence on the variable 3 of 3"),
        (CHAIN_FILE.replace("2 1 2", "2 1 1"), None, "a scope names the variable 1 twice"),
        ("MARKOV\n1\n2\n1\n0\n1 0\n", None, "the evidence has probability zero"),
        ("MARKOV\n0\n\n0\n", None, "the graph has no variables"),
    ],
)
@pytest.mark.parametrize("form", ["disconnected", "tree"])
def test_the_command_line_says_it_in_a_sentence(tmp_path, model, evidence, sentence, form):
    (tmp_path / "model.uai").write_text(model)
    options = ["--approximation", form]
    if evidence is not None:
        (tmp_path / "seen.evid").write_text(evidence)
        options += ["--evidence", tmp_path / "seen.evid"]
    result = call("infer", tmp_path / "model.uai", *options)
    assert result.exit_code == 2 and sentence in " ".join(result.output.split())
