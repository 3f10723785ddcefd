"""libDAI's factor graphs: the first variable runs fastest, entries are sparse, labels have gaps."""

import math

import numpy as np
import pytest
from damaged_text import check_damaged
from hypothesis import given, settings
from hypothesis import strategies as st

from cavity.discrete import DiscreteGraph
from cavity.discrete.io.fg import format_fg, parse_fg

#: labels 7 and 3 of 2 and 3 states; of the pair's six entries two are not given
SMALL = """# a comment
3

2
7 3   # the first runs fastest
2 3
4
0 0.5
1 1e-3
3 4
4 5

1
3
3
3
2 30
0 10
1 20

0


1
0 2.5
"""


@st.composite
def graphs(draw):
    """Graphs whose variables are all in some factor, with zeros and constants."""
    cardinalities = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    graph = DiscreteGraph(cardinalities)
    weight = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
    scopes = [[variable] for variable in range(len(cardinalities))]
    scopes += draw(st.lists(st.lists(st.integers(0, len(scopes) - 1), unique=True, max_size=3), max_size=4))
    for scope in scopes:
        shape = [cardinalities[variable] for variable in scope]
        values = draw(st.lists(weight, min_size=math.prod(shape), max_size=math.prod(shape)))
        graph.add_factor(scope, np.reshape(values, shape))
    return graph


def test_the_first_variable_runs_fastest_and_what_is_not_given_is_zero():
    graph = parse_fg(SMALL)
    assert [graph.variables.name(number) for number in range(2)] == ["x3", "x7"]
    assert graph.cardinalities.tolist() == [3, 2]
    pair, single, constant = graph
    assert pair.scope == (1, 0) and single.scope == (0,) and constant.scope == ()
    np.testing.assert_allclose(np.exp(pair.log_values), [[0.5, 0, 5], [1e-3, 4, 0]])
    np.testing.assert_allclose(np.exp(single.log_values), [10, 20, 30])
    np.testing.assert_allclose(np.exp(constant.log_values), 2.5)


def test_labels_are_names_and_not_numbers():
    graph = parse_fg(SMALL)
    assert graph.variables.number("x7") == 1 and graph.variables.number("x3") == 0
    with pytest.raises(ValueError, match="no variable named 'x1'"):
        graph.variables.number("x1")


def test_labels_come_back_when_written():
    again = parse_fg(format_fg(parse_fg(SMALL)))
    assert [again.variables.name(number) for number in range(2)] == ["x3", "x7"]
    named = DiscreteGraph()
    named.add_variable(2, "rain")
    named.add_factor(["rain"], [0.25, 0.75])
    assert parse_fg(format_fg(named)).variables.name(0) == "x0"


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_back(graph):
    again = parse_fg(format_fg(graph))
    assert again.cardinalities.tolist() == graph.cardinalities.tolist()
    for a, b in zip(graph, again, strict=True):
        assert a.scope == b.scope
        np.testing.assert_allclose(b.log_values, a.log_values, rtol=1e-15, atol=1e-15)


def test_evidence_and_variables_without_factors_are_written_as_factors():
    graph = DiscreteGraph([2, 3, 2])
    graph.add_factor([0], [0.25, 0.75])
    graph = graph.given({0: 1}, likelihoods={2: [1, 4]})
    found = [(table.scope, np.exp(table.log_values).tolist()) for table in parse_fg(format_fg(graph))]
    assert found == [((0,), [0.25, 0.75]), ((2,), pytest.approx([1, 4])), ((0,), [0, 1]), ((1,), [1, 1, 1])]


MALFORMED = [
    ("", 1, "the text ends where the number of factors"),
    ("# only\n# comments", 1, "the text ends where the number of factors"),
    ("many\n", 1, "the number of factors, a whole number; found 'many'"),
    ("-1\n", 1, "the number of factors must be at least 0; found -1"),
    ("1000000000000\n\n1", 1, "is 1000000000000, but only 1 words follow"),
    ("2\n\n1\n0\n2\n1\n0 1\n", 7, "the text ends where the number of variables of factor 1"),
    ("1\n\n9\n0\n2\n", 3, "the number of variables of factor 0 .* is 9, but only 2 words follow"),
    ("1\n\n64\n" + "0 " * 128 + "1\n0 1", 3, "at most 63 variables; found 64"),
    ("1\n\n1\nx\n2\n1\n0 1", 4, "a label, a whole number; found 'x'"),
    ("1\n\n1\n-4\n2\n1\n0 1", 4, "a label must be at least 0; found -4"),
    ("1\n\n1\n99999999999999999999\n2\n1\n0 1", 4, "a label is too large"),
    ("1\n\n1\n0\n0\n0\n", 5, "a cardinality must be at least 1; found 0"),
    ("1\n\n1\n0\ntwo\n1\n0 1", 5, "a cardinality, a whole number; found 'two'"),
    ("2\n\n1\n5\n2\n1\n0 1\n\n1\n5\n3\n1\n0 1", 11, "the variable 5 has 3 states here and 2 before"),
    ("1\n\n2\n4 4\n2 2\n1\n0 1", 4, "names the variable 4 twice"),
    ("1\n\n1\n0\n2\n5\n0 1\n1 1", 6, "the number of entries of factor 0 is 5, but only 4 words follow"),
    ("1\n\n1\n0\n2\n3\n0 1\n1 1\n0 2\n", 6, "factor 0 has a table of 2; found 3 entries"),
    ("1\n\n1\n0\n2\n2\n0 1\n2 1", 8, "factor 0 has a table of 2; found the index 2"),
    ("1\n\n1\n0\n2\n2\n0 1\n-1 1", 8, "an index must be at least 0; found -1"),
    ("1\n\n1\n0\n2\n2\n0 1\n0.5 1", 8, "an index, a whole number; found '0.5'"),
    ("1\n\n1\n0\n2\n2\n1 1\n1 1", 8, "factor 0 has the index 1 twice"),
    ("1\n\n1\n0\n2\n2\n0 1\n1 -2", 8, "a value must be finite and not negative; found '-2'"),
    ("1\n\n1\n0\n2\n2\n0 nan\n1 2", 7, "a value must be finite and not negative; found 'nan'"),
    ("1\n\n1\n0\n2\n2\n0 inf\n1 2", 7, "a value must be finite and not negative; found 'inf'"),
    ("1\n\n1\n0\n2\n2\n0 1\n1 one", 8, "a value, a number; found 'one'"),
    ("1\n\n1\n0\n2\n1\n0 1_0", 7, "a number; found '1_0'"),
    ("1\n\n1\n0\n2\n1\n0 1\n7", 8, "the text should end here; found '7'"),
    (
        "1\n\n2\n0 1\n65536 65536\n0\n",
        3,
        "the tables up to factor 0 take 34359738368 bytes, above the limit max_bytes=67108864",
    ),
    ("1\n\n40\n" + " ".join(map(str, range(40))) + "\n" + "9 " * 40 + "\n0\n", 3, "above the limit max_bytes"),
    ("3\n\n1\n0\n5000000\n0\n\n1\n0\n5000000\n0\n\n0\n0\n", 8, "the tables up to factor 1 take 80000000 bytes"),
]


@pytest.mark.parametrize(("text", "line", "words"), MALFORMED)
def test_a_malformed_text_is_one_sentence_with_its_line(text, line, words):
    with pytest.raises(ValueError, match=rf"^line {line}: .*{words}") as found:
        parse_fg(text)
    assert str(found.value).endswith(".") and len(str(found.value)) < 220


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_text_is_a_graph_or_a_sentence(data):
    check_damaged(SMALL, parse_fg, data)
