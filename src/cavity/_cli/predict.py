"""`cavity predict`: labels and their probabilities for the rows of a CSV file."""

import csv
import io
import re
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from cavity._cli.errors import check_target, in_a_sentence
from cavity._cli.fit import print_notes
from cavity._cli.model_file import load_model
from cavity._cli.options import Overwrite, Separator
from cavity._cli.preprocessing import MISSING, UNSEEN
from cavity._core import checks
from cavity._storage.csv_table import Sheet, read_sheet
from cavity._storage.writing import write_whole


def predict_command(
    model: Annotated[Path, typer.Argument(help="A file that `cavity fit` wrote.", show_default=False)],
    data: Annotated[Path, typer.Argument(help="A CSV file with the same columns, in any order.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(
            help="The CSV file of predictions. One that exists is replaced only with --overwrite.", show_default=False
        ),
    ],
    noisy: Annotated[
        bool, typer.Option("--noisy", help="Probabilities of the label as it would be observed, label noise included.")
    ] = False,
    missing: Annotated[
        str | None, typer.Option(help=f"Missing values: one of {', '.join(MISSING)}; as in the fit where not given.")
    ] = None,
    unseen: Annotated[
        str, typer.Option(help="A level that was not there in training: error, or zero for none of the levels.")
    ] = "error",
    separator: Separator = ",",
    overwrite: Overwrite = False,
) -> None:
    """Predict labels: a CSV file with row number, label, and the probability of every label.

    Columns are found by name; others, the label's among them, are ignored. Rows are numbered as spreadsheets show them,
    the names being row 1; those left out by --missing drop have no prediction.
    """  # fmt: skip
    with in_a_sentence():
        checks.choice("--unseen", unseen, UNSEEN)
        check_target("--out", out, overwrite, data, model)
        estimator, recipe = load_model(model)
        recipe = recipe._replace(missing=checks.choice("--missing", missing or recipe.missing, MISSING))
        whole = read_sheet(data, separator, known=recipe.names)
        sheet = whole
        if recipe.missing == "drop":
            sheet = whole.without_gaps(tuple(name for name in recipe.names if name in whole.columns))
        X = recipe.matrix(sheet, unseen)
        write_whole(
            out, prediction_lines(sheet, estimator.classes_, estimator.predict(X), estimator.predict_proba(X, noisy))
        )
        left_out = len(whole.rows) - len(sheet.rows)
        also = f", {left_out} left out for missing values" if left_out else ""
        console = Console()
        print_notes(whole.notes(), console)
        console.print(Text(f"{len(sheet.rows)} rows predicted{also}; written: {out}"), soft_wrap=True)


def harmless(label: str) -> str:
    """A label that a spreadsheet shows as it is: words that begin as a formula does get an apostrophe in front."""
    return f"'{label}" if label.startswith(("=", "+", "-", "@", "\t", "\r")) and not reads_as_number(label) else label


def reads_as_number(label: str) -> bool:
    """Whether a spreadsheet takes the label for a number, as it does −1, and not for a formula."""
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", label, re.ASCII) is not None


def prediction_lines(sheet: Sheet, classes: np.ndarray, labels: np.ndarray, probabilities: np.ndarray) -> str:
    """The file of predictions; numbers have all their digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "label", *(f"P({name})" for name in classes)])
    for number, label, row in zip(sheet.numbers, labels, probabilities.tolist(), strict=True):
        writer.writerow([number, harmless(str(label)), *row])
    return text.getvalue()
