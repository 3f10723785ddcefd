"""Thesis figure 5-2: three points, the Bayes point against the SVM, and what it costs to find it."""

import math
from typing import Any

import numpy as np

import cavity
from cavity.baselines import exact_bayes_point
from cavity.factors import Step
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import dress, label, legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.thesis.hopeless import bounds_by_noise, laplace_refusal
from cavity_reproductions.thesis.three_points import (
    LABELS,
    POINTS,
    balls,
    direct_methods,
    distance,
    points,
    root_mean_square,
    unit,
)
from cavity_reproductions.workbench import first_below, infer

#: EP and TAP agree to this, and EP is to be cheaper than a billiard of its error by this
AGREE, CHEAPER = 1e-8, 100
LEVELS = (0.1, 0.01, 0.001, 0.0)
PARTS = ("billiard inside", "Herbrich's billiard")


def units(config: Config) -> list[Unit]:
    bounces = config.pick(2_000_000, 20_000, 200)
    return [
        make_unit(config, 0, "methods"),
        *(
            make_unit(config, 1 + k, f"billiard inside {k}", billiard=PARTS[0], bounces=bounces)
            for k in range(config.pick(2, 1, 1))
        ),
        make_unit(config, 9, PARTS[1], billiard=PARTS[1], bounces=bounces // 4),
    ]


def run_unit(unit_: Unit, config: Config) -> dict[str, Any]:
    data = points()
    if unit_.name != "methods":
        return balls(data, unit_.options["billiard"], unit_.options["bounces"], config.pick(8, 4, 2), unit_.seed)
    noisy = [infer(cavity.models.latent_gaussian(data.y, Step(level), X=data.X)) for level in LEVELS]
    exact = [exact_bayes_point(data.X, data.y, level) for level in LEVELS]
    return {
        "methods": direct_methods(data),
        "exact": unit(exact[-1].mean),
        "laplace": laplace_refusal(data),
        "bound": bounds_by_noise(data, LEVELS, config.pick(20, 4, 1), unit_.seed),
        "ep": {"evidence": [s.log_evidence for s in noisy], "means": [s.mean for s in noisy]},
        "truth": {"evidence": [e.log_evidence for e in exact], "means": [e.mean for e in exact]},
    }


def of(results: Results, name: str) -> list[Any]:
    """Runs of a billiard."""
    return [result for key, result in results.items() if key.startswith(name)]


def cheap(results: Results) -> dict[str, Any]:
    """Cost of EP's error by EP and by the billiard inside; None where the billiard has not reached it."""
    ep = results["methods"]["methods"]["EP"]
    settled = first_below(array(ep["error"]), 1.01 * ep["error"][-1])
    runs = of(results, "billiard inside")
    place = first_below(root_mean_square(runs), ep["error"][-1])
    reached = None if place is None else runs[0]["cost"][place - 1]
    own = ep["cost"][(settled or 1) - 1]
    return {"EP": own, "billiard": reached, "ratio": (reached or runs[0]["cost"][-1]) / own}


def summarise(results: Results, config: Config) -> Outcome:
    first = results["methods"]
    methods = first["methods"]
    gap = float(np.max(np.abs(array(methods["EP"]["weights"]) - array(methods["TAP"]["weights"]))))
    cost = cheap(results)
    errors = {name: own["error"][-1] for name, own in methods.items()}
    levels = noise_rows(first)
    checks = {
        f"EP and TAP have one fixed point, to {AGREE:g}": gap < AGREE,
        "EP takes fewer iterations than TAP and naive mean field": all(
            len(methods["EP"]["cost"]) < len(methods[name]["cost"]) for name in ("TAP", "naive MF")
        ),
        "EP is closer to the Bayes point than ADF, naive mean field and the SVM": errors["EP"]
        < min(errors[name] for name in ("ADF", "naive MF", "SVM")),
        f"EP has its error at least {CHEAPER} times cheaper than a ball inside the sphere": cost["ratio"] >= CHEAPER,
        "Laplace's method refuses the step likelihood": bool(first["laplace"]),
        "no Gaussian bounds the likelihood at ε = 0, and the bound gets worse on the way there": levels[-1][2] is None
        and levels[0][2] > levels[1][2] > levels[2][2],
    }
    reached = "does not reach it" if cost["billiard"] is None else f"has it after {cost['billiard']:.2g}"
    sentence = (
        f"EP and TAP agree to {gap:.0e}. EP's error is {errors['EP']:.1e}, after {cost['EP']} multiplications; "
        f"a ball inside the sphere {reached}, {cost['ratio']:.2g} times as many. "
        f"Naive mean field {errors['naive MF']:.1e}, SVM {errors['SVM']:.2f}."
    )
    numbers = {"errors": errors, "EP and TAP apart": gap, "cost": cost, "noise": levels}
    tables = way_table(results), noise_table(levels, first["laplace"]), check_table(checks)
    return Outcome(tables, numbers, grade(checks), sentence)


def way_table(results: Results) -> Table:
    """Where every method ended, and what it took."""
    methods = results["methods"]["methods"]
    rows = [
        (name, len(own["cost"]), own["cost"][-1], own["error"][-1], str(array(own["weights"]).round(4)))
        for name, own in methods.items()
    ]
    for name in PARTS:
        runs = of(results, name)
        error = float(root_mean_square(runs)[-1])
        rows.append((f"{name}, one ball", runs[0]["bounces"][-1], runs[0]["cost"][-1], error, ""))
    return Table(
        "Ways to the Bayes point of three points",
        ("method", "iterations", "multiplications", "error", "weights"),
        rows,
        "error: distance of the directions. Of a billiard, root mean square over the balls.",
    )


def noise_table(levels: list[tuple[Any, ...]], laplace: str) -> Table:
    """EP beside the best Gaussian bound."""
    names = ("EP, error of log p(D)", "bound, error of log p(D)", "EP, error of direction", "bound, error of direction")
    return Table(
        "Label noise, and what a Gaussian lower bound makes of it",
        ("ε", *names),
        levels,
        f"Laplace's method: {laplace}",
    )


def noise_rows(first: Any) -> list[tuple[Any, ...]]:
    """(ε, errors of log p(D) and of the direction, by EP and by the bound)."""
    rows = []
    for k, level in enumerate(LEVELS):
        truth, target = unit(first["truth"]["means"][k]), first["truth"]["evidence"][k]
        bound, mean = first["bound"]["bounds"][k], array(first["bound"]["means"][k])
        found = (None, None) if bound is None else (bound - target, distance(mean, truth))
        ep = first["ep"]["evidence"][k] - target
        rows.append((f"{level:g}", ep, found[0], distance(first["ep"]["means"][k], truth), found[1]))
    return rows


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 2, width=11.5, height=4.6)
    methods = results["methods"]["methods"]
    shown = {name: methods[name]["weights"] for name in ("EP", "naive MF", "SVM", "SVM, normalised")}
    boundaries(axes[0, 0], {"exact": results["methods"]["exact"], **shown})
    label(axes[0, 0], "(a) Boundaries", "x₁", "x₂")
    ax = axes[0, 1]
    for name in ("EP", "ADF", "TAP", "naive MF", "SVM"):
        style = STYLES[name].plot() | ({"markersize": 12, "linestyle": "none", "zorder": 4} if name == "ADF" else {})
        ax.loglog(methods[name]["cost"], methods[name]["error"], **style, label=name)
    billiards(ax, {name: of(results, name) for name in PARTS})
    label(ax, "(b) Cost and error", "multiplications", "distance to the Bayes point")
    legend(ax, outside=True)
    return sheet


