"""The time a search over hyperparameters and its last run may take together."""

import contextlib
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cavity._core import checks


class OutOfTime(Exception):
    """The time is over; what has been found so far counts."""


@dataclass(frozen=True)
class TimeLimit:
    """ends: on the clock of `time.time`, which processes share that make the ascents; ∞ for no limit."""

    ends: float = math.inf

    @classmethod
    def of(cls, max_seconds: Any) -> "TimeLimit":
        """From now on; None is no limit."""
        return cls() if max_seconds is None else cls(time.time() + checks.positive("max_seconds", max_seconds))

    @property
    def left(self) -> float | None:
        """Seconds that are left, as `infer` takes them: some, so that a run that has to be made makes one sweep."""
        return None if self.ends == math.inf else max(self.ends - time.time(), 1e-9)

    @contextlib.contextmanager
    def ends_search(self) -> Iterator[None]:
        """A search that ends when `check` finds the time over, and says so."""
        try:
            yield
        except OutOfTime:
            text = (
                "the search over hyperparameters was ended by max_seconds; the best of the points it reached is used."
            )
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def check(self) -> None:
        """Raise `OutOfTime` when the time is over."""
        if time.time() >= self.ends:
            raise OutOfTime


NO_LIMIT = TimeLimit()
