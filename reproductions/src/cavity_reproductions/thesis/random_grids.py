"""Thesis 4.2 on 300 random grids of spins: tree EP against belief propagation, and the ladder on the latter."""

from typing import Any

import numpy as np

import cavity
from cavity.discrete import DiscreteGraph, exact_discrete
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import BLUE, GREEN, ORANGE, PURPLE, label, shared_legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.thesis.spin_graphs import grid_edges, ising
from cavity_reproductions.workbench import infer

SIDES = {3: BLUE, 4: GREEN, 5: ORANGE, 6: PURPLE}
#: standard deviation of the couplings
COUPLINGS = (0.3, 1.0, 2.0)
#: standard deviation of the fields, the same at all couplings
FIELDS = 0.3
SWEEPS = 500
#: the couplings at which the ladder is tried
STRONG = 2.0
#: ways to a fixed point of belief propagation
WAYS = {
    "ladder": cavity.Auto(),
    "damping 0.5": cavity.EP(damping=0.5, max_sweeps=4 * SWEEPS),
    "damping 0.25": cavity.EP(damping=0.25, max_sweeps=4 * SWEEPS),
    "double loop": cavity.ConvergentEP(),
}
#: how far the beliefs of a fixed point may disagree: sites are matched to 1e-8
AGREED = 1e-6
#: errors below this are rounding
LEAST = 1e-9


def units(config: Config) -> list[Unit]:
    """One for each size and coupling; BP, tree EP and the ladder see the same grids."""
    sides, couplings = (SIDES, COUPLINGS) if config.size == "full" else ((3,), COUPLINGS[1:])
    couplings = COUPLINGS[2:] if config.size == "tiny" else couplings
    return [
        make_unit(config, 450 + 3 * side + place, f"{side}×{side}, {s:g}", side=side, s=s, count=config.pick(25, 2, 2))
        for side in sides
        for place, s in enumerate(couplings)
    ]


def run_unit(unit: Unit, config: Config) -> dict:
    """Every grid of a size and coupling: statuses and errors of all methods."""
    rng = np.random.default_rng(unit.seed)
    runs = [compared(random_grid(unit.options["side"], unit.options["s"], rng)) for _ in range(unit.options["count"])]
    report: dict[str, Any] = {key: [run[key] for run in runs] for key in runs[0]}
    if unit.options["s"] == STRONG:
        rng = np.random.default_rng(unit.seed)
        graphs = [random_grid(unit.options["side"], STRONG, rng) for _ in runs]
        for name, method in WAYS.items():
            found = [against(graph, "disconnected", method) for graph in graphs]
            report |= {f"{name} {key}": [run[key] for run in found] for key in found[0]}
    return report


def random_grid(side: int, s: float, rng: np.random.Generator) -> DiscreteGraph:
    """J from N(0, s²), h from N(0, 0.3²)."""
    edges = grid_edges(side)
    return ising(edges, s * rng.normal(size=len(edges)), FIELDS * rng.normal(size=side**2))


def compared(graph: DiscreteGraph) -> dict[str, Any]:
    """BP and tree EP on one grid."""
    method = cavity.EP(max_sweeps=SWEEPS)
    found = {"BP": against(graph, "disconnected", method), "tree": against(graph, "tree", method)}
    return {f"{name} {key}": value for name, own in found.items() for key, value in own.items()}


def against(graph: DiscreteGraph, form: str, method: Any) -> dict[str, Any]:
    """One run: its errors, whether it says that it converged, and by how much beliefs disagree."""
    truth = exact_discrete(graph)
    found = infer(graph.approximate(form), method)
    marginals = np.asarray(found.marginals)
    return {
        "converged": found.converged,
        "sweeps": int(found.sweeps),
        "error": np.abs(marginals[:, 1] - [values[1] for values in truth.marginals]).mean(),
        "log_z": float(found.log_evidence) - truth.log_evidence,
        "gap": disagreement(found, graph) if form == "disconnected" else None,
    }


