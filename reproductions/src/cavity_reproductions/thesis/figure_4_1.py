"""Thesis figure 4-1: a disconnected q; the filter of Boyen & Koller is one pass of what EP refines."""

from typing import Any

import numpy as np

import cavity
from cavity.discrete import exact_discrete
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import BLUE, GREEN, GREY, ORANGE, VERMILION, label, legend
from cavity_reproductions.axes import box_by_name
from cavity_reproductions.base import (
    Config,
    Experiment,
    Outcome,
    Results,
    Unit,
    array,
    check_table,
    grade,
    make_unit,
    median,
    share,
)
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.thesis.coupled_chains import CHAINS, LENGTH, Model, coupled_chains
from cavity_reproductions.workbench import infer

COUPLINGS = (0.3, 1.0, 2.0)
EXACT = 1e-10
#: terms: single tables (belief propagation), or all tables of a step as one, as Boyen & Koller have them
TERMS = {"tables": False, "slices": True}
COLOURS = {"filter": GREY, "tables, one pass": ORANGE, "tables, EP": VERMILION}
COLOURS |= {"slices, one pass": BLUE, "slices, EP": GREEN}


def units(config: Config) -> list[Unit]:
    levels = COUPLINGS if config.size != "tiny" else COUPLINGS[1:2]
    count = config.pick(60, 6, 2)
    return [
        make_unit(config, 410 + place, f"{terms} {coupling:g}", terms=terms, coupling=coupling, count=count)
        for terms in TERMS
        for place, coupling in enumerate(levels)
    ]


def run_unit(unit: Unit, config: Config) -> dict:
    rng = np.random.default_rng(unit.seed)
    models = [coupled_chains(rng, unit.options["coupling"]) for _ in range(unit.options["count"])]
    runs = [compared(model, TERMS[unit.options["terms"]]) for model in models]
    return {key: [run[key] for run in runs] for key in runs[0]}


def compared(model: Model, by_slice: bool) -> dict:
    """Mean errors of P(x = 1) over all variables, and of the last slice, where filtering and smoothing are one."""
    truth = exact_discrete(model.graph)
    smoothed = grid(truth.marginals)
    filtered, whole = (model.graph.filter(model.slices, clusters=kept) for kept in (None, model.slices))
    terms = model.graph.approximate(groups=model.steps if by_slice else None)
    found = infer(terms, cavity.EP(tol=1e-12, max_sweeps=1000))
    answers = {"one pass": infer(terms, cavity.ADF()), "EP": found}
    report: dict[str, Any] = {"converged": found.converged, "sweeps": found.sweeps}
    ours = grid([values for own in filtered.marginals for values in own])
    report["filter, against exact filter"] = np.abs(ours - grid([v for own in whole.marginals for v in own])).mean()
    report["filter, against exact smoother"] = np.abs(ours - smoothed).mean()
    report["filter, last slice"] = np.abs(ours - smoothed)[-1].mean()
    report["filter, log Z"] = abs(filtered.log_evidence - truth.log_evidence)
    for name, one in answers.items():
        marginals = grid(np.asarray(one.marginals))
        report[f"{name}, against exact smoother"] = np.abs(marginals - smoothed).mean()
        report[f"{name}, last slice"] = np.abs(marginals - smoothed)[-1].mean()
        report[f"{name}, log Z"] = abs(float(one.log_evidence) - truth.log_evidence)
        report[f"{name}, from filter"] = max(
            np.abs(marginals - ours)[-1].max(), abs(float(one.log_evidence) - filtered.log_evidence)
        )
        report[f"{name}, by time"] = np.abs(marginals - smoothed).mean(axis=1)
    report["filter, by time"] = np.abs(ours - smoothed).mean(axis=1)
    return report


def grid(marginals: Any) -> np.ndarray:
    """P(x = 1), (slices, chains)."""
    return np.array([values[1] for values in marginals]).reshape(LENGTH, CHAINS)


def gathered(results: Results, terms: str, key: str) -> np.ndarray:
    """All models, one coupling after another."""
    return np.concatenate([array(one[key]) for name, one in results.items() if name.startswith(f"{terms} ")])


