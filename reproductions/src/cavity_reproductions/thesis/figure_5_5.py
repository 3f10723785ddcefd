"""Thesis figure 5-5: the posterior mean when labels may be wrong (ε = 0.1)."""

from typing import Any

import numpy as np

import cavity
from cavity.baselines import exact_bayes_point, svm
from cavity.factors import Step
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import STYLES, label
from cavity_reproductions.axes import box_by_name
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
from cavity_reproductions.thesis.three_points import LABELS, POINTS, Points, distance, unit
from cavity_reproductions.workbench import infer

NOISE, PRICE = 0.1, 2.0
#: a fourth point, labelled +, that leaves few perfect separators, near 135°; the figure's own is not printed
FOURTH = (-0.2, 1.3)
SIZES = (4, 8)
METHODS = ("EP", "SVM")


def units(config: Config) -> list[Unit]:
    return [make_unit(config, 0, "figure"), *(make_unit(config, n, f"n = {n}", n=n) for n in SIZES)]


def weights(data: Points) -> dict[str, np.ndarray]:
    """Exact posterior mean, EP's, and the SVM's with slack."""
    return {
        "exact": exact_bayes_point(data.X, data.y, NOISE).mean,
        "EP": np.asarray(infer(cavity.models.latent_gaussian(data.y, Step(NOISE), X=data.X)).mean),
        "SVM": data.X.T @ svm(data.K, data.y, C=PRICE).alpha,
    }


def run_unit(unit_: Unit, config: Config) -> dict[str, Any]:
    if unit_.name == "figure":
        data = Points(np.vstack([POINTS, [*FOURTH, 1.0]]), np.append(LABELS, 1.0))
        return {"weights": weights(data), "separators": exact_bayes_point(data.X, data.y).mean}
    rng = np.random.default_rng(unit_.seed)
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    for _ in range(config.pick(100, 10, 2)):
        clean = random_points(rng, unit_.options["n"])
        data = Points(clean.X, np.where(rng.random(len(clean.y)) < NOISE, -clean.y, clean.y))
        own = weights(data)
        for name in METHODS:
            found[name].append(distance(own[name], unit(own["exact"])))
    return found


def angle(w: Any) -> float:
    """Of the boundary, in degrees: 0 is horizontal, 90 vertical."""
    return float(np.degrees(np.arctan2(w[0], -w[1])) % 180)


def summarise(results: Results, config: Config) -> Outcome:
    shown = results["figure"]
    angles = {name: angle(w) for name, w in shown["weights"].items()}
    angles["perfect separators"] = angle(shown["separators"])
    rows = []
    for n in SIZES:
        own = {name: joined(results, f"n = {n}", name) for name in METHODS}
        rows.append((f"n = {n}", *(median(own[name]) for name in METHODS), share(own["EP"] < own["SVM"])))
    checks = {
        "the exact boundary turns from the perfect separators to the vertical": abs(angles["exact"] - 90)
        < 0.5 * abs(angles["perfect separators"] - 90),
        "EP's boundary is within 10° of the exact one": abs(angles["EP"] - angles["exact"]) < 10,
        "so is the SVM's with C = 2": abs(angles["SVM"] - angles["exact"]) < 10,
        "on random sets EP is closer to the exact mean than the SVM on nine of ten": all(row[-1] > 0.9 for row in rows),
    }
    tables = (
        Table("Angle of the boundary, degrees", ("", "angle"), list(angles.items()), "90° is vertical."),
        Table(
            f"Random sets, a tenth of the labels wrong: median distance to the exact mean, ε = {NOISE}",
            ("points", *METHODS, "EP closer"),
            rows,
            f"SVM with C = {PRICE:g}. Exact: the cones of all patterns of wrong labels added up.",
        ),
        check_table(checks),
    )
    sentence = (
        f"Perfect separators lie near {angles['perfect separators']:.0f}°; with ε = {NOISE} the exact boundary is at "
        f"{angles['exact']:.0f}°, EP's at {angles['EP']:.0f}°, the SVM's at {angles['SVM']:.0f}°."
    )
    return Outcome(tables, {"angles": angles, "random": rows}, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 2, width=11.0, height=4.4)
    boundaries(axes[0, 0], results["figure"]["weights"])
    axes[0, 0].plot(*FOURTH, "o", color="black", markersize=8)
    label(axes[0, 0], "(a) Four points, ε = 0.1", "x₁", "x₂")
    samples = {f"{name}, n = {n}": joined(results, f"n = {n}", name) for n in SIZES for name in METHODS}
    colours = {name: STYLES[name.split(",")[0]].colour for name in samples}
    box_by_name(axes[0, 1], samples, colours)
    label(axes[0, 1], "(b) Random sets", "", "distance to the exact mean")
    return sheet


EXPERIMENT = Experiment(
    name="thesis-5-5",
    document=f"{DOCUMENT}, figure 5-5",
    title="Noisy labels",
    claim="With ε = 0.1 EP agrees well with the exact posterior mean, whose boundary comes out vertical: a compromise "
    "of few perfect separators at 135° and many boundaries with one error. The SVM does the same with C = 2, here.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
