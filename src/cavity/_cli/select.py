"""`cavity select`: models of the same labels compared by their evidence (thesis 5.7), and forward feature selection."""

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from cavity._cli import options
from cavity._cli.errors import in_a_sentence, printable
from cavity._cli.fit import compared, print_notes, shown
from cavity._cli.options import KERNELS, LIKELIHOODS, Candidate
from cavity._cli.preprocessing import Reading, read_labelled
from cavity.estimators import select_features
from cavity.estimators._base import AS_PROMISED
from cavity.reports import Table, UnitProgress, show
from cavity.reports.classifier_report import Evidence, evidence_table

#: kernels tried where none are named
TRIED = ("rbf", "matern", "poly", "linear")
#: factors on the median distance of two rows
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)


def select(
    data: options.DataFile,
    label: options.Label,
    kernel: Annotated[
        list[str] | None, typer.Option(help=f"A kernel to try, of {', '.join(KERNELS)}. May be repeated.")
    ] = None,
    likelihood: Annotated[
        list[str] | None, typer.Option(help=f"A likelihood to try, of {', '.join(LIKELIHOODS)}. May be repeated.")
    ] = None,
    features: Annotated[
        bool, typer.Option("--features", help="Take features one after another while the evidence rises.")
    ] = False,
    label_noise: options.Noise = "auto",
    method: options.Method = "auto",
    optimize: options.Optimize = True,
    categorical: options.Categorical = None,
    ignore: options.Ignore = None,
    missing: options.Missing = "error",
    standardize: options.Standardize = True,
    separator: options.Separator = ",",
    seed: options.Seed = 0,
) -> None:
    """Compare kernels, likelihoods and widths by their log evidence, and name the best.

    All kernels are tried with all likelihoods, four and three of them where none are named. Widths are those of the
    Gaussian kernel, held fixed at multiples of the median distance of two rows. With --features also which columns.
    Nothing is written.
    """
    console = Console()
    reading = Reading(label, categorical, ignore, missing, standardize, separator)
    with in_a_sentence("Stopped."):
        candidates = [
            Candidate(one, other, label_noise, method, optimize, seed)
            for one in dict.fromkeys(kernel or TRIED)
            for other in dict.fromkeys(likelihood or LIKELIHOODS)
        ]
        recipe, _, X, y, notes = read_labelled(data, reading)
        print_notes(notes, console)
        named = {f"{one.kernel}, {one.likelihood}": one for one in candidates}
        with UnitProgress("fitting", len(named), console=console) as progress:
            rows = compared(named, X, y, progress)
        show(evidence_table(rows, "Kernels and likelihoods"), console)
        best = best_candidate(rows, candidates)
        widths = {
            f"rbf, {best.likelihood}, width {factor:g} × median": dataclasses.replace(best, kernel="rbf", width=factor)
            for factor in WIDTHS
        }
        with UnitProgress("fitting", len(widths), console=console) as progress:
            tried = compared(widths, X, y, progress)
        show(evidence_table(tried, "Widths"), console)
        command = suggest_fit(data, best, reading)
        if features:
            show_features(best, X, y, recipe.features, console)
        words = f"Best: {best.kernel}, {best.likelihood}. Fit it with: {command}"
        console.print(Text(printable(words)), soft_wrap=True)


def suggest_fit(data: Path, best: Candidate, reading: Reading) -> str:
    """The `cavity fit` command line of the best model, without options that have their default."""
    given = {
        "--label-noise": (best.label_noise, "auto"),
        "--method": (best.method, "auto"),
        "--missing": (reading.missing, "error"),
        "--separator": (reading.separator, ","),
        "--seed": (str(best.seed), "0"),
    }
    words = ["--label", reading.label, "--kernel", best.kernel, "--likelihood", best.likelihood]
    words += [word for name, (value, usual) in given.items() if value != usual for word in (name, value)]
    words += [word for name in reading.categorical or () for word in ("--categorical", name)]
    words += [word for name in reading.ignore or () for word in ("--ignore", name)]
    words += ([] if best.optimize else ["--no-optimize"]) + ([] if reading.standardize else ["--no-standardize"])
    return shlex.join(["cavity", "fit", str(data), *words, "--out", "model.npz"])


def best_candidate(rows: list[Evidence], candidates: list[Candidate]) -> Candidate:
    """The candidate with the largest evidence that can be relied on; the first of equals."""
    known = [place for place, row in enumerate(rows) if row.log_evidence is not None and row.settled]
    if not known:
        raise ValueError("None of the models reached a fixed point, so none is the best; try --label-noise auto.")
    return candidates[max(known, key=lambda place: rows[place].log_evidence or 0.0)]


def show_features(best: Candidate, X: np.ndarray, y: np.ndarray, names: tuple[str, ...], console: Console) -> None:
    """Forward selection with the best model, and the features it takes."""
    kind = dataclasses.replace(best, kernel="rbf") if best.kernel == "ard" else best
    estimator: Any = kind.estimator(X)
    if kind.kernel == "rbf":
        estimator.set_params(kernel=None)  # which finds its scale itself, for any number of columns
    with UnitProgress("features", X.shape[1] * (X.shape[1] + 1) // 2, console=console) as progress:
        selection = select_features(estimator, X, y, callback=lambda row: progress.finish())
    show(shown(feature_table(selection, names)), console)
    words = ", ".join(repr(names[feature]) for feature in selection.features)
    line = f"Features: {words}, with log evidence {selection.log_evidence:.3f} for {kind.kernel}, {kind.likelihood}."
    console.print(Text(printable(line)), soft_wrap=True)


def feature_table(selection: Any, names: tuple[str, ...]) -> Table:
    """The features in the order they were taken, with the evidence of the model they make."""
    evidences = {row["features"]: row["log_evidence"] for row in selection.table}
    short = sum(row["status"] not in AS_PROMISED for row in selection.table)
    steps = [selection.features[: count + 1] for count in range(len(selection.features))]
    rows = [(len(taken), names[taken[-1]], f"{evidences[taken]:.3f}") for taken in steps]
    also = f"; {short} fell short and were not taken" if short else ""
    tried = f"{len(selection.table)} models were tried{also}."
    return Table("Features", ("taken", "feature", "log evidence"), rows, tried)
