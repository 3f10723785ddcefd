"""The commands: `cavity demo`, `cavity reproduce`, `cavity --version`."""

import difflib
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from cavity._version import __version__
from cavity.cli.demo import show_demo
from cavity.experiments import REGISTRY, Config, Interrupted, default_folder, run
from cavity.reports import Table, show

app = typer.Typer(
    name="cavity", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Expectation propagation and its relatives: a demo, and the experiments of the literature.",
)  # fmt: skip


def main() -> None:
    """Entry point of the installed command."""
    app()


def fail(sentence: str, code: int = 2) -> NoReturn:
    """One sentence on standard error, and the exit code of a user's mistake."""
    Console(stderr=True).print(Text(sentence), soft_wrap=True)
    raise typer.Exit(code)


def show_version(wanted: bool) -> None:
    """`--version` prints the version and does nothing else."""
    if wanted:
        typer.echo(f"cavity {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Expectation propagation and its relatives: a demo, and the experiments of the literature."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the figure goes (PNG).")] = Path("cavity-demo.png"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data.")] = 0,
) -> None:
    """Every method on one clutter problem, against the exact answer: a table and a figure."""
    if out.suffix.lower() != ".png":
        fail(f"--out must name a .png file; found {out}.")
    if out.is_dir():
        fail(f"--out must name a file; {out} is a folder.")
    try:
        # A place that cannot be written is found before the work, not after.
        out.parent.mkdir(parents=True, exist_ok=True)
        show_demo(out, seed, Console())
    except OSError as error:
        fail(f"The figure could not be written to {out}: {error.strerror or error}.")
    except KeyboardInterrupt:
        fail("Stopped.", 130)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="An experiment, or `list` for all of them.")],
    quick: Annotated[bool, typer.Option("--quick", help="A small version, without a verdict.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all data.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of the results (./cavity-results/NAME).")] = None,
) -> None:
    """Run an experiment of a document: figure, tables, numbers and a verdict. An interrupted run goes on by itself."""
    console = Console()
    if name == "list":
        show(listing(), console)
        return
    if name not in REGISTRY:
        near = difflib.get_close_matches(name, REGISTRY, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(REGISTRY)}."
        fail(f"There is no experiment {name!r}; {hint}")
    config = Config("quick" if quick else "full", seed)
    folder = default_folder(name, config) if out is None else out
    if folder.exists() and not folder.is_dir():
        fail(f"--out must name a folder; {folder} is a file.")
    try:
        run(REGISTRY[name], config, folder, console)
    except Interrupted as stopped:
        fail(str(stopped), 130)
    except OSError as error:
        fail(f"The results could not be written to {folder}: {error.strerror or error}.")


def listing() -> Table:
    """All experiments."""
    rows = [(each.name, each.document, each.title) for each in REGISTRY.values()]
    return Table("Experiments", ("name", "source", "what it shows"), rows, "Run one with: cavity reproduce NAME")
