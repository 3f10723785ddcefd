"""The runner goes on where it stopped, mixes nothing, and gives a verdict only to a full run."""

import io
import json

import cavity_reproductions
import pytest
from cavity_reproductions import Config, Experiment, Interrupted, Outcome, run
from cavity_reproductions import runner as runner_module
from cavity_reproductions.base import VERDICTS, array, grade, make_unit, plain
from rich.console import Console

import cavity
from cavity.reports import Table, figure


def toy(ran, stop_at=None):
    """Five units that note that they ran; the one named `stop_at` is interrupted."""

    def run_unit(unit, config):
        if unit.name == stop_at:
            raise KeyboardInterrupt
        ran.append(unit.name)
        return {"value": unit.options["k"] * 1.5, "seed": unit.seed, "nothing": float("nan")}

    return Experiment(
        name="toy",
        document="none",
        title="A toy",
        claim="One and one is two.",
        units=lambda config: [make_unit(config, k, f"unit-{k}", k=k) for k in range(5)],
        run_unit=run_unit,
        summarise=lambda results, config: Outcome(
            (Table("t", ("a", "b"), [(name, row["value"]) for name, row in results.items()]),),
            {"total": sum(row["value"] for row in results.values()), "third": 1 / 3},
            "holds",
            "It is so.",
        ),
        draw=lambda results, outcome, config: figure()[0],
    )


def go(ran, folder, config=Config(), stop_at=None):
    return run(toy(ran, stop_at), config, folder, quiet=True)


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    ran = []
    with pytest.raises(Interrupted, match=r"after 3 of 5 units.*same command again"):
        go(ran, tmp_path, stop_at="unit-3")
    record = go(ran, tmp_path)
    assert ran == [f"unit-{k}" for k in range(5)]
    assert record.units_run == 2
    assert go(ran, tmp_path).units_run == 0
    fresh = go([], tmp_path / "fresh")
    assert record.result["numbers"] == fresh.result["numbers"]


def test_an_error_keeps_what_was_finished(tmp_path):
    ran = []
    experiment = toy(ran)

    def broken(unit, config):
        if unit.name == "unit-2":
            raise RuntimeError("broken")
        return experiment.run_unit(unit, config)

    with pytest.raises(RuntimeError, match="broken"):
        run(Experiment(**(vars(experiment) | {"run_unit": broken})), Config(), tmp_path, quiet=True)
    assert go(ran, tmp_path).units_run == 3


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_damaged_last_line_costs_only_its_unit(tmp_path, cut):
    go([], tmp_path)
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-cut])
    # A line that lost nothing but its end of line is whole.
    again = 0 if cut == 1 else 1
    assert go([], tmp_path).units_run == again
    assert go([], tmp_path).units_run == 0


@pytest.mark.parametrize("rubbish", ["[]\n", "{}\n", "null\n", '{"key": 3, "result": 1}\n', "\ufeff\n"])
def test_foreign_lines_are_passed_over(tmp_path, rubbish):
    (tmp_path / "ledger.jsonl").write_text(rubbish, encoding="utf-8")
    assert go([], tmp_path).units_run == 5


def test_other_seed_size_and_version_are_not_mixed_in(tmp_path, monkeypatch):
    go([], tmp_path)
    assert go([], tmp_path, Config(seed=1)).units_run == 5
    assert go([], tmp_path, Config("quick")).units_run == 5
    monkeypatch.setattr(runner_module, "__version__", "9.9")
    assert go([], tmp_path).units_run == 5
    monkeypatch.undo()
    assert go([], tmp_path).units_run == 0


@pytest.mark.parametrize("package", [cavity, cavity_reproductions])
def test_units_of_other_code_are_not_mixed_in(tmp_path, monkeypatch, package):
    (tmp_path / "changed").mkdir()
    (tmp_path / "changed" / "__init__.py").write_text("x = 1\n")
    before = runner_module.code_digest()
    monkeypatch.setattr(package, "__file__", str(tmp_path / "changed" / "__init__.py"))
    after = runner_module.code_digest()
    (tmp_path / "changed" / "__init__.py").write_text("x = 2\n")
    assert len({before, after, runner_module.code_digest()}) == 3


def test_a_full_run_has_a_verdict_in_all_places(tmp_path):
    stream = io.StringIO()
    record = run(toy([]), Config(), tmp_path, Console(file=stream, width=100))
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert result == record.result
    assert (result["verdict"], result["sentence"]) == ("holds", "It is so.")
    assert result["numbers"] == {"total": 15.0, "third": 0.333333}
    assert {"cavity", "seed", "size", "seconds"} <= set(result)
    for text in (stream.getvalue(), (tmp_path / "table.md").read_text(encoding="utf-8")):
        assert "Verdict: holds. It is so." in text
        assert "| unit-1 | 1.5 |" in text or "unit-1" in text


@pytest.mark.parametrize("size", ["quick", "tiny"])
def test_a_small_run_has_none(tmp_path, size):
    stream = io.StringIO()
    run(toy([]), Config(size), tmp_path, Console(file=stream, width=100))
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert result["size"] == size
    texts = [stream.getvalue(), (tmp_path / "table.md").read_text(encoding="utf-8"), json.dumps(result)]
    for text in texts:
        assert size in text
        assert "verdict" not in text.lower()
        assert "It is so" not in text


def test_units_have_seeds_of_their_own_that_follow_the_run():
    seeds = [make_unit(Config(seed=s), k, "u").seed for s in range(3) for k in range(10)]
    assert len(set(seeds)) == 30
    assert seeds[3] == make_unit(Config(seed=0), 3, "u").seed


def test_json_and_back():
    assert plain({"a": [float("nan"), 1.0], "b": (2,)}) == {"a": [None, 1.0], "b": [2]}
    assert array([None, 1.0])[1] == 1.0
    assert array([None])[0] != array([None])[0]


def test_grades():
    assert [grade({"a": a, "b": b}) for a, b in ((True, True), (True, False), (False, False))] == list(VERDICTS[:3])
