"""Jitkrittum et al., figure 1: messages that come in at the logistic factor, in four sets of the UCI repository.

Columns are standardised, without a bias, and 200 rows drawn with the shares of both classes (half of the smallest set),
as in the paper's experiment 5; ten sweeps of parallel EP. Beside them is a generated problem, d = 20, n = 300.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from cavity.reports import Figure, Table, figure
from cavity.reports.figures import BLUE, GREEN, GREY, ORANGE, VERMILION, label, shared_legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.datasets import load
from cavity_reproductions.learned import DOCUMENT
from cavity_reproductions.learned.logistic_messages import Z, random_problem, run_ep, slices_of
from cavity_reproductions.relaxed.figure_5 import BUNDLED

SETS = ("banknote", "blood_transfusion", "fertility", "ionosphere")
GENERATED = "generated"
ROWS, SWEEPS = 200, 10
#: cells of the histograms that are compared: mean, log precision
CELLS = (np.linspace(-15.0, 15.0, 16), np.linspace(-5.0, 7.0, 13))
APART = 0.5


def units(config: Config) -> list[Unit]:
    names = (BUNDLED, GENERATED) if config.size == "tiny" else (*SETS, GENERATED)
    return [make_unit(config, number, name) for number, name in enumerate(names)]


def rows_of(name: str, seed: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Standardised rows of a set, both classes in their shares, at most half of all."""
    if name == GENERATED:
        return random_problem(seed, 20, 300)
    found = load(name)
    deviation = found.X.std(axis=0)
    X = (found.X - found.X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    rng, size = np.random.default_rng(seed), min(most, len(X) // 2)
    parts = [rng.permutation(np.flatnonzero(found.y == side)) for side in (-1, 1)]
    chosen = np.concatenate([part[: round(size * len(part) / len(X))] for part in parts])
    return X[chosen], found.y[chosen]


def run_unit(unit: Unit, config: Config) -> dict:
    """Mean and log precision of all messages from z, after one another by sweeps."""
    X, y = rows_of(unit.name, unit.seed, config.pick(ROWS, ROWS, 40))
    eta = slices_of(run_ep(X, y, config.pick(SWEEPS, SWEEPS, 3)).cavities, Z)
    first = np.arange(eta.shape[0]) == 0
    eta, first = eta.reshape(-1, 2), np.repeat(first, eta.shape[1])
    return {"mean": eta[:, 0] / eta[:, 1], "log_precision": np.log(eta[:, 1]), "first": first, "features": X.shape[1]}


def points(result: Mapping[str, Any]) -> np.ndarray:
    """Messages after the first sweep, (messages, 2): in the first all means are 0."""
    later = ~np.asarray(result["first"], bool)
    return np.column_stack([array(result["mean"]), array(result["log_precision"])])[later]


def histogram(of: np.ndarray) -> np.ndarray:
    """Shares of cells."""
    cells = [np.clip(of[:, k], CELLS[k][0], CELLS[k][-1]) for k in range(2)]
    counts = np.histogram2d(*cells, bins=CELLS)[0]
    return counts / counts.sum()


def summarise(results: Results, config: Config) -> Outcome:
    found = {name: points(result) for name, result in results.items()}
    shares = {name: histogram(of) for name, of in found.items()}
    gaps = {
        (one, other): float(0.5 * np.abs(shares[one] - shares[other]).sum()) for one, other in combinations(found, 2)
    }
    rows = [
        (name, results[name]["features"], len(of), *np.quantile(of, (0.05, 0.95), axis=0).T.ravel().tolist())
        for name, of in found.items()
    ]
    heads = ("set", "features", "messages", "mean, 5 %", "mean, 95 %", "log precision, 5 %", "log precision, 95 %")
    table = Table("Messages to the factor after the first sweep", heads, rows)
    others = Table(
        "Total variation distance of their histograms", ("set", "set", "distance"), [(*k, v) for k, v in gaps.items()]
    )
    real = {pair: gap for pair, gap in gaps.items() if GENERATED not in pair}
    low = min(real.values(), default=0.0)
    checks = {f"every two of the four sets are {APART} or more apart in total variation": bool(real) and low >= APART}
    numbers = {"total variation": {f"{one}, {other}": gap for (one, other), gap in gaps.items()}}
    sentence = f"The two nearest of the four sets are {low:.2f} apart in total variation, 1 being no overlap at all."
    return Outcome((table, others, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 2, width=11.5, height=4.6)
    colours = dict(zip(results, (BLUE, VERMILION, GREEN, ORANGE, GREY), strict=False))
    for ax, first, title in ((axes[0, 0], False, "(a) after the first sweep"), (axes[0, 1], True, "(b) first sweep")):
        for name, result in reversed(list(results.items())):
            chosen = np.asarray(result["first"], bool) == first
            mean, spread = array(result["mean"])[chosen], array(result["log_precision"])[chosen]
            if first:
                ax.hist(spread, np.linspace(-6, 3, 46), histtype="step", density=True, color=colours[name], label=name)
            else:
                ax.plot(mean, spread, ".", color=colours[name], markersize=3, alpha=0.35)
        names = ("mean of the message", "log precision") if not first else ("log precision (means are 0)", "density")
        label(ax, title, *names)
    shared_legend(sheet, axes.flat)
    return sheet


EXPERIMENT = Experiment(
    name="kjit-uci-messages",
    document=f"{DOCUMENT}, figure 1",
    title="Messages of four data sets at the same factor",
    claim="The messages that come in at the logistic factor have clearly different distributions in four data sets "
    "(banknote, blood transfusion, fertility, ionosphere). Ours: in total variation every two are 0.5 apart or more.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
