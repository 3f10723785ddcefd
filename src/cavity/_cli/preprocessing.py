"""From the columns of a CSV file to the numbers a model sees, learned from one file and applied to others."""

import math
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity._core import checks
from cavity._storage import StorageError
from cavity._storage.csv_table import Sheet, is_nothing, read_sheet

#: what may be done about missing values
MISSING = ("error", "drop", "mean")
#: what may be done about a level that was not there in training
UNSEEN = ("error", "zero")
#: a cell so many times as far from the median as others are is pointed out
FAR = 1e4
#: more labels than this are no classes
MOST_CLASSES = 50


class NumberColumn(NamedTuple):
    """x becomes (x − shift) / scale. fill: the mean, for missing values."""

    name: str
    fill: float
    shift: float
    scale: float


class CategoryColumn(NamedTuple):
    """A level becomes a column of 0 and 1, not scaled. shares: how often each level was there, for missing values."""

    name: str
    levels: tuple[str, ...]
    shares: tuple[float, ...]


class Recipe(NamedTuple):
    """How the columns of a file become a matrix, in this order; `missing` is one of `MISSING`."""

    label: str
    columns: tuple[NumberColumn | CategoryColumn, ...]
    missing: str

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the file that are looked at."""
        return tuple(column.name for column in self.columns)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of the matrix."""
        found: list[str] = []
        for column in self.columns:
            levels = column.levels if isinstance(column, CategoryColumn) else None
            found += [column.name] if levels is None else [f"{column.name}={level}" for level in levels]
        return tuple(found)

    def matrix(self, sheet: Sheet, unseen: str = "error") -> np.ndarray:
        """The rows of a file that has these columns, in any order and among others."""
        lacking = [name for name in self.names if name not in sheet.columns]
        if lacking:
            names = ", ".join(repr(name) for name in lacking)
            raise ValueError(f"{sheet.source} lacks columns the model was fitted to: {names}.")
        return np.column_stack([encoded(sheet, column, self.missing, unseen) for column in self.columns])

    def header(self) -> dict[str, Any]:
        """The recipe as values that JSON can hold."""
        columns = []
        for column in self.columns:
            fields = {key: list(own) if isinstance(own, tuple) else own for key, own in column._asdict().items()}
            columns.append({"kind": type(column).__name__, **fields})
        return {"label": self.label, "missing": self.missing, "columns": columns}

    @classmethod
    def from_header(cls, header: Any) -> "Recipe":
        """The recipe that `header` wrote."""
        try:
            columns = tuple(column_from(entry) for entry in header["columns"])
            return cls(str(header["label"]), columns, checks.choice("missing", header["missing"], MISSING))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise StorageError(f"the columns in the model file cannot be read ({error}).") from None


class Reading(NamedTuple):
    """How a labelled file is read, as the options of the commands say it."""

    label: str
    categorical: list[str] | None
    ignore: list[str] | None
    missing: str
    standardize: bool
    separator: str


def read_labelled(data: Path, reading: Reading) -> tuple[Recipe, Sheet, np.ndarray, np.ndarray, list[str]]:
    """A labelled file, read and turned into numbers.

    Returns:
        The recipe, the rows that take part, their matrix, their labels, and what a user should know about the others.
    """
    label, categorical, ignored, missing, standardize, separator = reading
    checks.choice("--missing", missing, MISSING)
    sheet = read_sheet(data, separator)
    names = tuple(categorical or ()), tuple(ignored or ())
    recipe, kept = learn_preprocessing(sheet, label, *names, missing, standardize)
    y = labels(kept, label)
    notes = sheet.notes()
    if dropped := len(sheet.rows) - len(kept.rows):
        notes.append(f"Rows left out for missing values: {dropped}.")
    respelled = sorted(set(kept.column(label)) - set(y.tolist()))
    if respelled:
        words = ", ".join(repr(name) for name in respelled)
        notes.append(f"Labels that are the same number are one class; other spellings were: {words}.")
    notes += class_notes(y) + [note for column in recipe.columns for note in column_notes(kept, column, missing)]
    return recipe, kept, recipe.matrix(kept), y, notes


def class_notes(y: np.ndarray) -> list[str]:
    """Which classes differ in nothing but case, and may be one."""
    spellings: dict[str, list[str]] = {}
    for name in np.unique(y).tolist():
        spellings.setdefault(name.casefold(), []).append(name)
    return [
        f"Classes that differ in upper and lower case alone: {', '.join(map(repr, own))}."
        for own in spellings.values()
        if len(own) > 1
    ]


