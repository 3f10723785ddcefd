"""The network of thesis figure 4-3, six nodes around two squares, and the approximations of section 4.2."""

from typing import Any, NamedTuple

import numpy as np

import cavity
from cavity.discrete import DiscreteGraph, Exact, exact_discrete
from cavity.reports import Table
from cavity_reproductions.base import Config, Results, Unit, array, make_unit, median
from cavity_reproductions.workbench import infer

#: (4.21); node k of the thesis is number k − 1
EDGES = ((0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (4, 5), (2, 5))
#: (4.22, 4.23)
GROUPS = ((0, 1, 2, 3), (4, 5, 6))
#: (4.38)
CHAIN = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5))
#: (4.64)
CLUSTERS = ((0, 1), (2, 3), (4, 5))
#: standard deviation of log h, entry by entry
STRENGTHS = (0.5, 1.0, 2.0)
#: differences up to this count as none: sites are matched to 1e-12
EXACT = 1e-10


class Form(NamedTuple):
    """What stands for q, and which edges are joined into one term."""

    form: Any
    groups: Any = None


FORMS = {
    "BP": Form("disconnected"),
    "grouped": Form("disconnected", GROUPS),
    "one group": Form("disconnected", (tuple(range(len(EDGES))),)),
    "chain": Form(cavity.Tree(CHAIN)),
    "clusters": Form(cavity.Clusters(CLUSTERS)),
    "clusters, grouped": Form(cavity.Clusters(CLUSTERS), GROUPS),
}


def network(rng: np.random.Generator, strength: float) -> DiscreteGraph:
    """Binary nodes; every h(x_i, x_j) = exp(strength × a standard normal), entry by entry."""
    graph = DiscreteGraph([2] * 6)
    graph.add_factors(EDGES, strength * rng.normal(size=(len(EDGES), 2, 2)), log=True)
    return graph


def units(config: Config, names: tuple[str, ...]) -> list[Unit]:
    """One for each form and strength; all forms see the same networks."""
    count = config.pick(100, 10, 2)
    levels = STRENGTHS if config.size != "tiny" else STRENGTHS[1:2]
    return [
        make_unit(config, 400 + place, f"{name} {strength:g}", form=name, strength=strength, count=count)
        for name in names
        for place, strength in enumerate(levels)
    ]


def run_unit(unit: Unit, config: Config) -> dict:
    """Every network of a strength: errors after one pass (ADF) and at the end (EP)."""
    rng = np.random.default_rng(unit.seed)
    graphs = [network(rng, unit.options["strength"]) for _ in range(unit.options["count"])]
    runs = [compared(graph, FORMS[unit.options["form"]]) for graph in graphs]
    return {key: [run[key] for run in runs] for key in runs[0]}


def solved(graph: DiscreteGraph, form: Form) -> tuple[cavity.Solution, cavity.Solution]:
    """What ADF finds, which is EP's first sweep, and EP."""
    terms = graph.approximate(form.form, groups=form.groups)
    return infer(terms, cavity.ADF()), infer(terms, cavity.EP(tol=1e-12, max_sweeps=1000))


def compared(graph: DiscreteGraph, form: Form) -> dict:
    """Errors of single marginals, of the pairs along the chain where q holds them, and of log Z."""
    truth, (first, last) = exact_discrete(graph), solved(graph, form)
    held = form.form != "disconnected"
    report: dict[str, Any] = {"converged": last.converged, "sweeps": last.sweeps, "marginals": on(last)}
    report["log_z"] = float(last.log_evidence)
    for name, one in (("ADF", first), ("EP", last)):
        report[f"{name} marginals"] = np.abs(on(one) - [values[1] for values in truth.marginals])
        report[f"{name} log_z"] = float(one.log_evidence) - truth.log_evidence
        report[f"{name} pairs"] = [pair_error(one, truth, pair) if held else np.nan for pair in CHAIN]
    return report


def on(solution: cavity.Solution) -> np.ndarray:
    """P(x_k = 1) of every variable."""
    return np.asarray(solution.marginals)[:, 1]


def pair_error(solution: cavity.Solution, truth: Exact, pair: tuple[int, int]) -> float:
    """Total variation distance of q(x_i, x_j) from the truth; nan where q and its terms do not hold the pair."""
    return 0.5 * float(np.abs(solution.pair(*pair) - truth.pair(*pair)).sum())


def of_form(results: Results, name: str, key: str) -> np.ndarray:
    """An array of all networks, one strength after another."""
    found = [array(one[key]) for unit, one in results.items() if unit.rpartition(" ")[0] == name]
    return np.concatenate(found)


def forms_in(results: Results) -> list[str]:
    """Names of the forms, in order."""
    return list(dict.fromkeys(unit.rpartition(" ")[0] for unit in results))


def error_table(results: Results) -> Table:
    """Medians and largest values over the networks of a strength."""
    rows = []
    for unit, one in results.items():
        name, _, strength = unit.rpartition(" ")
        first, last = array(one["ADF marginals"]), array(one["EP marginals"])
        rows.append(
            (
                name,
                float(strength),
                float(np.mean(array(one["converged"]))),
                median(first.mean(axis=1)),
                median(last.mean(axis=1)),
                float(last.max()),
                median(np.abs(array(one["ADF log_z"]))),
                median(np.abs(array(one["EP log_z"]))),
            )
        )
    count = len(next(iter(results.values()))["converged"])
    heads = (
        "form",
        "strength",
        "converged",
        "ADF, marginals",
        "EP, marginals",
        "EP, largest",
        "ADF, log Z",
        "EP, log Z",
    )
    return Table(
        f"Errors on {count} random networks a strength",
        heads,
        rows,
        "Median over networks of the mean |P(x_k = 1) − exact|, and of |log Z − exact|; largest: of all marginals. "
        "ADF is the first sweep of EP. Strength: standard deviation of log h.",
    )


def form_numbers(results: Results) -> dict[str, dict[str, float]]:
    """By form: shares and errors over all networks."""
    return {
        name: {
            "converged": float(np.mean(of_form(results, name, "converged"))),
            "median EP error": median(of_form(results, name, "EP marginals").mean(axis=1)),
            "median ADF error": median(of_form(results, name, "ADF marginals").mean(axis=1)),
            "largest EP error": float(of_form(results, name, "EP marginals").max()),
            "largest log Z error": float(np.abs(of_form(results, name, "EP log_z")).max()),
        }
        for name in forms_in(results)
    }
