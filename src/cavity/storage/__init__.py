"""Files: arrays with a JSON header (what estimators, operators and checkpoints are saved as), and strict CSV tables."""

from cavity.storage.format import StorageError
from cavity.storage.reading import load
from cavity.storage.writing import save

__all__ = ["StorageError", "load", "save"]
