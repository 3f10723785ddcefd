"""What a fitted classifier found out about its own training data: plain numbers and words, tables, figures, the page.

How far its probabilities of labels can be believed is among it: calibration in bins, and the Brier score.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from cavity._core.compiling import split_seconds
from cavity.kernels import Kernel
from cavity.kernels.base import Sum
from cavity.reports.figures import BLUE, GREY, STYLES, VERMILION, Figure, figure, label, legend
from cavity.reports.html import Picture, Section, page
from cavity.reports.tables import Table

#: models whose kernels are written out
WRITTEN_OUT = 3
#: bins of equal width between the least probability a predicted label can have and 1
BINS = 10


class Calibration(NamedTuple):
    """Rows in bins by the probability of their predicted label; bins without rows are left out.

    confidence: mean probability in each bin. accuracy: share of its rows whose prediction is their label. counts: its
    rows. error: expected calibration error Σ counts/n |accuracy − confidence|. brier: mean of ½ Σ_k (p_k − [y = k])²,
    which for two classes is (p − y)².
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray
    error: float
    brier: float


def calibration(probabilities: np.ndarray, codes: np.ndarray) -> Calibration:
    """Calibration of predicted labels.

    Args:
        probabilities: (n, classes), each row adding up to 1.
        codes: (n,), the column of the label that was observed.
    """
    rows, classes = probabilities.shape
    predicted = probabilities.argmax(axis=1)
    confidence = probabilities[np.arange(rows), predicted]
    edges = np.linspace(1.0 / classes, 1.0, BINS + 1)
    place = np.digitize(confidence, edges[1:-1])
    counts = np.bincount(place, minlength=BINS)
    some = counts > 0
    means = np.bincount(place, confidence, BINS)[some] / counts[some]
    right = np.bincount(place, predicted == codes, BINS)[some] / counts[some]
    observed = np.eye(classes)[codes]
    return Calibration(
        confidence=means,
        accuracy=right,
        counts=counts[some],
        error=float(counts[some] @ np.abs(right - means) / rows),
        brier=float(0.5 * np.mean(np.sum((probabilities - observed) ** 2, axis=1))),
    )


class Findings(NamedTuple):
    """The account of a fit.

    probabilities: (n, classes), of each label as it would be observed, given the other rows. codes: (n,), the
    column of the label it has. residuals, histories: for each model, mismatch by sweep and log evidence by step of
    the search, NaN where a step was refused.
    """

    classes: np.ndarray
    codes: np.ndarray
    probabilities: np.ndarray
    training_error: float
    calibration: Calibration
    log_evidence: float
    kernel: str
    label_noise: str
    method: str
    status: str
    sentence: str
    sweeps: int
    seconds: float
    residuals: list[np.ndarray]
    histories: list[np.ndarray]
    compiling: float

    @property
    def own(self) -> np.ndarray:
        """Leave-one-out probability of every row's own label."""
        return self.probabilities[np.arange(len(self.codes)), self.codes]

    @property
    def loo_error(self) -> float:
        """Share of rows whose label the other rows would not have predicted."""
        return float(np.mean(self.probabilities.argmax(axis=1) != self.codes))

    def suspects(self, most: int) -> np.ndarray:
        """The rows whose own label is least probable given the others, the least probable first."""
        return np.argsort(self.own, kind="stable")[:most]


def findings(estimator: Any, X: np.ndarray, y: np.ndarray, seconds: float, compiling: float = 0.0) -> Findings:
    """Summary of a classifier fitted to X and y with weights of 1 in so many seconds, those of compiling included."""
    codes = np.searchsorted(estimator.classes_, y)
    probabilities = estimator.loo_probabilities_
    models = estimator.models_
    return Findings(
        classes=estimator.classes_,
        codes=codes,
        probabilities=probabilities,
        training_error=float(np.mean(estimator.predict(X) != y)),
        calibration=calibration(probabilities, codes),
        log_evidence=estimator.log_evidence_,
        kernel=name_models([kernel_words(model) for model in models]),
        label_noise=name_models([f"{noise:.3g}" for noise in np.atleast_1d(estimator.label_noise_)]),
        method=", ".join(dict.fromkeys(model.method for model in models)),
        status=str(estimator.status_).replace("_", " "),
        sentence=estimator.status_.sentence,
        sweeps=int(estimator.n_sweeps_),
        seconds=seconds,
        residuals=[np.asarray(model.residuals) for model in models],
        histories=[np.array([step["log_evidence"] for step in model.history], float) for model in models],
        compiling=compiling,
    )


