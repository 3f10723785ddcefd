"""All experiments one after another, or a few at a time, and the record of what came out.

    <folder>/<name>/     each experiment, as the runner leaves it
    <folder>/record.md   every claim of the documents beside what was found

An experiment that cannot be run (its data are not to be had, say) does not stop the others.
"""

import multiprocessing
import os
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text
from threadpoolctl import threadpool_limits

from cavity.reports import Table, UnitProgress, show
from cavity_reproductions.base import QUICK_CODE, Config
from cavity_reproductions.record import record_page
from cavity_reproductions.registry import REGISTRY
from cavity_reproductions.runner import Interrupted, MapUnordered, run

RECORD = "record.md"
#: for the compiler: quick runs compile more than they run, and code that is made quickly halves their time
QUICK_COMPILATION = f"{QUICK_CODE} --xla_cpu_parallel_codegen_split_count=1"


class Ended(NamedTuple):
    """How an experiment ended. state: its verdict, or that it ran; trouble: why it did not."""

    name: str
    state: str
    seconds: float
    trouble: str = ""


def run_series(
    names: Sequence[str],
    config: Config,
    folder: Path,
    console: Console,
    processes: int = 1,
    map_unordered: MapUnordered | None = None,
) -> list[Ended]:
    """Run the experiments named, each in its own folder below `folder`, then write the record.

    processes: how many run at a time. map_unordered: as for `run`, one at a time. Nothing in the ledgers is run again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ended: list[Ended] = []
    with UnitProgress("experiments", len(names), 0, console) as progress:
        one_by_one = processes == 1 or map_unordered is not None
        endings = (
            in_turn(names, config, folder, map_unordered)
            if one_by_one
            else side_by_side(names, config, folder, processes)
        )
        try:
            for each in endings:
                ended.append(each)
                progress.begin(each.name)
                progress.finish()
                text = each.trouble or f"{each.state}, {each.seconds:.0f} s"
                console.print(Text(f"{len(ended):3d}/{len(names)}  {each.name}: {text}"), soft_wrap=True)
        except KeyboardInterrupt:
            raise Interrupted(folder, len(ended), len(names), "experiments") from None
        finally:
            endings.close()
            write_record(folder)
    report(ended, folder, console)
    return ended


def in_turn(names: Sequence[str], config: Config, folder: Path, map_unordered: MapUnordered | None) -> Generator[Ended]:
    """One at a time, in this process."""
    for name in names:
        yield run_one(name, config, folder, map_unordered)


def side_by_side(names: Sequence[str], config: Config, folder: Path, processes: int) -> Generator[Ended]:
    """A few at a time, in fresh processes: a forked one would inherit the threads of the compiler."""
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), set_up, (config, processes))
    try:
        tasks = {pool.submit(run_one, name, config, folder): name for name in names}
        for task in as_completed(tasks):
            try:
                yield task.result()
            except BrokenProcessPool:
                yield Ended(tasks[task], "failed", 0.0, "failed (a process was killed; run the same command again)")
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def set_up(config: Config, processes: int) -> None:
    """Of a fresh process, before its first computation: its share of the cores, and the code a quick run wants."""
    threadpool_limits(max(1, (os.cpu_count() or 1) // processes))
    if config.size != "full":
        os.environ.setdefault("XLA_FLAGS", QUICK_COMPILATION)


def run_one(name: str, config: Config, folder: Path, map_unordered: MapUnordered | None = None) -> Ended:
    """One experiment of the registry; an error becomes its sentence."""
    began = time.perf_counter()
    try:
        record = run(REGISTRY[name], config, folder / name, quiet=True, map_unordered=map_unordered)
    except Interrupted:
        raise KeyboardInterrupt from None
    except Exception as error:
        text = f"{type(error).__name__}: {error}".strip()
        return Ended(name, "failed", time.perf_counter() - began, f"failed ({text.splitlines()[0]})")
    return Ended(name, record.result.get("verdict", "ran"), time.perf_counter() - began)


def write_record(folder: Path) -> Path:
    """The record of the results in a folder, written into it."""
    path = folder / RECORD
    path.write_text(record_page(folder), encoding="utf-8")
    return path


def report(ended: Sequence[Ended], folder: Path, console: Console) -> None:
    """How many ended how, and what failed."""
    states = {each.state for each in ended}
    rows = [(state, sum(each.state == state for each in ended)) for state in sorted(states)]
    show(Table("All experiments", ("ended", "experiments"), rows), console)
    for each in ended:
        if each.trouble:
            console.print(Text(f"{each.name} {each.trouble}"), soft_wrap=True)
    console.print(Text(f"written: {folder / RECORD}"), soft_wrap=True)
