"""A CSV file as text: read with the standard library, strict, every mistake named by row and column.

Rows are numbered as spreadsheets and editors show them: the names are row 1, the data begin in row 2.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from typing import NamedTuple, TextIO

#: cells that stand for a missing value, whatever their case
NOTHING = frozenset({"", "na", "n/a", "nan", "null", "?"})
#: empty rows named by their numbers; of more, the first ones
NAMED = 5
#: characters of a line, and of a whole file: what is above is no table, and may have no end
LONGEST_LINE, LARGEST_TABLE = 2**24, 2**30
#: what may be typed for a separator that is no printed character
ESCAPED = {r"\t": "\t"}


class Sheet(NamedTuple):
    """Cells without the blanks around them.

    numbers: the row number of every row in the file. empty: those of rows that hold nothing and are passed over.
    unnamed: whether a first column without a name was passed over.
    """

    source: str
    columns: tuple[str, ...]
    numbers: tuple[int, ...]
    rows: list[list[str]]
    empty: tuple[int, ...] = ()
    unnamed: bool = False

    def column(self, name: str) -> list[str]:
        """The cells of a column."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def place(self, row: int, column: str) -> str:
        """Where a cell is, in words; `row` counts the rows that are here."""
        return f"{self.source}, row {self.numbers[row]}, column {column!r}"

    def notes(self) -> list[str]:
        """What was passed over, in a sentence each."""
        found = (
            [f"Column 1 of {self.source} has no name and was passed over, as row numbers are."] if self.unnamed else []
        )
        if not self.empty:
            return found
        more = ", …" if len(self.empty) > NAMED else ""
        named = ", ".join(str(number) for number in self.empty[:NAMED]) + more
        return [*found, f"Empty rows of {self.source} that were passed over: {len(self.empty)} (row {named})."]

    def require(self, option: str, names: tuple[str, ...]) -> None:
        """Refuse names of columns that are not here."""
        for name in names:
            if name not in self.columns:
                known = ", ".join(repr(column) for column in self.columns)
                raise ValueError(f"{option} must name a column of {self.source}; there is no {name!r} among {known}.")

    def without_gaps(self, names: tuple[str, ...]) -> "Sheet":
        """The table without the rows that have a missing value in one of these columns."""
        places = [self.columns.index(name) for name in names]
        full = [not any(is_nothing(row[place]) for place in places) for row in self.rows]
        if not any(full):
            raise ValueError(f"{self.source} has no row without a missing value.")
        return self._replace(numbers=tuple(compress(self.numbers, full)), rows=list(compress(self.rows, full)))


def is_nothing(cell: str) -> bool:
    """Whether a cell stands for a missing value."""
    return cell.lower() in NOTHING


def read_sheet(path: Path, separator: str = ",", known: tuple[str, ...] = (), max_bytes: int = LARGEST_TABLE) -> Sheet:
    """A file with a row of names and at least one row below it. Rows that are empty altogether are only counted.

    The cells take up to some thirty times the memory that the file does.

    Args:
        path: of the file.
        separator: what stands between cells.
        known: names that a single column may have; other tables have two columns at least.
        max_bytes: refuse a file with more characters than that.
    """
    separator = ESCAPED.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        raise ValueError(f"--separator must be one character, such as ';' or '\\t'; found {separator!r}.")
    numbers, rows, empty, columns, number = [], [], [], None, 0
    # Bytes that are not UTF-8 become marks in the text, so that the cell they are in can be named.
    with open(path, newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
        try:
            lines = bounded_lines(file, path, max_bytes)
            for number, raw in enumerate(csv.reader(lines, delimiter=separator, strict=True), 1):
                cells, place = [cell.strip() for cell in raw], f"{path}, row {number}"
                if not any(cells):
                    empty.append(number)
                    continue
                check_text(cells, columns, place)
                if columns is None:
                    columns = check_names(cells, separator, place, known)
                    continue
                check_length(cells, columns, place)
                numbers.append(number)
                rows.append(cells)
        except csv.Error as error:
            raise ValueError(f"{path}, row {number + 1} cannot be read as CSV: {error}.") from None
    if columns is None:
        raise ValueError(f"{path} is empty: it must begin with a row of names.")
    if not rows:
        raise ValueError(f"{path} has a row of names and no row below it.")
    unnamed = not columns[0]
    if unnamed:
        columns, rows = columns[1:], [cells[1:] for cells in rows]
    return Sheet(str(path), columns, tuple(numbers), rows, tuple(empty), unnamed)


def bounded_lines(file: TextIO, path: Path, most: int) -> Iterator[str]:
    """The lines of a file; not of one that is no table, whose lines or whose end may never come."""
    while line := file.readline(LONGEST_LINE + 1):
        most -= len(line)
        if len(line) > LONGEST_LINE or most < 0:
            what = f"a line of more than {LONGEST_LINE}" if most >= 0 else "too many"
            raise ValueError(f"{path} has {what} characters; what is read as a table must be smaller.")
        yield line


def check_text(cells: list[str], columns: tuple[str, ...] | None, place: str) -> None:
    """Refuse bytes that are no text in UTF-8."""
    for position, cell in enumerate(cells):
        if "\x00" in cell or any("\udc80" <= mark <= "\udcff" for mark in cell):
            column = repr(columns[position]) if columns and position < len(columns) else position + 1
            raise ValueError(f"{place}, column {column} is not text in UTF-8: save the file in that encoding.")


def check_names(cells: list[str], separator: str, place: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse names that are empty or used twice, and a table of fewer than two columns.

    The first of several columns may be without a name: row numbers are written so, and passed over.
    """
    named = cells if cells[0] else cells[1:]
    if len(named) == 1 and named[0] not in known:
        other = next((mark for mark in ";\t,|" if mark != separator and mark in named[0]), None)
        hint = f". Is --separator {other!r} meant?" if other else "."
        raise ValueError(f"{place} must name a label and at least one other column; found {named[0]!r} alone{hint}")
    for position, name in enumerate(named, 1 + len(cells) - len(named)):
        if not name:
            raise ValueError(f"{place}, column {position} has no name.")
    name, count = Counter(named).most_common(1)[0]
    if count > 1:
        positions = " and ".join(str(position + 1) for position, cell in enumerate(cells) if cell == name)
        raise ValueError(f"{place} must name each column once; found {name!r} in columns {positions}.")
    return tuple(cells)


def check_length(cells: list[str], columns: tuple[str, ...], place: str) -> None:
    """Refuse a row that has fewer or more cells than there are columns."""
    found, wanted = len(cells), len(columns)
    if found != wanted:
        detail = f": column {columns[found]!r} is missing." if found < wanted else f", {columns[-1]!r} last."
        raise ValueError(f"{place} has {found} cells where there are {wanted} columns{detail}")