def kernel_words(model: Any) -> str:
    """The kernel of a model with the values learned; a linear model is one in its weights."""
    kernel = vars(model).get("kernel")
    if kernel is None:
        return f"linear (weight variance {np.ravel(model.prior_variance)[0]:.3g})"
    if not isinstance(kernel, Kernel):
        return str(kernel.kernel)
    return (" + " if isinstance(kernel, Sum) else " × ").join(part_words(part) for part in kernel.parts)


def part_words(part: Kernel) -> str:
    """One kernel and its parameters; of many length scales the shortest and the longest."""
    said = []
    for name in part.parameters:
        values = np.ravel(getattr(part, name))
        few = f"{values[0]:.3g}" if values.size == 1 else f"{values.min():.3g} to {values.max():.3g}"
        said.append(f"{name.replace('_', ' ')} {few}")
    return f"{type(part).__name__} ({', '.join(said)})"


def name_models(words: list[str]) -> str:
    """One for each model, the first few written out."""
    more = f"; and {len(words) - WRITTEN_OUT} more" if len(words) > WRITTEN_OUT else ""
    return "; ".join(words[:WRITTEN_OUT]) + more


#: suspects shown on the terminal; at most so many on the page
FEW, MANY = 10, 50
SUSPECTS = "Suspected wrong labels"
#: what a low probability means, for the note below the suspects
SUSPECT_NOTE = (
    "P(own label): probability of the label in the file given all other rows, label noise included; least probable "
    "first. "
    "Rows are numbered as in the file, whose names are row 1."
)


class Evidence(NamedTuple):
    """The log evidence of one model; None where it could not be fitted. settled: whether it can be relied on."""

    name: str
    log_evidence: float | None
    status: str
    settled: bool


class Data(NamedTuple):
    """The rows as they stand in the file, shown beside the suspects."""

    source: str
    label: str
    columns: Sequence[str]
    numbers: Sequence[int]
    cells: Sequence[Sequence[str]]


def summary(found: Findings) -> Table:
    """The final table of a fit."""
    n, classes = found.probabilities.shape
    rows = [
        ("rows, classes", f"{n}, {classes}"),
        ("log evidence", f"{found.log_evidence:.4f} ({found.log_evidence / n:.4f} a row)"),
        ("training error", share(found.training_error)),
        ("leave-one-out error", share(found.loo_error)),
        ("calibration error", f"{found.calibration.error:.4f} (expected, leave-one-out)"),
        ("Brier score", f"{found.calibration.brier:.4f} (leave-one-out)"),
        ("kernel", found.kernel),
        ("label noise", found.label_noise),
        ("method", found.method),
        ("status", f"{found.status}. {found.sentence}"),
        ("sweeps", f"{found.sweeps} (last run)"),
        ("time", split_seconds(found.seconds, found.compiling)),
    ]
    return Table("Fitted", ("what", "value"), rows)


def share(fraction: float) -> str:
    """A fraction in per cent."""
    return f"{100 * fraction:.2f} %"


def suspect_table(found: Findings, data: Data, most: int, with_features: bool = True) -> Table:
    """The rows whose own label is least probable given all others."""
    names = data.columns if with_features else ()
    columns = ("row", f"{data.label} (in the file)", "more probable", "P(own label)", *names)
    rows: list[tuple[Any, ...]] = []
    for row in found.suspects(most):
        best = int(found.probabilities[row].argmax())
        other = str(found.classes[best]) if best != found.codes[row] else "—"
        known = (str(data.numbers[row]), str(found.classes[found.codes[row]]), other, f"{found.own[row]:.4f}")
        rows.append((*known, *(data.cells[row] if with_features else ())))
    return Table(SUSPECTS, columns, rows, SUSPECT_NOTE)


def ranked(rows: Sequence[Evidence]) -> list[tuple[float, Evidence]]:
    """Models that have a log evidence, with it, the largest first."""
    known = [(row.log_evidence, row) for row in rows if row.log_evidence is not None]
    return sorted(known, key=lambda pair: -pair[0])


def evidence_table(rows: Sequence[Evidence], title: str = "Log evidence") -> Table:
    """Models with their log evidences, the largest first, and how far each lies behind it."""
    known = ranked(rows)
    lines: list[tuple[Any, ...]] = [
        (row.name, f"{value:.3f}", f"{value - known[0][0]:.3f}", row.status) for value, row in known
    ]
    lines += [(row.name, None, None, row.status) for row in rows if row.log_evidence is None]
    note = "Odds of 20 to 1 are a difference of 3."
    return Table(title, ("model", "log evidence", "behind the best", "status"), lines, note)


