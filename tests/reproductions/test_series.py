"""All experiments at a time: a failure stops nobody, an interruption loses nothing, the record is written."""

import dataclasses
import io

import pytest
from cavity_reproductions import REGISTRY, Config, Interrupted, run_series
from cavity_reproductions import series as series_module
from cavity_reproductions.base import Outcome, make_unit
from rich.console import Console

from cavity.reports import figure

TINY = Config("tiny")


def toy(name, error=None):
    """An experiment of one unit, which may go wrong."""

    def run_unit(unit, config):
        if error is not None:
            raise error
        return {"value": 1.0}

    return dataclasses.replace(
        REGISTRY["thesis-3-4"],
        name=name,
        units=lambda config: [make_unit(config, 0, "only")],
        run_unit=run_unit,
        summarise=lambda results, config: Outcome((), {}, "holds", "It is so."),
        draw=lambda results, outcome, config: figure()[0],
    )


def go(monkeypatch, folder, experiments):
    monkeypatch.setattr(series_module, "REGISTRY", {each.name: each for each in experiments})
    console = Console(file=io.StringIO(), width=200)
    return run_series([each.name for each in experiments], TINY, folder, console), console.file.getvalue()


def test_a_failure_is_named_and_stops_nobody(monkeypatch, tmp_path):
    ended, text = go(monkeypatch, tmp_path, [toy("a"), toy("b", RuntimeError("no data\nmore")), toy("c")])
    assert [(each.name, each.state) for each in ended] == [("a", "ran"), ("b", "failed"), ("c", "ran")]
    assert "b failed (RuntimeError: no data)" in text
    assert "# The record" in (tmp_path / "record.md").read_text()


def test_an_interruption_keeps_what_was_done(monkeypatch, tmp_path):
    with pytest.raises(Interrupted, match=r"after 1 of 3 experiments.*same command again"):
        go(monkeypatch, tmp_path, [toy("a"), toy("b", KeyboardInterrupt()), toy("c")])
    assert (tmp_path / "a" / "result.json").is_file()
    assert (tmp_path / "record.md").is_file()
    ended, _ = go(monkeypatch, tmp_path, [toy("a", RuntimeError("run again")), toy("b")])
    assert [each.state for each in ended] == ["ran", "ran"]


def test_side_by_side_gives_what_one_by_one_gives(tmp_path):
    names = ["thesis-3-4", "notes-2"]
    console = Console(file=io.StringIO())
    one = run_series(names, TINY, tmp_path / "one", console)
    two = run_series(names, TINY, tmp_path / "two", console, processes=2)
    assert {each.name for each in two} == {each.name for each in one} == set(names)
    for name in names:
        first, second = ((tmp_path / part / name / "table.md").read_text() for part in ("one", "two"))
        assert first == second
