"""Models, evidence and results of the UAI competitions: axes by hand, round trips, and one sentence for the rest."""

import math

import numpy as np
import pytest
from damaged_text import check_damaged
from hypothesis import given, settings
from hypothesis import strategies as st

from cavity.discrete import DiscreteGraph
from cavity.discrete.io.uai import (
    format_evidence,
    format_uai,
    parse_evidence,
    parse_uai,
    read_map,
    read_mar,
    read_pr,
    write_map,
    write_mar,
    write_pr,
)

#: variables of 2, 3 and 2 states; the second factor is a pair in descending order, the third a constant
SMALL = """MARKOV
3
2 3 2
4
1 0
2 1 0
0
2 0 2

2
 0.25 0.75

6
 1 2
 3 4
 5 6

1
 2.5

4
 0 1e-3 7 8
"""


@st.composite
def graphs(draw):
    """Graphs with constants, zeros, equal shapes apart from each other, and variables in no factor."""
    cardinalities = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    graph = DiscreteGraph(cardinalities)
    weight = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
    for _ in range(draw(st.integers(0, 6))):
        scope = draw(st.lists(st.integers(0, len(cardinalities) - 1), unique=True, max_size=3))
        shape = [cardinalities[variable] for variable in scope]
        values = draw(st.lists(weight, min_size=math.prod(shape), max_size=math.prod(shape)))
        graph.add_factor(scope, np.reshape(values, shape))
    return graph


