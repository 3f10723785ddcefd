"""Thesis 4.2 beyond its six nodes: grouping, trees and clusters against belief propagation on graphs of spins."""

from typing import Any

import numpy as np

import cavity
from cavity.discrete import exact_discrete
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import BLUE, GREEN, ORANGE, PURPLE, VERMILION, label, shared_legend
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
from cavity_reproductions.thesis.spin_graphs import KINDS, forms, spins, structure
from cavity_reproductions.workbench import infer

COUPLINGS = (0.3, 1.0, 2.0)
FIELDS = (0.1, 1.0)
COLOURS = {"BP": VERMILION, "cycles grouped": ORANGE, "tree": BLUE, "clusters": PURPLE, "clusters, grouped": GREEN}
SWEEPS = 500


def units(config: Config) -> list[Unit]:
    """One for each graph and form; all forms of a graph see the same couplings and fields."""
    kinds = KINDS[: config.pick(len(KINDS), 2, 1)]
    shown = ("BP", "tree") if config.size == "tiny" else tuple(COLOURS)
    return [
        make_unit(
            config, 420 + 10 * place + copy, f"{kind}/{copy}/{form}", kind=kind, form=form, count=config.pick(6, 1, 1)
        )
        for place, kind in enumerate(kinds)
        for copy in range(config.pick(2, 1, 1))
        for form in shown
    ]


def run_unit(unit: Unit, config: Config) -> dict:
    """Errors by coupling and field: mean |P(s = 1) − exact|, log Z − exact."""
    rng = np.random.default_rng(unit.seed)
    graph_of = structure(unit.options["kind"], rng)
    form, groups = forms(graph_of)[unit.options["form"]]
    report: dict[str, dict] = {}
    for coupling in COUPLINGS if config.size != "tiny" else COUPLINGS[1:2]:
        for field in FIELDS:
            own: dict[str, list] = {"marginals": [], "log_z": [], "converged": [], "sweeps": []}
            for _ in range(unit.options["count"]):
                graph = spins(graph_of, coupling, field, rng)
                truth = exact_discrete(graph)
                found = infer(graph.approximate(form, groups=groups), cavity.EP(max_sweeps=SWEEPS))
                exact = np.array([values[1] for values in truth.marginals])
                own["marginals"].append(np.abs(np.asarray(found.marginals)[:, 1] - exact).mean())
                own["log_z"].append(float(found.log_evidence) - truth.log_evidence)
                own["converged"].append(found.converged)
                own["sweeps"].append(found.sweeps)
            report[f"{coupling:g}, {field:g}"] = own
    return report


def gathered(results: Results, kind: str, form: str, key: str, cell: str | None = None) -> np.ndarray:
    """All graphs of a kind, of one cell (coupling, field) or of all."""
    found = [
        array(own[key])
        for name, report in results.items()
        if name.startswith(f"{kind}/") and name.endswith(f"/{form}")
        for here, own in report.items()
        if cell in (None, here)
    ]
    return np.concatenate(found)


def forms_in(results: Results) -> list[str]:
    """Names of the forms, in order."""
    return list(dict.fromkeys(name.rpartition("/")[2] for name in results))


def closer(results: Results, kind: str, form: str, cell: str | None = None) -> tuple[float, int]:
    """Of the graphs on which this form and BP both settle: the share where this one is closer, and their number.

    Closer by less than one part in ten thousand is not closer: some forms have BP's own fixed point.
    """
    own, bp = (gathered(results, kind, name, "marginals", cell) for name in (form, "BP"))
    settled = [gathered(results, kind, name, "converged", cell) > 0 for name in (form, "BP")]
    both = settled[0] & settled[1]
    return share(own[both] < (1 - 1e-4) * bp[both]), int(both.sum())


