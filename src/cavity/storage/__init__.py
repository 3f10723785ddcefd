"""Arrays and a JSON header in one file: what estimators, operators and checkpoints are saved as."""

from cavity.storage.format import StorageError
from cavity.storage.reading import load
from cavity.storage.writing import save

__all__ = ["StorageError", "load", "save"]
