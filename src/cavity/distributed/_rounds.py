"""Rounds: every shard is asked against the global cavity, the responses are combined, until the moments agree.

Synchronous: a round asks all shards about the same state and waits for all. Asynchronous: a response is taken in when
it arrives and its shard is asked again at once, so that no shard waits for a slow worker. Both have the fixed points of
EP on all data in one place.

What travels is the same for rows, parts of a graph and partitions: the client sends a `Request`; a visit answers with a
`Response`, a measurement with a `Measurement`. Contributions and cavities are vectors of natural parameters.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cavity._core import checks
from cavity.distributed._worker_pool import OutOfTimeError, WorkerPool
from cavity.inference.status import Result, Status

#: a mismatch that has grown by this factor over the smallest so far calls for shorter steps
GROWTH = 4.0
#: the shortest share of a step taken on that account
SHORTEST = 1 / 16
#: rounds without growth after which steps are doubled again
CALM = 8


class Request(NamedTuple):
    """What a shard is to be visited or measured against.

    cavity: everything but the shard, prior and all other contributions. token, step: the response the client has taken
    and the share of it; no token where it has taken none, and the shard's sites are flat. contribution: the shard's
    own, for workers that keep no sites between two requests.
    """

    cavity: np.ndarray
    token: str | None = None
    step: float = 1.0
    tol: float = 1e-8
    contribution: np.ndarray | None = None


class Response(NamedTuple):
    """What a visit found.

    contribution: the proposed one. token: its name, by which later requests refer to the sites behind it.
    linked: whether the visit started from the sites behind the client's contribution. If they were lost it did not, and
    the proposal is taken whole: a part of a step from sites that are lost is no set of sites.
    mismatch: the largest met in the first sweep, between q as requested and the shard's tilted distributions.
    negative: proposed sites of negative precision. noise: standard error of the mismatch, where moments come from
    draws.
    """

    contribution: np.ndarray
    token: str = ""
    linked: bool = True
    mismatch: float = float("inf")
    negative: int = 0
    noise: float = 0.0


class Measurement(NamedTuple):
    """A shard at the state the client has; nothing is changed.

    mismatch: the largest; infinite where the sites were lost. log_evidence: the shard's share of it: Σ E[log t̃ᵢ], and
    of a graph Σ log Z of the part's own variables. contribution: worked out again from the sites. improper, nonfinite:
    sites without an update. marginals: of the variables of a part of a graph.
    """

    mismatch: float
    log_evidence: float
    contribution: np.ndarray
    improper: int = 0
    nonfinite: int = 0
    marginals: tuple[np.ndarray, ...] = ()


@dataclasses.dataclass(frozen=True)
class RoundOptions:
    """Options of every kind of rounds, checked when they are made, which also starts the clock.

    damping: the share of a step taken. max_rounds, max_seconds: end the run after the round that reaches them.
    """

    asynchronous: bool = False
    damping: float = 1.0
    tol: float = 1e-8
    max_rounds: int = 200
    max_seconds: float | None = None
    began: float = dataclasses.field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        if not 0 < checks.number("damping", self.damping) <= 1:
            raise ValueError(f"damping must lie in (0, 1], 1 being the full step; found {self.damping}.")
        checks.positive("tol", self.tol)
        if not isinstance(self.max_rounds, int) or self.max_rounds < 1:
            raise ValueError(f"max_rounds must be a whole number of at least 1; found {self.max_rounds!r}.")
        if self.max_seconds is not None:
            checks.positive("max_seconds", self.max_seconds)

    @property
    def seconds(self) -> float:
        """Since the beginning of the run."""
        return time.perf_counter() - self.began

    @property
    def deadline(self) -> float | None:
        """When the time is over, on the clock of `time.perf_counter`."""
        return None if self.max_seconds is None else self.began + self.max_seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundsResult(Result):
    """How a run ended.

    Attributes:
        status: why it ended.
        log_evidence: estimate of log p(D) (3.40); None where it was not measured.
        mismatch: the largest moment mismatch of all shards, measured at this very state where the run has ended.
        residuals: the largest mismatch met in every round.
        seconds: the run took.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> from cavity import distributed
        >>> residuals = np.array([0.3, 1e-8])
        >>> found = distributed.RoundsResult(
        ...     status=cv.Status.CONVERGED, log_evidence=None, mismatch=1e-8, residuals=residuals, seconds=0.1
        ... )
        >>> found.rounds
        2
    """

    status: Status
    log_evidence: float | None
    mismatch: float
    residuals: np.ndarray
    seconds: float

    @property
    def rounds(self) -> int:
        """Rounds made."""
        return len(self.residuals)

    def __str__(self) -> str:
        known = "" if self.log_evidence is None else f", log evidence {self.log_evidence:.6g}"
        return f"{self.status} after {self.rounds} rounds, mismatch {self.mismatch:.1e}{known}. {self.status.sentence}"


@dataclasses.dataclass
class Accepted:
    """What the client has taken of a shard: the name of the response, the share of it, the mismatch it met."""

    token: str | None = None
    step: float = 1.0
    mismatch: float = float("inf")


@dataclasses.dataclass
class Rounds:
    """A run over the shards of a pool of workers. A subclass says what workers do and what the result is.

    Args:
        pool: the workers, with the shards loaded.
        state: contributions of all shards. `cavity(number)` is everything but those of one;
            `replace(responses, damping)` takes what is proposed, and says which share of the step was taken, by shard.
        options: as checked by `RoundOptions`.
        callback: called with `result` after every round.
    """

    pool: WorkerPool
    state: Any
    options: RoundOptions
    callback: Callable[[Any], Any] | None

    #: done by a worker with (shard, request)
    visit: ClassVar[Callable[[Any, Request], Response]]
    measure: ClassVar[Callable[[Any, Request], Measurement]]

    def __post_init__(self) -> None:
        self.accepted = [Accepted() for _ in self.pool.loaders]
        self.residuals: list[float] = []
        self.earlier: tuple[float, ...] = ()  # of a run that this one goes on from

    def result(self, status: Status) -> Any:
        """The state as a user sees it."""
        raise NotImplementedError

    def account(self, status: Status) -> dict[str, Any]:
        """The fields that every `RoundsResult` has, but for the log evidence."""
        residuals, seconds = np.array([*self.earlier, *self.residuals]), self.options.seconds
        return {"status": status, "mismatch": self.mismatch, "residuals": residuals, "seconds": seconds}

    def is_settled(self) -> bool:
        """Whether the state reached is a fixed point, now that every shard was within `tol` when last asked."""
        return True

    def finish(self, status: Status) -> Status:
        """What is left to do when the rounds have ended; the status they end with."""
        return status

    def run(self) -> Any:
        """Rounds until the end, or until an interruption from the keyboard, and their result."""
        try:
            status = self.finish(self.make_rounds())
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        except Exception as error:
            if not self.residuals:
                raise
            if not isinstance(error, OutOfTimeError):
                failed: Any = error
                failed.reached = self.result(Status.INTERRUPTED)
                error.add_note(f"After {len(self.residuals)} rounds; what they reached is this error's `reached`.")
                raise
            status = Status.TIME_BUDGET
        return self.result(status)

    def make_rounds(self) -> Status:
        """Rounds until the state is settled or a limit is reached."""
        take_answers = self.take_as_they_come if self.options.asynchronous else self.take_together
        while True:
            self.pool.check_workers()
            for number in range(len(self.accepted)):
                self.ask(number)
            limit = take_answers()
            if self.agrees and self.is_settled():
                return Status.CONVERGED
            if limit is not None:
                return limit

    def take_together(self) -> Status | None:
        """One round: all responses are taken in when the last has come. The limit reached, if any."""
        self.take(dict(self.pool.answers()))
        return self.end_round()

    def take_as_they_come(self) -> Status | None:
        """Rounds until all agree or a limit is reached; one is over when every shard has answered since the last."""
        everyone, idle, limit = set(range(len(self.accepted))), set[int](), None
        waiting = set(everyone)
        for number, response in self.pool.answers():
            self.take({number: response})
            waiting.discard(number)
            if not waiting:
                waiting, limit = set(everyone), self.end_round()
            if self.agrees or limit is not None:
                continue  # wait for those still asked, then look
            # A shard that has settled against what it was asked waits until another has moved.
            idle.add(number)
            if self.accepted[number].mismatch > self.options.tol:
                for other in idle:
                    self.ask(other)
                idle = set()
        return limit

    def request(self, number: int) -> Request:
        """What one shard is asked against."""
        own = self.accepted[number]
        return Request(self.state.cavity(number), own.token, own.step, self.options.tol)

    def ask(self, number: int) -> None:
        """Ask one shard against what all others contribute now."""
        self.pool.ask(number, self.visit, self.request(number))

    def take(self, responses: dict[int, Response]) -> None:
        """Replace contributions by those proposed, as far as everything stays proper."""
        for number, step in self.state.replace(responses, self.step).items():
            own = responses[number]
            # What was not taken has no sites behind it, unless they are those it started from.
            kept = own.token if own.linked or step > 0 else "lost"
            self.accepted[number] = Accepted(kept, step, own.mismatch if own.linked else float("inf"))

    def measure_all(self) -> dict[int, Measurement]:
        """Every shard measured at the state as it is."""
        for number in range(len(self.accepted)):
            self.pool.ask(number, self.measure, self.request(number))
        found: dict[int, Measurement] = dict(sorted(self.pool.answers()))
        for number, own in found.items():
            self.accepted[number].mismatch = own.mismatch
        return found

    @property
    def step(self) -> float:
        """The damping, shortened when the mismatch grows and taken back when it no longer does.

        Shards that answer each other's past may swing.
        """
        found, best, calm = self.options.damping, float("inf"), 0
        for residual in self.residuals:
            if not np.isfinite(residual):
                continue  # sites were lost and found again
            if residual > GROWTH * best:
                found, best, calm = max(SHORTEST, found / 2), residual, 0
            else:
                best, calm = min(best, residual), calm + 1
            if calm == CALM:
                found, calm = min(self.options.damping, 2 * found), 0
        return found

    @property
    def mismatch(self) -> float:
        """The largest of all shards, each when it was last asked or measured."""
        return max(own.mismatch for own in self.accepted)

    @property
    def agrees(self) -> bool:
        """Whether all shards were within tolerance when they were last asked."""
        return self.mismatch <= self.options.tol

    def end_round(self) -> Status | None:
        """Note that a round is over; the limit it has reached, if any."""
        self.residuals.append(self.mismatch)
        if self.callback is not None:
            self.callback(self.result(Status.RUNNING))
        if len(self.residuals) >= self.options.max_rounds:
            return Status.MAX_SWEEPS
        deadline = self.options.deadline
        return Status.TIME_BUDGET if deadline is not None and time.perf_counter() >= deadline else None
