"""Relaxed EP, figure 6: spam with labels flipped in the training and in the test part.

The rates are not printed as numbers; ours are 0, 10 and 20 %. ε is the rate plus 0.05 for the mail that is hard to
tell.
"""

from typing import Any

import numpy as np

from cavity.reports import Figure, figure
from cavity.reports.figures import STYLES, label, shared_legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, make_unit
from cavity_reproductions.datasets import load
from cavity_reproductions.relaxed import DOCUMENT
from cavity_reproductions.relaxed.contest import NAMES, column, contest, contest_outcome, standard_error, standardised
from cavity_reproductions.relaxed.figure_5 import BUNDLED

RATES = (0.0, 0.1, 0.2)
BASE = 0.05


def units(config: Config) -> list[Unit]:
    data, rows = (BUNDLED, 24) if config.size == "tiny" else ("spambase", config.pick(276, 60, 24))
    return [
        make_unit(config, repeat, f"repeat-{repeat}", data=data, rows=rows, rates=RATES[: config.pick(3, 2, 2)])
        for repeat in range(config.pick(100, 1, 1))
    ]


def run_unit(unit: Unit, config: Config) -> dict:
    """One split under every rate; a label that is flipped at a rate stays flipped at the higher ones."""
    data = load(unit.options["data"])
    rng = np.random.default_rng(unit.seed)
    train, test = np.split(rng.permutation(len(data.y)), [unit.options["rows"]])
    chance = rng.random(len(data.y))
    found = {}
    for rate in unit.options["rates"]:
        y = np.where(chance < rate, -data.y, data.y)
        found[f"{rate:.0%}"] = contest(
            standardised(data.X[train], y[train], data.X[test], y[test]), rate + BASE, config
        )
    return found


def at_rate(results: Results, rate: str) -> list[Any]:
    """All repeats at a rate."""
    return [result[rate] for result in results.values()]


def summarise(results: Results, config: Config) -> Outcome:
    groups = {f"{rate} flipped": at_rate(results, rate) for rate in next(iter(results.values()))}
    titles = [f"{group}, {len(results)} repeats" for group in groups]
    return contest_outcome(groups, titles, f"ε is the rate plus {BASE}. Test labels are flipped too.")


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 1, width=6.5, height=4.6)
    ax = axes[0, 0]
    rates = list(next(iter(results.values())))
    for name, style in zip(NAMES, ("EP", "damped EP", "Power EP", "Relaxed EP"), strict=True):
        errors = [100 * column(at_rate(results, rate), name, "error") for rate in rates]
        spread = [standard_error(e) for e in errors]
        ax.errorbar(range(len(rates)), [np.mean(e) for e in errors], yerr=spread, **STYLES[style].plot(), label=style)
    ax.set_xticks(range(len(rates)), rates)
    label(ax, "Spam", "labels flipped", "test error, %")
    shared_legend(sheet, axes.flat)
    return sheet


EXPERIMENT = Experiment(
    name="rep-6",
    document=f"{DOCUMENT}, figure 6",
    title="Spam with added label noise",
    claim="At all rates of flipped labels relaxed EP predicts better than EP and Power EP.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
