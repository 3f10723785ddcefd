"""`cavity demo` on the terminal."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from cavity.experiments.demo import BASELINES, METHODS, demo_data, demo_figure, demo_rows, demo_table
from cavity.reports import UnitProgress, save, show


def show_demo(out: Path, seed: int, console: Console) -> None:
    """Table to the console, figure to the file, and a line that says where."""
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
