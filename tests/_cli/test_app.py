"""The command line: right answers, and one sentence for a user's mistake."""

import subprocess
import sys

import jax
import pytest
import typer
from typer.testing import CliRunner

import cavity
from cavity._cli import app, demos
from cavity._cli.app import reproduce_missing

RUNNER = CliRunner()


def call(*arguments):
    with jax.enable_x64(False):
        return RUNNER.invoke(app, [str(argument) for argument in arguments])


def test_version():
    result = call("--version")
    assert (result.exit_code, result.output) == (0, f"cavity {cavity.__version__}\n")


def test_demo_writes_the_figure_and_says_where(tmp_path):
    target = tmp_path / "figure.png"
    result = call("demo", "clutter", "--out", target)
    assert result.exit_code == 0, result.output
    assert target.read_bytes()[1:4] == b"PNG"
    assert f"written: {target}" in result.output
    for name in ("exact", *demos.BASELINES, "EP", "ADF"):
        assert name in result.output


def test_the_demo_of_the_classifier_finds_flipped_labels(tmp_path, monkeypatch):
    monkeypatch.setattr(demos.train_on_flipped_labels, "__defaults__", (0, 60))
    target = tmp_path / "figure.png"
    result = call("demo", "--out", target)
    assert result.exit_code == 0, result.output
    assert target.read_bytes()[1:4] == b"PNG"
    assert "learned, 0.1 of the labels were flipped" in result.output
    accuracy = float(result.output.split("test accuracy", 1)[1].split()[0])
    found, flips = result.output.split("6 most suspect rows", 1)[1].split()[:3:2]
    assert accuracy > 85.0
    assert (int(found) >= 4, int(flips)) == (True, 6)  # by chance 0.6


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["demo", "--out", "figure.pdf"], "must name a .png file"),
        (["demo", "dragons"], "There is no demo 'dragons'; there are classifier, clutter."),
    ],
)
def test_mistakes_get_one_sentence_and_code_2(arguments, part):
    result = call(*arguments)
    assert result.exit_code == 2
    assert part in result.output
    assert "Traceback" not in result.output


def test_a_place_that_cannot_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    result = call("demo", "--out", blocked / "a.png")
    assert result.exit_code == 2
    assert "could not be written" in result.output


def test_reproduce_says_what_to_install_where_its_package_is_missing(monkeypatch, capsys):
    with pytest.raises(typer.Exit) as ended:
        reproduce_missing()
    assert ended.value.exit_code == 2
    assert "pip install" in capsys.readouterr().err


def modules_after(code):
    """The modules loaded by a fresh interpreter that ran this code."""
    code += "\nimport sys; print('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


ASKED = """
import sys
from cavity._cli import main
sys.argv = ["cavity", "--help"]
try:
    main()
except SystemExit as ended:
    assert ended.code == 0
"""


@pytest.mark.parametrize("code", ["import cavity", ASKED], ids=["the library", "help"])
def test_nothing_heavy_is_imported_before_it_is_asked_for(code):
    heavy = {"jax", "matplotlib", "numpy", "scipy", "sklearn", "cavity_reproductions"}
    assert not heavy & modules_after(code)


def test_the_list_of_commands_says_of_each_what_its_own_page_says():
    listed = " ".join(call("--help").output.replace("│", " ").split())
    for command in app.registered_commands:
        first = command.help.split("\n\n")[0]
        assert " ".join(first.split()) in listed
        page = " ".join(call(command.name, "--help").output.split())
        assert " ".join(first.split()) in page


def test_every_public_name_is_found_where_the_front_door_says():
    assert {*cavity.LATER} >= {*cavity.__all__} - {"__version__"}
    for name in cavity.LATER:
        assert getattr(cavity, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = cavity.nothing
