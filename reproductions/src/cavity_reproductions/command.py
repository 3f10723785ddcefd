"""`cavity reproduce`: experiments from the command line, found by the library through an entry point."""

import difflib
import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cavity._cli.errors import fail
from cavity.reports import Table, show
from cavity_reproductions import REGISTRY, Config, Interrupted, default_folder, run, run_series, write_record
from cavity_reproductions.runner import MapUnordered

#: in the place of an experiment: only the page about those that were run
RECORD = "record"


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="An experiment, `list` for all of them, or `record` for the page about --out.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every experiment, and the record of all claims.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, without a verdict.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all data.")] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="With --all: experiments at a time (quick: all cores; full: one, for the times)."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the results (./cavity-results/NAME).")] = None,
    scheduler: Annotated[
        str | None, typer.Option("--cluster", metavar="ADDRESS", help="A Dask scheduler whose workers do the work.")
    ] = None,
) -> None:
    """Run an experiment of a document: figure, tables, numbers and a verdict. An interrupted run goes on by itself."""
    console = Console()
    if (name is None) != everything:
        fail("Name an experiment (`cavity reproduce list` shows them), or say --all for all of them.")
    if name == "list":
        show(listing(), console)
        return
    if name is not None and name not in (*REGISTRY, RECORD):
        fail(unknown_experiment(name))
    if jobs is not None and not everything:
        fail("--jobs belongs to --all.")
    config = Config("quick" if quick else "full", seed)
    folder = default_folder("all" if name in (None, RECORD) else name, config) if out is None else out
    if folder.exists() and not folder.is_dir():
        fail(f"--out must name a folder; {folder} is a file.")
    if scheduler is not None and (jobs is not None or name == RECORD):
        fail("--cluster does not go with --jobs or record.")
    map_unordered = None if scheduler is None else on_cluster(scheduler)
    try:
        if name == RECORD:
            if not folder.is_dir():
                fail(f"There are no results in {folder}; --out names their folder.")
            console.print(f"written: {write_record(folder)}", soft_wrap=True)
        elif name is None:
            processes = jobs or (os.cpu_count() or 1 if quick else 1)
            ended = run_series(list(REGISTRY), config, folder, console, processes, map_unordered)
            raise typer.Exit(int(any(each.trouble for each in ended)))
        else:
            run(REGISTRY[name], config, folder, console, map_unordered=map_unordered)
    except Interrupted as stopped:
        fail(str(stopped), 130)
    except OSError as error:
        fail(f"The results could not be written to {folder}: {error.strerror or error}.")


def on_cluster(address: str) -> MapUnordered:
    """What works units out on the workers of the scheduler at this address."""
    try:
        from cavity.distributed import connect, map_unordered

        return partial(map_unordered, client=connect(address))
    except (ImportError, OSError, ValueError) as error:
        fail(str(error))


def unknown_experiment(name: str) -> str:
    """What there is instead; those of the same chapter first."""
    near = difflib.get_close_matches(name, REGISTRY, n=3, cutoff=0.4)
    near.sort(key=lambda other: other.rpartition("-")[0] != name.rpartition("-")[0])
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(REGISTRY)}."
    return f"There is no experiment {name!r}; {hint}"


def listing() -> Table:
    """All experiments."""
    rows = [(each.name, each.document, each.title) for each in REGISTRY.values()]
    return Table("Experiments", ("name", "source", "what it shows"), rows, "Run one with: cavity reproduce NAME")
