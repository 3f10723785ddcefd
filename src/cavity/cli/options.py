"""What the commands that read a labelled file have in common: their options, and what is made of the file."""

from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from cavity._core import checks
from cavity.cli.estimator_options import METHODS
from cavity.cli.preprocessing import MISSING, Recipe, labels, learn_preprocessing
from cavity.storage.csv_table import Sheet, read_sheet

DataFile = Annotated[Path, typer.Argument(help="A CSV file with a row of names.", show_default=False)]
Label = Annotated[str, typer.Option(help="The column of labels.", show_default=False)]
Noise = Annotated[str, typer.Option(help="Share of wrong labels, in [0, 0.5), or auto to learn it.")]
Method = Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}; auto: EP, and what helps where it fails.")]
Optimize = Annotated[
    bool, typer.Option("--optimize/--no-optimize", help="Search for the kernel's parameters by the evidence.")
]
Categorical = Annotated[
    list[str] | None, typer.Option(help="A column of names: a column of 0 and 1 for each level. May be repeated.")
]
Ignore = Annotated[list[str] | None, typer.Option(help="A column to leave out. May be repeated.")]
Missing = Annotated[
    str,
    typer.Option(
        help=f"Missing values (empty, NA, NaN, null, ?): one of {', '.join(MISSING)}. drop leaves out the row, "
        "mean puts the column's mean there."
    ),
]
Standardize = Annotated[
    bool, typer.Option("--standardize/--no-standardize", help="Give number columns mean 0 and deviation 1.")
]
Separator = Annotated[str, typer.Option(help="What stands between cells.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of whatever is random.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace output files that exist already.")]


class LabelledData(NamedTuple):
    """A labelled file as a model sees it.

    sheet: the rows that take part. X: their matrix. y: their labels. notes: what a user should know about the others.
    """

    recipe: Recipe
    sheet: Sheet
    X: np.ndarray
    y: np.ndarray
    notes: list[str]


def read_labelled(
    data: Path,
    label: str,
    categorical: list[str] | None,
    ignore: list[str] | None,
    missing: str,
    standardize: bool,
    separator: str,
) -> LabelledData:
    """A labelled file, read and turned into numbers."""
    checks.choice("--missing", missing, MISSING)
    sheet = read_sheet(data, separator)
    recipe, kept = learn_preprocessing(
        sheet, label, tuple(categorical or ()), tuple(ignore or ()), missing, standardize
    )
    y = labels(kept, label)
    notes = sheet.notes()
    if dropped := len(sheet.rows) - len(kept.rows):
        notes.append(f"Rows left out for missing values: {dropped}.")
    respelled = sorted(set(kept.column(label)) - set(y.tolist()))
    if respelled:
        words = ", ".join(repr(name) for name in respelled)
        notes.append(f"Labels that are the same number are one class; other spellings were: {words}.")
    return LabelledData(recipe, kept, recipe.matrix(kept), y, notes)
