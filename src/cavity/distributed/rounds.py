"""Rounds: every shard is asked against the global cavity, the answers are combined, until the moments agree.

Together: a round asks all shards about the same state and waits for all. As they come: an answer is taken in when it
arrives and its shard is asked again at once, so that nobody waits for a slow worker. Both have the same fixed points,
those of EP on all rows in one place.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from cavity.distributed.contributions import Proposal
from cavity.distributed.worker_pool import Team
from cavity.inference.status import Status

#: a mismatch that has grown by this factor over the smallest so far calls for shorter steps
GROWTH = 4.0
#: the shortest share of a step taken on that account
SHORTEST = 1 / 16
#: rounds without growth after which steps are doubled again
CALM = 8


class Answered(Protocol):
    """What the answer of a visit must have."""

    @property
    def naturals(self) -> np.ndarray: ...
    @property
    def token(self) -> str: ...
    @property
    def linked(self) -> bool: ...
    @property
    def residual(self) -> float: ...
    @property
    def negative(self) -> int: ...


class Combined(Protocol):
    """What all shards say together, on the client: `Contributions`, or another kind of messages."""

    def cavity(self, number: int) -> np.ndarray:
        """Everything but what shard `number` said."""
        ...

    def replace(self, proposals: dict[int, Proposal], damping: float) -> dict[int, float]:
        """Put proposals in place of what shards said; the share of the step taken, by shard."""
        ...


@dataclasses.dataclass
class Taken:
    """The proposal of a shard that the client has taken: its name, the share of it, the mismatch it met."""

    token: str | None = None
    step: float = 1.0
    residual: float = float("inf")


@dataclasses.dataclass
class Rounds:
    """A run over the shards of a team.

    visit: what is asked, with the shard and what `tell` makes of its number, the cavity and what was taken of it.
    settled: called when all shards were within `tol` when last asked; says whether they are at the state reached, and
        notes their mismatch there. heard: called after every round. note: called with every answer that is taken.
    """

    team: Team
    state: Combined
    taken: list[Taken]
    visit: Callable[..., Any]
    tell: Callable[[int, np.ndarray, Taken], Any]
    settled: Callable[[], bool]
    heard: Callable[[], Any]
    damping: float
    tol: float
    max_rounds: int
    deadline: float | None
    note: Callable[[int, Any], Any] | None = None
    residuals: list[float] = dataclasses.field(default_factory=list)

    def ask(self, number: int) -> None:
        """Ask one shard against what all others say now."""
        self.team.ask(number, self.visit, self.tell(number, self.state.cavity(number), self.taken[number]))

    def take(self, answers: dict[int, Answered]) -> None:
        """Replace contributions by what was proposed, as far as everything stays proper."""
        proposals = {k: Proposal(own.naturals, own.linked, own.negative) for k, own in answers.items()}
        for number, step in self.state.replace(proposals, self.step).items():
            own = answers[number]
            if self.note is not None:
                self.note(number, own)
            # What was not taken has no sites behind it, unless they are those it started from.
            kept = own.token if own.linked or step > 0 else "lost"
            self.taken[number] = Taken(kept, step, own.residual if own.linked else float("inf"))

    @property
    def step(self) -> float:
        """The damping, shortened when the mismatch grows and taken back when it no longer does.

        Shards that answer each other's past may swing.
        """
        found, best, calm = self.damping, float("inf"), 0
        for residual in self.residuals:
            if not np.isfinite(residual):
                continue  # sites were lost and found again
            if residual > GROWTH * best:
                found, best, calm = max(SHORTEST, found / 2), residual, 0
            else:
                best, calm = min(best, residual), calm + 1
            if calm == CALM:
                found, calm = min(self.damping, 2 * found), 0
        return found

    @property
    def residual(self) -> float:
        """The largest mismatch of all shards, each when it was last asked."""
        return max(own.residual for own in self.taken)

    def record(self) -> Status | None:
        """Note that a round is over; the limit it has reached, if any."""
        self.residuals.append(self.residual)
        self.heard()
        if len(self.residuals) >= self.max_rounds:
            return Status.MAX_SWEEPS
        if self.deadline is not None and time.perf_counter() >= self.deadline:
            return Status.TIME_BUDGET
        return None

    def together(self) -> Status:
        """Synchronous rounds."""
        while True:
            self.team.look()
            for number in range(len(self.taken)):
                self.ask(number)
            self.take(dict(self.team.answers()))
            limit = self.record()
            if self.residual <= self.tol and self.settled():
                return Status.CONVERGED
            if limit is not None:
                return limit

    def as_they_come(self) -> Status:
        """Asynchronous rounds: one is over when every shard has answered since the last."""
        everyone, limit = set(range(len(self.taken))), None
        while True:
            self.team.look()
            for number in everyone:
                self.ask(number)
            waiting, idle = set(everyone), set()
            for number, answer in self.team.answers():
                self.take({number: answer})
                waiting.discard(number)
                if not waiting:
                    waiting, limit = set(everyone), self.record()
                if self.residual <= self.tol or limit is not None:
                    continue  # wait for those still asked, then look
                # Who has settled against what it was told waits until another shard has moved.
                idle.add(number)
                if self.taken[number].residual > self.tol:
                    for other in idle:
                        self.ask(other)
                    idle = set()
            if self.residual <= self.tol and self.settled():
                return Status.CONVERGED
            if limit is not None:
                return limit
