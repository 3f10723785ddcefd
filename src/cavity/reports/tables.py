"""One table, shown on the terminal or written as Markdown."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import rich.box
import rich.table
from rich.console import Console
from rich.text import Text

#: names of rows up to this length are not broken when the terminal is narrow
NAME_WIDTH = 20


class Table(NamedTuple):
    """A table; cells may be text, numbers, booleans or None.

    Attributes:
        title: above the table.
        columns: names of the columns.
        rows: cells, of which the first is the name of the row.
        note: below the table.

    Examples:
        >>> from cavity import reports
        >>> table = reports.Table("Errors", ("method", "error"), [("EP", 0.01), ("VB", None)])
        >>> table.columns
        ('method', 'error')
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


def cell(value: Any, digits: int = 4) -> str:
    """A cell as text: numbers with `digits` significant digits, two when tiny, — for what is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u2009")
    if isinstance(value, float):
        return f"{value:.1e}" if 0 < abs(value) < 1e-2 else f"{value:.{digits}g}"
    return str(value)


def is_number(value: Any) -> bool:
    """Whether a cell is set to the right."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def numeric_columns(table: Table) -> list[bool]:
    """Columns that hold numbers only (or nothing)."""
    known = [[row[place] for row in table.rows if row[place] is not None] for place in range(len(table.columns))]
    return [bool(cells) and all(map(is_number, cells)) for cells in known]


def show(table: Table, console: Console) -> None:
    """Print to the terminal. Names of number columns are broken, so that on a narrow one only text gives way.

    Args:
        table: the table.
        console: of rich.

    Examples:
        >>> from cavity import reports
        >>> table = reports.Table("Errors", ("method", "error"), [("EP", 0.01), ("VB", None)])
        >>> import io
        >>> from rich.console import Console
        >>> console = Console(file=io.StringIO(), width=60)
        >>> reports.show(table, console)
        >>> "EP" in console.file.getvalue()
        True
    """
    view = rich.table.Table(
        title=Text(table.title),
        box=rich.box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title_justify="left",
        title_style="bold",
    )
    longest = max(len(cell(row[0])) for row in table.rows) if table.rows else 0
    for place, (name, numeric) in enumerate(zip(table.columns, numeric_columns(table), strict=True)):
        if numeric:
            heading = "\n".join(textwrap.wrap(name, 9, break_long_words=False))
            view.add_column(Text(heading), justify="right", no_wrap=True)
        else:
            view.add_column(Text(name), overflow="fold", no_wrap=place == 0 and longest <= NAME_WIDTH)
    for row in table.rows:
        view.add_row(*(Text(cell(value)) for value in row))
    console.print(view)
    if table.note:
        console.print(Text(table.note))


def markdown(table: Table) -> str:
    """The same table as Markdown text.

    Args:
        table: the table.

    Returns:
        Markdown text.

    Examples:
        >>> from cavity import reports
        >>> table = reports.Table("Errors", ("method", "error"), [("EP", 0.01), ("VB", None)])
        >>> print(reports.markdown(table).splitlines()[-1])
        | VB | — |
    """
    marks = ["---:" if numeric else "---" for numeric in numeric_columns(table)]
    lines = [f"**{table.title}**", ""] if table.title else []
    lines += [row_text(table.columns), row_text(marks)]
    lines += [row_text([cell(value) for value in row]) for row in table.rows]
    if table.note:
        lines += ["", table.note]
    return "\n".join(lines) + "\n"


def row_text(cells: Sequence[str]) -> str:
    """One line of a Markdown table; a bar inside a cell would end it."""
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"
