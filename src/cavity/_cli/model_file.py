"""The model file of the command line: an estimator's own file, with the recipe for its columns in the same header.

`cavity.load` reads it as well and gives the estimator, which then takes the matrix that the recipe makes.
"""

import tempfile
from pathlib import Path
from typing import Any

from cavity import _storage
from cavity._cli.preprocessing import Recipe
from cavity._storage import StorageError
from cavity.estimators import load

#: where the recipe is in the header
TABLE = "table"


def save_model(path: Path, estimator: Any, recipe: Recipe) -> None:
    """Write both to one file, complete or not at all."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "estimator"
        estimator.save(plain)
        kind, header, arrays = _storage.load(plain)
    _storage.save(path, kind, {**header, TABLE: recipe.header()}, arrays)


def load_model(path: Path) -> tuple[Any, Recipe]:
    """The estimator and its recipe, from a file that `save_model` wrote."""
    _, header, _ = _storage.load(path)
    if TABLE not in header:
        raise StorageError(f"{path} does not say what its columns are: it was not written by `cavity fit`.")
    try:
        recipe = Recipe.from_header(header[TABLE])
    except StorageError as error:
        raise StorageError(f"{path} is damaged: {error}") from None
    estimator = load(path)
    if not hasattr(estimator, "classes_") or estimator.n_features_in_ != len(recipe.features):
        raise StorageError(f"{path} is damaged: its columns do not fit its estimator.")
    return estimator, recipe
