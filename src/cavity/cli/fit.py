"""`cavity fit`: a classifier for a labelled CSV file, into a model file, with a table and perhaps a page about it."""

import dataclasses
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from cavity.cli.candidates import KERNELS, LIKELIHOODS, METHODS, Candidate, fitted, searched
from cavity.cli.endings import check_target, in_a_sentence, printable
from cavity.cli.model_file import save_model
from cavity.cli.recipe import MISSING, Recipe, labels, learned
from cavity.cli.sheet import Sheet, read_sheet
from cavity.estimators.base import AS_PROMISED
from cavity.numerics import checks
from cavity.reports import Table, UnitProgress, show
from cavity.reports.classifier_report import FEW, Data, Evidence, classifier_page, summary, suspect_table
from cavity.reports.findings import Findings, findings
from cavity.reports.html import write_whole

#: kernels whose evidences stand beside that of the fitted one on the page
COMPARED = ("rbf", "matern", "poly", "linear")

# What the commands that read a labelled file have in common.
DataFile = Annotated[Path, typer.Argument(help="A CSV file with a row of names.", show_default=False)]
Label = Annotated[str, typer.Option(help="The column of labels.", show_default=False)]
Noise = Annotated[str, typer.Option(help="Share of wrong labels, in [0, 0.5), or auto to learn it.")]
Method = Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}; auto: EP, then damped EP, then Power EP.")]
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


def fit(
    data: DataFile,
    label: Label,
    out: Annotated[
        Path,
        typer.Option(help="The model file. One that exists is replaced only with --overwrite.", show_default=False),
    ],
    kernel: Annotated[str, typer.Option(help=f"One of {', '.join(KERNELS)}.")] = "rbf",
    likelihood: Annotated[str, typer.Option(help=f"One of {', '.join(LIKELIHOODS)}.")] = "step",
    label_noise: Noise = "auto",
    method: Method = "auto",
    optimize: Optimize = True,
    categorical: Categorical = None,
    ignore: Ignore = None,
    missing: Missing = "error",
    standardize: Standardize = True,
    separator: Separator = ",",
    seed: Seed = 0,
    report: Annotated[
        Path | None, typer.Option(help="An HTML page to write; other kernels are fitted as well for it.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Fit a classifier to a CSV file: a model file, a table, and the rows whose labels look wrong.

    Rows are numbered as spreadsheets show them, the names being row 1. Files are written complete or not at all, and
    an existing one is replaced only with --overwrite.
    """
    console = Console()
    with in_a_sentence():
        candidate = Candidate(kernel, likelihood, label_noise, method, optimize, seed)
        check_target("--out", out, overwrite, data)
        if report is not None:
            check_target("--report", report, overwrite, data, out)
        recipe, sheet, X, y = prepared(data, label, categorical, ignore, missing, standardize, separator)
        others = [] if report is None else [name for name in COMPARED if name != kernel]
        with UnitProgress("compiling and fitting", 1 + len(others), console=console) as progress:
            progress.begin(kernel)
            began = time.perf_counter()
            estimator = candidate.estimator(X)
            notes = fitted(estimator, X, y)
            found = findings(estimator, X, y, time.perf_counter() - began)
            progress.finish()
            evidences = [found_evidence(kernel, estimator)]
            for name in others:
                progress.begin(name)
                evidences.append(evidence(name, dataclasses.replace(candidate, kernel=name), X, y))
                progress.finish()
        rows = as_data(sheet, recipe)
        text = "" if report is None else classifier_page(found, rows, evidences, notes)
        save_model(out, estimator, recipe)
        if report is not None:
            write_whole(report, text)
        say(found, rows, notes, [path for path in (out, report) if path is not None], console)


def prepared(
    data: Path,
    label: str,
    categorical: list[str] | None,
    ignore: list[str] | None,
    missing: str,
    standardize: bool,
    separator: str,
) -> tuple[Recipe, Sheet, np.ndarray, np.ndarray]:
    """(recipe, rows that take part, their matrix, their labels) of a labelled file."""
    checks.choice("--missing", missing, MISSING)
    sheet = read_sheet(data, separator)
    recipe, kept = learned(sheet, label, tuple(categorical or ()), tuple(ignore or ()), missing, standardize)
    return recipe, kept, recipe.matrix(kept), labels(kept, label)


def evidence(name: str, candidate: Candidate, X: np.ndarray, y: np.ndarray) -> Evidence:
    """The evidence of a model, or why it has none."""
    estimator: Any = candidate.estimator(X)
    try:
        fitted(estimator, X, y)
    except ValueError as error:
        return Evidence(name, None, str(error), False)
    return found_evidence(name, estimator)


def found_evidence(name: str, estimator: Any) -> Evidence:
    """The evidence of a fitted model; one whose run fell short cannot be relied on."""
    status = estimator.status_
    words = str(status).replace("_", " ") + ("" if searched(estimator) else ", search failed")
    return Evidence(name, estimator.log_evidence_, words, status in AS_PROMISED)


def as_data(sheet: Sheet, recipe: Recipe) -> Data:
    """The rows as the file has them, the columns the model looks at."""
    places = [sheet.columns.index(name) for name in recipe.names]
    cells = [[row[place] for place in places] for row in sheet.rows]
    return Data(Path(sheet.source).name, recipe.label, recipe.names, sheet.numbers, cells)


def say(found: Findings, data: Data, notes: list[str], written: list[Path], console: Console) -> None:
    """Tables to the terminal, and where the files are."""
    show(summary(found), console)
    show(shown(suspect_table(found, data, FEW, with_features=False)), console)
    for note in notes:
        console.print(Text(f"Note: {printable(note)}"))
    for path in written:
        console.print(Text(f"written: {path}"), soft_wrap=True)


def shown(table: Table) -> Table:
    """A table whose texts, taken from a file, cannot steer the terminal."""
    rows = [[printable(value) if isinstance(value, str) else value for value in row] for row in table.rows]
    return table._replace(columns=[printable(name) for name in table.columns], rows=rows)