def column_notes(sheet: Sheet, column: NumberColumn | CategoryColumn, missing: str) -> list[str]:
    """What a user may want to know of a column: it tells nothing, or one of its cells cannot be right."""
    name, advice = column.name, "it tells nothing, and --ignore leaves it out."
    if isinstance(column, CategoryColumn):
        if len(column.levels) == 1:
            return [f"Column {name!r} holds one value alone, {column.levels[0]!r}: {advice}"]
        return [f"Column {name!r} holds another word in every row: {advice}"] * (len(column.levels) == len(sheet.rows))
    values = numeric_column(sheet, name, missing)
    known = values[~np.isnan(values)]
    if known.min() == known.max():
        return [f"Column {name!r} holds one value alone, {known[0]:g}: {advice}"]
    if len(known) > 2 and (np.abs(known) < 2**53).all() and (np.diff(np.sort(known)) == 1).all():
        return [f"Column {name!r} numbers the rows: if it means nothing else, {advice}"]
    middle = np.median(known / 2) * 2  # halves, so that the mean of two large ones does not overflow
    with np.errstate(over="ignore"):
        away = np.abs(np.where(np.isnan(values), middle, values) - middle)
    row = int(np.argmax(away))
    if away[row] > FAR * np.median(away[away > 0]):
        what = f"{values[row]:g} is so far from the others that these become nearly equal"
        return [f"{sheet.place(row, name)}: {what}; is the cell right?"]
    return []


def learn_preprocessing(
    sheet: Sheet, label: str, categorical: tuple[str, ...], ignored: tuple[str, ...], missing: str, standardize: bool
) -> tuple[Recipe, Sheet]:
    """The recipe for a labelled file, and the rows that take part.

    Args:
        sheet: the file.
        label: the column of labels.
        categorical: columns whose cells are names.
        ignored: columns left out.
        missing: "error" refuses a missing value, "drop" leaves out its row, "mean" puts the column's mean in its place.
        standardize: whether number columns get mean 0 and standard deviation 1.
    """
    sheet.require("--label", (label,))
    sheet.require("--categorical", categorical)
    sheet.require("--ignore", ignored)
    for option, names in (("--categorical", categorical), ("--ignore", ignored)):
        if label in names:
            raise ValueError(f"{option} must not name the label column {label!r}.")
    names = tuple(name for name in sheet.columns if name != label and name not in ignored)
    if not names:
        raise ValueError(f"{sheet.source} has no column left beside the label {label!r}.")
    if missing == "drop":
        sheet = sheet.without_gaps((*names, label))
    columns: list[NumberColumn | CategoryColumn] = []
    refused: dict[str, str] = {}
    for name in names:
        words = name in categorical
        try:
            columns.append(
                category_column(sheet, name, missing) if words else number_column(sheet, name, missing, standardize)
            )
        except ValueError as error:
            refused[name] = str(error)
    if refused:
        first, *others = refused
        also = f" Other columns that cannot be used: {', '.join(map(repr, others))}." if others else ""
        raise ValueError(refused[first] + also)
    return Recipe(label, tuple(columns), missing), sheet


def labels(sheet: Sheet, label: str) -> np.ndarray:
    """The labels as text; at least two different ones and not more than a classifier is for.

    Labels that are one number, such as 1 and 1.0, are one label, in the shortest spelling found.
    """
    cells = sheet.column(label)
    for row, cell in enumerate(cells):
        if is_nothing(cell):
            raise ValueError(f"{sheet.place(row, label)}: the label is missing; --missing drop leaves out such rows.")
    spelling: dict[Any, str] = {}
    for cell in sorted(set(cells), key=lambda cell: (len(cell), cell)):
        spelling.setdefault(exact_number(cell), cell)
    found = sorted(spelling.values())
    if len(found) == 1:
        raise ValueError(f"{sheet.source}, column {label!r} must hold at least two labels; found {found[0]!r} alone.")
    if len(found) > MOST_CLASSES:
        raise ValueError(
            f"{sheet.source}, column {label!r} holds {len(found)} different values, more than {MOST_CLASSES}: "
            "these are no labels of classes."
        )
    return np.asarray([spelling[exact_number(cell)] for cell in cells])


def exact_number(cell: str) -> Decimal | str:
    """The number in a cell with all its digits, or the cell itself where it holds no number."""
    try:
        value = Decimal(cell.replace("_", "x"))  # Python would read 1_0 as 10
    except InvalidOperation:
        return cell
    return value if value.is_finite() else cell


