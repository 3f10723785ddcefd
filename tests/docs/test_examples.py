"""The scripts in examples/ run, each as a user would run it."""

import runpy
from itertools import islice
from pathlib import Path

import jax
import pytest

import cavity

FOLDER = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.name for path in FOLDER.glob("*.py"))
#: scripts that take minutes; pieces of them are tried below
LONG = {"compare_methods.py", "gallery.py"}


def test_the_examples_are_found():
    assert {"clutter.py", "mixture_weights.py", "own_factor.py"} | LONG <= set(NAMES)


@pytest.mark.parametrize("name", sorted(set(NAMES) - LONG))
def test_an_example_runs(name, capsys):
    with jax.enable_x64(False):  # as users have it
        runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert capsys.readouterr().out.count("\n") >= 3


def test_a_small_comparison_of_methods():
    script = runpy.run_path(str(FOLDER / "compare_methods.py"))
    with jax.enable_x64(False):
        rows = {name: row for name, *row in islice(script["compare"](4, 20, 0.5), 4)}
    assert list(rows) == ["laplace", "variational_bayes", "ADF", "EP"]
    assert all(errors[-1] < 10.0 for errors in rows.values())
    assert rows["EP"][-1] < rows["laplace"][-1] < rows["variational_bayes"][-1] < rows["ADF"][-1]


def test_a_piece_of_the_gallery():
    """One case by two methods: the rows of the page, the exact evidence, and a picture with both panels."""
    script = runpy.run_path(str(FOLDER / "gallery.py"))
    page = (FOLDER.parent / "docs" / "gallery.md").read_text(encoding="utf-8")
    with jax.enable_x64(False):
        case = script["CASES"]["three-modes"]()
        solutions = script["solve"](case.problem, ("EP", "PowerEP(0.5)"))
        rows = script["table"](case, solutions)
        left, right = script["picture"](case, solutions).axes
    assert rows[3] in page and rows[-1] in page
    assert solutions["EP"].status == "sites_skipped" and len(left.lines) == 2 and len(right.lines) == 3


@pytest.mark.parametrize("name", ["frustrated_network", "contradictory_duplicates"])
def test_exact_evidences_of_the_gallery(name):
    """Enumeration and arcs against importance sampling."""
    with jax.enable_x64(False):
        case = runpy.run_path(str(FOLDER / "gallery.py"))[name]()
        check = cavity.infer(case.problem, cavity.ADF()).check()
    assert abs(check.log_evidence - case.log_evidence) < 4.0 * check.standard_error
