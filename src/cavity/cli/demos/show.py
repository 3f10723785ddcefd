"""`cavity demo` on the terminal."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cavity.cli.demos import classifier
from cavity.cli.demos.clutter import BASELINES, METHODS, demo_data, demo_figure, demo_rows, demo_table
from cavity.reports import UnitProgress, save, show


def show_classifier(out: Path, seed: int, console: Console) -> None:
    """A classifier trained on labels some of which are wrong: tables to the console, figure to the file."""
    console.print(Text(classifier.INTRODUCTION))
    with UnitProgress("compiling and fitting", 1, console=console) as progress:
        progress.begin("Gaussian process")
        shown = classifier.train_on_flipped_labels(seed)
        progress.finish()
    for table in classifier.tables(shown):
        show(table, console)
    save(classifier.draw_classifier(shown), out)
    console.print(Text(f"written: {out}"), soft_wrap=True)


def show_clutter(out: Path, seed: int, console: Console) -> None:
    """Print the table, write the figure, and print the path of its file."""
    x = demo_data(seed)
    with UnitProgress("compiling and running", 1 + len(METHODS) + len(BASELINES), console=console) as progress:
        started = False

        def tell(name: str) -> None:
            nonlocal started
            if started:
                progress.finish()
            started = True
            progress.begin(name)

        rows = demo_rows(x, tell)
    show(demo_table(rows), console)
    save(demo_figure(x, rows), out)
    console.print(Text(f"written: {out}"), soft_wrap=True)


#: demos by name; the first is what `make run` shows
DEMOS: dict[str, Callable[[Path, int, Console], None]] = {"classifier": show_classifier, "clutter": show_clutter}
