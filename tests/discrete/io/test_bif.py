"""Bayesian networks: rows, tables and defaults end on the right axes, and nothing but the grammar is accepted."""

import numpy as np
import pytest
from damaged_text import check_damaged
from hypothesis import given, settings
from hypothesis import strategies as st

from cavity.discrete.io.bif import parse_bif

SMALL = """// a comment
network "dog problem" {
  property author = "someone; else" ;
  property see http://nowhere ;
}
variable rain { type discrete [ 3 ] { none, some, "a lot" }; property position = (1, 2); }
variable "wet grass" {  /* a comment
  of two lines */
  type discrete[2] { yes no };
}
variable sprinkler { type discrete [ 2 ] { on, off }; }
probability ( rain ) {
  table 0.5, 0.25, 0.25;
}
probability ( "wet grass" | rain, sprinkler ) {
  (none, on) 0.75, 0.25;
  (some, on) 0.875 0.125;// no comma, no blank
  ("a lot", off) 1.0, 0.0;
  default 0.0625, 0.9375;
}
probability ( sprinkler | rain ) {
  property p ;
  table 0.5 0.25 0.0 0.5 0.75 1.0;
}
"""


def variable(name="a", states="x, y", count=2):
    return f"variable {name} {{ type discrete [ {count} ] {{ {states} }}; }}\n"


A, B = variable(), variable("b", "u, v")


def test_rows_tables_and_defaults_by_hand():
    graph = parse_bif(SMALL)
    names = [graph.variables.name(number) for number in range(3)]
    assert names == ["rain", "wet grass", "sprinkler"]
    assert [graph.variables.states(number) for number in range(3)] == [
        ("none", "some", "a lot"),
        ("yes", "no"),
        ("on", "off"),
    ]
    rain, wet, sprinkler = graph
    assert rain.scope == (0,) and wet.scope == (1, 0, 2) and sprinkler.scope == (2, 0)
    np.testing.assert_allclose(np.exp(rain.log_values), [0.5, 0.25, 0.25])
    np.testing.assert_allclose(
        np.exp(wet.log_values),
        [[[0.75, 0.0625], [0.875, 0.0625], [0.0625, 1]], [[0.25, 0.9375], [0.125, 0.9375], [0.9375, 0]]],
    )
    np.testing.assert_allclose(np.exp(sprinkler.log_values), [[0.5, 0.25, 0], [0.5, 0.75, 1]])


def test_names_serve_as_evidence():
    assert parse_bif(SMALL).given({"wet grass": "no", "rain": "a lot"}).evidence == {1: 1, 0: 2}


def test_tables_may_stand_before_their_variables_and_without_a_bar():
    graph = parse_bif("probability (a b) { (u) 1, 0; (v) 0, 1; } probability (b) { default 0.5 0.5; }" + A + B)
    assert [table.scope for table in graph] == [(0, 1), (1,)]
    np.testing.assert_array_equal(np.exp(next(iter(graph)).log_values), np.eye(2))


def test_words_of_the_grammar_may_be_names():
    text = variable("property", "table, default") + "probability ( property ) { table 0.5, 0.5; }"
    assert parse_bif(text).variables.states(0) == ("table", "default")


