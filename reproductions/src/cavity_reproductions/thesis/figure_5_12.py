"""Thesis figure 5-12: a circle, and which kernel evidence, margin and span would choose."""

from typing import Any

import numpy as np

import cavity
from cavity.baselines import svm
from cavity.factors import Step
from cavity.kernels import RBF, Polynomial
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import label, legend
from cavity_reproductions.base import (
    Config,
    Experiment,
    Outcome,
    Results,
    Unit,
    array,
    check_table,
    grade,
    make_unit,
    median,
    share,
)
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.workbench import infer

#: widths σ of the Gaussian kernel
WIDTHS = (0.011, 0.02, 0.035, 0.06, 0.1, 0.17, 0.3, 0.5, 0.7, 0.9, 1.2, 1.6)
#: points even on the square [−1, 1]², + inside this radius: about as many of each
POINTS, RADIUS = 60, 0.8
#: of a lattice on which boundaries are compared with the circle
SIDE = 81
CRITERIA = ("evidence", "margin", "span")


def units(config: Config) -> list[Unit]:
    return [make_unit(config, k, f"draw {k}") for k in range(config.pick(20, 3, 1))]


def lattice() -> np.ndarray:
    """Places on the square, one a row."""
    side = np.linspace(-1, 1, SIDE)
    return np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)


def inside(X: np.ndarray) -> np.ndarray:
    """The true label."""
    return np.where(np.sum(X**2, axis=1) < RADIUS**2, 1.0, -1.0)


def run_unit(unit: Unit, config: Config) -> dict[str, Any]:
    rng = np.random.default_rng(unit.seed)
    X = rng.uniform(-1, 1, (POINTS, 2))
    y, places = inside(X), lattice()
    widths = WIDTHS if config.size != "tiny" else WIDTHS[::4]
    found: dict[str, Any] = {
        "widths": widths,
        "X": X,
        "y": y,
        **{name: [] for name in (*CRITERIA, "EP wrong", "SVM wrong")},
    }
    for kernel in (*(RBF(width) for width in widths), Polynomial(2)):
        K, cross = np.asarray(kernel(X)), np.asarray(kernel(places, X))
        solution, machine = infer(cavity.models.latent_gaussian(y, Step(), kernel_matrix=K)), svm(K, y)
        found["evidence"].append(float(solution.log_evidence))
        found["margin"].append(machine.margin_criterion)
        found["span"].append(machine.span_bound)
        for name, values in (("EP", cross @ solution.q.weights), ("SVM", machine.decide(cross))):
            found[f"{name} wrong"].append(float(np.mean(np.sign(values) != inside(places))))
    return found


def picks(result: Any) -> dict[str, int]:
    """The place of the Gaussian kernel each criterion takes; of equally good ones the widest."""
    found = {}
    for criterion in CRITERIA:
        values = array(result[criterion])[:-1] * (-1 if criterion == "evidence" else 1)
        found[criterion] = int(np.flatnonzero(values <= np.nanmin(values))[-1])
    return found


