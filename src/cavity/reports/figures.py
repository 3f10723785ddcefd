"""Figures in one style, without pyplot and without touching matplotlib's settings.

A method has the same colour, line and marker everywhere. Colours are those of Okabe & Ito, which remain apart for
colour-blind readers; line and marker differ as well, for grey prints.
"""

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cavity._storage.writing import write_whole

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#777777"


class Style(NamedTuple):
    """How a method is drawn.

    Attributes:
        colour: as matplotlib takes it.
        line: style of the line.
        marker: of the points, none if empty.

    Examples:
        >>> from cavity import reports
        >>> reports.STYLES["EP"].plot()["marker"]
        'x'
    """

    colour: str
    line: str | tuple[int, tuple[int, int]] = "-"
    marker: str = ""

    def plot(self) -> dict[str, Any]:
        """Keyword arguments for `Axes.plot`."""
        return {"color": self.colour, "linestyle": self.line, "marker": self.marker, "linewidth": 1.6, "markersize": 6}

    def curve(self) -> dict[str, Any]:
        """The same for a smooth curve, where markers would clutter."""
        return self.plot() | {"marker": ""}


#: methods by the name they have in tables and legends
STYLES: Mapping[str, Style] = {
    "exact": Style(BLACK),
    "EP": Style(VERMILION, "--", "x"),
    "ADF": Style(ORANGE, "-.", "*"),
    "Power EP": Style(PURPLE, ":", "P"),
    "Relaxed EP": Style(BLUE, "-", "o"),
    "damped EP": Style(ORANGE, ":", "d"),
    "Restricted EP": Style(VERMILION, "--", "x"),
    "EP2": Style(PURPLE, ":", "+"),
    "Laplace": Style(BLUE, "-.", "s"),
    "VB": Style(GREEN, (0, (1, 1)), "^"),
    "Jensen": Style(SKY, (0, (5, 1)), "v"),
    "importance": Style(SKY, "-", "."),
    "Gibbs": Style(GREY, "-", "."),
    "TAP": Style(BLUE, ":", "o"),
    "naive MF": Style(PURPLE, (0, (1, 1)), "^"),
    "SVM": Style(GREEN, "-.", "s"),
    "SVM, normalised": Style(GREEN, ":", "D"),
    "billiard inside": Style(SKY, "-", "h"),
    "Herbrich's billiard": Style(GREY, "-", "<"),
    "Rujan's billiard": Style(ORANGE, "-", "."),
    "Directed Decision": Style(SKY, "-", "v"),
    "Probabilistic Teacher": Style(GREY, "-", "o"),
}


def figure(
    rows: int = 1, columns: int = 1, width: float | None = None, height: float | None = None
) -> tuple[Figure, Any]:
    """A figure and an array (rows, columns) of axes in the style of the package.

    Args:
        rows: of axes.
        columns: of axes.
        width: in inches.
        height: in inches.

    Returns:
        The figure and the array of its axes.

    Examples:
        >>> from cavity import reports
        >>> sheet, axes = reports.figure(1, 2)
        >>> axes.shape
        (1, 2)
    """
    sheet = Figure(figsize=(width or 5.2 * columns, height or 3.9 * rows), layout="constrained")
    axes = np.asarray(sheet.subplots(rows, columns, squeeze=False))
    for ax in axes.flat:
        dress(ax)
    return sheet, axes


def dress(ax: Axes) -> None:
    """Two spines, a faint grid behind the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color="#e6e6e6", linewidth=0.6)
    ax.set_axisbelow(True)


def label(ax: Axes, title: str, x: str, y: str) -> None:
    """Set the title of a panel and the names of its axes."""
    ax.set_title(title, fontsize=10, loc="left")
    ax.set_xlabel(x)
    ax.set_ylabel(y)


def legend(ax: Axes, outside: bool = False, **options: Any) -> None:
    """A legend without a frame; `outside` puts it to the right of the axes, away from the data."""
    place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if outside else {"loc": "best"}
    ax.legend(**(place | {"frameon": False, "fontsize": 8.5} | options))


def shared_legend(sheet: Figure, axes: Iterable[Axes], columns: int = 6) -> None:
    """One legend below all panels, every name once."""
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    place = {"loc": "outside lower center", "ncols": min(columns, len(found))}
    sheet.legend(list(found.values()), list(found), frameon=False, fontsize=9, **place)


def save(sheet: Figure, path: str | Path, dpi: int = 150) -> Path:
    """Write a PNG (Agg) without the date and program a file would otherwise carry, so that equal figures are equal.

    Args:
        sheet: made by `figure`.
        path: of the file; missing folders are made.
        dpi: dots per inch.

    Returns:
        The path.

    Examples:
        >>> from cavity import reports
        >>> import pathlib, tempfile
        >>> sheet, axes = reports.figure()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(reports.save(sheet, pathlib.Path(folder) / "empty.png").name)
        empty.png
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, png(sheet, dpi))
    return target


def png(sheet: Figure, dpi: int = 150) -> bytes:
    """The bytes of a PNG (Agg), without the date and program a file would otherwise carry."""
    buffer = io.BytesIO()
    sheet.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()