def facts(results: Results, kind: str, form: str, cell: str | None = None) -> dict[str, Any]:
    """What is said of a form on the graphs of a kind, of one cell or of all."""
    errors, log_z, converged = (gathered(results, kind, form, key, cell) for key in ("marginals", "log_z", "converged"))
    better, both = closer(results, kind, form, cell)
    return {
        "converged": share(converged > 0),
        "marginals": median(errors),
        "log Z": median(np.abs(log_z)),
        "both settle": both,
        "closer than BP": None if form == "BP" else better,
    }


def summarise(results: Results, config: Config) -> Outcome:
    kinds = list(dict.fromkeys(name.partition("/")[0] for name in results))
    cells, shown = list(next(iter(results.values()))), forms_in(results)
    numbers = {kind: {form: facts(results, kind, form) for form in shown} for kind in kinds}
    rows = [
        (kind, *map(float, cell.split(", ")), form, *facts(results, kind, form, cell).values())
        for kind in kinds
        for cell in cells
        for form in shown
    ]
    heads = tuple(numbers[kinds[0]]["BP"])
    note = (
        "Medians of the mean |P(s = 1) − exact| and of |log Z − exact|, with the last state of runs that did not "
        f"settle in {SWEEPS} sweeps; closer: share of the graphs on which both settle. |J| is 0.5 to 1.5 times the "
        "coupling, with random signs. Tree: of the largest |J|. Cycles: that share no edge, shortest first."
    )
    tables = (
        Table(
            "All couplings and fields",
            ("kind", "form", *heads),
            [(k, f, *numbers[k][f].values()) for k in kinds for f in shown],
        ),
        Table("By coupling and field", ("kind", "coupling", "field", "form", *heads), rows, note),
    )
    checks = {}
    for form in shown[1:]:
        for kind in kinds:
            checks[f"{form}, {kind}: closer than BP on most graphs"] = closer(results, kind, form)[0] > 0.5
        rates = [np.mean([numbers[kind][name]["converged"] for kind in kinds]) for name in (form, "BP")]
        checks[f"{form}: settles more often than BP"] = bool(rates[0] > rates[1])
    sentence = "Closer than belief propagation, where both settle: " + "; ".join(
        f"{form} " + ", ".join(f"{closer(results, kind, form)[0]:.0%}" for kind in kinds) for form in shown[1:]
    )
    settled = ", ".join(f"{form} {np.mean([numbers[kind][form]['converged'] for kind in kinds]):.0%}" for form in shown)
    sentence += f" ({', '.join(kinds)}). Settled: {settled}."
    return Outcome((*tables, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    kinds = list(outcome.numbers)
    cells = list(next(iter(results.values())))
    sheet, axes = figure(3, len(kinds), width=4.6 * len(kinds), height=9.6)
    for column, kind in enumerate(kinds):
        for form in forms_in(results):
            places = np.arange(len(cells)) + 0.12 * (list(COLOURS).index(form) - 2)
            errors = [median(gathered(results, kind, form, "marginals", cell)) for cell in cells]
            log_z = [median(np.abs(gathered(results, kind, form, "log_z", cell))) for cell in cells]
            settled = [share(gathered(results, kind, form, "converged", cell) > 0) for cell in cells]
            for ax, values in zip(axes[:, column], (errors, log_z, settled), strict=True):
                ax.plot(places, values, "o", color=COLOURS[form], label=form, markersize=6)
        for ax, name in zip(axes[:, column], ("error of a marginal", "error of log Z", "share converged"), strict=True):
            ax.set_xticks(range(len(cells)), [cell.replace(", ", "\n") for cell in cells])
            label(ax, kind, "coupling, field below it", name)
        axes[0, column].set_yscale("log")
        axes[1, column].set_yscale("log")
        axes[2, column].set_ylim(-0.05, 1.05)
    shared_legend(sheet, axes.flat)
    return sheet


EXPERIMENT = Experiment(
    name="thesis-4-graphs",
    document=f"{DOCUMENT}, section 4.2",
    title="Grouped terms, trees and clusters on larger graphs",
    claim="Grouping terms, keeping part of the graph in q, or both, makes EP more accurate than belief propagation. "
    "(The thesis argues this on six nodes; here on grids, complete graphs and random regular graphs.)",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
