"""What is kept of a stream: sites in memory or in files, and checkpoints of how far it is and what q is made of.

Sites are three numbers per row and model, (ν, τ, log s). A sweep reads what the sweep before left and writes its own.
With files it never writes into what it reads: whatever has been written since the last checkpoint, the file that the
checkpoint goes on from is whole.
"""

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity import _storage
from cavity._storage import StorageError
from cavity.factors.base import Factor
from cavity.inference.status import Status
from cavity.inference.update_rule import UpdateRule
from cavity.models.streaming._chunks import Chunk
from cavity.models.streaming._shard import NaturalSums, PassState

#: numbers kept of a site, and bytes of the checksum of a chunk of them
NUMBERS, CHECKSUM = 3, 8


class SitesInMemory:
    """One array per chunk, replaced by every sweep; `sweep` is the number of the one that reads or writes, from 0."""

    def __init__(self, models: int) -> None:
        self.models = models
        self.parts: list[np.ndarray] = []

    def read(self, sweep: int, number: int, rows: int) -> np.ndarray:
        """What the sweep before left of a chunk, (rows, models, 3); zeros, the flat site, for the first."""
        return self.parts[number] if sweep else np.zeros((rows, self.models, NUMBERS))

    def write(self, sweep: int, number: int, sites: np.ndarray) -> None:
        """What this sweep leaves of a chunk."""
        self.parts[number : number + 1] = [sites]

    def sync(self) -> None:
        """Returns when what was written would survive the end of the process and of the machine, where it can."""

    def close(self) -> None:
        """Nothing is read or written any more."""


class SitesInFiles:
    """The same in two files beside a checkpoint, written in turns by plain reads and writes, which take no memory.

    Behind the sites of a chunk is a checksum of them that only this sweep of this run has.
    """

    def __init__(self, checkpoint: Path, models: int, chunk: int, own: dict[str, Any]) -> None:
        self.models, self.chunk, self.key = models, chunk, zlib.crc32(json.dumps(own).encode())
        self.paths = [checkpoint.with_name(f"{checkpoint.name}.sites{number}") for number in range(2)]
        self.files: list[FileIO] = []
        for path in self.paths:
            with refused_writes(path):
                self.files.append(FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+"))

    def place(self, number: int) -> int:
        """Where a chunk begins in its file."""
        return number * (8 * self.chunk * self.models * NUMBERS + CHECKSUM)

    def checksum(self, sweep: int, number: int, data: bytes) -> bytes:
        """Of the sites of a chunk that sweep `sweep` reads."""
        return zlib.crc32(data, zlib.crc32(b"%d %d" % (sweep, number), self.key)).to_bytes(CHECKSUM, "little")

    def read(self, sweep: int, number: int, rows: int) -> np.ndarray:
        shape = (rows, self.models, NUMBERS)
        if not sweep:
            return np.zeros(shape)
        path, file, length = self.paths[sweep % 2], self.files[sweep % 2], 8 * rows * self.models * NUMBERS
        try:
            file.seek(self.place(number))
            data = file.read(length + CHECKSUM)
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror or error}.") from error
        if len(data) < length + CHECKSUM:
            raise StorageError(f"{path} is damaged: it ends before the sites of chunk {number}.")
        if self.checksum(sweep, number, data[:length]) != data[length:]:
            raise StorageError(f"{path} is damaged: the sites of chunk {number} are not those that were written.")
        return np.frombuffer(data[:length], "<f8").reshape(shape)

    def write(self, sweep: int, number: int, sites: np.ndarray) -> None:
        data = np.ascontiguousarray(sites, "<f8").tobytes()
        data += self.checksum(sweep + 1, number, data)
        path, file = self.paths[(sweep + 1) % 2], self.files[(sweep + 1) % 2]
        with refused_writes(path):
            file.seek(self.place(number))
            while data:  # what does not fit is an error of the next attempt
                data = data[file.write(data) :]

    def sync(self) -> None:
        for path, file in zip(self.paths, self.files, strict=True):
            with refused_writes(path):
                os.fsync(file.fileno())

    def close(self) -> None:
        for file in self.files:
            file.close()