def summarise(results: Results, config: Config) -> Outcome:
    kinds = ("against exact smoother", "last slice", "log Z")
    rows = []
    for name, one in results.items():
        terms, _, coupling = name.partition(" ")
        converged = float(np.mean(array(one["converged"])))
        for method in (*(("filter",) if terms == "tables" else ()), "one pass", "EP"):
            title = method if method == "filter" else f"{terms}, {method}"
            errors = (float(np.mean(array(one[f"{method}, {kind}"]))) for kind in kinds)
            rows.append((title, float(coupling), converged if method == "EP" else None, *errors))
    rows.sort(key=lambda row: row[1])
    table = Table(
        f"Mean errors, {len(next(iter(results.values()))['converged'])} models a coupling",
        ("method", "coupling", "converged", "marginals", "last slice", "log Z"),
        rows,
        "|P(x = 1) − exact|, exact given all observations; on the last slice the filter has seen all of them too. "
        "Tables: one term a conditional table (belief propagation); slices: all tables of a step in one term.",
    )
    filters = Table(
        "The filter against exact filtering",
        ("coupling", "mean error of P(x = 1 | past)"),
        [
            (name.partition(" ")[2], float(np.mean(array(one["filter, against exact filter"]))))
            for name, one in results.items()
            if name.startswith("tables ")
        ],
    )
    same = gathered(results, "slices", "one pass, from filter")
    better = {
        (terms, kind): share(gathered(results, terms, f"EP, {kind}") < gathered(results, terms, f"one pass, {kind}"))
        for terms in TERMS
        for kind in kinds
    }
    converged = {terms: share(gathered(results, terms, "converged") > 0) for terms in TERMS}
    numbers = {
        "one pass on slices and filter, largest difference": float(same.max()),
        "EP closer than one pass": {f"{terms}, {kind}": found for (terms, kind), found in better.items()},
        "converged": converged,
        "median error of the marginals": {
            f"{terms}, {method}": median(gathered(results, terms, f"{method}, {kinds[0]}"))
            for terms in TERMS
            for method in ("one pass", "EP")
        },
        "table": rows,
    }
    checks = {
        f"one pass with a slice as a term is the filter: last slice and log Z, to {EXACT:g}": bool(same.max() < EXACT),
        "refined slices: marginals closer than after one pass, nine models of ten": better["slices", kinds[0]] >= 0.9,
        "belief propagation: marginals closer than after one pass, nine models of ten": better["tables", kinds[0]]
        >= 0.9,
        "refined slices: the last slice, too, closer than the filter on most models": better["slices", kinds[1]] > 0.5,
        "refined slices: log Z closer than the filter's on most models": better["slices", kinds[2]] > 0.5,
    }
    closer = {kind: f"{better['slices', kind]:.0%} and {better['tables', kind]:.0%}" for kind in kinds}
    sentence = (
        f"One pass over slices is the filter, to {same.max():.0e}. Refined to convergence, slices and tables (belief "
        f"propagation), the marginals are closer to exact smoothing on {closer[kinds[0]]} of the models, those of the "
        f"last slice on {closer[kinds[1]]}, log Z on {closer[kinds[2]]}; converged {converged['slices']:.0%} and "
        f"{converged['tables']:.0%}."
    )
    return Outcome((table, filters, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 3, width=15, height=4.2)
    curves = {"filter": ("slices", "filter")}
    curves |= {f"{terms}, {method}": (terms, method) for terms in TERMS for method in ("one pass", "EP")}
    for name, (terms, method) in curves.items():
        by_time = gathered(results, terms, f"{method}, by time").mean(axis=0)
        axes[0, 0].semilogy(range(LENGTH), by_time, ".-", color=COLOURS[name], label=name)
    label(axes[0, 0], "(a) error of a marginal given all observations", "time slice", "mean error")
    legend(axes[0, 0])
    for ax, kind, letter in zip(axes[0, 1:], ("against exact smoother", "log Z"), "bc", strict=True):
        samples = {
            name: np.maximum(gathered(results, terms, f"{method}, {kind}"), 1e-12)
            for name, (terms, method) in curves.items()
        }
        box_by_name(
            ax,
            {name.replace(", ", "\n"): own for name, own in samples.items()},
            {name.replace(", ", "\n"): COLOURS[name] for name in samples},
        )
        titles = {"log Z": "log Z, all models"}
        label(ax, f"({letter}) {titles.get(kind, 'marginals given all observations, all models')}", "", "error")
    return sheet


EXPERIMENT = Experiment(
    name="thesis-4-1",
    document=f"{DOCUMENT}, figure 4-1 and section 4.1",
    title="Boyen and Koller's filter, belief propagation, and EP with independent variables",
    claim="A completely disconnected q in ADF is the filter of Boyen and Koller: one pass of loopy belief propagation "
    "in which a term is the product of all tables of a time slice. EP refines it to convergence, which improves it.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
