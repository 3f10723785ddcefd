"""What the package says of itself and demands of others, 48 and 49 of the list of known defects.

Each test states the right answer of a known defect, fails today, and whoever mends the defect takes the mark off.
"""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from right_or_refused import unless_refused

import cavity as cv

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def declared():
    """The table [project] of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(
    ("package", "too_old"),
    [
        ("jax", "0.10.0"),  # has no erfcx; 0.10.1 has
        # Up to 0.15.3 `--help` is a traceback with click 8.2 and later; up to 0.17 a missing argument reaches the
        # command as None with click 8.3 and later. 0.18.0 is the first that works with both.
        ("typer", "0.15.0"),
        ("typer", "0.17.4"),
    ],
)
def test_versions_that_do_not_work_are_not_allowed(declared, package, too_old):
    (requirement,) = [own for own in map(Requirement, declared["dependencies"]) if own.name == package]
    assert not requirement.specifier.contains(Version(too_old)), f"{requirement} allows {too_old}"


def test_there_is_an_extra_for_every_optional_part(declared):
    missing = {"all", "arrow", "arviz", "dask", "gpu"} - set(declared["optional-dependencies"])
    assert not missing, missing


def imported(path):
    """Modules that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (own.name for own in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{own.name}" for own in node.names)


def test_the_command_line_imports_no_experiments():
    files = sorted((ROOT / "src" / "cavity" / "_cli").rglob("*.py"))
    assert files
    found = [f"{own.name}: {name}" for own in files for name in imported(own) if "cavity_reproductions" in name]
    assert not found, found


def test_the_check_of_the_wheel_fits_a_model():
    recipe = re.search(r"^wheel:.*\n((?:\t.*\n?)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None and "wheel_check.py" in recipe[1]
    called = re.findall(r'call\("(\w+)"', (ROOT / "tests" / "wheel_check.py").read_text())
    assert {"fit", "predict", "infer", "demo"} <= set(called), "nothing is fitted by what was installed"


def test_relaxed_ep_needs_no_c_or_says_which():
    found = unless_refused(lambda: cv.RelaxedEP().projection.c, naming="c=")
    assert found is None or found >= 0