def test_the_last_variable_runs_fastest_and_the_order_of_the_text_is_kept():
    graph = parse_uai(SMALL)
    assert graph.cardinalities.tolist() == [2, 3, 2]
    tables = list(graph)
    assert [table.scope for table in tables] == [(0,), (1, 0), (), (0, 2)]
    np.testing.assert_allclose(np.exp(tables[1].log_values), [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_allclose(np.exp(tables[2].log_values), 2.5)
    np.testing.assert_allclose(np.exp(tables[3].log_values), [[0, 1e-3], [7, 8]])
    assert np.isneginf(tables[3].log_values[0, 0])


def test_any_layout_of_the_words_is_the_same_graph():
    for text in (" ".join(SMALL.split()), "\r\n".join(SMALL.split()), "\n\n\t".join(SMALL.split())):
        assert format_uai(parse_uai(text)) == format_uai(parse_uai(SMALL))
    assert format_uai(parse_uai(SMALL.replace("MARKOV", "BAYES"))) == format_uai(parse_uai(SMALL))


def test_factors_of_one_shape_are_stored_together_and_keep_their_places():
    graph = parse_uai("MARKOV 4 2 2 3 2 5 2 0 1 1 2 2 1 3 1 2 1 0  4 1 2 3 4  3 1 1 1  4 5 6 7 8  3 2 2 2  2 9 9")
    found = {tables.shape: (tables.numbers.tolist(), tables.scopes.tolist()) for tables in graph.factors.by_shape}
    assert found == {(2, 2): ([0, 2], [[0, 1], [1, 3]]), (3,): ([1, 3], [[2], [2]]), (2,): ([4], [[0]])}
    assert [table.scope for table in graph] == [(0, 1), (2,), (1, 3), (2,), (0,)]


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_back(graph):
    again = parse_uai(format_uai(graph))
    assert again.cardinalities.tolist() == graph.cardinalities.tolist()
    for a, b in zip(graph, again, strict=True):
        assert a.scope == b.scope and a.log_values.shape == b.log_values.shape
        np.testing.assert_allclose(b.log_values, a.log_values, rtol=1e-15, atol=1e-15)
    assert format_uai(parse_uai(format_uai(again))) == format_uai(again)


def test_soft_evidence_becomes_a_factor_and_evidence_does_not():
    graph = parse_uai(SMALL).given({0: 1}, likelihoods={1: [1, 2, 4]})
    again = parse_uai(format_uai(graph))
    last = list(again)[-1]
    assert len(again.factors) == 5 and last.scope == (1,) and not again.evidence
    np.testing.assert_allclose(np.exp(last.log_values), [1, 2, 4])


@pytest.mark.parametrize("log_value", [800.0, -800.0])
def test_what_a_double_cannot_hold_is_not_written_as_another_model(log_value):
    graph = DiscreteGraph([2])
    graph.add_factor([0], [0.0, log_value], log=True)
    with pytest.raises(ValueError, match=rf"factor 0 has an entry exp\({log_value:.0f}\)"):
        format_uai(graph)


MALFORMED = [
    ("", 1, "the text ends where MARKOV or BAYES should stand"),
    ("\n\n MARKOW 1 2 0", 3, "expected MARKOV or BAYES; found 'MARKOW'"),
    ("MARKOV", 1, "the text ends where the number of variables"),
    ("MARKOV\nmany", 2, "the number of variables, a whole number; found 'many'"),
    ("MARKOV\n2.0\n2 2\n0", 2, "a whole number; found '2.0'"),
    ("MARKOV\n-1\n0", 2, "the number of variables must be at least 0; found -1"),
    ("MARKOV\n9999999999999\n2", 2, "is 9999999999999, but only 1 words follow"),
    ("MARKOV\n2\n2\n0\n0", 4, "a cardinality must be at least 1; found 0"),
    ("MARKOV\n2\n2 x\n0", 3, "a cardinality, a whole number; found 'x'"),
    ("MARKOV\n1\n-3\n0", 3, "a cardinality must be at least 1; found -3"),
    ("MARKOV\n1\n99999999999999999999\n0", 3, "a cardinality is too large"),
    ("MARKOV\n1\n1_0\n0", 3, "a number; found '1_0'"),
    ("MARKOV\n2\n100000000\n100000000\n0", 3, "states of the variables take 1600000000 bytes, above the limit"),
    ("MARKOV\n1\n2", 3, "the text ends where the number of factors"),
    ("MARKOV\n1\n2\n7\n1 0", 4, "the number of factors is 7, but only 2 words follow"),
    ("MARKOV\n1\n2\n1\n-1 0\n", 5, "the length of scope 0 .* must be at least 0"),
    ("MARKOV\n1\n2\n1\n9 0\n", 5, r"the length of scope 0 \(of 1, counted from 0\) is 9"),
    ("MARKOV\n1\n1\n1\n64 " + "0 " * 64 + "\n1 1", 5, "at most 63 variables; found 64"),
    ("MARKOV\n1\n2\n1\n1 z\n2 1 1", 5, "a variable of a scope, a whole number; found 'z'"),
    ("MARKOV\n1\n2\n2\n1 0\n1 1\n2 1 1\n2 1 1", 6, "names the variable 1 of 1, numbered from 0"),
    ("MARKOV\n2\n2 2\n1\n2 1 1\n4 1 1 1 1", 5, "names the variable 1 twice"),
    ("MARKOV\n1\n2\n1\n1 0\n\n3\n1 1 1", 7, "table 0 must have 2 entries, as its scope says; found 3"),
    ("MARKOV\n1\n2\n1\n1 0\n\n1\n1 1 1", 7, "table 0 must have 2 entries, as its scope says; found 1"),
    ("MARKOV\n1\n2\n1\n1 0\n\n2\n1", 8, "the text ends within table 0: 1 of 2 entries are there"),
    ("MARKOV\n1\n2\n1\n1 0\n", 5, "the text ends where the size of table 0"),
    ("MARKOV\n1\n2\n1\n1 0\n\n2\n1 1\n5", 9, "the text should end here; found '5'"),
    ("MARKOV\n1\n2\n1\n1 0\n\n2\n1\n-0.5", 9, "must be finite and not negative; found '-0.5'"),
    ("MARKOV\n1\n2\n1\n1 0\n\n2\n1\nnan", 9, "must be finite and not negative; found 'nan'"),
    ("MARKOV\n1\n2\n1\n1 0\n\n2\n1e999\n1", 8, "must be finite and not negative; found '1e999'"),
    ("MARKOV\n1\n2\n1\n1 0\n\n2\n1\n0,5", 9, "an entry of a table, a number; found '0,5'"),
    ("MARKOV\n1\n2\n1\n1 0\n\n2\n1\n" + "7x" * 500, 9, "found '7x7x7x7x7x7x7x7x7x7x7x7x7x7x7x7x7x7x7x7x…'"),
    (
        "MARKOV\n70\n" + "2 " * 70 + "\n1\n60 " + " ".join(map(str, range(60))) + "\n5 1",
        6,
        f"must have {2**60} entries",
    ),
]


@pytest.mark.parametrize(("text", "line", "words"), MALFORMED)
def test_a_malformed_model_is_one_sentence_with_its_line(text, line, words):
    with pytest.raises(ValueError, match=rf"^line {line}: .*{words}") as found:
        parse_uai(text)
    assert str(found.value).endswith(".") and len(str(found.value)) < 220


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_model_is_a_graph_or_a_sentence(data):
    check_damaged(SMALL, parse_uai, data)


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("", {}),
        (" \n", {}),
        ("0\n", {}),
        ("1 0", {}),
        ("1 2 0", {2: 0}),
        ("2 0 1\n1 2\n", {0: 1, 1: 2}),
        ("1\n2 0 1 1 2\n", {0: 1, 1: 2}),
        ("1\n1 1 1\n", {1: 1}),
    ],
)
def test_evidence_of_both_layouts(text, evidence):
    assert parse_evidence(text, np.array([2, 3, 2])) == evidence
    assert parse_evidence(format_evidence(evidence), np.array([2, 3, 2])) == evidence


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("2 0 1", 1, "is 2, but only 2 words follow"),
        ("0\n3", 2, "the text should end here"),
        ("1\n0 1 1 1", 2, "the text should end here; found '1'"),
        ("2\n0 1\n3 0", 3, "the variable 3 of 3"),
        ("2\n0 1\n0 1", 3, "the variable 0 twice"),
        ("2\n0 1\n1 3", 3, "variable 1 has 3 states, numbered from 0; found 3"),
        ("1\n0 -1", 2, "at least 0; found -1"),
        ("1\n0 yes", 2, "a whole number; found 'yes'"),
        ("two", 1, "a whole number; found 'two'"),
    ],
)
def test_malformed_evidence_is_one_sentence_with_its_line(text, line, words):
    with pytest.raises(ValueError, match=f"line {line}: .*{words}"):
        parse_evidence(text, np.array([2, 3, 2]))