def disagreement(found: cavity.Solution, graph: DiscreteGraph) -> float:
    """The largest difference of a variable's belief and that of one of its edges: 0 at a fixed point."""
    marginals, gaps = np.asarray(found.marginals), []
    for table in graph:
        if len(table.scope) == 2:
            i, j = table.scope
            pair = found.pair(i, j)
            gaps += [np.abs(pair.sum(1) - marginals[i]).max(), np.abs(pair.sum(0) - marginals[j]).max()]
    return float(np.max(gaps))


def facts(reports: list[Any], rival: str = "BP") -> dict[str, Any]:
    """Tree EP against a way to belief propagation, over the grids of some units."""

    def column(key: str) -> np.ndarray:
        return np.concatenate([array(report[key]) for report in reports])

    tree, other = column("tree converged") > 0, column(f"{rival} converged") > 0
    both = tree & other
    errors = {name: np.maximum(column(f"{name} error")[both], LEAST) for name in ("tree", rival)}
    log_z = {name: np.abs(column(f"{name} log_z")[both]) for name in ("tree", rival)}
    ratios = errors[rival] / errors["tree"]
    return {
        "grids": len(tree),
        "BP settles": other.mean(),
        "tree settles": tree.mean(),
        "both": int(both.sum()),
        "tree closer": (ratios > 1).mean() if both.any() else None,
        "BP error": errors[rival].mean() if both.any() else None,
        "tree error": errors["tree"].mean() if both.any() else None,
        "ratio of means": errors[rival].mean() / errors["tree"].mean() if both.any() else None,
        "mean ratio": np.exp(np.log(ratios).mean()) if both.any() else None,
        "BP log Z": log_z[rival].mean() if both.any() else None,
        "tree log Z": log_z["tree"].mean() if both.any() else None,
        "tree closer, log Z": (log_z["tree"] < log_z[rival]).mean() if both.any() else None,
    }


def ladder_facts(report: Any) -> dict[str, Any]:
    """How often each way to a fixed point of BP arrives, and whether the ladder's status is true."""
    arrived = {name: array(report[f"{name} converged"]) > 0 for name in ("BP", *WAYS)}
    numbers = np.stack([array(report[f"ladder {key}"]) for key in ("error", "log_z", "gap")])
    anyone = np.any([arrived[name] for name in arrived if name != "ladder"], axis=0)
    said = arrived["ladder"]
    return {
        **{name: own.mean() for name, own in arrived.items()},
        "missed": int((anyone & ~said).sum()),
        "finite": bool(np.isfinite(numbers).all()),
        "largest gap": numbers[2][said].max() if said.any() else None,
    }


