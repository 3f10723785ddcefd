"""Relaxed EP, figure 3: the change R of the weights α along the sweeps, on the set of figure 2."""

import numpy as np

from cavity.reports import Figure, Table, figure
from cavity.reports.figures import STYLES, label, shared_legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.relaxed import DOCUMENT, contest, two_classes
from cavity_reproductions.relaxed.figure_2 import NOISE

#: legends
LONG = {"PEP": "Power EP", "REP": "Relaxed EP"}


def units(config: Config) -> list[Unit]:
    return [make_unit(config, 0, "one set")]


def run_unit(unit: Unit, config: Config) -> dict:
    return two_classes.watched_contest(two_classes.data_set(unit.seed, NOISE, config), NOISE, config)


def rises(changes: np.ndarray) -> int:
    """Sweeps after which R was more than twice what it was before: the spikes of the curve."""
    return int(np.sum(changes[1:] > 2 * changes[:-1]))


def summarise(results: Results, config: Config) -> Outcome:
    methods = results["one set"]
    rows = [
        (name, one["setting"], len(one["R"]), one["iterations"], rises(array(one["R"])), float(array(one["R"])[-1]))
        for name, one in methods.items()
    ]
    spikes = {row[0]: row[4] for row in rows}
    sweeps = {name: one["iterations"] or np.inf for name, one in methods.items()}
    checks = {
        "EP's R does not stay below 0.001": methods["EP"]["iterations"] is None,
        "PEP's and REP's R do": all(methods[name]["iterations"] is not None for name in ("PEP", "REP")),
        "PEP and REP have fewer spikes than EP": max(spikes["PEP"], spikes["REP"]) < spikes["EP"],
        "REP is there before PEP": sweeps["REP"] < sweeps["PEP"],
    }
    table = Table(
        f"R = ‖α − α before‖ along at most {contest.SWEEPS} sweeps, {NOISE:.0%} of the labels flipped",
        ("method", "power or share of c", "sweeps", "R < 0.001 from sweep", "spikes", "last R"),
        rows,
        "Spike: R more than doubles. " + contest.grids_in_words(),
    )
    told = ", ".join(f"{name} {one['iterations'] or 'never'}" for name, one in methods.items())
    return Outcome((table, check_table(checks)), {"methods": rows}, grade(checks), f"R stays below 0.001 from: {told}.")


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 1, width=7.5, height=4.8)
    ax = axes[0, 0]
    for name, one in results["one set"].items():
        changes = array(one["R"])
        style = STYLES[LONG.get(name, name)].curve()
        ax.semilogy(np.arange(1, len(changes) + 1), np.maximum(changes, 1e-9), **style, label=LONG.get(name, name))
    ax.axhline(two_classes.SETTLED, color="#777777", linewidth=0.8)
    label(ax, "Change of the weights", "sweep", "R")
    shared_legend(sheet, axes.flat)
    return sheet


EXPERIMENT = Experiment(
    name="rep-3",
    document=f"{DOCUMENT}, figure 3",
    title="Change of the weights along the sweeps",
    claim="Power EP and relaxed EP are stabler than EP, whose estimates oscillate.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