@contextlib.contextmanager
def refused_writes(path: Path) -> Iterator[None]:
    """A block whose failures to write to a file are one sentence."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}.") from error


SiteStore = SitesInMemory | SitesInFiles


KIND = "stream"
#: fields of a `PassState` that a header can hold as they are
PLAIN = ("stage", "constant", "sequential")
#: what a model does in a pass
STAGES = ("sweep", "measure", "done")
#: what a run's progress is made of
PROGRESS = {"sweep", "position", "rows", "seconds", "resumed"}


def fingerprint(first: Chunk, size: int, factor: Factor, prior: NaturalSums, method: UpdateRule) -> dict[str, Any]:
    """What a run must share with a checkpoint to go on from it, by name.

    Tolerance and the number of sweeps are left out: more of them may be asked for when a run goes on.
    """
    leaves = [np.asarray(leaf, float).tolist() for leaf in jax.tree.leaves(factor)]
    schedule = None if method.schedule is None else repr(method.schedule)
    return {
        "columns": first.X.shape[1],
        "models": len(first.y),
        "likelihood": [type(factor).__name__, leaves],
        "prior": digest(prior.shift, prior.precision),
        "method": [method.single_pass, method.power, float(method.damping), repr(method.projection), schedule],
        "chunk": size,
        "first rows": first.checksum(),
    }


def digest(*arrays: Any) -> str:
    """A name for the contents of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array, "<f8").tobytes())
    return found.hexdigest()


def write(
    path: Path, own: dict[str, Any], progress: dict[str, Any], checksums: list[int], states: tuple[PassState, ...]
) -> None:
    """Write a checkpoint, complete or not at all."""
    arrays: dict[str, Any] = {"checksums": np.asarray(checksums, np.uint64)}
    models = []
    for number, state in enumerate(states):
        leaves = [*jax.tree.leaves(state.totals), state.residuals]
        arrays |= {f"model{number}/{place}": np.asarray(leaf) for place, leaf in enumerate(leaves)}
        texts = {"mismatch": repr(state.mismatch), "status": str(state.status), "history": list(state.history)}
        models.append({name: getattr(state, name) for name in PLAIN} | texts)
    _storage.save(path, KIND, {"fingerprint": own, "progress": progress, "models": models}, arrays)


def read(
    path: Path, own: dict[str, Any], blank: tuple[PassState, ...]
) -> tuple[dict[str, Any], list[int], tuple[PassState, ...]]:
    """What `write` wrote, if it belongs to a run with this fingerprint: progress, checksums and states.

    blank: the states before the first row, like which those in the file must be.
    """
    kind, header, arrays = _storage.load(path)
    if kind != KIND:
        raise StorageError(f"{path} holds {kind!r}, which is not the checkpoint of a stream.")
    try:
        theirs = header["fingerprint"]
        odd = [name for name in own if json.dumps(theirs[name]) != json.dumps(own[name])]
    except (KeyError, TypeError) as error:
        raise StorageError(f"{path} is damaged: it does not describe a stream ({error!r}).") from None
    if odd:
        raise StorageError(f"{path} belongs to another run: it differs in {', '.join(odd)}.")
    try:
        checksums, pairs = arrays["checksums"], zip(header["models"], blank, strict=True)
        states = tuple(read_state(model, number, arrays, state) for number, (model, state) in enumerate(pairs))
        progress = header["progress"]
        position, seconds = progress["position"], progress["seconds"]
        counts = [progress["sweep"], position, progress["rows"] or 0, *progress["resumed"]]
        known = position if progress["rows"] is None else progress["rows"]
        require(set(progress) == PROGRESS and type(seconds) is float, "progress")
        require(all(type(count) is int and count >= 0 for count in counts) and position <= known, "progress")
        require(checksums.dtype == np.uint64 and checksums.shape == (-(-known // own["chunk"]),), "checksums")
        require(all(state.sweeps <= progress["sweep"] for state in states), "sweep")
        return progress, checksums.tolist(), states
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"{path} is damaged: it does not describe a stream ({error!r}).") from None


def read_state(model: dict[str, Any], number: int, arrays: dict[str, np.ndarray], blank: PassState) -> PassState:
    """The state of one model, of the same types and shapes as the blank one."""
    plain, history = {name: model[name] for name in PLAIN}, model["history"]
    for name, value in plain.items():
        require(type(value) is type(getattr(blank, name)), name)
    require(plain["stage"] in STAGES and type(history) is list, "stage or history")
    expected, structure = jax.tree.flatten(blank.totals)
    *leaves, residuals = (arrays[f"model{number}/{place}"] for place in range(len(expected) + 1))
    for leaf, like in zip(leaves, expected, strict=True):
        require(leaf.shape == np.shape(like) and leaf.dtype == np.asarray(like).dtype, "totals")
    require(residuals.ndim == 1 and residuals.dtype == np.float64, "residuals")
    return PassState(
        structure.unflatten(jnp.asarray(leaf) for leaf in leaves),
        residuals=tuple(residuals.tolist()),
        mismatch=float(model["mismatch"]),
        status=Status(model["status"]),
        history=tuple(history),
        **plain,
    )


def require(holds: bool, what: str) -> None:
    """Refuse a file in which something is not as `write` writes it."""
    if not holds:
        raise ValueError(what)
