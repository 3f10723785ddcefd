"""Relaxed EP, figure 2: decision boundaries on the 400-point problem with 20 % of the labels flipped."""

import numpy as np

from cavity.reports import Figure, Table, figure
from cavity.reports.figures import label
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.relaxed import DOCUMENT, contest, two_classes
from cavity_reproductions.relaxed.contest import NAMES

NOISE = 0.2
#: the drawn part of the plane and the lattice on it
SIDES = (np.linspace(-4.5, 4.5, 91), np.linspace(-2.7, 2.7, 55))


def units(config: Config) -> list[Unit]:
    return [make_unit(config, 0, "one set")]


def run_unit(unit: Unit, config: Config) -> dict:
    data = two_classes.data_set(unit.seed, NOISE, config)
    lattice = np.stack(np.meshgrid(*SIDES), axis=-1).reshape(-1, 2)
    methods = two_classes.watched_contest(data, NOISE, config, lattice)
    return {"X": data.X, "y": data.y, "methods": methods}


def summarise(results: Results, config: Config) -> Outcome:
    methods = results["one set"]["methods"]
    rows = [
        (
            name,
            one["width"],
            one["setting"],
            one["iterations"],
            one["converged"],
            100 * one["error"],
            int(np.sum(crossings(array(one["f"])))),
        )
        for name, one in methods.items()
    ]
    error = {name: one["error"] for name, one in methods.items()}
    sweeps = {name: one["iterations"] or np.inf for name, one in methods.items()}
    checks = {
        "EP does not settle": methods["EP"]["iterations"] is None,
        "PEP settles": methods["PEP"]["iterations"] is not None,
        "REP settles, in fewer sweeps than PEP": sweeps["REP"] < sweeps["PEP"],
        "REP's boundary has fewer test errors than EP's": error["REP"] < error["EP"],
        "REP's boundary has fewer test errors than PEP's": error["REP"] < error["PEP"],
    }
    n, test = two_classes.sizes(config)
    table = Table(
        f"One set of {n} points, {NOISE:.0%} of the labels flipped; errors on {test} clean points",
        (
            "method",
            "w",
            "power or share of c",
            "sweeps to R < 0.001",
            "fixed point",
            "error %",
            "lattice cells crossed",
        ),
        rows,
        contest.grids_in_words(),
    )
    sentence = "Test errors " + ", ".join(f"{name} {100 * error[name]:.1f} %" for name in NAMES) + "."
    return Outcome((table, check_table(checks)), {"methods": rows}, grade(checks), sentence)


def crossings(values: np.ndarray) -> np.ndarray:
    """Cells of the lattice on whose edges the sign changes: the length of the boundary, in cells."""
    sign = np.sign(values.reshape(len(SIDES[1]), len(SIDES[0])))
    right, up = sign[:-1, :-1] * sign[:-1, 1:] < 0, sign[:-1, :-1] * sign[1:, :-1] < 0
    return right | up


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(2, 2, width=11, height=7.4)
    X, y = array(results["one set"]["X"]), array(results["one set"]["y"])
    for ax, (name, one) in zip(axes.flat, results["one set"]["methods"].items(), strict=True):
        for side, marker, colour in ((1, "x", "#D55E00"), (-1, "o", "#0072B2")):
            mine = X[y == side]
            style = {"linestyle": "none", "marker": marker, "color": colour, "markersize": 3, "fillstyle": "none"}
            ax.plot(mine[:, 0], mine[:, 1], **style)
        values = array(one["f"]).reshape(len(SIDES[1]), len(SIDES[0]))
        ax.contour(*SIDES, values, levels=[0.0], colors="black", linewidths=1.5)
        label(ax, f"{name}, {100 * one['error']:.1f} % errors on clean points", "x₁", "x₂")
    return sheet


EXPERIMENT = Experiment(
    name="rep-2",
    document=f"{DOCUMENT}, figure 2",
    title="Decision boundaries with 20 % wrong labels",
    claim="EP diverges and draws a chaotic boundary; Power EP settles and draws a better one with strange shapes; "
    "relaxed EP settles in half the sweeps and draws a much more reasonable one.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
