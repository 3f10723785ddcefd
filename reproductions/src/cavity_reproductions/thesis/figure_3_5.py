"""Thesis figure 3-5: cost against accuracy on the clutter problem, n = 20 and n = 200.

Cost is counted in factor evaluations (one term at one θ, or one site visited), and the seconds of the typical run are
given beside. Accuracy is the absolute error of log p(D) and of the posterior mean, against quadrature.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import cavity
from cavity.baselines import Estimate, gibbs, importance, laplace, variational_bayes
from cavity.exact_inference import exact
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import label, shared_legend
from cavity_reproductions.axes import cost_curve
from cavity_reproductions.base import (
    Config,
    Experiment,
    Outcome,
    Results,
    Unit,
    array,
    check_table,
    grade,
    joined,
    make_unit,
    median,
    share,
)
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.workbench import clutter_sets, cost_and_error, exact_answers, gather, infer, path_of, solve

GAUSSIAN = ("EP", "Laplace", "VB")
ALL = (*GAUSSIAN, "ADF", "importance", "Gibbs")
#: samples of the two sampling methods on the many sets
IMPORTANCE, GIBBS = 2000, 500


def sizes(config: Config) -> dict[str, int]:
    """Points of the small and of the large problem."""
    return {"small": 20, "large": config.pick(200, 200, 20)}


def units(config: Config) -> list[Unit]:
    batches, count = config.pick(4, 1, 1), config.pick(50, 10, 4)
    found = []
    for size, n in sizes(config).items():
        found.append(make_unit(config, len(found), f"typical-{size}", n=n, samples=config.pick(100_000, 20_000, 500)))
        for k in range(batches):
            found.append(make_unit(config, len(found), f"sets-{size}-{k}", n=n, count=count))
    return found


def run_unit(unit: Unit, config: Config) -> dict:
    if unit.name.startswith("typical"):
        return typical(unit.seed, unit.options["n"], unit.options["samples"])
    return many(unit.seed, unit.options["n"], unit.options["count"])


def typical(seed: int, n: int, samples: int) -> dict:
    """The way of every method to its answer on the first data set on which EP converges."""
    x = next(x for x in clutter_sets(seed, 200, n) if infer(cavity.models.clutter(x)).converged)
    problem = cavity.models.clutter(x)
    truth = exact(problem)
    runs: dict[str, Callable[[], Any]] = {
        "EP": lambda: path_of(problem, cavity.EP())[1],
        "Laplace": lambda: laplace(problem).trace,
        "VB": lambda: variational_bayes(problem).trace,
        "importance": lambda: importance(problem, samples, seed).trace,
        "Gibbs": lambda: gibbs(problem, samples // 5, 0, seed).trace,
    }
    result = {}
    for name, run in runs.items():
        run()  # what is measured below is the method, not its compilation
        began = time.perf_counter()
        trace = run()
        result[name] = cost_and_error(trace, truth) | {"seconds": time.perf_counter() - began}
    return result


def many(seed: int, n: int, count: int) -> dict:
    """Final errors of every method on random sets."""
    sets = clutter_sets(seed, count, n)
    problems = [cavity.models.clutter(x) for x in sets]
    truth = exact_answers(problems)

    def each(method: Callable[[Any], Estimate]) -> Any:
        return gather([method(problem) for problem in problems])

    draws = np.random.default_rng(seed + 1)
    ep = solve(cavity.models.clutter, sets, cavity.EP())
    answers = {
        "EP": ep,
        "ADF": solve(cavity.models.clutter, sets, cavity.ADF()),
        "Laplace": each(laplace),
        "VB": each(variational_bayes),
        "importance": each(lambda problem: importance(problem, IMPORTANCE, draws)),
        "Gibbs": each(lambda problem: gibbs(problem, GIBBS, 50, draws)),
    }
    result = {"converged": ep.converged}
    for name, answer in answers.items():
        result[f"evidence {name}"] = np.abs(answer.log_evidence - truth.log_evidence)
        result[f"mean {name}"] = np.abs(answer.mean - truth.mean)
    return result


def summarise(results: Results, config: Config) -> Outcome:
    numbers: dict = {}
    tables, wins = [], []
    for size, n in sizes(config).items():
        converged = joined(results, f"sets-{size}-", "converged") > 0
        mine: dict = {"points": n, "sets": int(converged.size), "EP converged": share(converged)}
        for kind in ("evidence", "mean"):
            error = {name: joined(results, f"sets-{size}-", f"{kind} {name}") for name in ALL}
            mine[f"median error of the {kind}"] = {name: median(values) for name, values in error.items()}
            mine[f"median {kind} error ratio to EP"] = {
                name: median((error[name] / error["EP"])[converged]) for name in ALL if name != "EP"
            }
            best = converged & np.all([~(error[name] < error["EP"]) for name in ("Laplace", "VB", "ADF")], axis=0)
            mine[f"EP best for the {kind}"] = share(best)
            wins.append((f"{kind}, n = {n}", share(converged), share(best), share(best[converged])))
        numbers[size] = mine
        columns = [
            mine[part]
            for kind in ("evidence", "mean")
            for part in (f"median error of the {kind}", f"median {kind} error ratio to EP")
        ]
        tables.append(
            Table(
                f"n = {n}: median absolute errors over {mine['sets']} random sets",
                ("method", "log evidence", "ratio to EP", "mean", "ratio to EP "),
                [(name, *(column.get(name) for column in columns)) for name in ALL],
                "Ratio: median over the sets on which EP converged.",
            )
        )
    won = Table(
        "EP better than ADF, Laplace and VB",
        ("quantity", "EP converged", "share of all sets", "share where converged"),
        wins,
        f"Importance: {IMPORTANCE} samples; Gibbs: {GIBBS} after 50, it has no evidence.",
    )
    small, large = numbers["small"], numbers["large"]
    kinds = ("median error of the evidence", "median error of the mean")
    checks = {
        "EP is best on 90 % of the sets, evidence and mean, both n": all(row[2] >= 0.9 for row in wins),
        "ADF is worse than Laplace and VB (medians, evidence and mean, both n)": all(
            mine[kind]["ADF"] > max(mine[kind]["Laplace"], mine[kind]["VB"])
            for mine in (small, large)
            for kind in kinds
        ),
        **{
            f"{name} improves with n (medians, evidence and mean)": all(
                large[kind][name] < small[kind][name] for kind in kinds
            )
            for name in GAUSSIAN
        },
        "importance sampling does not improve with n (median evidence)": large[kinds[0]]["importance"]
        > small[kinds[0]]["importance"],
    }
    ratio = [mine["median evidence error ratio to EP"]["Laplace"] for mine in (small, large)]
    adf, vb = ([mine[kinds[0]][name] for mine in (small, large)] for name in ("ADF", "VB"))
    sentence = (
        f"EP converged on {small['EP converged']:.0%} of the sets at n = {small['points']} and "
        f"{large['EP converged']:.0%} at n = {large['points']}; there its error of the evidence is smaller than "
        f"Laplace's by a median factor of {ratio[0]:.0f} and {ratio[1]:.0f}. ADF's median error of the evidence is "
        f"{adf[0]:.2g} and {adf[1]:.2g} nats, VB's {vb[0]:.2g} and {vb[1]:.2g}."
    )
    return Outcome(
        (*tables, won, typical_table(results, config), check_table(checks)), numbers, grade(checks), sentence
    )


def typical_table(results: Results, config: Config) -> Table:
    """Where the drawn runs end, with what they cost."""
    rows = []
    for size, n in sizes(config).items():
        for name, run in results[f"typical-{size}"].items():
            evidence, mean = (array(run[key])[-1] for key in ("evidence_error", "mean_error"))
            rows.append((f"{name}, n = {n}", run["evaluations"][-1], run["seconds"], float(evidence), float(mean)))
    columns = ("method", "evaluations", "seconds", "|log evidence error|", "|mean error|")
    return Table("The typical runs, at their end", columns, rows, "Seconds without compilation, on this machine.")


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(2, 2, width=10.5, height=8)
    names = {"evidence_error": "|log evidence error| (nats)", "mean_error": "|mean error|"}
    for row, (size, n) in enumerate(sizes(config).items()):
        for column, (kind, axis) in enumerate(names.items()):
            ax = axes[row, column]
            for name, run in results[f"typical-{size}"].items():
                cost_curve(ax, name, array(run["evaluations"]), array(run[kind]))
            run = results[f"typical-{size}"]["EP"]
            cost_curve(ax, "ADF", array(run["evaluations"])[:1], array(run[kind])[:1])
            label(ax, f"({'abcd'[2 * row + column]}) n = {n}", "cost (factor evaluations)", axis)
    shared_legend(sheet, axes.flat)
    return sheet


EXPERIMENT = Experiment(
    name="thesis-3-5",
    document=f"{DOCUMENT}, figure 3-5",
    title="Cost against accuracy on the clutter problem",
    claim="ADF, EP's first pass, is worse than variational Bayes and Laplace's method; after convergence EP is the "
    "best. All three Gaussian methods improve with n, sampling does not.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
