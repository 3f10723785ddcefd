"""Files: arrays with a JSON header (what estimators, operators and checkpoints are saved as), and strict CSV tables."""

from cavity._storage.npz import StorageError, load, save

__all__ = ["StorageError", "load", "save"]
