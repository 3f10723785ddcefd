"""Loading a data set by name."""

import difflib
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sklearn.datasets

from cavity._storage.csv_table import Sheet, read_sheet
from cavity_reproductions.datasets.catalogue import BUNDLED, CLASSIFICATION, DIGITS_3_VS_5, Entry

#: the environment variable that names the folder looked into first.
FOLDER = "CAVITY_DATA"
#: the last column of a file
LABEL = "label"


class Dataset(NamedTuple):
    """Features in original units and labels, neither scaled nor shuffled."""

    X: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]
    name: str
    source: str


def names() -> tuple[str, ...]:
    """All names `load` knows."""
    return tuple(sorted((*CLASSIFICATION, *BUNDLED, DIGITS_3_VS_5)))


def load(name: str) -> Dataset:
    """A data set by name.

    A two-class set is read from `<name>.csv` in the folder named by the environment variable CAVITY_DATA (a row of
    names, features first, the last column `label` with −1 and +1); where that file is missing it is fetched from
    OpenML. Its labels are −1 and +1. The sets that come with scikit-learn need neither.

    Args:
        name: one of `names()`.

    Returns:
        The features in original units and the labels, neither scaled nor shuffled.

    Raises:
        ValueError: no data set has this name, or its file holds what is no table of numbers and labels.
        FileNotFoundError: CAVITY_DATA names no folder, or a set that is not on OpenML is not there.
        ConnectionError: OpenML does not answer.

    Examples:
        >>> from cavity_reproductions import datasets
        >>> wine = datasets.load("wine")
        >>> wine.X.shape, wine.feature_names[0]
        ((178, 13), 'alcohol')
    """
    if name in CLASSIFICATION:
        path = local_file(name)
        if path is None:
            return from_openml(name, CLASSIFICATION[name])
        columns, X, y = read_labelled(path)
        return Dataset(X, y, columns, name, str(path))
    if name in BUNDLED or name == DIGITS_3_VS_5:
        return from_scikit_learn(name)
    near = difflib.get_close_matches(str(name).lower(), names(), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(names())}."
    raise ValueError(f"name must be a known data set; found {name!r}; {hint}")


def local_file(name: str) -> Path | None:
    """The file in the user's folder, if there are both."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"{FOLDER} must name a folder; found {folder!r}.")
    path = Path(folder) / f"{name}.csv"
    return path if path.is_file() else None


def read_labelled(path: Path) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Names of the features, features, and labels −1 and +1 of a CSV file whose last column is named `label`.

    Args:
        path: the file, with a row of names.

    Raises:
        ValueError: if a cell is not a finite number or a label is not −1 or +1; its row and column are named.
    """
    sheet = read_sheet(path)
    if sheet.columns[-1] != LABEL:
        raise ValueError(f"{path} must name its columns, the last of them {LABEL!r}; found {list(sheet.columns)}.")
    table = np.array(
        [[finite_number(sheet, row, column) for column in sheet.columns] for row in range(len(sheet.rows))]
    )
    wrong = np.flatnonzero(np.abs(table[:, -1]) != 1)
    if wrong.size:
        found = sheet.rows[wrong[0]][-1]
        raise ValueError(f"{sheet.place(int(wrong[0]), LABEL)} must be -1 or 1; found {found!r}.")
    return sheet.columns[:-1], table[:, :-1], table[:, -1].astype(np.int64)


def finite_number(sheet: Sheet, row: int, column: str) -> float:
    """A cell as a finite number."""
    cell = sheet.rows[row][sheet.columns.index(column)]
    try:
        value = float(cell.replace("_", " "))  # Python would read 1_0 as 10
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{sheet.place(row, column)} must be a finite number; found {cell!r}.")
    return value


def from_scikit_learn(name: str) -> Dataset:
    """One of scikit-learn's bundled sets, or the 3s and 5s of its digits."""
    stem = "digits" if name == DIGITS_3_VS_5 else name
    bunch: Any = getattr(sklearn.datasets, f"load_{stem}")()
    X, y = np.asarray(bunch.data, np.float64), np.asarray(bunch.target, np.int64)
    if name == DIGITS_3_VS_5:
        chosen = (y == 3) | (y == 5)
        X, y = X[chosen], np.where(y[chosen] == 3, 1, -1)
    columns = tuple(str(column) for column in bunch.feature_names)
    return Dataset(X, y, columns, name, f"sklearn.datasets.load_{stem}")


def from_openml(name: str, entry: Entry) -> Dataset:
    """A set fetched from OpenML, its labels recoded, if it has the sizes it should have."""
    if entry.openml is None:
        raise FileNotFoundError(
            f"{name} ({entry.title}) is not on OpenML: put {name}.csv into a folder and name it in {FOLDER}."
        )
    place = entry.openml
    wanted: dict[str, Any] = {"name": place.name, "version": 1} if place.data_id is None else {"data_id": place.data_id}
    try:
        bunch: Any = sklearn.datasets.fetch_openml(**wanted, as_frame=False, parser="liac-arff")
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"{name} could not be fetched from OpenML as {place.name} ({error}): "
            f"put {name}.csv into a folder and name it in {FOLDER}."
        ) from error
    labels = np.asarray([str(label).strip("'\" ") for label in bunch.target])
    known = (*place.negative, *place.positive)
    if not np.isin(labels, known).all():
        strange = str(labels[~np.isin(labels, known)][0])
        raise ValueError(f"{name} from OpenML must have the labels {', '.join(known)}; found {strange!r}.")
    y = np.where(np.isin(labels, place.positive), 1, -1)
    columns = tuple(str(column) for column in bunch.feature_names)
    X = numeric(bunch, columns)
    found, expected = (*X.shape, int(np.sum(y == 1))), (entry.rows, entry.features, entry.positives)
    if found != expected:
        raise ValueError(
            f"{name} from OpenML must have {expected[0]} rows, {expected[1]} features and {expected[2]} labels +1; "
            f"found {found[0]}, {found[1]} and {found[2]}."
        )
    return Dataset(X, y, columns, name, f"OpenML {place.name} ({bunch.url})")


def numeric(bunch: Any, columns: tuple[str, ...]) -> np.ndarray:
    """The features as numbers. OpenML calls some of them categories, which arrive as positions in a list of texts."""
    X = np.array(bunch.data, np.float64)
    if not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0]
        raise ValueError(f"a data set from OpenML must have no missing cells; found one in row {row}, column {column}.")
    for column, feature in enumerate(columns):
        if feature in (bunch.categories or {}):
            values = np.asarray([float(text) for text in bunch.categories[feature]])
            X[:, column] = values[X[:, column].astype(int)]
    return X
