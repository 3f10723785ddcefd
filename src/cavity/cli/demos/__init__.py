"""`cavity demo`: what the library does, shown on the terminal and in a figure."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cavity.cli.demos.classifier import show_classifier
from cavity.cli.demos.clutter import show_clutter
from cavity.cli.errors import fail, in_a_sentence

__all__ = ["DEMOS"]

#: demos by name; the first is what `make run` shows
DEMOS: dict[str, Callable[[Path, int, Console], None]] = {"classifier": show_classifier, "clutter": show_clutter}


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
