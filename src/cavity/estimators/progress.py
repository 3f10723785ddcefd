"""What `verbose` shows of a fit: a line for every point of the search and every sweep of the last run."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cavity.inference.solution import Solution
from cavity.models.latent_gaussian.evidence_search import Evaluation
from cavity.models.streaming import StreamProgress


class Lines:
    """Turns what a machine reports into lines of text; made anew for every machine, for it counts the points.

    Args:
        tell: called with every line.
        name: what the lines begin with.
    """

    def __init__(self, tell: Callable[[str], Any], name: str) -> None:
        self.tell = tell
        self.name = name
        self.points = 0

    def point(self, evaluation: Evaluation) -> None:
        """A point of the search for parameters."""
        self.points += 1
        found = "no fixed point of EP" if evaluation.solution is None else f"log evidence {evaluation.log_evidence:.6g}"
        self.tell(f"{self.name}: search, point {self.points}, {found}")

    def sweep(self, solution: Solution) -> None:
        """A sweep of the last run."""
        self.tell(
            f"{self.name}: sweep {int(solution.sweeps)}, mismatch {float(solution.mismatch):.1e}, "
            f"log evidence {float(solution.log_evidence):.6g}"
        )

    def stream(self, told: StreamProgress) -> None:
        """How far a pass over a stream is."""
        stage = f"sweep {told.sweep}" if told.stage == "sweep" else f"measurement after sweep {told.sweep}"
        rows = f"{told.rows} rows" if told.ended or told.total is None else f"{told.rows} of {told.total} rows"
        self.tell(f"{self.name}: {stage}, {rows}, {told.speed:.2g} rows a second, mismatch {told.mismatch:.1e}")


def lines(verbose: Any, name: str) -> Lines | None:
    """Who is told about a fit: nobody for 0, standard output for a number above, or a function of one line."""
    if callable(verbose):
        return Lines(verbose, name)
    if not isinstance(verbose, bool | int | np.integer) or verbose < 0:
        raise ValueError(f"verbose must be a whole number from 0, or a function of a line of text; found {verbose!r}.")
    return Lines(printed, name) if verbose else None


def printed(line: str) -> None:
    """A line that is seen at once, also where output is held back."""
    print(line, flush=True)


def listeners(verbose: Any, name: str, searches: bool = True) -> dict[str, Any]:
    """The keywords by which a fitting function is listened to; none where nobody asks, for listening costs time."""
    told = lines(verbose, name)
    if told is None:
        return {}
    return {"watch": told.sweep, "progress": told.point} if searches else {"watch": told.sweep}
