"""Thesis figure 4-3: an undirected network of six nodes, where EP with independent variables is loopy BP."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cavity.reports import Figure, Table, figure
from cavity.reports.figures import label, shared_legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, share
from cavity_reproductions.thesis import DOCUMENT, six_nodes
from cavity_reproductions.thesis.six_nodes import EDGES, EXACT, network, of_form
from cavity_reproductions.thesis.six_nodes_portrait import COLOURS, portrait
from cavity_reproductions.thesis.sum_product import sum_product


def units(config: Config) -> list[Unit]:
    return six_nodes.units(config, ("BP",))


def run_unit(unit: Unit, config: Config) -> dict:
    """EP and, on the same networks, belief propagation written without EP."""
    report = six_nodes.run_unit(unit, config)
    rng = np.random.default_rng(unit.seed)
    beliefs = []
    for _ in range(unit.options["count"]):
        graph = network(rng, unit.options["strength"])
        tables = np.exp(np.stack([table.log_values for table in graph]))
        beliefs.append(sum_product(np.array(EDGES), tables, 6))
    return report | {
        "settled": [own.settled for own in beliefs],
        "difference": np.abs(np.stack([own.marginals[:, 1] for own in beliefs]) - np.array(report["marginals"])).max(1),
        "log_z difference": np.abs([own.log_z for own in beliefs] - np.array(report["log_z"])),
    }


def summarise(results: Results, config: Config) -> Outcome:
    both = (of_form(results, "BP", "converged") > 0) & (of_form(results, "BP", "settled") > 0)
    apart = of_form(results, "BP", "difference")[both]
    log_z_apart = of_form(results, "BP", "log_z difference")[both]
    error = of_form(results, "BP", "EP marginals").max(axis=1)
    first = of_form(results, "BP", "ADF marginals").mean(axis=1)
    last = of_form(results, "BP", "EP marginals").mean(axis=1)
    numbers = six_nodes.form_numbers(results) | {
        "EP and sum-product": {
            "networks where both settle": int(both.sum()),
            "largest difference of a marginal": float(apart.max(initial=0.0)),
            "largest difference of log Z": float(log_z_apart.max(initial=0.0)),
        },
        "networks with an error above 1e-6": share(error > 1e-6),
        "EP closer than ADF": share(last < first),
    }
    checks = {
        f"EP's marginals are those of belief propagation, to {EXACT:g}": bool(both.any() and apart.max() < EXACT),
        f"EP's log Z is that of the Bethe free energy, to {EXACT:g}": bool(both.any() and log_z_apart.max() < EXACT),
        "the marginals are approximate: not exact on any network": bool(np.all(error > EXACT)),
        "refining the terms brings the marginals closer than one pass, nine networks of ten": share(last < first)
        >= 0.9,
    }
    rows = [(unit.rpartition(" ")[2], *means(one)) for unit, one in results.items()]
    table = Table(
        "EP with independent variables against sum-product messages",
        ("strength", "both settle", "largest difference, marginals", "largest difference, log Z"),
        rows,
    )
    sentence = (
        f"EP and belief propagation agree to {apart.max(initial=0.0):.0e} on {both.sum()} of {len(both)} networks, "
        f"where both settle; the median error of a marginal is {np.median(last):.4f}, after one pass "
        f"{np.median(first):.4f}."
    )
    return Outcome((six_nodes.error_table(results), table, check_table(checks)), numbers, grade(checks), sentence)


def means(one: Mapping[str, Any]) -> tuple[int, float, float]:
    """A row: networks where both settle, and how far apart they are there."""
    both = (array(one["converged"]) > 0) & (array(one["settled"]) > 0)
    differences = [float(array(one[key])[both].max(initial=0.0)) for key in ("difference", "log_z difference")]
    return int(both.sum()), differences[0], differences[1]


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 3, width=13, height=4.0)
    portrait(axes[0, 0], "(a) the network")
    for unit, one in results.items():
        strength = unit.rpartition(" ")[2]
        axes[0, 1].plot(
            *(array(one[f"{method} marginals"]).mean(axis=1) for method in ("ADF", "EP")),
            ".",
            label=f"strength {strength}",
        )
    ends = [1e-5, 1.0]
    axes[0, 1].plot(ends, ends, color=COLOURS["one group"], linewidth=1)
    axes[0, 1].set(xscale="log", yscale="log")
    label(axes[0, 1], "(b) error of a marginal, one dot a network", "one pass (ADF)", "at the end (EP)")
    for one in results.values():
        found = np.sort(array(one["difference"]))
        axes[0, 2].plot(np.maximum(found, 1e-17), np.arange(1, len(found) + 1) / len(found), ".-")
    axes[0, 2].set_xscale("log")
    label(axes[0, 2], "(c) EP against sum-product messages", "largest difference of a marginal", "share of networks")
    shared_legend(sheet, axes.flat)
    return sheet


EXPERIMENT = Experiment(
    name="thesis-4-3",
    document=f"{DOCUMENT}, figure 4-3",
    title="Belief propagation on a network of six nodes is EP with independent variables",
    claim="With one term an edge and a completely disconnected q, EP is loopy belief propagation, on undirected "
    "networks as well; its marginals on this network are approximate.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
