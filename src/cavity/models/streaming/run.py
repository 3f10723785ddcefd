"""A run over a stream: passes over chunks, checkpoints by the clock and after every pass, the end."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from cavity._storage import StorageError
from cavity.factors.base import Factor
from cavity.inference.update_rule import UpdateRule
from cavity.models._latent_gaussian.linear_model import LinearRows
from cavity.models._latent_gaussian.rows import bucket, padded_with_zeros
from cavity.models.streaming import _checkpoint
from cavity.models.streaming._checkpoint import SitesInFiles, SitesInMemory, SiteStore
from cavity.models.streaming._chunks import Chunk, ChunkReader
from cavity.models.streaming._shard import (
    NaturalSums,
    PassState,
    constant_log_likelihood,
    measure_chunk,
    shard_problem,
    sweep_chunk,
)

#: seconds between two reports of how far a pass is
REPORT_EVERY = 10.0


class StreamProgress(NamedTuple):
    """How far a run is.

    Attributes:
        stage: "sweep" or "measure".
        sweep: number of the sweep, from 1; while measuring, sweeps made.
        rows: read in this pass.
        total: rows of a whole pass, once known.
        mismatch: the largest met in this pass.
        speed: rows per second of this pass.
        ended: whether the pass is over.

    Examples:
        >>> import cavity as cv
        >>> import numpy as np
        >>> from cavity.models.streaming import stream_linear_models
        >>> heard, rows = [], (np.array([[1.0], [2.0], [-1.0]]), np.array([1.0, 1.0, -1.0]))
        >>> _ = stream_linear_models(rows, factor=cv.factors.Probit(), callback=heard.append)
        >>> heard[0].stage, heard[0].sweep, heard[0].rows, heard[-1].stage
        ('sweep', 1, 3, 'measure')
    """

    stage: str
    sweep: int
    rows: int
    total: int | None
    mismatch: float
    speed: float
    ended: bool


class Cursor(NamedTuple):
    """Where a run is, replaced as a whole when a chunk is done: whatever interrupts a run finds what fits together.

    sweep: sweeps that are over. position: rows done of the present pass. rows: of a whole pass, None in the first.
    resumed: positions from which this pass was taken up again.
    """

    states: tuple[PassState, ...]
    sweep: int = 0
    position: int = 0
    rows: int | None = None
    seconds: float = 0.0
    resumed: tuple[int, ...] = ()


class ChunkVisit(NamedTuple):
    """The outcome of a chunk, perhaps still being computed. new: sites by model; old: those of all before."""

    number: int
    position: int
    states: tuple[PassState, ...]
    old: np.ndarray
    new: dict[int, jax.Array]


@dataclasses.dataclass(frozen=True)
class CheckpointOptions:
    """path: of the checkpoint. every: seconds between two. resumes: whether the run goes on from it."""

    path: Path
    every: float
    resumes: bool


class StreamRun:
    """One run over the rows of a reader, with `d` features, of which `first` is the first chunk.

    before, began, reported: where and when the present pass began, and when its progress was last reported.
    saved, kept: when, and where the run was, when the last checkpoint was written.
    """

    def __init__(
        self,
        reader: ChunkReader,
        first: Chunk,
        factor: Factor,
        prior: NaturalSums,
        method: UpdateRule,
        callback: Callable[[StreamProgress], Any] | None,
    ) -> None:
        self.reader, self.factor, self.prior, self.method = reader, factor, prior, method
        self.d, self.padded = first.X.shape[1], bucket(len(first.X))
        self.compiled, self.key = method.as_compiled(), jax.random.key(0)
        self.cursor = Cursor((PassState.initial(prior),) * len(first.y))
        self.store: SiteStore = SitesInMemory(len(first.y))
        self.checksums: list[int] = []
        self.fingerprint = _checkpoint.fingerprint(first, reader.size, factor, prior, method)
        self.options: CheckpointOptions | None = None
        self.callback, self.interrupted = callback, False
        self.before = self.cursor
        self.kept: Cursor | None = None
        self.saved = self.began = self.reported = time.perf_counter()

    def use_checkpoint(self, options: CheckpointOptions) -> None:
        """Write checkpoints to a file, after going on from it where that is asked for."""
        if options.resumes:
            progress, self.checksums, states = _checkpoint.read(options.path, self.fingerprint, self.cursor.states)
            cursor = Cursor(tuple(state.reopened(self.method) for state in states), **progress)
            again = [cursor.position] if cursor.position else []
            self.cursor = self.kept = cursor._replace(resumed=(*cursor.resumed, *again))
        elif options.path.exists():
            raise ValueError(f"checkpoint: {options.path} is there already; go on from it with resume=, or remove it.")
        self.store = SitesInFiles(options.path, len(self.cursor.states), self.reader.size, self.fingerprint)
        self.options = options

    def save(self) -> None:
        """A checkpoint, after what it rests on."""
        if self.options is None:
            return
        self.store.sync()
        progress = {**self.cursor._asdict(), "resumed": list(self.cursor.resumed)}
        states = progress.pop("states")
        _checkpoint.write(self.options.path, self.fingerprint, progress, self.checksums, states)
        self.saved, self.kept = time.perf_counter(), self.cursor

    def run(self) -> None:
        """Passes until all models have ended; what ends them early, an error too, leaves a checkpoint."""
        try:
            while any(state.stage != "done" for state in self.cursor.states):
                self.one_pass()
        except KeyboardInterrupt:
            if not self.cursor.position and not self.cursor.sweep:
                raise  # nothing has been learned that could be handed back
            self.interrupted = True
            self.save()
        except BaseException as error:
            # Of files that could not be written or read the last checkpoint is what there is.
            if not isinstance(error, StorageError):
                self.save()
            if self.kept is not None and self.options is not None:
                sweep, position = self.kept.sweep + 1, self.kept.position
                error.add_note(f"{self.options.path} holds all before row {position} of pass {sweep}, for resume=.")
            raise
        finally:
            self.store.close()

    def one_pass(self) -> None:
        """Read the rows that are left of a pass."""
        self.before, self.began = self.cursor, time.perf_counter()
        self.reported = self.began
        chunks = self.reader.chunks(self.before.position)
        chunk = next(chunks, None)
        while chunk is not None:
            self.check_rows(chunk)
            visit = self.visit_chunk(chunk)
            try:
                # Read and prepared while this one is computed; where that fails, this one is still done.
                chunk = next(chunks, None)
            finally:
                self.finish_chunk(visit)
        last = self.progress(ended=True)
        self.end_pass()
        if self.callback is not None:
            self.callback(last)

    def visit_chunk(self, chunk: Chunk) -> ChunkVisit:
        """Every model sweeps over a chunk or measures it."""
        cursor, length = self.cursor, len(chunk.X)
        start = chunk.number * self.reader.size
        old = self.store.read(cursor.sweep, chunk.number, length)
        new: dict[int, jax.Array] = {}
        states = list(cursor.states)
        for number, state in enumerate(cursor.states):
            if state.stage == "done":
                continue
            rows = LinearRows.of(chunk.X, chunk.data(number), self.factor, chunk.weights, self.padded)
            schedule = state.schedule(self.method, start if cursor.rows is None else cursor.rows, self.d)
            method = dataclasses.replace(self.compiled, schedule=schedule)
            key = jax.random.fold_in(self.key, chunk.number) if schedule.random else self.key
            known = (shard_problem(rows), method, state.totals, padded_with_zeros(old[:, number], self.padded))
            if state.stage == "measure":
                totals = measure_chunk(*known, key)
            else:
                totals, new[number] = sweep_chunk(*known, np.asarray(cursor.sweep), key)
            constant = state.constant + (constant_log_likelihood(rows) if cursor.rows is None else 0.0)
            states[number] = dataclasses.replace(state, totals=totals, constant=constant)
        return ChunkVisit(chunk.number, start + length, tuple(states), old, new)

    def finish_chunk(self, visit: ChunkVisit) -> None:
        """A chunk is done: its sites are kept, and the run is behind it."""
        if visit.new:
            sites = visit.old.copy()
            for number, new in visit.new.items():
                sites[:, number] = np.asarray(new)[: len(sites)]
            self.store.write(self.cursor.sweep, visit.number, sites)
        now = time.perf_counter()
        seconds = self.before.seconds + now - self.began
        self.cursor = self.cursor._replace(states=visit.states, position=visit.position, seconds=seconds)
        if self.callback is not None and now - self.reported >= REPORT_EVERY:
            self.callback(self.progress(ended=False))
            self.reported = now
        if self.options is not None and now - self.saved >= self.options.every:
            self.save()

    def check_rows(self, chunk: Chunk) -> None:
        """Refuse rows that are not those of the first pass."""
        found, number = chunk.checksum(), chunk.number
        if number == len(self.checksums) and self.cursor.rows is None:
            self.checksums.append(found)
        if number >= len(self.checksums) or found != self.checksums[number]:
            first = number * self.reader.size
            raise ValueError(
                "batches must give the same rows in the same order every time; "
                f"some of the rows {first} to {first + len(chunk.X) - 1} were not in the first pass."
            )

    def end_pass(self) -> None:
        """All rows have been read: what each model does next."""
        cursor = self.cursor
        if cursor.rows is not None and cursor.position != cursor.rows:
            raise ValueError(f"batches must give the same rows every time; found {cursor.position} of {cursor.rows}.")
        record = {"rows": cursor.position, "resumed": list(cursor.resumed)}
        sweeps = any(state.stage == "sweep" for state in cursor.states)
        states = tuple(state.after_pass(self.method, self.prior, record) for state in cursor.states)
        self.cursor = Cursor(states, cursor.sweep + int(sweeps), rows=cursor.position, seconds=cursor.seconds)
        self.save()

    def progress(self, ended: bool) -> StreamProgress:
        """How far this pass is."""
        cursor = self.cursor
        busy = [state for state in cursor.states if state.stage != "done"]
        stage = "sweep" if any(state.stage == "sweep" for state in busy) else "measure"
        mismatch = max(float(state.totals.counts.largest) for state in busy)
        speed = (cursor.position - self.before.position) / max(time.perf_counter() - self.began, 1e-9)
        sweep = cursor.sweep + (stage == "sweep")
        return StreamProgress(stage, sweep, cursor.position, cursor.rows, mismatch, speed, ended)
