"""The commands: `cavity fit`, `predict`, `select`, `infer`, `demo`, `reproduce`, and `cavity --version`."""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cavity._version import __version__
from cavity.cli.demos import DEMOS
from cavity.cli.errors import fail, in_a_sentence
from cavity.cli.fit import fit_command
from cavity.cli.infer import infer_command
from cavity.cli.predict import predict_command
from cavity.cli.select import select

app = typer.Typer(
    name="cavity", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # paragraphs of a docstring are filled
    help="Expectation propagation and its relatives: classifiers for CSV files, graphical models, experiments.",
)  # fmt: skip
app.command("fit")(fit_command)
app.command("predict")(predict_command)
app.command()(select)
app.command("infer")(infer_command)

#: commands of other packages are found under this name; a function each
PLUGINS = "cavity.commands"


def main() -> None:
    """Entry point of the installed command."""
    app()


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
    """Expectation propagation and its relatives: classifiers for CSV files, graphical models, experiments."""


@app.command()
def demo(
    what: Annotated[str, typer.Argument(help=f"One of {', '.join(DEMOS)}.")] = "classifier",
    out: Annotated[Path, typer.Option(help="Where the figure goes (PNG).")] = Path("cavity-demo.png"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data.")] = 0,
) -> None:
    """Tables and a figure. classifier: finds labels flipped on purpose. clutter: every method on one problem."""
    if what not in DEMOS:
        fail(f"There is no demo {what!r}; there are {', '.join(DEMOS)}.")
    if out.suffix.lower() != ".png":
        fail(f"--out must name a .png file; found {out}.")
    if out.is_dir():
        fail(f"--out must name a file; {out} is a folder.")
    with in_a_sentence("Stopped."):
        try:
            # A place that cannot be written is found before the work, not after.
            out.parent.mkdir(parents=True, exist_ok=True)
            DEMOS[what](out, seed, Console())
        except OSError as error:
            fail(f"The figure could not be written to {out}: {error.strerror or error}.")


def add_plugins() -> None:
    """Commands that installed packages add; `reproduce` says what to install where it is missing."""
    found = {entry.name: entry for entry in entry_points(group=PLUGINS)}
    for name, entry in found.items():
        app.command(name)(entry.load())
    if "reproduce" not in found:
        app.command("reproduce", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
            reproduce_missing
        )


def reproduce_missing() -> None:
    """Run an experiment of a document again. Needs the package cavity-reproductions."""
    fail("`cavity reproduce` needs the package cavity-reproductions; in the source tree: pip install ./reproductions")


add_plugins()