def test_results_by_hand():
    marginals = read_mar("MAR\n2 2 0.25 0.75 3 0 0.5 0.5\n")
    assert [marginal.tolist() for marginal in marginals] == [[0.25, 0.75], [0, 0.5, 0.5]]
    assert read_pr("PR\n2\n") == pytest.approx(math.log(100), rel=1e-15)
    assert write_pr(math.log(1000)).split()[0] == "PR"
    assert float(write_pr(math.log(1000)).split()[1]) == pytest.approx(3, rel=1e-15)
    assert read_pr(write_pr(-math.inf)) == -math.inf
    assert read_map("MAP\n3 0 2 1\n").tolist() == [0, 2, 1]
    assert write_map([0, 2, 1]).split() == ["MAP", "3", "0", "2", "1"]
    assert read_map(write_map([])).tolist() == []


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4), max_size=4), st.floats(-1e6, 1e6))
@settings(max_examples=40, deadline=None)
def test_results_are_read_back(marginals, log_z):
    assert [marginal.tolist() for marginal in read_mar(write_mar(marginals))] == marginals
    assert read_pr(write_pr(log_z)) == pytest.approx(log_z, rel=1e-15)


@pytest.mark.parametrize(
    ("read", "text", "line", "words"),
    [
        (read_mar, "PR\n1", 1, "expected MAR; found 'PR'"),
        (read_mar, "MAR\n5 2 0.5 0.5", 2, "is 5, but only 3 words follow"),
        (read_mar, "MAR\n1\n3 0.5 0.5", 3, "is 3, but only 2 words follow"),
        (read_mar, "MAR\n1\n0 0", 3, "at least one state"),
        (read_mar, "MAR\n1\n2\n0.5 -0.5", 4, "not negative; found '-0.5'"),
        (read_mar, "MAR\n1\n2 0.5 0.5\n1", 4, "should end here"),
        (read_pr, "PR\n", 1, "ends where log10 of Z"),
        (read_pr, "PR\nnan", 2, "must be finite"),
        (read_pr, "PR\n1\n2", 3, "should end here"),
        (read_map, "MAP\n2 0", 2, "is 2, but only 1 words follow"),
        (read_map, "MAP\n1\n0.5", 3, "a state, a whole number; found '0.5'"),
    ],
)
def test_malformed_results_are_one_sentence_with_their_line(read, text, line, words):
    with pytest.raises(ValueError, match=f"line {line}: .*{words}"):
        read(text)


@pytest.mark.parametrize(
    ("write", "value", "words"),
    [
        (write_mar, [[0.5, math.nan]], "marginal of variable 0"),
        (write_mar, [[1.0], []], "marginal of variable 1"),
        (write_pr, math.nan, "log_z must be finite"),
        (write_map, [0, -1], "states must be whole numbers"),
        (write_map, [0.5], "states must be whole numbers"),
    ],
)
def test_what_is_no_result_is_not_written(write, value, words):
    with pytest.raises(ValueError, match=words):
        write(value)
