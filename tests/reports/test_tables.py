"""One table, two views."""

import io
import math

import pytest
from rich.console import Console

from cavity.reports import Table, markdown, show
from cavity.reports.tables import cell

TABLE = Table("Errors | all", ("method", "error", "met"), [("EP", 0.00012345, True), ("VB", None, False)], "A note.")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (math.nan, "—"),
        (True, "yes"),
        (False, "no"),
        (273240, "273\u2009240"),
        (1.23456, "1.235"),
        (-0.000123, "-1.2e-04"),
        (0.0, "0"),
        ("text", "text"),
    ],
)
def test_cell(value, text):
    assert cell(value) == text


def test_markdown_is_a_table_with_numbers_to_the_right():
    lines = markdown(TABLE).splitlines()
    assert lines[0] == "**Errors | all**"
    assert lines[2:6] == [
        "| method | error | met |",
        "| --- | ---: | --- |",
        "| EP | 1.2e-04 | yes |",
        "| VB | — | no |",
    ]
    assert lines[-1] == "A note."


def test_a_bar_inside_a_cell_does_not_end_it():
    assert r"\|x\|" in markdown(Table("t", ("a",), [("|x|",)]))


def test_the_terminal_shows_every_cell_and_square_brackets_literally():
    stream = io.StringIO()
    show(Table("t", ("name", "value"), [("[bold]EP", 1.5)], "[note]"), Console(file=stream, width=60))
    text = stream.getvalue()
    assert all(part in text for part in ("[bold]EP", "1.5", "[note]"))


def test_numbers_are_not_cut_on_a_narrow_terminal():
    stream = io.StringIO()
    columns = ("method", *(f"a long name {k}" for k in range(5)))
    show(Table("t", columns, [("a method with a long name", *[-123.4] * 5)]), Console(file=stream, width=70))
    assert stream.getvalue().count("-123.4") == 5


def test_text_that_gives_way_loses_nothing():
    stream = io.StringIO()
    rows = [("Restricted EP", *[-123.456] * 6, "converged_restricted"), ("ADF", *[0.1] * 6, "single_pass")]
    show(Table("t", ("method", *"abcdef", "status"), rows), Console(file=stream, width=72))
    lines = stream.getvalue().splitlines()
    edge = next(line.index("status") for line in lines if "status" in line)
    assert "".join(line[edge:].strip() for line in lines[4:]) == "converged_restrictedsingle_pass"
