"""A run over a stream: passes over portions, checkpoints by the clock and after every pass, the end."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from cavity.factors.base import Factor
from cavity.inference.methods import Method
from cavity.models.latent_gaussian.fit_result import at_zero
from cavity.models.latent_gaussian.linear_model import Rows
from cavity.models.latent_gaussian.padding import bucket, padded_with_zeros
from cavity.models.streaming import checkpoint
from cavity.models.streaming.chunks import Portion, Reader
from cavity.models.streaming.pass_state import Course, begun
from cavity.models.streaming.site_files import InFiles, InMemory, Store
from cavity.models.streaming.visits import Sums, as_problem, measured, swept

#: seconds between two words about how far a pass is
TELL = 10.0
#: share of a checksum by which rows may differ between two readings: rounding of sums
ROUNDING = 1e-9


class Told(NamedTuple):
    """How far a run is. stage: "sweep" or "measure". rows: read in this pass; total: in a whole one, once known.

    mismatch: the largest met in this pass. speed: rows a second of this pass. ended: whether the pass is over.
    """

    stage: str
    sweep: int
    rows: int
    total: int | None
    mismatch: float
    speed: float
    ended: bool


class At(NamedTuple):
    """Where a run is, replaced as a whole when a portion is done: whatever interrupts a run finds what fits together.

    sweep: sweeps that are over. position: rows done of the present pass. rows: of a whole pass, None in the first.
    resumed: positions from which this pass was taken up again.
    """

    courses: tuple[Course, ...]
    sweep: int = 0
    position: int = 0
    rows: int | None = None
    seconds: float = 0.0
    resumed: tuple[int, ...] = ()


class Visited(NamedTuple):
    """The outcome of a portion, perhaps still being computed. found: new sites, by machine; old: those before."""

    number: int
    position: int
    courses: tuple[Course, ...]
    old: np.ndarray
    found: dict[int, jax.Array]


@dataclasses.dataclass
class Clock:
    """Of one pass: where it began and when, and when a word was said last."""

    before: At
    began: float
    spoke: float


@dataclasses.dataclass(frozen=True)
class Files:
    """path: of the checkpoint. every: seconds between two. resumes: whether the run goes on from it."""

    path: Path
    every: float
    resumes: bool


class Run:
    """One run over the rows of a reader, with `d` features, of which `first` is the first portion."""

    def __init__(self, reader: Reader, first: Portion, factor: Factor, prior: Sums, method: Method) -> None:
        self.reader, self.factor, self.prior, self.method = reader, factor, prior, method
        self.d, self.padded = first.X.shape[1], bucket(len(first.X))
        self.compiled, self.key = method.as_compiled(), jax.random.key(0)
        self.at = At((begun(prior),) * len(first.y))
        self.store: Store = InMemory(len(first.y))
        self.checksums: list[float] = []
        self.own = checkpoint.fingerprint(first, reader.size, factor, prior, method)
        self.files: Files | None = None
        self.saved = time.perf_counter()

    def keep(self, files: Files) -> None:
        """Write checkpoints to a file, after going on from it where that is asked for."""
        if files.resumes:
            progress, self.checksums, courses = checkpoint.read(files.path, self.own)
            courses = tuple(course.reopened(self.method) for course in courses)
            self.at = At(courses, **progress)
            self.at = self.at._replace(resumed=(*self.at.resumed, *([self.at.position] if self.at.position else [])))
        elif files.path.exists():
            raise ValueError(f"checkpoint: {files.path} is there already; go on from it with resume=, or remove it.")
        self.store, self.files = InFiles(files.path, len(self.at.courses), self.reader.size), files

    def save(self) -> None:
        """A checkpoint, after what it rests on."""
        if self.files is None:
            return
        self.store.sync()
        progress = {name: getattr(self.at, name) for name in At._fields if name not in ("courses", "resumed")}
        progress["resumed"] = list(self.at.resumed)
        checkpoint.write(self.files.path, self.own, progress, self.checksums, self.at.courses)
        self.saved = time.perf_counter()

    def go(self, watch: Callable[[Told], Any] | None) -> None:
        """Passes until all machines have ended; what ends them early, an error too, leaves a checkpoint."""
        try:
            while any(course.stage != "done" for course in self.at.courses):
                self.one_pass(watch)
        finally:
            self.save()
            self.store.close()

    def one_pass(self, watch: Callable[[Told], Any] | None) -> None:
        """Read the rows that are left of a pass."""
        before, began = self.at, time.perf_counter()
        clock = Clock(before, began, spoke=began)
        portions = self.reader.portions(before.position)
        portion = next(portions, None)
        while portion is not None:
            self.check_rows(portion)
            visited = self.visit(portion)
            try:
                # Read and prepared while this one is computed; where that fails, this one is still done.
                portion = next(portions, None)
            finally:
                self.settle(visited, clock, watch)
        last = self.told(before.position, time.perf_counter() - began, ended=True)
        self.end_pass()
        if watch is not None:
            watch(last)

    def visit(self, portion: Portion) -> Visited:
        """Every machine visits or measures a portion."""
        at, length = self.at, len(portion.X)
        start = portion.number * self.reader.size
        copies, exponents = portion.split()
        old = self.store.read(at.sweep, portion.number, length)
        found: dict[int, jax.Array] = {}
        told = list(at.courses)
        for number, course in enumerate(at.courses):
            if course.stage == "done":
                continue
            rows = Rows.of(portion.X, portion.data(number), copies, exponents, self.factor, self.padded)
            schedule = course.schedule(self.method, start if at.rows is None else at.rows, self.d)
            method = dataclasses.replace(self.compiled, schedule=schedule)
            key = jax.random.fold_in(self.key, portion.number) if schedule.random else self.key
            known = (as_problem(rows), method, course.tally, padded_with_zeros(old[:, number], self.padded))
            if course.stage == "measure":
                tally = measured(*known, key)
            else:
                tally, found[number] = swept(*known, np.asarray(at.sweep), key)
            constant = course.constant if at.rows is not None else course.constant + without_site(rows)
            told[number] = dataclasses.replace(course, tally=tally, constant=constant)
        return Visited(portion.number, start + length, tuple(told), old, found)

    def settle(self, visited: Visited, clock: Clock, watch: Callable[[Told], Any] | None) -> None:
        """A portion is done: its sites are kept, and the run is behind it."""
        if visited.found:
            sites = visited.old.copy()
            for number, found in visited.found.items():
                sites[:, number] = np.asarray(found)[: len(sites)]
            self.store.write(self.at.sweep, visited.number, sites)
        now = time.perf_counter()
        seconds = clock.before.seconds + now - clock.began
        self.at = self.at._replace(courses=visited.courses, position=visited.position, seconds=seconds)
        if watch is not None and now - clock.spoke >= TELL:
            watch(self.told(clock.before.position, now - clock.began, ended=False))
            clock.spoke = now
        if self.files is not None and now - self.saved >= self.files.every:
            self.save()

    def check_rows(self, portion: Portion) -> None:
        """Refuse rows that are not those of the first pass."""
        found, number = portion.checksum(), portion.number
        if number == len(self.checksums) and self.at.rows is None:
            self.checksums.append(found)
        known = self.checksums[number] if number < len(self.checksums) else None
        if known is None or abs(found - known) > ROUNDING * (1.0 + abs(known)):
            first = number * self.reader.size
            raise ValueError(
                "batches must give the same rows in the same order every time; "
                f"some of the rows {first} to {first + len(portion.X) - 1} were not in the first pass."
            )

    def end_pass(self) -> None:
        """All rows have been read: what each machine does next."""
        at = self.at
        if at.rows is not None and at.position != at.rows:
            raise ValueError(f"batches must give the same rows every time; found {at.position} of {at.rows}.")
        record = {"rows": at.position, "resumed": list(at.resumed)}
        sweeps = any(course.stage == "sweep" for course in at.courses)
        courses = tuple(course.after_pass(self.method, self.prior, record) for course in at.courses)
        self.at = At(courses, at.sweep + int(sweeps), rows=at.position, seconds=at.seconds)
        self.save()

    def told(self, start: int, seconds: float, ended: bool) -> Told:
        """How far this pass is."""
        busy = [course for course in self.at.courses if course.stage != "done"]
        stage = "sweep" if any(course.stage == "sweep" for course in busy) else "measure"
        mismatch = max(float(course.tally.met.largest) for course in busy)
        speed = (self.at.position - start) / max(seconds, 1e-9)
        sweep = self.at.sweep + (stage == "sweep")
        return Told(stage, sweep, self.at.position, self.at.rows, mismatch, speed, ended)


def without_site(rows: Rows) -> float:
    """Log likelihood of the rows whose latent is 0 whatever the weights."""
    (fixed,) = np.nonzero(rows.left_out)
    return float(rows.left_out[fixed] @ at_zero(rows.term, rows.data)[fixed]) if fixed.size else 0.0