def billiards(ax: Any, runs: dict[str, list[Any]]) -> None:
    """Every ball as a faint line, and their root mean square."""
    for name, own in runs.items():
        style = STYLES[name].curve()
        for each in own:
            ax.loglog(each["cost"], array(each["errors"]), **(style | {"alpha": 0.2, "linewidth": 0.7}))
        ax.loglog(own[0]["cost"], root_mean_square(own), **style, label=f"{name}, one ball")


def boundaries(ax: Any, weights: dict[str, Any]) -> None:
    """The points and the lines wᵀx = 0."""
    for y, marker in ((1.0, "o"), (-1.0, "s")):
        ax.plot(*POINTS[y == LABELS, :2].T, marker, color="black", markersize=8, fillstyle="full" if y > 0 else "none")
    reach = np.array([-3.0, 3.0])
    for name, w in weights.items():
        a, b, c = unit(w)
        # A point of the line and its direction: also lines without a slope can be drawn.
        foot, along = -c * np.array([a, b]) / (a**2 + b**2), np.array([-b, a]) / math.hypot(a, b)
        ax.plot(*(foot[:, None] + along[:, None] * reach), **STYLES[name].curve(), label=name)
    ax.set_xlim(-0.5, 1.5)
    ax.set_ylim(-0.5, 1.5)
    ax.set_aspect("equal")
    dress(ax)
    legend(ax, outside=True)


EXPERIMENT = Experiment(
    name="thesis-5-2",
    document=f"{DOCUMENT}, figure 5-2",
    title="The Bayes point of three points",
    claim="EP finds the Bayes point accurately, much faster than the billiard; TAP converges to EP's solution, and "
    "like naive mean field more slowly. The SVM ignores the topmost point. Laplace's method and variational Bayes do "
    "not work at all. (The factor of 100 is ours.)",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
