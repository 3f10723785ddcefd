"""Where the sites of a stream are kept: three numbers per row and model, (ν, τ, log s), in memory or in two files.

A sweep reads what the sweep before left and writes its own. With files it never writes into what it reads: whatever
has been written since the last checkpoint, the file that the checkpoint goes on from is whole.
"""

import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cavity.storage import StorageError

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
