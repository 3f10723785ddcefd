"""`cavity warm`: the usual programs compiled beforehand, for an image or a machine that runs tests."""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

import cavity
from cavity._cli.cache import contents, folder_in_use, megabytes
from cavity._cli.errors import fail, in_a_sentence
from cavity._core import checks
from cavity._core.compiling import the_folder
from cavity.estimators import BayesPointMachine, GPClassifier, GPRegressor
from cavity.reports import Table, UnitProgress, show

#: rows of the Gaussian processes; data of fewer rows are padded to one of these
ROWS = (32, 64, 128, 256)
COLUMNS = 3


def labelled(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and noisy values of a function of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, COLUMNS))
    return X, X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.3 * rng.normal(size=rows)


def classify(rows: int) -> Any:
    """Fit and predict two classes."""
    X, y = labelled(rows)
    return GPClassifier().fit(X, y > 0.0).predict_proba(X[:5])


def regress(rows: int) -> Any:
    """Fit and predict values."""
    X, y = labelled(rows)
    return GPRegressor().fit(X, y).predict(X[:5], return_std=True)


def separate() -> Any:
    """A linear classifier."""
    X, y = labelled(1000)
    return BayesPointMachine().fit(X, y > 0.0).predict_proba(X[:5])


def latent() -> Any:
    """A Gaussian process as a model, without a search."""
    X, y = labelled(1000)
    signs = np.where(y > 0.0, 1.0, -1.0)
    kernel = cavity.kernels.RBF(1.0)
    return cavity.infer(cavity.models.latent_gaussian(signs, cavity.factors.Probit(), X=X, kernel=kernel))


def clutter() -> Any:
    """The clutter problem."""
    return cavity.infer(cavity.models.clutter(np.linspace(-1.0, 3.0, 20)))


def mean_and_precision() -> Any:
    """A normal distribution whose mean and precision are unknown."""
    graph = cavity.FactorGraph()
    mean, precision = graph.gaussian(0.0, 10.0, name="mean"), graph.gamma(1.0, 1.0, name="precision")
    graph.normal(mean, precision, out=np.linspace(1.0, 3.0, 30))
    return cavity.infer(graph)


def ratings() -> Any:
    """The skills of players who have met in games."""
    winners = np.arange(200) % 20
    graph = cavity.FactorGraph()
    skill = graph.gaussian(np.full(20, 25.0), np.full(20, 69.0), name="skill")
    graph.greater(graph.linear(skill[winners], skill[(winners + 7) % 20], weights=(1, -1), variance=35.0), 0.0)
    return cavity.infer(graph)


def network() -> Any:
    """A discrete network with loops."""
    tables = np.random.default_rng(0).random((10, 2, 2)) + 0.1
    graph = cavity.DiscreteGraph([2] * 10)
    for place, table in enumerate(tables):
        graph.add_factor([place, (place + 1) % 10], table)
    return cavity.infer(graph)


CASES: dict[str, list[Callable[[], Any]]] = {
    "classifier": [partial(classify, rows) for rows in ROWS],
    "regressor": [partial(regress, rows) for rows in ROWS],
    "bayes-point": [separate],
    "latent": [latent],
    "mean-precision": [mean_and_precision],
    "ratings": [ratings],
    "network": [network],
    "clutter": [clutter],
}


def warm(
    cases: Annotated[
        list[str] | None, typer.Argument(help=f"Of {', '.join(CASES)}; all if none is named.", show_default=False)
    ] = None,
) -> None:
    """Compile the usual programs beforehand, so that no process after this one waits for them.

    They are kept where `cavity cache` says. Says how long each case took and how much space its programs take.
    """
    console = Console()
    with in_a_sentence("Stopped; what was compiled until now is kept."):
        names = [checks.choice("CASES", name, tuple(CASES)) for name in cases or CASES]
        root = folder_in_use()
        if (folder := the_folder()) is None:
            fail(f"{root} cannot be used to keep programs in.")
        rows, before = [], contents(root)
        with UnitProgress("compiling", len(names), console=console) as progress:
            for name in names:
                progress.begin(name)
                began = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # what comes out does not matter
                    for call in CASES[name]:
                        call()
                after = contents(root)
                added = after.programs - before.programs, megabytes(after.size - before.size)
                rows.append((name, f"{time.perf_counter() - began:.1f} s", *added))
                before = after
                progress.finish()
        show(Table("Compiled", ("case", "time", "new programs", "space"), rows), console)
        if not folder.writable:
            fail(f"Not everything could be written to {root}: is the disk full?")
        said = f"kept: {before.programs} programs, {megabytes(before.size)}, in {root}"
        console.print(Text(said), soft_wrap=True)
