"""The scripts in examples/ run, each as a user would run it."""

import runpy
from itertools import islice
from pathlib import Path

import jax
import pytest

FOLDER = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.name for path in FOLDER.glob("*.py"))
#: scripts that take minutes; the pieces of one are tried below
LONG = {"compare_methods.py"}


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
