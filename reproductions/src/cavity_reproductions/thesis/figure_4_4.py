"""Thesis figure 4-4: belief propagation with edges grouped into two terms."""

import numpy as np

from cavity.reports import Figure, figure
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, check_table, grade, median, share
from cavity_reproductions.thesis import DOCUMENT, six_nodes
from cavity_reproductions.thesis.six_nodes import EXACT, GROUPS, STRENGTHS, of_form
from cavity_reproductions.thesis.six_nodes_portrait import error_boxes, portrait, worst

FORMS = ("BP", "grouped", "one group")


def units(config: Config) -> list[Unit]:
    return six_nodes.units(config, FORMS)


def summarise(results: Results, config: Config) -> Outcome:
    bp, grouped = (of_form(results, name, "EP marginals").mean(axis=1) for name in ("BP", "grouped"))
    evidence = {name: np.abs(of_form(results, name, "EP log_z")) for name in ("BP", "grouped")}
    first = of_form(results, "grouped", "ADF marginals").mean(axis=1)
    closer = share(grouped < bp)
    numbers = six_nodes.form_numbers(results) | {
        "grouped closer than BP, marginals": closer,
        "grouped closer than BP, log Z": share(evidence["grouped"] < evidence["BP"]),
        "median ratio of the errors, marginals": median(grouped / bp),
        "median ratio of the errors, log Z": median(evidence["grouped"] / evidence["BP"]),
    }
    parts = np.split(grouped < bp, len(results) // len(FORMS))
    checks = {
        "EP on two terms has a smaller median error than belief propagation": median(grouped) < median(bp),
        "and is closer on nine networks of ten": closer >= 0.9,
        "its log Z is closer on nine networks of ten": share(evidence["grouped"] < evidence["BP"]) >= 0.9,
        "EP is closer than one pass of ADF on nine networks of ten": share(grouped < first) >= 0.9,
        f"all edges in one term: exact, to {EXACT:g}": worst(results, "one group") < EXACT,
    }
    sentence = (
        f"With the edges in two terms the median error of a marginal is {median(grouped):.1e}, with single edges "
        f"{median(bp):.1e}; closer on {closer:.0%} of the networks ("
        + ", ".join(f"{share(part):.0%}" for part in parts)
        + (f" at strengths {', '.join(f'{s:g}' for s in STRENGTHS)})." if len(parts) > 1 else ").")
    )
    return Outcome((six_nodes.error_table(results), check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 2, width=11.5, height=4.0)
    portrait(axes[0, 0], "(a) two terms: orange and blue edges", terms=GROUPS)
    error_boxes(axes[0, 1], results, "(b) after one pass (ADF) and at the end (EP), all networks")
    return sheet


EXPERIMENT = Experiment(
    name="thesis-4-4",
    document=f"{DOCUMENT}, figure 4-4",
    title="Grouping the terms of belief propagation",
    claim="Factoring the joint distribution into two subgraphs instead of single edges, with a completely disconnected "
    "q as before, makes EP more accurate than belief propagation.",
    units=units,
    run_unit=six_nodes.run_unit,
    summarise=summarise,
    draw=draw,
)
