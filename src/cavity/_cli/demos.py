"""`cavity demo`: what the library does, shown on the terminal and in a figure.

classifier   labels flipped on purpose, learned to be wrong, and found again
clutter      one clutter problem, every method on it, against the exact answer
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.text import Text
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer

import cavity
from cavity._cli.errors import fail, in_a_sentence
from cavity._core.compiling import compile_clock, split_seconds
from cavity.baselines import gibbs, importance, laplace, variational_bayes
from cavity.estimators import GPClassifier
from cavity.exact_inference import exact, posterior_density
from cavity.reports import STYLES, Figure, Table, UnitProgress, figure, save, show
from cavity.reports.classifier_report import Findings, draw_calibration, draw_ranking, findings, share
from cavity.reports.figures import label, legend

#: rows to train on, the others are for the test; a bucket of 256 holds them
TRAINING = 250
FLIPPED = 0.1
#: suspects looked at, as multiples of the number of flips
LISTS = (1, 2)
INTRODUCTION = (
    "Breast cancer (Wisconsin), 569 tumours with 30 measurements each, comes with scikit-learn. A Gaussian process "
    f"learns from {TRAINING} of them, after {FLIPPED:.0%} of their labels have been flipped on purpose."
)


class Shown(NamedTuple):
    """What the demo found. flipped: (n,), which training labels are wrong. test: probabilities and true codes."""

    found: Findings
    flipped: np.ndarray
    test_probabilities: np.ndarray
    test_codes: np.ndarray


def train_on_flipped_labels(seed: int = 0, training: int = TRAINING) -> Shown:
    """Flip labels, fit a classifier, and summarise what it learned."""
    features, labels = (np.asarray(part) for part in load_breast_cancer(return_X_y=True))
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    rows, others = order[:training], order[training:]
    codes = labels[rows].copy()
    flipped = np.zeros(training, bool)
    flipped[rng.choice(training, round(FLIPPED * training), replace=False)] = True
    codes[flipped] = 1 - codes[flipped]
    X = (features - features[rows].mean(axis=0)) / features[rows].std(axis=0)
    began = time.perf_counter()
    with compile_clock() as clock:
        classifier = GPClassifier(label_noise="auto", random_state=seed).fit(X[rows], codes)
    found = findings(classifier, X[rows], codes, time.perf_counter() - began, clock.seconds)
    return Shown(found, flipped, classifier.predict_proba(X[others]), labels[others])


def tables(shown: Shown) -> tuple[Table, Table]:
    """What was learned, and where the flipped labels are among the suspects."""
    found, flips = shown.found, int(shown.flipped.sum())
    right = shown.test_probabilities.argmax(axis=1) == shown.test_codes
    own = shown.test_probabilities[np.arange(len(right)), shown.test_codes]
    learned = [
        ("test accuracy", f"{share(float(right.mean()))} of {len(right)} rows with clean labels"),
        ("test log loss", f"{float(-np.mean(np.log(np.maximum(own, np.finfo(float).tiny)))):.4f} nats per row"),
        ("log evidence", f"{found.log_evidence:.3f}"),
        ("label noise", f"{found.label_noise} learned, {FLIPPED:g} of the labels were flipped"),
        ("kernel", found.kernel),
        ("calibration error", f"{found.calibration.error:.4f} (expected, leave-one-out)"),
        ("status", f"{found.status} ({found.method}; sweeps in the last run: {found.sweeps})"),
        ("time", split_seconds(found.seconds, found.compiling)),
    ]
    caught = []
    for times in LISTS:
        most = times * flips
        hits, chance = int(shown.flipped[found.suspects(most)].sum()), most / len(found.codes)
        caught.append((f"{most} most suspect rows", f"{hits} of {flips} flips", f"{chance:.0%} by chance"))
    note = "Suspect: the other rows make the label improbable (leave-one-out, at no extra cost)."
    wrong = Table("Wrong labels found", ("looked at", "found", "expected"), caught, note)
    return Table("What was learned", ("what", "value"), learned), wrong


def draw_classifier(shown: Shown) -> Figure:
    """Calibration, and all training rows ranked by how probable their label is."""
    sheet, axes = figure(1, 2, width=11.0, height=4.4)
    draw_calibration(axes[0, 0], shown.found.calibration)
    draw_ranking(axes[0, 1], shown.found, shown.flipped)
    return sheet


def show_classifier(out: Path, seed: int, console: Console) -> None:
    """A classifier trained on labels some of which are wrong: tables to the console, figure to the file."""
    console.print(Text(INTRODUCTION))
    with UnitProgress("fitting", 1, console=console) as progress:
        progress.begin("Gaussian process")
        shown = train_on_flipped_labels(seed)
        progress.finish()
    for table in tables(shown):
        show(table, console)
    save(draw_classifier(shown), out)
    console.print(Text(f"written: {out}"), soft_wrap=True)


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
#: how a baseline ends that has no note; the note of importance sampling is its sample size
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
    with UnitProgress("running", 1 + len(METHODS) + len(BASELINES), console=console) as progress:
        rows = list(demo_rows(x, progress))
    show(demo_table(rows), console)
    save(demo_figure(x, rows), out)
    console.print(Text(f"written: {out}"), soft_wrap=True)


#: demos by name; the first is what `make run` shows
DEMOS: dict[str, Callable[[Path, int, Console], None]] = {"classifier": show_classifier, "clutter": show_clutter}


def demo(
    what: Annotated[str, typer.Argument(help=f"One of {', '.join(DEMOS)}.")] = "classifier",
    out: Annotated[Path, typer.Option(help="Where the figure goes (PNG).")] = Path("cavity-demo.png"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data.")] = 0,
) -> None:
    """Tables and a figure. classifier: finds labels flipped on purpose. clutter: every method on one problem."""
    if what not in DEMOS:
        fail(f"There is no demo {what!r}; there are {', '.join(DEMOS)}.")
    if out.suffix.lower() != ".png":
        fail(f"--out must name a .png file; found {out}.")
    if out.is_dir():
        fail(f"--out must name a file; {out} is a folder.")
    with in_a_sentence("Stopped."):
        try:
            # A place that cannot be written is found before the work, not after.
            out.parent.mkdir(parents=True, exist_ok=True)
            DEMOS[what](out, seed, Console())
        except OSError as error:
            fail(f"The figure could not be written to {out}: {error.strerror or error}.")
