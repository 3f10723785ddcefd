"""Thesis figure 4-5: a Markov chain in place of independent variables."""

import numpy as np

from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import label, legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, check_table, grade, median, share
from cavity_reproductions.thesis import DOCUMENT, six_nodes
from cavity_reproductions.thesis.six_nodes import CHAIN, EXACT, of_form
from cavity_reproductions.thesis.six_nodes_portrait import FLOOR, error_boxes, portrait, worst

FORMS = ("BP", "chain")
#: (x3, x4), (x4, x5), (x5, x6) in CHAIN
EARLY = slice(2, 5)


def units(config: Config) -> list[Unit]:
    return six_nodes.units(config, FORMS)


def pair_names() -> list[str]:
    """The pairs of the chain as the thesis names them."""
    return [f"(x{i + 1}, x{j + 1})" for i, j in CHAIN]


def summarise(results: Results, config: Config) -> Outcome:
    first, last = (of_form(results, "chain", f"{method} pairs") for method in ("ADF", "EP"))
    rest = first[:, : EARLY.start]
    bp = of_form(results, "BP", "EP marginals").max(axis=1)
    sweeps = of_form(results, "chain", "sweeps")
    numbers = six_nodes.form_numbers(results) | {
        "largest error of a pair, ADF": dict(zip(pair_names(), first.max(axis=0).tolist(), strict=True)),
        "largest error of a pair, EP": dict(zip(pair_names(), last.max(axis=0).tolist(), strict=True)),
        "most sweeps": int(sweeps.max()),
    }
    checks = {
        f"ADF is exact on (x3, x4), (x4, x5), (x5, x6), to {EXACT:g}": bool(first[:, EARLY].max() < EXACT),
        "ADF is not on (x1, x2) and (x2, x3)": bool(np.all(rest.max(axis=1) > EXACT)),
        f"EP is exact on the whole chain, to {EXACT:g}": bool(last.max() < EXACT),
        f"and its marginals and log Z are, to {EXACT:g}": worst(results, "chain") < EXACT,
        "belief propagation is not exact on any network": bool(np.all(bp > EXACT)),
    }
    rows = [
        (name, median(first[:, k]), float(first[:, k].max()), median(last[:, k]), float(last[:, k].max()))
        for k, name in enumerate(pair_names())
    ]
    table = Table(
        f"Total variation error of the pairs of the chain, {len(first)} networks",
        ("pair", "ADF, median", "ADF, largest", "EP, median", "EP, largest"),
        rows,
    )
    sentence = (
        f"After one pass the largest error on the last three pairs is {first[:, EARLY].max():.0e}, on the first two "
        f"{rest.max():.2f}; at the end it is {last.max():.0e} on all, after at most {sweeps.max():.0f} sweeps. "
        f"Belief propagation is off on {share(bp > EXACT):.0%} of the networks."
    )
    return Outcome((table, six_nodes.error_table(results), check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 3, width=13.5, height=4.0)
    portrait(axes[0, 0], "(a) q keeps the broad edges", kept=CHAIN)
    ax = axes[0, 1]
    for method in ("ADF", "EP"):
        found = np.maximum(of_form(results, "chain", f"{method} pairs"), FLOOR)
        places = np.arange(len(CHAIN)) + (0.12 if method == "EP" else -0.12)
        style = STYLES[method].plot() | {"linestyle": "none"}
        ax.plot(places, found.max(axis=0), **style, label=f"{method}, largest of all networks")
        ax.plot(places, np.median(found, axis=0), **(style | {"alpha": 0.4}), label=f"{method}, median")
    ax.set_yscale("log")
    ax.set_xticks(range(len(CHAIN)), pair_names())
    label(ax, "(b) pairs of the chain", "", "total variation error")
    legend(ax)
    error_boxes(axes[0, 2], results, "(c) single marginals, all networks")
    return sheet


EXPERIMENT = Experiment(
    name="thesis-4-5",
    document=f"{DOCUMENT}, figure 4-5",
    title="A Markov chain in place of independent variables",
    claim="With a chain for q, ADF already has the exact pair marginals of (x3, x4), (x4, x5) and (x5, x6) after both "
    "edges outside the chain; EP then makes those of (x1, x2) and (x2, x3) exact as well. Belief propagation has "
    "approximate marginals.",
    units=units,
    run_unit=six_nodes.run_unit,
    summarise=summarise,
    draw=draw,
)
