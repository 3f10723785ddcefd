"""What is kept of a stream: sites in memory or in files, and checkpoints of how far it is and what q is made of.

Sites are three numbers per row and model, (ν, τ, log s). A sweep reads what the sweep before left and writes its own.
With files it never writes into what it reads: whatever has been written since the last checkpoint, the file that the
checkpoint goes on from is whole.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

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

#: numbers kept of a site
NUMBERS = 3


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
    """The same in two files beside a checkpoint, written in turns by plain reads and writes, which take no memory."""

    def __init__(self, checkpoint: Path, models: int, chunk: int) -> None:
        self.models, self.chunk = models, chunk
        self.paths = [checkpoint.with_name(f"{checkpoint.name}.sites{number}") for number in range(2)]
        self.files: list[BinaryIO] = []
        for path in self.paths:
            try:
                self.files.append(os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b"))
            except OSError as error:
                raise StorageError(f"{path} cannot be written: {error.strerror or error}.") from None

    def read(self, sweep: int, number: int, rows: int) -> np.ndarray:
        shape = (rows, self.models, NUMBERS)
        if not sweep:
            return np.zeros(shape)
        file = self.files[sweep % 2]
        file.seek(8 * number * self.chunk * self.models * NUMBERS)
        data = file.read(8 * rows * self.models * NUMBERS)
        if len(data) < 8 * rows * self.models * NUMBERS:
            raise StorageError(f"{self.paths[sweep % 2]} is damaged: it ends before the sites of chunk {number}.")
        sites = np.frombuffer(data, "<f8").reshape(shape)
        if not np.isfinite(sites).all():
            raise StorageError(f"{self.paths[sweep % 2]} is damaged: not all sites of chunk {number} are finite.")
        return sites

    def write(self, sweep: int, number: int, sites: np.ndarray) -> None:
        file = self.files[(sweep + 1) % 2]
        file.seek(8 * number * self.chunk * self.models * NUMBERS)
        file.write(np.ascontiguousarray(sites, "<f8").tobytes())

    def sync(self) -> None:
        for file in self.files:
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        for file in self.files:
            file.close()


SiteStore = SitesInMemory | SitesInFiles


KIND = "stream"
#: fields of a `PassState` that a header can hold as they are
PLAIN = ("stage", "constant", "sequential")
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
        "first rows": digest(first.X, first.y, first.weights),
    }


def digest(*arrays: Any) -> str:
    """A name for the contents of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array, "<f8").tobytes())
    return found.hexdigest()


def write(
    path: Path, own: dict[str, Any], progress: dict[str, Any], checksums: list[float], states: tuple[PassState, ...]
) -> None:
    """Write a checkpoint, complete or not at all."""
    arrays: dict[str, Any] = {"checksums": np.asarray(checksums, float)}
    models = []
    for number, state in enumerate(states):
        leaves = [*jax.tree.leaves(state.totals), state.residuals]
        arrays |= {f"model{number}/{place}": np.asarray(leaf) for place, leaf in enumerate(leaves)}
        texts = {"mismatch": repr(state.mismatch), "status": str(state.status), "history": list(state.history)}
        models.append({name: getattr(state, name) for name in PLAIN} | texts)
    _storage.save(path, KIND, {"fingerprint": own, "progress": progress, "models": models}, arrays)


def read(path: Path, own: dict[str, Any]) -> tuple[dict[str, Any], list[float], tuple[PassState, ...]]:
    """What `write` wrote, if it belongs to a run with this fingerprint: progress, checksums and states."""
    kind, header, arrays = _storage.load(path)
    if kind != KIND:
        raise StorageError(f"{path} holds {kind!r}, which is not the checkpoint of a stream.")
    try:
        theirs = header["fingerprint"]
        odd = [name for name in own if json.dumps(theirs[name]) != json.dumps(own[name])]
        if odd:
            raise StorageError(f"{path} belongs to another run: it differs in {', '.join(odd)}.")
        states = []
        structure = jax.tree.structure(PassState.initial(NaturalSums.zero(1)).totals)
        for number, model in enumerate(header["models"]):
            *leaves, residuals = (arrays[f"model{number}/{place}"] for place in range(structure.num_leaves + 1))
            plain = {name: model[name] for name in PLAIN}
            states.append(
                PassState(
                    structure.unflatten(jnp.asarray(leaf) for leaf in leaves),
                    residuals=tuple(residuals.tolist()),
                    mismatch=float(model["mismatch"]),
                    status=Status(model["status"]),
                    history=tuple(model["history"]),
                    **plain,
                )
            )
        progress = header["progress"]
        counts = [progress["sweep"], progress["position"], progress["rows"] or 0, *progress["resumed"]]
        if set(progress) != PROGRESS or not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError(f"progress {progress}")
        return progress, arrays["checksums"].tolist(), tuple(states)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{path} is damaged: it does not describe a stream ({error}).") from None