MALFORMED = [
    ("", 1, "the text declares no variable"),
    ("// nothing\n", 1, "the text declares no variable"),
    ("network x {\n}\nnode a { }", 3, "expected network, variable or probability; found 'node'"),
    ("network x", 1, "the text ends where { of the network should stand"),
    ("network x {\n  size 3;\n}", 2, "expected }; found 'size'"),
    ("variable a {\n  type continuous;\n}", 2, "expected discrete; found 'continuous'"),
    ("variable a {\n  type discrete [ 2 ] { x, y };", 2, "the text ends where } should stand"),
    ("\nvariable { type", 2, "expected the name of a variable; found '{'"),
    (variable(count=3), 1, "'a' names 2 states; found '3' as their number"),
    (variable(states="", count=0), 1, "at least one state"),
    (variable(states="x, x"), 1, "names of states must differ"),
    (A + A, 2, "already a variable named 'a'"),
    (A, 1, "'a' has no table"),
    (A + f"probability ( {'long' * 5000} ) {{ table 0.5, 0.5; }}", 2, "no variable named 'longlong.*…"),
    (A + "probability ( a ) {\n table 0.5, 0.5;", 3, "the text ends where } of a probability block"),
    (A + "probability a { table 0.5 0.5; }", 2, r"expected \(; found 'a'"),
    (A + "probability ( a | c ) { table 0.5, 0.5; }", 2, "no variable named 'c'"),
    (A + "probability ( a | a ) { table 0.5, 0.5; }", 2, "the table of 'a' names a variable twice"),
    (A + "probability ( a ) { table 0.5, 0.5; }\nprobability ( a ) { table 0.5, 0.5; }", 3, "'a' has two tables"),
    (A + "probability ( a ) {\n table 0.5, 0.25, 0.25;\n}", 3, "expected 2 probabilities; found 3"),
    (A + "probability ( a ) {\n table 0.5,\n half;\n}", 4, "expected a probability; found 'half'"),
    (A + "probability ( a ) {\n table 1.5,\n -0.5;\n}", 3, "expected a probability; found '1.5'"),
    (A + "probability ( a ) {\n table nan, 1;\n}", 3, "expected a probability; found 'nan'"),
    (A + "probability ( a ) {\n table 0_1, 1;\n}", 3, "expected a probability; found '0_1'"),
    (A + "probability ( a ) {\n table 0.5, 0.25;\n}", 2, "must sum to 1 in every row; found 0.75"),
    (A + "probability ( a ) {\n table 0.5, 0.5\n}", 4, "expected ;; found '}'"),
    (A + "probability ( a ) {\n}", 3, "the table of 'a' has no row"),
    (A + "probability ( a ) {\n table 0.5, 0.5;\n table 0.5, 0.5;\n}", 4, "one table or one default; found 'table'"),
    (A + "probability ( a ) {\n rows 0.5, 0.5;\n}", 3, "one table or one default; found 'rows'"),
    (A + B + "probability ( b ) { table 0 1; } probability ( a | b ) {\n (u) 1, 0;\n}", 5, r"'a' has no row for \(v\)"),
    (A + B + "probability ( b ) { table 0 1; } probability ( a | b ) {\n (w) 1, 0;\n}", 4, "b has the states u, v"),
    (A + B + "probability ( b ) { table 0 1; } probability ( a | b ) {\n (u, u) 1, 0;\n}", 4, "of 1 parents; found 2"),
    (A + B + "probability ( b ) { table 0 1; } probability ( a | b ) {\n (u) 1, 0;\n(u) 1 0; }", 5, "is there twice"),
    (
        A + B + "probability ( b | a ) { default 0 1; }\nprobability ( a | b ) { default 0 1; }",
        3,
        "their own ancestors",
    ),
    (A + 'variable "b\n{', 2, "a quotation is not closed"),
    (A + "/* variable", 2, "a comment is not closed"),
    (A + "probability ( a ) {\n property none", 3, "a property has no semicolon"),
    (
        "".join(variable(f"v{k}") for k in range(40))
        + f"probability ( v0 | {' '.join(f'v{k}' for k in range(1, 40))} )"
        "{ default 0.5, 0.5; }",
        41,
        f"take {8 * 2**40} bytes, above the limit",
    ),
    (
        "".join(variable(f"v{k}", "x", 1) for k in range(64))
        + f"probability ( v0 | {' '.join(f'v{k}' for k in range(1, 64))} ) {{ default 1; }}",
        65,
        "at most 63 variables; found 64",
    ),
]


@pytest.mark.parametrize(("text", "line", "words"), MALFORMED)
def test_a_malformed_text_is_one_sentence_with_its_line(text, line, words):
    with pytest.raises(ValueError, match=rf"^line {line}: .*{words}") as found:
        parse_bif(text)
    assert str(found.value).endswith(".") and len(str(found.value)) < 220


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_text_is_a_graph_or_a_sentence(data):
    check_damaged(SMALL, parse_bif, data)
