"""Thesis figure 4-6: clusters of variables together with grouped edges."""

import numpy as np

from cavity.reports import Figure, figure
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, check_table, grade, median, share
from cavity_reproductions.thesis import DOCUMENT, six_nodes
from cavity_reproductions.thesis.six_nodes import CLUSTERS, EXACT, GROUPS, of_form
from cavity_reproductions.thesis.six_nodes_portrait import error_boxes, portrait, worst

FORMS = ("BP", "clusters", "grouped", "clusters, grouped")


def units(config: Config) -> list[Unit]:
    return six_nodes.units(config, FORMS)


def summarise(results: Results, config: Config) -> Outcome:
    bp, clusters = (of_form(results, name, "marginals") for name in ("BP", "clusters"))
    both = (of_form(results, "BP", "converged") > 0) & (of_form(results, "clusters", "converged") > 0)
    apart = float(np.abs(bp - clusters)[both].max(initial=0.0))
    log_z_apart = np.abs(of_form(results, "BP", "log_z") - of_form(results, "clusters", "log_z"))[both]
    shared = of_form(results, "clusters, grouped", "ADF pairs")[:, 2]
    first = {name: of_form(results, name, "ADF marginals").mean(axis=1) for name in ("BP", "clusters")}
    numbers = six_nodes.form_numbers(results) | {
        "clusters and BP": {
            "networks where both settle": int(both.sum()),
            "largest difference of a marginal": apart,
            "largest difference of log Z": float(log_z_apart.max(initial=0.0)),
            "one pass closer with clusters": share(first["clusters"] < first["BP"]),
        },
        "largest error of (x3, x4) after one pass": float(shared.max()),
    }
    checks = {
        f"clusters and groups together: exact at the end, to {EXACT:g}": worst(results, "clusters, grouped") < EXACT,
        f"and on (x3, x4) after one pass already, to {EXACT:g}": bool(shared.max() < EXACT),
        "clusters alone are not exact on any network": bool(
            np.all(of_form(results, "clusters", "EP marginals").max(axis=1) > EXACT)
        ),
        "groups alone are not exact on any network": bool(
            np.all(of_form(results, "grouped", "EP marginals").max(axis=1) > EXACT)
        ),
    }
    sentence = (
        f"Together they are exact: largest error {worst(results, 'clusters, grouped'):.0e}. Clusters alone have the "
        f"fixed point of belief propagation, to {max(apart, log_z_apart.max(initial=0.0)):.0e} in marginals and log Z: "
        "the terms between clusters are still single edges, and no cluster holds a loop. Groups alone leave a median "
        f"error of {median(of_form(results, 'grouped', 'EP marginals').mean(axis=1)):.1e}."
    )
    return Outcome((six_nodes.error_table(results), check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 2, width=12.5, height=4.0)
    portrait(axes[0, 0], "(a) two terms (orange, blue); q keeps the broad edges", kept=CLUSTERS, terms=GROUPS)
    error_boxes(axes[0, 1], results, "(b) after one pass (ADF) and at the end (EP), all networks")
    return sheet


EXPERIMENT = Experiment(
    name="thesis-4-6",
    document=f"{DOCUMENT}, figure 4-6",
    title="Clusters of variables and grouped edges together",
    claim="Two terms as in figure 4-4 can be combined with a q that keeps the pairs (x1, x2), (x3, x4), (x5, x6) "
    "joint. (The thesis writes the updates down; by them the combination is exact on this network, which neither part "
    "alone is.)",
    units=units,
    run_unit=six_nodes.run_unit,
    summarise=summarise,
    draw=draw,
)
