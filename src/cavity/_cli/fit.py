"""`cavity fit`: a classifier for a labelled CSV file, into a model file, with a table and perhaps a page about it."""

import dataclasses
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from cavity._cli import options
from cavity._cli.errors import check_target, in_a_sentence, printable
from cavity._cli.model_file import save_model
from cavity._cli.options import KERNELS, LIKELIHOODS, Candidate, fit_with_notes, searched
from cavity._cli.preprocessing import Reading, Recipe, read_labelled
from cavity._storage.csv_table import Sheet
from cavity._storage.writing import write_whole
from cavity.estimators._base import AS_PROMISED
from cavity.reports import Table, UnitProgress, show
from cavity.reports.classifier_report import FEW, Data, Evidence, classifier_page, findings, summary, suspect_table

#: kernels whose evidences stand beside that of the fitted one on the page
COMPARED = ("rbf", "matern", "poly", "linear")


def fit_command(
    data: options.DataFile,
    label: options.Label,
    out: Annotated[
        Path,
        typer.Option(help="The model file. One that exists is replaced only with --overwrite.", show_default=False),
    ],
    kernel: Annotated[str, typer.Option(help=f"One of {', '.join(KERNELS)}.")] = "rbf",
    likelihood: Annotated[str, typer.Option(help=f"One of {', '.join(LIKELIHOODS)}.")] = "step",
    label_noise: options.Noise = "auto",
    method: options.Method = "auto",
    optimize: options.Optimize = True,
    categorical: options.Categorical = None,
    ignore: options.Ignore = None,
    missing: options.Missing = "error",
    standardize: options.Standardize = True,
    separator: options.Separator = ",",
    seed: options.Seed = 0,
    report: Annotated[
        Path | None, typer.Option(help="An HTML page to write; other kernels are fitted as well for it.")
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Fit a classifier to a CSV file: a model file, a table, and the rows whose labels look wrong.

    Rows are numbered as spreadsheets show them, the names being row 1. Files are written complete or not at all, and
    an existing one is replaced only with --overwrite.
    """
    console = Console()
    reading = Reading(label, categorical, ignore, missing, standardize, separator)
    with in_a_sentence():
        candidate = Candidate(kernel, likelihood, label_noise, method, optimize, seed)
        check_target("--out", out, overwrite, data)
        if report is not None:
            check_target("--report", report, overwrite, data, out)
        recipe, sheet, X, y, notes = read_labelled(data, reading)
        names = [] if report is None else [name for name in COMPARED if name != kernel]
        others = {name: dataclasses.replace(candidate, kernel=name) for name in names}
        with UnitProgress("fitting", 1 + len(others), console=console) as progress:
            progress.begin(kernel)
            began = time.perf_counter()
            estimator = candidate.estimator(X)
            notes += fit_with_notes(estimator, X, y, progress_callback(progress, kernel))
            found = findings(estimator, X, y, time.perf_counter() - began, progress.clock.seconds)
            progress.finish()
            # What was asked for is kept, whatever becomes of the comparison.
            save_model(out, estimator, recipe)
            with in_a_sentence(f"Stopped; {out} is written, the report is not."):
                evidences = [found_evidence(kernel, estimator), *compared(others, X, y, progress)]
        rows = as_data(sheet, recipe)
        if report is not None:
            write_whole(report, classifier_page(found, rows, evidences, notes))
        show(summary(found), console)
        show(shown(suspect_table(found, rows, FEW, with_features=False)), console)
        print_notes(notes, console)
        print_written([out, report], console)


def progress_callback(progress: UnitProgress, name: str) -> Callable[[str], None] | None:
    """Where the lines of a long fit go: into the bar, if there is one to be seen, for listening costs time."""
    return None if progress.progress.disable else lambda line: progress.begin(f"{name}, {line}")


def compared(candidates: dict[str, Candidate], X: np.ndarray, y: np.ndarray, progress: UnitProgress) -> list[Evidence]:
    """The evidences of models, one after another, or why they have none."""
    rows = []
    for name, candidate in candidates.items():
        progress.begin(name)
        estimator = candidate.estimator(X)
        try:
            fit_with_notes(estimator, X, y, progress_callback(progress, name))
            rows.append(found_evidence(name, estimator))
        except ValueError as error:
            rows.append(Evidence(name, None, str(error), False))
        progress.finish()
    return rows


def found_evidence(name: str, estimator: Any) -> Evidence:
    """The evidence of a fitted model; one whose run fell short cannot be relied on."""
    status = estimator.status_
    words = str(status).replace("_", " ") + ("" if searched(estimator) else ", search failed")
    return Evidence(name, estimator.log_evidence_, words, status in AS_PROMISED)


def as_data(sheet: Sheet, recipe: Recipe) -> Data:
    """The rows as they stand in the file, cut to the columns that the model uses."""
    places = [sheet.columns.index(name) for name in recipe.names]
    cells = [[row[place] for place in places] for row in sheet.rows]
    return Data(Path(sheet.source).name, recipe.label, recipe.names, sheet.numbers, cells)


def print_notes(notes: list[str], console: Console) -> None:
    """Print notes, one per line."""
    for note in notes:
        console.print(Text(f"Note: {printable(note)}"), soft_wrap=True)


def print_written(files: Iterable[Path | None], console: Console) -> None:
    """Where the files are that were asked for."""
    for path in files:
        if path is not None:
            console.print(Text(f"written: {path}"), soft_wrap=True)


def shown(table: Table) -> Table:
    """A table whose texts, taken from a file, cannot steer the terminal."""
    rows = [[printable(value) if isinstance(value, str) else value for value in row] for row in table.rows]
    return table._replace(columns=[printable(name) for name in table.columns], rows=rows)
