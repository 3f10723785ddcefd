"""What `verbose` shows of a fit: a line for every point of the search and every sweep of the last run."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cavity.inference.solution import Solution
from cavity.models.latent_gaussian.evidence_search import Evaluation
from cavity.models.streaming import StreamProgress


class ProgressLines:
    """Turns what a fit reports into lines of text; made anew for every model, for it counts the points.

    Args:
        callback: called with every line.
        name: what the lines begin with.
    """

    def __init__(self, callback: Callable[[str], Any], name: str) -> None:
        self.callback = callback
        self.name = name
        self.points = 0

    def point(self, evaluation: Evaluation) -> None:
        """A point of the search for parameters."""
        self.points += 1
        found = "no fixed point of EP" if evaluation.solution is None else f"log evidence {evaluation.log_evidence:.6g}"
        self.callback(f"{self.name}: search, point {self.points}, {found}")

    def sweep(self, solution: Solution) -> None:
        """A sweep of the last run."""
        self.callback(
            f"{self.name}: sweep {int(solution.sweeps)}, mismatch {float(solution.mismatch):.1e}, "
            f"log evidence {float(solution.log_evidence):.6g}"
        )

    def stream(self, told: StreamProgress) -> None:
        """How far a pass over a stream is."""
        stage = f"sweep {told.sweep}" if told.stage == "sweep" else f"measurement after sweep {told.sweep}"
        rows = f"{told.rows} rows" if told.ended or told.total is None else f"{told.rows} of {told.total} rows"
        self.callback(f"{self.name}: {stage}, {rows}, {told.speed:.2g} rows a second, mismatch {told.mismatch:.1e}")


def progress_lines(verbose: Any, name: str) -> ProgressLines | None:
    """What `verbose` asks for: nothing for 0, lines on standard output for a number above, or a function of a line."""
    if callable(verbose):
        return ProgressLines(verbose, name)
    if not isinstance(verbose, bool | int | np.integer) or verbose < 0:
        raise ValueError(f"verbose must be a whole number from 0, or a function of a line of text; found {verbose!r}.")
    return ProgressLines(print_line, name) if verbose else None


def print_line(line: str) -> None:
    """A line that is seen at once, also where output is held back."""
    print(line, flush=True)


def callbacks(verbose: Any, name: str, searches: bool = True) -> dict[str, Any]:
    """The callbacks of a fitting function; none where nobody asks, for they cost time."""
    lines = progress_lines(verbose, name)
    if lines is None:
        return {}
    return {"callback": lines.sweep, "search_callback": lines.point} if searches else {"callback": lines.sweep}
