"""The commands: `cavity fit`, `predict`, `select`, `infer`, `demo`, `warm`, `cache`, `reproduce`, and `--version`."""

import ast
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cavity._cli.errors import fail
from cavity._version import __version__

#: commands of other packages are found under this name; a function each
PLUGINS = "cavity.commands"
#: commands and the functions they are
COMMANDS = {
    "fit": "cavity._cli.fit:fit_command",
    "predict": "cavity._cli.predict:predict_command",
    "select": "cavity._cli.select:select",
    "infer": "cavity._cli.infer:infer_command",
    "demo": "cavity._cli.demos:demo",
    "warm": "cavity._cli.warm:warm",
    "cache": "cavity._cli.cache:cache_command",
}
APPEARANCE: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "markdown",  # paragraphs of a docstring are filled
}
app = typer.Typer(name="cavity", no_args_is_help=True, **APPEARANCE)


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


def add_command(entry: EntryPoint) -> None:
    """A command whose module, which takes seconds to import, is loaded when the command is called."""

    class Deferred(TyperCommand):
        def make_context(self, *arguments: Any, **settings: Any) -> Any:
            alone = typer.Typer(**APPEARANCE)
            alone.command(entry.name)(entry.load())
            return typer.main.get_command(alone).make_context(*arguments, **settings)

    app.command(entry.name, cls=Deferred, help=said_of(entry))(lambda: None)


def said_of(entry: EntryPoint) -> str | None:
    """The docstring of a function, read from its source: nothing is imported for it, not even packages above."""
    package, *parts = entry.module.split(".")
    spec: Any = find_spec(package)
    for part in parts:
        spec = PathFinder.find_spec(f"{spec.name}.{part}", spec.submodule_search_locations)
    body = ast.parse(spec.loader.get_source(spec.name) or "").body
    functions = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == entry.attr)
    return next(map(ast.get_docstring, functions), None)


def reproduce_missing() -> None:
    """Run an experiment of a document again. Needs the package cavity-reproductions."""
    fail("`cavity reproduce` needs the package cavity-reproductions; in the source tree: pip install ./reproductions")


for command in [*(EntryPoint(*each, PLUGINS) for each in COMMANDS.items()), *entry_points(group=PLUGINS)]:
    add_command(command)
if "reproduce" not in entry_points(group=PLUGINS).names:
    app.command("reproduce", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
        reproduce_missing
    )
