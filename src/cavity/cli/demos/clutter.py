"""The demo: one clutter problem, every method on it, against the exact answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text
from scipy.stats import norm

import cavity
from cavity.baselines import gibbs, importance, laplace, variational_bayes
from cavity.exact_inference import exact, posterior_density
from cavity.reports import STYLES, Figure, Table, UnitProgress, figure, save, show
from cavity.reports.figures import label, legend

POINTS = 20
#: where the signal lies
THETA = 2.0
METHODS: dict[str, cavity.Method] = {
    "EP": cavity.EP(),
    "ADF": cavity.ADF(),
    "Power EP": cavity.PowerEP(0.5),
    "Restricted EP": cavity.RestrictedEP(),
}
BASELINES = {"Laplace": laplace, "VB": variational_bayes, "importance": importance, "Gibbs": gibbs}
#: how a baseline ends when nothing is to be said of it; the note of importance sampling is its sample size
ENDS = {"Laplace": "at a mode", "VB": "at a maximum", "importance": "sampled", "Gibbs": "sampled"}
Row = tuple[str, float, float, float, float, float, int, str]


def demo_data(seed: int = 0) -> np.ndarray:
    """Twenty points, half of them clutter, the others around θ = 2."""
    rng = np.random.default_rng(seed)
    signal = rng.normal(THETA, 1.0, POINTS)
    return np.where(rng.random(POINTS) < 0.5, rng.normal(0.0, 10.0**0.5, POINTS), signal)


def demo_rows(x: np.ndarray, progress: UnitProgress) -> Iterator[Row]:
    """(method, mean, sd, log evidence, its error, error of the mean, evaluations, status), the exact answer first."""
    problem = cavity.models.clutter(x)
    progress.begin("exact")
    truth = exact(problem)
    yield row("exact", truth, truth, "exact")
    for name, method in METHODS.items():
        progress.finish()
        progress.begin(name)
        found = cavity.infer(problem, method)
        if found.status is cavity.Status.INTERRUPTED:
            raise KeyboardInterrupt
        yield row(name, found, truth, short(found.status))
    for name, baseline in BASELINES.items():
        progress.finish()
        progress.begin(name)
        estimate = baseline(problem)
        yield row(name, estimate, truth, ENDS[name] if name == "importance" else estimate.note or ENDS[name])


def short(status: cavity.Status) -> str:
    """The status in a word that fits the column."""
    return "restricted" if status is cavity.Status.CONVERGED_RESTRICTED else str(status).replace("_", " ")


def row(name: str, found: Any, truth: Any, status: str) -> Row:
    """One line of the table."""
    mean, evidence = float(found.mean), float(found.log_evidence)
    errors = abs(evidence - truth.log_evidence), abs(mean - truth.mean)
    return name, mean, float(found.covariance) ** 0.5, evidence, *errors, int(found.evaluations), status


def demo_table(rows: list[Row]) -> Table:
    """The rows with their heading."""
    columns = ("method", "mean", "sd", "log p(D)", "log p(D) error", "mean error", "cost", "status")
    title = f"The clutter problem: {POINTS} points, half of them clutter"
    return Table(title, columns, rows, "cost: factor evaluations.")


def demo_figure(x: np.ndarray, rows: list[Row]) -> Figure:
    """The exact posterior, the Gaussian approximations, and the data below."""
    grid = np.linspace(-1.0, 5.0, 601)
    density = posterior_density(cavity.models.clutter(x), grid, log=True) - rows[0][3]
    sheet, axes = figure(1, 1, width=8.5, height=4.6)
    ax = axes[0, 0]
    ax.fill_between(grid, np.exp(density), color="#dddddd")
    ax.plot(grid, np.exp(density), **STYLES["exact"].curve(), label="exact")
    for name, mean, sd, *_ in rows:
        if name in ("EP", "ADF", "Power EP", "Laplace", "VB"):
            ax.plot(grid, norm.pdf(grid, mean, sd), **STYLES[name].curve(), label=name)
    inside = x[(x > grid[0]) & (x < grid[-1])]
    ax.plot(inside, np.full(inside.size, -0.03), "|", color="black", markersize=11, label="data (some lie outside)")
    label(ax, f"Clutter problem, n = {x.size}, w = 0.5", "θ", "posterior density")
    legend(ax, outside=True)
    return sheet


def show_clutter(out: Path, seed: int, console: Console) -> None:
    """Print the table, write the figure, and print the path of its file."""
    x = demo_data(seed)
    with UnitProgress("compiling and running", 1 + len(METHODS) + len(BASELINES), console=console) as progress:
        rows = list(demo_rows(x, progress))
    show(demo_table(rows), console)
    save(demo_figure(x, rows), out)
    console.print(Text(f"written: {out}"), soft_wrap=True)
