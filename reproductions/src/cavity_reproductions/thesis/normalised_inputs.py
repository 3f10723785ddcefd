"""Thesis 5.5: the SVM sees the length of an input vector, the Bayes point does not (Herbrich & Graepel 2000)."""

from typing import Any

import numpy as np

import cavity
from cavity.baselines import svm
from cavity.factors import Step
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import label
from cavity_reproductions.base import (
    Config,
    Experiment,
    Outcome,
    Results,
    Unit,
    check_table,
    grade,
    joined,
    make_unit,
    median,
    share,
)
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.thesis.figure_5_2 import boundaries
from cavity_reproductions.thesis.random_points import random_points
from cavity_reproductions.thesis.three_points import Points, bayes_point, distance, points
from cavity_reproductions.workbench import infer

SIZES = (5, 10, 20)
#: of the logarithm of an input's length
LENGTHS = (0.0, 0.7)
METHODS = ("EP", "SVM", "SVM, normalised")
#: change of EP's direction when an input is doubled, at most
INVARIANT = 1e-6


def units(config: Config) -> list[Unit]:
    return [
        make_unit(config, 0, "three points"),
        *(
            make_unit(config, 1 + k, f"n = {n}, spread {lengths:g}", n=n, lengths=lengths)
            for k, (n, lengths) in enumerate((n, lengths) for n in SIZES for lengths in LENGTHS)
        ),
    ]


def weights(data: Points) -> dict[str, np.ndarray]:
    """Of each method."""
    found = {"EP": np.asarray(infer(cavity.models.latent_gaussian(data.y, Step(), X=data.X)).mean)}
    for name, normalise in (("SVM", False), ("SVM, normalised", True)):
        machine = svm(data.K, data.y, normalise=normalise)
        found[name] = data.X.T @ (machine.alpha / machine.scales)
    return found


def run_unit(unit: Unit, config: Config) -> dict[str, Any]:
    if unit.name == "three points":
        data = points()
        doubled = Points(data.X * np.array([[2.0], [1.0], [1.0]]), data.y)
        return {"plain": weights(data), "doubled": weights(doubled), "exact": bayes_point(data)}
    rng = np.random.default_rng(unit.seed)
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    for _ in range(config.pick(100, 10, 2)):
        data = random_points(rng, unit.options["n"], unit.options["lengths"])
        truth = bayes_point(data)
        for name, w in weights(data).items():
            found[name].append(distance(w, truth))
    return found


def summarise(results: Results, config: Config) -> Outcome:
    three = results["three points"]
    plain = {name: distance(three["plain"][name], np.asarray(three["exact"])) for name in METHODS}
    moved = {
        name: distance(three["doubled"][name], np.asarray(three["plain"][name]) / np.linalg.norm(three["plain"][name]))
        for name in METHODS
    }
    rows = []
    for name in results:
        if name != "three points":
            own = {method: joined(results, name, method) for method in METHODS}
            closer = share(own["SVM, normalised"] < own["SVM"])
            rows.append((name, *(median(own[method]) for method in METHODS), closer))
    checks = {
        "on the three points normalising tilts the SVM towards the Bayes point": plain["SVM, normalised"]
        < plain["SVM"],
        "doubling an input moves the SVM": moved["SVM"] > 0.01,
        f"it does not move EP, to {INVARIANT:g}, nor the normalised SVM": max(moved["EP"], moved["SVM, normalised"])
        < INVARIANT,
        "on random points the normalised SVM is closer more often than not, in every group": all(
            row[-1] > 0.5 for row in rows
        ),
    }
    tables = (
        Table(
            "Three points: distance to the Bayes point, and between directions before and after (1, 0, 1) is doubled",
            ("method", "distance", "moved"),
            [(name, plain[name], moved[name]) for name in METHODS],
        ),
        Table(
            "Random separable points: median distance to the exact Bayes point",
            ("points", *METHODS, "normalised SVM closer than SVM"),
            rows,
            "spread: deviation of the logarithm of the inputs' lengths, bias included.",
        ),
        check_table(checks),
    )
    sentence = (
        f"Distance to the Bayes point {plain['SVM']:.2f} (SVM), {plain['SVM, normalised']:.2f} (normalised), "
        f"{plain['EP']:.1e} (EP). On random points the normalised SVM is closer on "
        f"{min(row[-1] for row in rows):.0%} to {max(row[-1] for row in rows):.0%} of the sets."
    )
    return Outcome(tables, {"three points": plain, "moved": moved, "random": rows}, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 2, width=11.5, height=4.4)
    three = results["three points"]
    boundaries(axes[0, 0], {"exact": three["exact"], **three["plain"]})
    label(axes[0, 0], "(a) Three points", "x₁", "x₂")
    ax, groups = axes[0, 1], [name for name in results if name != "three points"]
    for method in METHODS:
        middle = [median(joined(results, name, method)) for name in groups]
        ax.plot(range(len(groups)), middle, **(STYLES[method].plot() | {"linestyle": "none"}), label=method)
    ax.set_xticks(range(len(groups)), [name.replace(", ", "\n") for name in groups], fontsize=8)
    ax.set_yscale("log")
    label(ax, "(b) Random points, median (marks as in a: × EP, ■ SVM, ◆ normalised)", "", "distance to the Bayes point")
    return sheet


EXPERIMENT = Experiment(
    name="thesis-5-norm",
    document=f"{DOCUMENT}, section 5.5",
    title="Inputs of unit length",
    claim="The SVM changes when an input vector is scaled; on the three points normalised inputs tilt it towards the "
    "Bayes point. The Bayes point and EP do not depend on the lengths.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
