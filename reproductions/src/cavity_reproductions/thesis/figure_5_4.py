"""Thesis figure 5-4: one of the three points replicated."""

from typing import Any

import numpy as np

from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import label, legend, shared_legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, check_table, grade, make_unit
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.thesis.figure_5_2 import billiards
from cavity_reproductions.thesis.three_points import JITTER, MOST, balls, direct_methods, points, root_mean_square

METHODS = ("EP", "ADF", "TAP", "naive MF", "SVM")
NAMES = ("(1, 0)", "(0, 0)", "(0, 1)")
#: what counts as much worse, as unchanged, and as no worse than ten copies
WORSE, UNCHANGED, NO_WORSE = 3.0, 1.05, 1.5


def copies(config: Config) -> list[int]:
    """How often a point is repeated."""
    return [1, 10] if config.size == "tiny" else [1, 2, 5, 10, 20, 50]


def ball_copies(config: Config) -> list[int]:
    """Those tried with the billiard."""
    return [count for count in copies(config) if count in (1, 10, 50)]


def units(config: Config) -> list[Unit]:
    replicated = [(which, count) for which in range(3) for count in copies(config)]
    return [
        *(
            make_unit(config, k, f"{NAMES[which]} × {count}", which=which, copies=count)
            for k, (which, count) in enumerate(replicated)
        ),
        *(make_unit(config, 100 + count, f"billiard × {count}", copies=count) for count in ball_copies(config)),
    ]


def run_unit(unit: Unit, config: Config) -> dict[str, Any]:
    count = unit.options["copies"]
    if unit.name.startswith("billiard"):
        bounces, number = config.pick(100_000, 10_000, 100), config.pick(16, 4, 2)
        return balls(points(count), "billiard inside", bounces, number, unit.seed)
    return direct_methods(points(count, unit.options["which"]))


def errors(results: Results, method: str, which: int, config: Config) -> np.ndarray:
    """By number of copies; nan where the method did not settle."""
    found = [results[f"{NAMES[which]} × {count}"][method] for count in copies(config)]
    return np.array([own["error"][-1] if own.get("converged", True) else np.nan for own in found])


def summarise(results: Results, config: Config) -> Outcome:
    counts = copies(config)
    ten = counts.index(10)
    first = {name: errors(results, name, 0, config) for name in METHODS}
    ep = np.stack([errors(results, "EP", which, config) for which in range(3)])
    ball = {count: float(root_mean_square([results[f"billiard × {count}"]])[-1]) for count in ball_copies(config)}
    settled = ~np.isnan(first["TAP"])
    checks = {
        f"ten copies make EP worse, {WORSE:g} times or more": bool(first["EP"][ten] > WORSE * first["EP"][0]),
        "where TAP settles it has EP's error": bool(
            np.allclose(first["TAP"][settled], first["EP"][settled], rtol=1e-4)
        ),
        "the SVM is unchanged": bool(np.all(first["SVM"] < UNCHANGED * first["SVM"][0])),
        "the billiard is unchanged, within twice its error": max(ball.values()) < 2 * ball[1],
        f"more copies than ten do not make EP worse, beyond a factor {NO_WORSE:g}": bool(
            np.all(first["EP"][ten:] < NO_WORSE * first["EP"][ten])
        ),
        f"nor does replicating another point, beyond a factor {NO_WORSE:g}": bool(
            np.all(ep[1:] < NO_WORSE * ep[0, ten])
        ),
    }
    rows = [(f"{name}, of {NAMES[0]}", *map(float, first[name])) for name in METHODS]
    rows += [(f"EP, of {NAMES[which]}", *map(float, ep[which])) for which in (1, 2)]
    table = Table(
        "Distance to the Bayes point, by number of copies",
        ("method", *map(str, counts)),
        rows,
        f"A ball inside: {', '.join(f'{error:.1e} (× {count})' for count, error in ball.items())}. Naive mean "
        f"field needs the inverse of C, which copies take away: {JITTER:g} is added to its diagonal, and its first "
        f"step divided by the number of points. —: did not settle "
        f"in {MOST} iterations.",
    )
    sentence = (
        f"EP's error is {first['EP'][0]:.1e} with the point alone, {first['EP'][ten]:.3f} with ten and "
        f"{first['EP'][-1]:.3f} with {counts[-1]} copies; the largest with copies of another is {ep[1:].max():.3f}."
    )
    numbers = {"errors": first, "of other points": ep[1:], "billiard": ball}
    return Outcome((table, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 2, width=11.0, height=4.6)
    run = results["(1, 0) × 10"]
    for name in [name for name in METHODS if run[name].get("converged", True)]:
        style = STYLES[name].plot() | ({"markersize": 12, "linestyle": "none", "zorder": 4} if name == "ADF" else {})
        every = 0.05 if len(run[name]["cost"]) > 1 else None
        axes[0, 0].loglog(run[name]["cost"], run[name]["error"], **style, markevery=every, label=name)
    billiards(axes[0, 0], {"billiard inside": [results["billiard × 10"]]})
    label(axes[0, 0], "(a) Ten copies of (1, 0)", "multiplications", "distance to the Bayes point")
    for which, name in enumerate(NAMES):
        style = STYLES["EP"].plot() | {"linestyle": ("-", "--", ":")[which]}
        axes[0, 1].loglog(copies(config), errors(results, "EP", which, config), **style, label=name)
    label(axes[0, 1], "(b) EP by the point that is repeated", "copies", "distance to the Bayes point")
    legend(axes[0, 1])
    shared_legend(sheet, [axes[0, 0]])
    return sheet


EXPERIMENT = Experiment(
    name="thesis-5-4",
    document=f"{DOCUMENT}, figure 5-4",
    title="One of three points replicated",
    claim="With ten copies of (1, 0) the accuracy of EP, TAP and naive mean field degrades, that of SVM and billiard "
    "does not. More copies, or copies of another point, do not degrade it any further.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
