"""Progress bars: of a run of `infer`, and of the units of an experiment. Silent where there is no terminal."""

from contextlib import ExitStack
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from cavity._core.compiling import CompileClock, compile_clock

#: what is shown once programs have been compiled for so many seconds
COMPILING, AFTER = "compiling (once per shape)", 1.0


class CompilingColumn(ProgressColumn):
    """Says that programs are being compiled, when that takes long."""

    def __init__(self, bar: "Bar") -> None:
        super().__init__()
        self.bar = bar

    def render(self, task: Task) -> Text:
        return Text(COMPILING if self.bar.clock.lasting() > AFTER else "")


class Bar:
    """A progress display open for the length of a `with` block; disabled off a terminal or when `quiet`.

    clock: of the programs that are compiled in the block.
    """

    columns: tuple[Any, ...] = ()

    def __init__(self, description: str, console: Console | None, quiet: bool, **task: Any) -> None:
        console = Console(stderr=True) if console is None else console
        silent = quiet or not console.is_terminal
        columns = (*self.columns, CompilingColumn(self))
        self.progress = Progress(*columns, console=console, disable=silent, transient=True)
        self.task = self.progress.add_task(description, **task)
        self.clock, self.inside = CompileClock(), ExitStack()

    def __enter__(self) -> Self:
        self.clock = self.inside.enter_context(compile_clock())
        self.inside.enter_context(self.progress)
        return self

    def __exit__(self, *error: object) -> None:
        self.inside.close()


class SweepProgress(Bar):
    """Sweep, moment mismatch and log evidence of a running `infer`.

    Args:
        description: what is shown beside the bar.
        console: of rich; by default standard error.
        quiet: whether nothing is shown.

    Examples:
        >>> from cavity import reports
        >>> import cavity as cv
        >>> with reports.SweepProgress("EP", quiet=True) as progress:
        ...     solution = cv.infer(cv.models.clutter([0.3, 1.8]), callback=progress)
        >>> print(solution.status)
        converged
    """

    columns = (SpinnerColumn(), TextColumn("{task.description} {task.fields[state]}"), TimeElapsedColumn())

    def __init__(self, description: str = "EP", console: Console | None = None, quiet: bool = False) -> None:
        super().__init__(description, console, quiet, total=None, state="")

    def __call__(self, solution: Any) -> None:
        """Show the state after a sweep; `solution` is what `infer` hands to its callback."""
        state = (
            f"sweep {int(solution.sweeps)}  mismatch {float(solution.mismatch):.1e}  "
            f"log evidence {float(solution.log_evidence):.6g}"
        )
        self.progress.update(self.task, state=state)


class UnitProgress(Bar):
    """How many units of an experiment are done, and which one is being worked on.

    Args:
        description: what is shown beside the bar.
        total: number of units.
        done: how many are done at the start.
        console: of rich; by default standard error.
        quiet: whether nothing is shown.

    Examples:
        >>> from cavity import reports
        >>> with reports.UnitProgress("fits", 2, quiet=True) as progress:
        ...     for name in ("first", "second"):
        ...         progress.begin(name)
        ...         progress.finish()
        >>> progress.progress.finished
        True
    """

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[unit]}"),
    )

    def __init__(
        self, description: str, total: int, done: int = 0, console: Console | None = None, quiet: bool = False
    ) -> None:
        super().__init__(description, console, quiet, total=total, completed=done, unit="")

    def begin(self, unit: str) -> None:
        """Show the name of the unit that is being worked on."""
        self.progress.update(self.task, unit=unit)

    def finish(self) -> None:
        """Count the unit that was being worked on as done."""
        self.progress.update(self.task, advance=1, unit="")