def summarise(results: Results, config: Config) -> Outcome:
    strong = {name: report for name, report in results.items() if "ladder error" in report}
    numbers = {
        "all": facts(list(results.values())),
        "by size and coupling": {k: facts([r]) for k, r in results.items()},
    }
    for s in COUPLINGS:
        if own := [report for name, report in results.items() if name.endswith(f", {s:g}")]:
            numbers[f"coupling {s:g}"] = facts(own)
    numbers["coupling 2, ladder for BP"] = facts(list(strong.values()), "ladder")
    ladder = {name: ladder_facts(report) for name, report in strong.items()}
    numbers["ladder"] = ladder
    lines = {key: own for key, own in numbers.items() if "grids" in own} | numbers["by size and coupling"]
    note = (
        "Couplings N(0, s²), fields N(0, 0.3²), binary variables; tree of maximal mutual information, EP in order, at "
        f"most {SWEEPS} sweeps. Errors: means over the grids on which both settle, of the mean |P(s = 1) − exact| and "
        "of |log Z − exact|. Ratio of means: BP's mean error over the tree's; mean ratio: geometric mean over grids."
    )
    ladder_note = (
        f"Shares that settle: plain BP ({SWEEPS} sweeps), damped BP ({4 * SWEEPS}), the double loop, cavity.Auto(). "
        "Missed: grids on which another way settles and the ladder does not. Gap: the largest difference of a "
        "variable's belief and that of one of its edges, where the ladder says converged."
    )
    tables = (
        Table("Tree EP and belief propagation", ("grids of", *numbers["all"]), rows(lines), note),
        Table("The ladder, s = 2", ("grids", *next(iter(ladder.values()))), rows(ladder), ladder_note),
    )
    total = numbers["all"]
    checks = {
        "tree EP settles on 99 % or more": total["tree settles"] >= 0.99,
        "where both settle the tree is closer on 95 % or more": (total["tree closer"] or 0) >= 0.95,
        "where both settle its mean error is 5 times lower or more": (total["ratio of means"] or 0) >= 5,
        "where both settle the errors' mean ratio is 5 or more": (total["mean ratio"] or 0) >= 5,
        "where both settle log Z is closer on most": (total["tree closer, log Z"] or 0) > 0.5,
        "ladder: settles wherever another way to belief propagation does": not sum(
            o["missed"] for o in ladder.values()
        ),
        "ladder: finite everywhere": all(own["finite"] for own in ladder.values()),
        "ladder: what it calls converged is a fixed point": all(
            (o["largest gap"] or 0) < AGREED for o in ladder.values()
        ),
    }
    sentence = (
        f"Tree EP settles on {total['tree settles']:.1%} of {total['grids']} grids, BP on {total['BP settles']:.0%}. "
        f"On the {total['both']} where both do, the tree is closer on {total['tree closer'] or 0:.1%}, its mean error "
        f"{total['ratio of means'] or 0:.1f} times lower (geometric mean of ratios {total['mean ratio'] or 0:.1f}), "
        f"log Z closer on {total['tree closer, log Z'] or 0:.1%}. At s = 2 the ladder settles on "
        f"{np.mean([own['ladder'] for own in ladder.values()]):.0%}."
    )
    return Outcome((*tables, check_table(checks)), numbers, grade(checks), sentence)


def rows(lines: dict[str, dict[str, Any]]) -> list[tuple]:
    return [(name, *own.values()) for name, own in lines.items()]


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    shown = [s for s in COUPLINGS if any(name.endswith(f", {s:g}") for name in results)]
    sheet, axes = figure(2, len(shown), width=4.4 * len(shown), height=8.0)
    for row, key, title in ((0, "error", "error of a marginal"), (1, "log_z", "error of log Z")):
        for ax, s in zip(axes[row], shown, strict=True):
            for side, colour in SIDES.items():
                report = results.get(f"{side}×{side}, {s:g}")
                if report is None:
                    continue
                both = np.all([array(report[f"{name} converged"]) > 0 for name in ("BP", "tree")], axis=0)
                bp, tree = (np.maximum(np.abs(array(report[f"{name} {key}"])), LEAST) for name in ("BP", "tree"))
                text = f"{side}×{side}"
                ax.plot(bp[both], tree[both], "o", color=colour, markersize=5, label=text)
                ax.plot(
                    bp[~both],
                    tree[~both],
                    "o",
                    color=colour,
                    markersize=5,
                    mfc="none",
                    label=f"{text}, one did not settle",
                )
            ax.axline((1e-3, 1e-3), slope=1, color="black", linewidth=0.8)
            ax.set_xscale("log")
            ax.set_yscale("log")
            label(ax, f"{title}, s = {s:g}", "belief propagation", "tree EP")
    shared_legend(sheet, axes.flat)
    return sheet


EXPERIMENT = Experiment(
    name="thesis-4-grids",
    document=f"{DOCUMENT}, section 4.2",
    title="Tree EP and belief propagation on random grids",
    claim="EP with a tree for q is more accurate than belief propagation. (On 300 random grids: it settles on 99 %; "
    "where both settle it is closer on 95 %, with a mean error 5 times lower. Our numbers, set after a sketch.)",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
