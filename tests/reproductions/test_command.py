"""`cavity reproduce`: right answers, and one sentence for a user's mistake."""

import json

import jax
import pytest
from cavity_reproductions import REGISTRY
from typer.testing import CliRunner

from cavity._cli import app

RUNNER = CliRunner()


def call(*arguments):
    with jax.enable_x64(False):
        return RUNNER.invoke(app, [str(argument) for argument in arguments])


def test_list_names_every_experiment():
    result = call("reproduce", "list")
    assert result.exit_code == 0
    assert all(name in result.output for name in REGISTRY)


def test_quick_says_so_and_gives_no_verdict(tmp_path):
    result = call("reproduce", "thesis-3-4", "--quick", "--seed", 4, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "quick" in result.output
    assert "erdict" not in result.output
    saved = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert (saved["size"], saved["seed"], "verdict" in saved) == ("quick", 4, False)


def test_a_full_run_gives_a_verdict_and_a_second_one_is_read_from_the_ledger(tmp_path, monkeypatch):
    first = call("reproduce", "thesis-3-4", "--out", tmp_path)
    assert "Verdict: illustration" in first.output
    before = (tmp_path / "ledger.jsonl").read_text(encoding="utf-8")
    second = call("reproduce", "thesis-3-4", "--out", tmp_path)
    assert second.exit_code == 0
    assert (tmp_path / "ledger.jsonl").read_text(encoding="utf-8") == before


def test_an_interruption_says_how_to_go_on(tmp_path, monkeypatch):
    def stop(unit, config):
        raise KeyboardInterrupt

    broken = type(REGISTRY["thesis-3-4"])(**(vars(REGISTRY["thesis-3-4"]) | {"run_unit": stop}))
    monkeypatch.setitem(REGISTRY, "thesis-3-4", broken)
    result = call("reproduce", "thesis-3-4", "--out", tmp_path)
    assert result.exit_code == 130
    assert "Run the same command again" in result.output


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["reproduce", "thesis-3-8"], "did you mean thesis-3-7"),
        (["reproduce", "qqqqqq"], "there are thesis-2-1"),
        (["reproduce", "thesis-3-4", "--out", __file__], "must name a folder"),
        (["reproduce"], "or say --all for all of them"),
        (["reproduce", "thesis-3-4", "--all"], "or say --all for all of them"),
        (["reproduce", "thesis-3-4", "--jobs", "2"], "--jobs belongs to --all"),
        (["reproduce", "record", "--out", "nowhere"], "There are no results in nowhere"),
        (["reproduce", "thesis-3-4", "--seed", "-1"], "--seed"),
        (["reproduce", "thesis-3-4", "--seed", "one"], "--seed"),
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
    result = call("reproduce", "thesis-3-4", "--out", blocked / "below")
    assert result.exit_code == 2
    assert "could not be written" in result.output
