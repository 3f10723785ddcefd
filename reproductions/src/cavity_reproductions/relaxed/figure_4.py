"""Relaxed EP, figure 4: sweeps to convergence, share of diverged runs and test error, ten sets at each noise level."""

from typing import Any

import numpy as np

from cavity.reports import Figure, Table, figure
from cavity.reports.figures import label
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, check_table, grade, make_unit
from cavity_reproductions.relaxed import DOCUMENT, contest, two_classes
from cavity_reproductions.relaxed.contest import NAMES, SWEEPS, beats, column, standard_error

NOISES = (0.1, 0.2)


def units(config: Config) -> list[Unit]:
    runs = config.pick(10, 2, 1)
    return [
        make_unit(config, 100 * level + run, f"{noise:.0%}-{run}", noise=noise)
        for level, noise in enumerate(NOISES)
        for run in range(runs)
    ]


def run_unit(unit: Unit, config: Config) -> dict:
    noise = unit.options["noise"]
    found = two_classes.watched_contest(two_classes.data_set(unit.seed, noise, config), noise, config)
    return {name: {key: value for key, value in one.items() if key != "R"} for name, one in found.items()}


def at_level(results: Results, noise: float) -> list[Any]:
    """The runs of a noise level."""
    return [result for name, result in results.items() if name.startswith(f"{noise:.0%}-")]


def iterations(runs: list[Any], name: str) -> np.ndarray:
    """Sweeps to R < 0.001; a run that does not get there counts with all its sweeps."""
    found = column(runs, name, "iterations")
    return np.where(np.isnan(found), SWEEPS, found)


def diverged(runs: list[Any], name: str) -> float:
    """The share of runs whose R does not stay below 0.001."""
    return float(np.mean(np.isnan(column(runs, name, "iterations"))))


def summarise(results: Results, config: Config) -> Outcome:
    tables, numbers = [], {}
    for noise in NOISES:
        runs = at_level(results, noise)
        rows = [
            (
                name,
                float(np.mean(iterations(runs, name))),
                standard_error(iterations(runs, name)),
                diverged(runs, name),
                100 * float(np.mean(column(runs, name, "error"))),
                100 * standard_error(column(runs, name, "error")),
            )
            for name in NAMES
        ]
        numbers[f"{noise:.0%}"] = rows
        heads = ("method", "sweeps to R < 0.001", "s.e.", "diverged", "error %", "s.e. ")
        tables.append(Table(f"{noise:.0%} of the labels flipped, {len(runs)} sets", heads, rows))
    tables[-1] = tables[-1]._replace(
        note=f"A run that does not settle in {SWEEPS} sweeps counts as diverged, and with {SWEEPS}. "
        + contest.grids_in_words()
    )
    levels = [at_level(results, noise) for noise in NOISES]
    checks = {
        "REP always settles": all(diverged(runs, "REP") == 0 for runs in levels),
        "EP diverges on some sets": any(diverged(runs, "EP") > 0 for runs in levels),
        "PEP diverges less often than EP": sum(diverged(runs, "PEP") for runs in levels)
        < sum(diverged(runs, "EP") for runs in levels),
        "REP needs fewer sweeps than EP, both levels": all(
            np.mean(iterations(runs, "REP")) < np.mean(iterations(runs, "EP")) for runs in levels
        ),
        "REP needs fewer sweeps than PEP, both levels": all(
            np.mean(iterations(runs, "REP")) < np.mean(iterations(runs, "PEP")) for runs in levels
        ),
        "REP's error is below EP's by two standard errors, both levels": all(
            beats(column(runs, "REP", "error"), column(runs, "EP", "error")) for runs in levels
        ),
        "REP's error is below PEP's by two standard errors, both levels": all(
            beats(column(runs, "REP", "error"), column(runs, "PEP", "error")) for runs in levels
        ),
    }
    last = {name: 100 * float(np.mean(column(levels[-1], name, "error"))) for name in NAMES}
    sentence = (
        f"At {NOISES[-1]:.0%} noise the errors are "
        + ", ".join(f"{name} {value:.1f} %" for name, value in last.items())
        + "; diverged "
        + ", ".join(f"{name} {diverged(levels[-1], name):.0%}" for name in NAMES)
        + "."
    )
    return Outcome((*tables, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 3, width=13, height=4.2)
    panels = (("sweeps to R < 0.001", 1, 2), ("diverged", 3, None), ("error %", 4, 5))
    width = 0.8 / len(NOISES)
    for ax, (title, place, spread) in zip(axes.flat, panels, strict=True):
        for level, (noise, rows) in enumerate(outcome.numbers.items()):
            places = np.arange(len(NAMES)) + (level - 0.5) * width
            error = None if spread is None else [row[spread] for row in rows]
            ax.bar(places, [row[place] for row in rows], width, yerr=error, label=noise, alpha=0.8)
        ax.set_xticks(range(len(NAMES)), NAMES)
        label(ax, title, "", title)
    axes[0, 0].legend(frameon=False, title="labels flipped")
    return sheet


EXPERIMENT = Experiment(
    name="rep-4",
    document=f"{DOCUMENT}, figure 4",
    title="Convergence and error with wrong labels",
    claim="Relaxed EP always converges, with fewer sweeps than EP and Power EP, which can diverge (Power EP less "
    "often); its predictions are significantly better than both.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