def summarise(results: Results, config: Config) -> Outcome:
    runs = list(results.values())
    widths = array(runs[0]["widths"])
    taken = {criterion: np.array([picks(run)[criterion] for run in runs]) for criterion in CRITERIA}
    wrong = array([run["EP wrong"] for run in runs])
    quadratic = {criterion: array([run[criterion][-1] for run in runs]) for criterion in CRITERIA}
    best = {
        criterion: array([run[criterion][place] for run, place in zip(runs, taken[criterion], strict=True)])
        for criterion in CRITERIA
    }
    ahead = quadratic["evidence"] > best["evidence"]
    rows = [
        (
            criterion,
            median(widths[taken[criterion]]),
            float(widths[taken[criterion]].min()),
            float(widths[taken[criterion]].max()),
            100 * median(wrong[np.arange(len(runs)), taken[criterion]]),
            median(best[criterion]),
            median(quadratic[criterion]),
        )
        for criterion in CRITERIA
    ]
    sigma = {criterion: rows[k][1] for k, criterion in enumerate(CRITERIA)}
    checks = {
        "the quadratic kernel has more evidence than the best Gaussian one, in every draw": bool(ahead.all()),
        "the margin criterion takes a Gaussian kernel over the quadratic, in most draws": share(
            best["margin"] < quadratic["margin"]
        )
        > 0.5,
        "the evidence takes a wider Gaussian than the margin": sigma["evidence"] > sigma["margin"],
        "the margin takes a wider Gaussian than the span": sigma["margin"] > sigma["span"],
        "the evidence's choice among the Gaussians is closest to the circle": rows[0][4] <= min(rows[1][4], rows[2][4]),
    }
    table = Table(
        f"Choice among Gaussian kernels, {len(runs)} draws of {POINTS} points",
        ("criterion", "σ, median", "least", "largest", "wrong area, %", "value there", "value of the quadratic kernel"),
        rows,
        f"Wrong area: of EP's classifier, median; the quadratic kernel has {100 * median(wrong[:, -1]):.1f} %. "
        "Printed: σ = 0.9 (evidence), 0.1 (margin), 0.011 (span).",
    )
    sentence = (
        f"The quadratic kernel has more evidence than the best Gaussian in {int(ahead.sum())} of {len(runs)} draws, by "
        f"{median(quadratic['evidence'] - best['evidence']):.1f} nats (median). Gaussian widths taken: "
        + ", ".join(f"{sigma[criterion]:.2g} ({criterion})" for criterion in CRITERIA)
        + "."
    )
    numbers = {
        "σ": sigma,
        "quadratic ahead": int(ahead.sum()),
        "gap": quadratic["evidence"] - best["evidence"],
        "wrong": wrong,
    }
    return Outcome((table, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 3, width=13.0, height=4.2)
    run = next(iter(results.values()))
    X, y, widths = array(run["X"]), array(run["y"]), array(run["widths"])
    ax = axes[0, 0]
    for side, mark in ((1, "o"), (-1, "x")):
        ax.plot(*X[y == side].T, mark, color="black", markersize=4)
    turn = np.linspace(0, 2 * np.pi, 100)
    ax.plot(
        RADIUS * np.cos(turn), RADIUS * np.sin(turn), color="black", linewidth=0.8, linestyle=":", label="the circle"
    )
    for kernel, name, style in (
        (RBF(widths[picks(run)["evidence"]]), f"σ = {widths[picks(run)['evidence']]:g} (evidence)", STYLES["EP"]),
        (RBF(widths[picks(run)["margin"]]), f"σ = {widths[picks(run)['margin']]:g} (margin)", STYLES["SVM"]),
        (Polynomial(2), "quadratic", STYLES["TAP"]),
    ):
        machine = svm(np.asarray(kernel(X)), y)
        values = machine.decide(np.asarray(kernel(lattice(), X))).reshape(SIDE, SIDE)
        side = np.linspace(-1, 1, SIDE)
        ax.contour(side, side, values, [0.0], colors=style.colour, linewidths=1.4)
        ax.plot([], [], color=style.colour, label=name)
    ax.set_aspect("equal")
    label(ax, "(a) SVM boundaries", "x₁", "x₂")
    legend(ax, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    for ax, criterion, name in ((axes[0, 1], "evidence", "(b) log evidence"), (axes[0, 2], "margin", "(c) R²/M²")):
        style = STYLES["EP" if criterion == "evidence" else "SVM"].curve()
        for k, each in enumerate(results.values()):
            values = array(each[criterion])
            ax.semilogx(widths, values[:-1], **(style | {"linewidth": 0.8}), label="Gaussian" if k == 0 else None)
            ax.axhline(values[-1], color=STYLES["TAP"].colour, linewidth=0.5, label="quadratic" if k == 0 else None)
        if criterion == "margin":
            ax.set_yscale("log")
        label(ax, name + ", every draw", "σ", "")
        legend(ax)
    return sheet


EXPERIMENT = Experiment(
    name="thesis-5-12",
    document=f"{DOCUMENT}, figure 5-12",
    title="A kernel chosen by evidence, margin and span",
    claim="On points labelled by a circle the evidence prefers a wide Gaussian kernel (σ = 0.9), the margin a narrow "
    "one (0.1), the span bound a tiny one (0.011). The quadratic kernel, closest to the truth, has still more "
    "evidence, yet less margin.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
