"""Runs an experiment into a folder, and goes on where an interrupted run stopped.

    <folder>/ledger.jsonl    one line a finished unit
    <folder>/<name>.png      the figure
    <folder>/table.md        claim, verdict and tables
    <folder>/result.json     numbers, verdict, seed, size, version, seconds

Only a full run has a verdict: a quick one shows that everything works, on too little data to judge by.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console
from rich.text import Text

import cavity
import cavity_reproductions
from cavity._version import __version__
from cavity.reports import UnitProgress, markdown, save, show
from cavity_reproductions.base import PARTS, Config, Experiment, Outcome, Unit, plain


def default_folder(name: str, config: Config) -> Path:
    """Where results go if nobody says: small runs beside the full one, never over it."""
    return Path("cavity-results") / (name if config.size == "full" else f"{name}-{config.size}")


class Interrupted(Exception):
    """The run was stopped from the keyboard; what was finished is in the ledger."""

    def __init__(self, folder: Path, done: int, total: int, what: str = "units") -> None:
        self.folder, self.done, self.total = folder, done, total
        super().__init__(
            f"Stopped after {done} of {total} {what}. "
            f"Run the same command again to go on from there (kept in {folder})."
        )


#: works out a function of every item, `names` for the error that names one: (number, value) as they are finished
MapUnordered = Callable[..., Iterator[tuple[int, Any]]]


class Record(NamedTuple):
    """What a run left: the content of result.json, the outcome, and the files by name."""

    result: Mapping[str, Any]
    outcome: Outcome
    files: Mapping[str, Path]
    units_run: int


def code_digest() -> str:
    """A fingerprint of the library and of the experiments: units computed by other code do not belong to this run."""
    digest = hashlib.sha256(__version__.encode())
    for package in (cavity, cavity_reproductions):
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Ledger:
    """Finished units, one JSON line each. Lines of other code, size, seed or set of options are passed over."""

    def __init__(self, path: Path, experiment: str, config: Config) -> None:
        self.path = path
        self.run = {"experiment": experiment, "code": code_digest(), "size": config.size, "seed": config.seed}

    def key(self, unit: Unit) -> dict[str, Any]:
        """What a line must carry to stand for this unit."""
        return plain(self.run | {"unit": unit.name, "unit_seed": unit.seed, "options": dict(unit.options)})

    def finished(self, units: list[Unit]) -> dict[str, dict[str, Any]]:
        """Lines that stand for one of the units, by its name. A line cut short by a kill is no line."""
        if not self.path.exists():
            return {}
        wanted = {json.dumps(self.key(unit), sort_keys=True): unit.name for unit in units}
        found = {}
        for text in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                line = json.loads(text)
                name = wanted.get(json.dumps(line["key"], sort_keys=True))
                if name is not None:
                    found[name] = {"result": dict(line["result"]), "seconds": float(line["seconds"])}
            except (ValueError, KeyError, TypeError):
                continue
        return found

    def append(self, unit: Unit, result: Mapping[str, Any], seconds: float) -> None:
        """Add a line; a damaged last line is closed first, so that it cannot swallow this one."""
        line = json.dumps({"key": self.key(unit), "result": result, "seconds": round(seconds, 3)}, allow_nan=False)
        torn = self.path.exists() and self.path.stat().st_size > 0 and self.path.read_bytes()[-1:] != b"\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("\n" if torn else "") + line + "\n")


def run(
    experiment: Experiment,
    config: Config = Config(),
    folder: str | Path | None = None,
    console: Console | None = None,
    quiet: bool = False,
    map_unordered: MapUnordered | None = None,
) -> Record:
    """Run what is not yet in the ledger, then summarise, draw and write.

    folder: ./cavity-results/<name> unless given, with the size behind the name when it is not a full run.
    quiet: no progress and no tables on the console.
    map_unordered: works units out elsewhere, such as `cavity.distributed.map_unordered` with its client;
        the ledger is written here.
    """
    target = default_folder(experiment.name, config) if folder is None else Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    console = Console() if console is None else console
    units = experiment.units(config)
    ledger = Ledger(target / "ledger.jsonl", experiment.name, config)
    done = ledger.finished(units)
    missing = [unit for unit in units if unit.name not in done]
    if done and missing and not quiet:
        console.print(Text(f"Going on from {len(done)} of {len(units)} units finished before."))
    with UnitProgress(experiment.name, len(units), len(done), console, quiet) as progress:
        try:
            work = partial(timed, experiment.run_unit, config)
            here = ((number, work(unit)) for number, unit in enumerate(announced(missing, progress)))
            found = (
                here if map_unordered is None else map_unordered(work, missing, names=[unit.name for unit in missing])
            )
            for number, (result, seconds) in found:
                unit = missing[number]
                ledger.append(unit, result, seconds)
                done[unit.name] = {"result": result, "seconds": seconds}
                progress.finish()
        except KeyboardInterrupt:
            raise Interrupted(target, len(done), len(units)) from None
    results = {unit.name: done[unit.name]["result"] for unit in units}
    outcome = judged(experiment.summarise(results, config), config)
    seconds = sum(done[unit.name]["seconds"] for unit in units)
    record = write(experiment, config, target, results, outcome, seconds, len(missing))
    if not quiet:
        report(experiment, config, record, console)
    return record


def announced(units: list[Unit], progress: UnitProgress) -> Iterator[Unit]:
    """The units, each shown when it begins."""
    for unit in units:
        progress.begin(unit.name)
        yield unit


def timed(run_unit: Callable[[Unit, Config], Any], config: Config, unit: Unit) -> tuple[Any, float]:
    """The result of a unit as JSON can hold it, and its seconds."""
    began = time.perf_counter()
    with jax.enable_x64(True):
        result = plain(run_unit(unit, config))
    return result, time.perf_counter() - began


def judged(outcome: Outcome, config: Config) -> Outcome:
    """The outcome, without its table of parts met or not where the run is too small for a verdict."""
    if config.size == "full":
        return outcome
    return replace(outcome, tables=tuple(table for table in outcome.tables if table.title != PARTS))


def write(
    experiment: Experiment,
    config: Config,
    folder: Path,
    results: Mapping[str, Any],
    outcome: Outcome,
    seconds: float,
    units_run: int,
) -> Record:
    """Figure, tables and numbers as files."""
    result: dict[str, Any] = {
        "experiment": experiment.name,
        "document": experiment.document,
        "title": experiment.title,
        "claim": experiment.claim,
        "cavity": __version__,
        "size": config.size,
        "seed": config.seed,
        "seconds": round(seconds, 1),
        "numbers": rounded(plain(outcome.numbers)),
    }
    if config.size == "full":
        parts = {text: met for table in outcome.tables if table.title == PARTS for text, met in table.rows}
        result |= {"verdict": outcome.verdict, "sentence": outcome.sentence, "parts": parts}
    files = {
        "figure": save(experiment.draw(results, outcome, config), folder / f"{experiment.name}.png"),
        "table": folder / "table.md",
        "result": folder / "result.json",
    }
    files["table"].write_text(page(experiment, config, outcome), encoding="utf-8")
    files["result"].write_text(
        json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )
    return Record(result, outcome, files, units_run)


def rounded(value: Any, digits: int = 6) -> Any:
    """Floats to six digits: what differs between machines lies below."""
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def standing(config: Config, outcome: Outcome) -> str:
    """The verdict of a full run, or why there is none."""
    if config.size == "full":
        return f"Verdict: {outcome.verdict}. {outcome.sentence}"
    return f"A {config.size} run, seed {config.seed}: too small to judge the claim by."


def page(experiment: Experiment, config: Config, outcome: Outcome) -> str:
    """table.md."""
    head = [
        f"# {experiment.title}",
        f"{experiment.document}. Claim: {experiment.claim}",
        standing(config, outcome),
        f"![{experiment.title}]({experiment.name}.png)",
    ]
    tail = f"cavity {__version__}, seed {config.seed}, {config.size} run."
    return "\n\n".join([*head, *(markdown(table) for table in outcome.tables), tail]) + "\n"


def report(experiment: Experiment, config: Config, record: Record, console: Console) -> None:
    """Tables, verdict and places on the terminal."""
    console.print(Text(f"{experiment.name}: {experiment.title}", style="bold"))
    console.print(Text(f"{experiment.document}. Claim: {experiment.claim}"))
    for table in record.outcome.tables:
        show(table, console)
    console.print(Text(standing(config, record.outcome), style="bold"))
    for path in record.files.values():
        console.print(Text(f"written: {path}"), soft_wrap=True)