def number_column(sheet: Sheet, name: str, missing: str, standardize: bool) -> NumberColumn:
    """Mean and standard deviation of a column of numbers, those of the cells that are there."""
    hint = "; name the column with --categorical if its cells are words, or with --ignore"
    values = numeric_column(sheet, name, missing, hint)
    values = values[~np.isnan(values)]
    if values.size == 0:
        raise ValueError(f"{sheet.source}, column {name!r} has no value at all; leave it out with --ignore.")
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high)) or 1.0
    # scaled first, so that sums and squares of large numbers do not overflow; a constant is its own mean exactly
    mean = low if low == high else float(np.mean(values / size)) * size
    deviation = 1.0 if low == high else float(np.std(values / size)) * size or 1.0
    return NumberColumn(name, mean, *((mean, deviation) if standardize else (0.0, 1.0)))


def category_column(sheet: Sheet, name: str, missing: str) -> CategoryColumn:
    """The levels of a column of names, sorted."""
    cells = [cell for cell in known_cells(sheet, name, missing) if cell is not None]
    if not cells:
        raise ValueError(f"{sheet.source}, column {name!r} has no value at all; leave it out with --ignore.")
    levels, counts = np.unique(cells, return_counts=True)
    return CategoryColumn(name, tuple(levels.tolist()), tuple((counts / counts.sum()).tolist()))


def encoded(sheet: Sheet, column: NumberColumn | CategoryColumn, missing: str, unseen: str) -> np.ndarray:
    """The columns of the matrix that a column of the file becomes."""
    if isinstance(column, CategoryColumn):
        return one_hot(sheet, column, missing, unseen)
    values = numeric_column(sheet, column.name, missing)
    with np.errstate(over="ignore"):
        scaled = (np.where(np.isnan(values), column.fill, values) - column.shift) / column.scale
    if not (small := np.abs(scaled) <= checks.LARGEST).all():
        row = int(np.argmin(small))
        raise ValueError(f"{sheet.place(row, column.name)}: {values[row]} is too large for the scale of the column.")
    return scaled[:, None]


def one_hot(sheet: Sheet, column: CategoryColumn, missing: str, unseen: str) -> np.ndarray:
    """A column of 0 and 1 for each level; zeros only for a level that was not there in training, if that is wanted."""
    places = {level: place for place, level in enumerate(column.levels)}
    result = np.zeros((len(sheet.rows), len(places)))
    for row, cell in enumerate(known_cells(sheet, column.name, missing)):
        if cell is None:
            result[row] = column.shares
        elif cell in places:
            result[row, places[cell]] = 1.0
        elif unseen == "error":
            raise ValueError(
                f"{sheet.place(row, column.name)}: {cell!r} was not there in training; "
                "--unseen zero treats it as none of the levels."
            )
    return result


def known_cells(sheet: Sheet, name: str, missing: str) -> list[str | None]:
    """The cells of a column, None where one is missing, which is refused unless means are filled in."""
    cells: list[str | None] = []
    for row, cell in enumerate(sheet.column(name)):
        if is_nothing(cell) and missing != "mean":
            raise ValueError(
                f"{sheet.place(row, name)}: the value is missing; "
                "--missing drop leaves out such rows, --missing mean puts the column's mean there."
            )
        cells.append(None if is_nothing(cell) else cell)
    return cells


def numeric_column(sheet: Sheet, name: str, missing: str, hint: str = "") -> np.ndarray:
    """A column of numbers, NaN where one is missing. hint: what could be done about text."""
    values = []
    for row, cell in enumerate(known_cells(sheet, name, missing)):
        try:
            value = math.nan if cell is None else float(cell.replace("_", "x"))  # Python would read 1_0 as 10
        except ValueError:
            raise ValueError(f"{sheet.place(row, name)} must be a number; found {cell!r}{hint}.") from None
        if cell is not None and not math.isfinite(value):
            raise ValueError(f"{sheet.place(row, name)} must be a finite number; found {cell!r}.")
        values.append(value)
    return np.asarray(values, float)


def column_from(entry: dict[str, Any]) -> NumberColumn | CategoryColumn:
    """A column from its entry in a header."""
    name = str(entry["name"])
    if entry["kind"] == NumberColumn.__name__:
        return NumberColumn(name, float(entry["fill"]), float(entry["shift"]), float(entry["scale"]))
    levels, shares = tuple(str(level) for level in entry["levels"]), tuple(float(share) for share in entry["shares"])
    if len(levels) != len(shares):
        raise ValueError(f"column {name!r} has {len(levels)} levels and {len(shares)} shares")
    return CategoryColumn(name, levels, shares)