def convergence_figure(found: Findings) -> Figure:
    """Mismatch by sweep of the last run, and the search before it where there was one; a line for each machine."""
    searched = any(history.size for history in found.histories)
    sheet, axes = figure(1, 2 if searched else 1)
    ax = axes[0, -1]
    for residuals in found.residuals:
        ax.semilogy(np.arange(1, residuals.size + 1), np.maximum(residuals, 1e-16), **STYLES["EP"].plot())
    label(ax, "Last run", "sweep", "largest moment mismatch met")
    ax.locator_params(axis="x", integer=True)
    if searched:
        for history in found.histories:
            axes[0, 0].plot(np.arange(1, history.size + 1), history, color=BLUE, marker="o", markersize=4)
        label(axes[0, 0], "Search for parameters", "point tried", "log evidence")
        axes[0, 0].locator_params(axis="x", integer=True)
    return sheet


def draw_calibration(ax: Axes, found: Calibration) -> None:
    """Accuracy against confidence: points near the diagonal are probabilities that can be believed.

    The area of a point is its number of rows. A bar is where 95 % of such points would lie if all probabilities were
    true.
    """
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1.0, linestyle=":", label="perfect")
    spread = 1.96 * np.sqrt(found.confidence * (1 - found.confidence) / found.counts)
    low, high = np.maximum(found.confidence - spread, 0.0), np.minimum(found.confidence + spread, 1.0)
    ax.vlines(found.confidence, low, high, color="#cccccc", linewidth=5, label="95 % if perfect")
    sizes = 20 + 300 * found.counts / found.counts.sum()
    ax.scatter(found.confidence, found.accuracy, s=sizes, color=BLUE, zorder=3, label="rows in a bin")
    ax.set_xlim(float(found.confidence.min()) - 0.05, 1.02)
    ax.set_ylim(float(min(found.accuracy.min(), low.min())) - 0.05, 1.02)
    label(ax, "Calibration, leave-one-out", "probability of the predicted label", "share that agree")
    legend(ax, loc="lower right", markerscale=0.5)


def draw_ranking(ax: Axes, found: Findings, wrong: np.ndarray) -> None:
    """All rows by the probability of their own label. wrong: (n,), labels known to be flipped, drawn on their own."""
    order = found.suspects(len(found.codes))
    rank, own, flipped = np.arange(1, order.size + 1), found.own[order], wrong[order]
    ax.plot(rank, own, ".", color=GREY, markersize=4, label="rows")
    ax.plot(rank[flipped], own[flipped], "x", color=VERMILION, markersize=6, label="flipped on purpose")
    label(ax, SUSPECTS, "rank", "P(own label | other rows)")
    legend(ax)


def evidence_figure(rows: Sequence[Evidence]) -> Figure:
    """How far each model lies behind the best, in nats."""
    known = ranked(rows)[::-1]
    sheet, axes = figure(1, 1, width=6.5, height=1.2 + 0.4 * len(known))
    axes[0, 0].barh([row.name for _, row in known], [value - known[-1][0] for value, _ in known], color=BLUE)
    label(axes[0, 0], "Log evidence over kernels", "behind the best", "")
    return sheet


def classifier_page(found: Findings, data: Data, evidences: Sequence[Evidence], notes: Sequence[str]) -> str:
    """The report as one HTML page. notes: what was warned of."""
    ece = f"expected calibration error {found.calibration.error:.4f}, Brier score {found.calibration.brier:.4f}."
    contradicted = int(np.sum(found.probabilities.argmax(axis=1) != found.codes))
    reliability, axes = figure(1, 1, width=5.2, height=4.4)
    draw_calibration(axes[0, 0], found.calibration)
    compared = Picture(evidence_figure(evidences), "Log evidence of each kernel, relative to the best.")
    words = "The last run starts where the search for parameters ended, if any."
    sections = [
        Section("Summary", (*notes, summary(found))),
        Section(SUSPECTS, (suspect_table(found, data, min(max(contradicted, FEW), MANY)),)),
        Section("Calibration", (Picture(reliability, f"From leave-one-out probabilities: {ece}"),)),
        Section("Evidence over kernels", (evidence_table(evidences), compared)),
        Section("Convergence", (Picture(convergence_figure(found), words),)),
    ]
    return page(f"{data.source}: {data.label}", sections)
