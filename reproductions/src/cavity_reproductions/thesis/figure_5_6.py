"""Thesis figure 5-6: boundaries with nonlinear kernels."""

from typing import Any

import numpy as np

import cavity
from cavity.baselines import billiard, svm
from cavity.factors import Step
from cavity.kernels import RBF, Kernel, Polynomial
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import label, shared_legend
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
from cavity_reproductions.thesis.figure_5_12 import SIDE, lattice
from cavity_reproductions.workbench import infer

KERNELS: dict[str, Kernel] = {
    "σ = 0.2": RBF(0.2),
    "σ = 0.5": RBF(0.5),
    "p = 3": Polynomial(3),
    "p = 10": Polynomial(10),
}
METHODS = ("EP", "SVM", "billiard inside")
POINTS = 40


def units(config: Config) -> list[Unit]:
    return [make_unit(config, k, f"draw {k}") for k in range(config.pick(20, 2, 1))]


def truth(X: np.ndarray) -> np.ndarray:
    """Labels by a wave."""
    return np.where(X[:, 1] > 0.5 * np.sin(3 * X[:, 0]), 1.0, -1.0)


def run_unit(unit: Unit, config: Config) -> dict[str, Any]:
    rng = np.random.default_rng(unit.seed)
    X = rng.uniform(-1, 1, (POINTS, 2))
    y, places = truth(X), lattice()
    found: dict[str, Any] = {"X": X, "y": y, "labels": {}, "positive": {}, "support": {}}
    for name, kernel in KERNELS.items():
        K, cross = np.asarray(kernel(X)), np.asarray(kernel(places, X))
        try:
            machine = svm(K, y)
        except ValueError:
            continue  # a polynomial of low degree need not separate
        solution = infer(cavity.models.latent_gaussian(y, Step(), kernel_matrix=K))
        play = billiard(
            y=y,
            kernel_matrix=K,
            bounces=config.pick(5000, 1000, 50),
            trajectories=4,
            start=machine.alpha,
            seed=unit.seed,
        )
        values = (cross @ solution.q.weights, machine.decide(cross), cross @ np.asarray(play.alpha))
        found["labels"][name] = {
            method: "".join("+" if f > 0 else "-" for f in own) for method, own in zip(METHODS, values, strict=True)
        }
        found["positive"][name] = float(np.mean(y * solution.q.weights > 0))
        found["support"][name] = len(machine.support) / len(y)
    return found


def signs(result: Any, kernel: str, method: str) -> np.ndarray:
    """Labels on the lattice."""
    return np.array([1.0 if mark == "+" else -1.0 for mark in result["labels"][kernel][method]])


def length(labels: np.ndarray) -> float:
    """Of the boundary: neighbours of different label, in sides of the square."""
    table = labels.reshape(SIDE, SIDE)
    return float((np.sum(table[1:] != table[:-1]) + np.sum(table[:, 1:] != table[:, :-1])) / SIDE)


def apart(results: Results, first: tuple[str, str], second: tuple[str, str]) -> np.ndarray:
    """Share of the square on which two (kernel, method) disagree, by draw."""
    both = [r for r in results.values() if first[0] in r["labels"] and second[0] in r["labels"]]
    return np.array([float(np.mean(signs(r, *first) != signs(r, *second))) for r in both])


def summarise(results: Results, config: Config) -> Outcome:
    moved = {m: apart(results, ("σ = 0.2", m), ("σ = 0.5", m)) for m in METHODS}
    rows = []
    for kernel in KERNELS:
        own = [r for r in results.values() if kernel in r["labels"]]
        if not own:
            continue
        lengths = [median(np.array([length(signs(r, kernel, m)) for r in own])) for m in METHODS]
        wrong = [
            100 * median(np.array([np.mean(signs(r, kernel, m) != truth(lattice())) for r in own])) for m in METHODS
        ]
        near = 100 * median(apart(results, (kernel, "EP"), (kernel, "billiard inside")))
        far = 100 * median(apart(results, (kernel, "EP"), (kernel, "SVM")))
        rows.append((kernel, len(own), *lengths, *wrong, near, far, median(array([r["support"][kernel] for r in own]))))
    polynomial = apart(results, ("p = 10", "EP"), ("σ = 0.5", "EP"))
    positive = min(value for r in results.values() for value in r["positive"].values())
    by = {row[0]: row for row in rows}
    checks = {
        "EP's boundary moves less between the widths than the SVM's, in most draws": share(moved["EP"] < moved["SVM"])
        > 0.5,
        "EP's boundary is shorter than the SVM's, at both widths": all(
            by[kernel][2] < by[kernel][3] for kernel in ("σ = 0.2", "σ = 0.5")
        ),
        "the billiard is closer to EP than the SVM is, at both widths": all(
            by[kernel][8] < by[kernel][9] for kernel in ("σ = 0.2", "σ = 0.5")
        ),
        "all α of EP are positive": positive == 1.0,
    }
    tables = (
        Table(
            f"Boundaries, median over draws of {POINTS} points",
            (
                *("kernel", "separable draws", "length: EP", "length: SVM", "length: billiard"),
                *("wrong area, %: EP", "SVM", "billiard", "EP and billiard apart, %", "EP and SVM apart, %"),
                "share of support vectors",
            ),
            rows,
            "Lengths in sides of the square, along the lattice. The polynomial p = 10 and the Gaussian σ = 0.5 "
            f"disagree on {100 * median(polynomial):.1f} % of the square (EP).",
        ),
        check_table(checks),
    )
    sentence = (
        f"Between σ = 0.2 and 0.5 the label changes on {100 * median(moved['EP']):.1f} % of the square for EP and "
        f"{100 * median(moved['SVM']):.1f} % for the SVM (median); EP moves less in "
        f"{share(moved['EP'] < moved['SVM']):.0%} of the draws."
    )
    numbers = {"moved": moved, "kernels": rows, "p = 10 against σ = 0.5": median(polynomial)}
    return Outcome(tables, numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, len(KERNELS), width=14.5, height=4.2)
    run = next(iter(results.values()))
    X, y, side = array(run["X"]), array(run["y"]), np.linspace(-1, 1, SIDE)
    for ax, kernel in zip(axes.flat, KERNELS, strict=True):
        for mark, own in (("o", X[y > 0]), ("x", X[y < 0])):
            ax.plot(*own.T, mark, color="black", markersize=4)
        for method in METHODS if kernel in run["labels"] else ():
            values = signs(run, kernel, method).reshape(SIDE, SIDE)
            ax.contour(side, side, values, [0.0], colors=STYLES[method].colour, linewidths=1.5)
            ax.plot([], [], color=STYLES[method].colour, label=method)
        ax.set_aspect("equal")
        label(ax, kernel, "x₁", "x₂")
    shared_legend(sheet, axes.flat)
    return sheet


EXPERIMENT = Experiment(
    name="thesis-5-6",
    document=f"{DOCUMENT}, figure 5-6",
    title="Boundaries with nonlinear kernels",
    claim="With a narrow Gaussian kernel the SVM has extra bumps, and it is sensitive to the width; the Bayes point's "
    "boundary is smoother and hardly affected, all α are positive, and the billiard is similar. Polynomial kernels "
    "behave alike.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
