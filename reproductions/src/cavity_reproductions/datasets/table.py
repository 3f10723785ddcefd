"""A strict reader of labelled CSV files: a bad cell is named by its line and column."""

import csv
import math
from pathlib import Path

import numpy as np

LABEL = "label"


def read_csv(path: Path) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Names of the features, features, labels −1 and +1.

    Args:
        path: a file with a row of names, features first, the last column named `label`.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            columns = check_names(next(reader, []), path)
            rows = [read_row(cells, columns, f"{path}, line {reader.line_num}") for cells in reader]
    except UnicodeDecodeError:
        raise ValueError(f"{path} must be text in UTF-8.") from None
    except csv.Error as error:
        raise ValueError(f"{path} must be a CSV file: {error}.") from None
    if not rows:
        raise ValueError(f"{path} must have rows below its names; found none.")
    table = np.asarray(rows, np.float64)
    return columns[:-1], table[:, :-1], table[:, -1].astype(np.int64)


def check_names(names: list[str], path: Path) -> tuple[str, ...]:
    """At least one feature, `label` last, no name twice."""
    columns = tuple(name.strip() for name in names)
    if len(columns) < 2 or columns[-1] != LABEL:
        raise ValueError(f"{path} must begin with a row of names, the last of them {LABEL!r}; found {names}.")
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path} must name each column once; found {twice!r} twice.")
    return columns


def read_row(cells: list[str], columns: tuple[str, ...], place: str) -> list[float]:
    """One row of finite numbers, the last of them −1 or 1."""
    if len(cells) != len(columns):
        raise ValueError(f"{place} must have {len(columns)} cells; found {len(cells)}.")
    row = []
    for cell, column in zip(cells, columns, strict=True):
        try:
            value = float(cell.replace("_", " "))  # Python would read 1_0 as 10
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"{place}, column {column!r} must be a finite number; found {cell!r}.")
        row.append(value)
    if row[-1] not in (-1.0, 1.0):
        raise ValueError(f"{place}, column {LABEL!r} must be -1 or 1; found {cells[-1]!r}.")
    return row
