"""Thesis figure 2-1: three ways to replace an integrand by one that can be integrated.

The integrands are joint densities p(D, θ) of the clutter problem with ten points: positive, skewed, sometimes with two
modes, and a product of sums, so that the bound on the integrand (variational Bayes) applies.
"""

from typing import Any

import numpy as np

import cavity
from cavity.baselines import jensen, laplace, variational_bayes
from cavity.exact_inference import exact, posterior_density
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import label, legend
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
    joined,
    make_unit,
    median,
    share,
)
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.workbench import clutter_sets, exact_answers, gather, infer, scaled_normal, solve

POINTS = 10
METHODS = ("Laplace", "VB", "EP")
#: the drawn integrand is the first on which EP converges and Laplace misses this part of the area: one can see it
VISIBLE = 0.1


def units(config: Config) -> list[Unit]:
    batches, size = config.pick(4, 1, 1), config.pick(25, 10, 4)
    chunks = [make_unit(config, 1 + k, f"integrands-{k}", count=size) for k in range(batches)]
    return [make_unit(config, 0, "drawn"), *chunks]


def run_unit(unit: Unit, config: Config) -> dict:
    return drawn(unit.seed) if unit.name == "drawn" else integrands(unit.seed, unit.options["count"])


def drawn(seed: int) -> dict:
    """Curves and areas of one integrand, in units of the exact area."""
    problem = next(filter(is_telling, map(cavity.models.clutter, clutter_sets(seed, 200, POINTS))))
    truth = exact(problem)
    answers: dict[str, Any] = {"Laplace": laplace(problem), "VB": variational_bayes(problem), "EP": infer(problem)}
    width = float(np.sqrt(truth.covariance))
    grid = np.linspace(truth.mean - 5 * width, truth.mean + 5 * width, 401)
    unit_area = np.exp(truth.log_evidence)
    curves = {name: scaled_normal(grid, answer) / unit_area for name, answer in answers.items()}
    areas = {name: np.exp(float(answer.log_evidence) - truth.log_evidence) for name, answer in answers.items()}
    return {"grid": grid, "exact": posterior_density(problem, grid) / unit_area, "curves": curves, "areas": areas}


def is_telling(problem: cavity.Problem) -> bool:
    """Whether EP converges and Laplace's error can be seen."""
    gap = laplace(problem).log_evidence - exact(problem).log_evidence
    return abs(gap) > VISIBLE and bool(infer(problem).converged)


def integrands(seed: int, count: int) -> dict:
    """Errors of the log integral and ratios of the variance over random integrands."""
    sets = clutter_sets(seed, count, POINTS)
    problems = [cavity.models.clutter(x) for x in sets]
    truth = exact_answers(problems)
    ep = solve(cavity.models.clutter, sets, cavity.EP())
    answers = {
        "EP": ep,
        "Laplace": gather([laplace(problem) for problem in problems]),
        "VB": gather([variational_bayes(problem) for problem in problems]),
        "Jensen": gather([jensen(problem) for problem in problems]),
    }
    result = {"converged": ep.converged}
    for name, answer in answers.items():
        result[f"error {name}"] = answer.log_evidence - truth.log_evidence
        result[f"variance {name}"] = answer.covariance / truth.covariance
    return result


def summarise(results: Results, config: Config) -> Outcome:
    converged = joined(results, "integrands", "converged") > 0
    signed = {name: joined(results, "integrands", f"error {name}") for name in (*METHODS, "Jensen")}
    width = {name: joined(results, "integrands", f"variance {name}") for name in (*METHODS, "Jensen")}
    size = {name: np.abs(values) for name, values in signed.items()}
    best = converged & (size["EP"] < size["Laplace"]) & (size["EP"] < size["VB"])
    numbers = {
        "integrands": int(converged.size),
        "EP converged": share(converged),
        "EP most accurate": share(best),
        "EP most accurate where it converged": share(best[converged]),
        "Laplace too narrow": share(width["Laplace"] < 1),
        "bound below the integral": share(signed["VB"] <= 1e-9),
        "median error": {name: median(values) for name, values in size.items()},
        "median error of EP where it converged": median(size["EP"][converged]),
        "median variance ratio": {name: median(values) for name, values in width.items()},
    }
    checks = {
        "Laplace is too local: narrower than the integrand (on 90 %)": numbers["Laplace too narrow"] >= 0.9,
        "the bound on the integrand is the least accurate (median)": median(size["VB"])
        > max(median(size["Laplace"]), median(size["EP"])),
        "EP gives the most accurate integral (on 90 %)": numbers["EP most accurate"] >= 0.9,
    }
    rows = [
        (name, median(size[name]), float(np.nanquantile(size[name], 0.9)), median(width[name]))
        for name in (*METHODS, "Jensen")
    ]
    rows.insert(
        2, ("EP, converged", median(size["EP"][converged]), quantile(size["EP"][converged]), median(width["EP"]))
    )
    table = Table(
        f"{converged.size} integrands of {POINTS} clutter terms",
        ("method", "median |log error|", "90 % |log error|", "median variance / exact"),
        rows,
        "Jensen: the bound on the integral (2.13), not in the figure. Where EP did not converge its last state counts.",
    )
    one = results["drawn"]["areas"]
    areas = Table("The drawn integrand", ("method", "area / exact"), [(name, one[name]) for name in METHODS])
    sentence = (
        f"EP is the most accurate on {numbers['EP most accurate']:.0%} of the integrands "
        f"({numbers['EP most accurate where it converged']:.0%} where it converged, which is {share(converged):.0%}); "
        f"Laplace is too narrow on {numbers['Laplace too narrow']:.0%} and the median error of the bound is "
        f"{median(size['VB']):.2g} nats, of Laplace {median(size['Laplace']):.2g}, of EP {median(size['EP']):.2g}."
    )
    return Outcome((table, areas, check_table(checks)), numbers, grade(checks), sentence)


def quantile(values: np.ndarray, level: float = 0.9) -> float:
    return float(np.quantile(values, level)) if values.size else float("nan")


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    one = results["drawn"]
    grid, truth = array(one["grid"]), array(one["exact"])
    sheet, axes = figure(2, 2, width=10, height=7.2)
    titles = {
        "Laplace": "(a) Laplace: curvature at the mode",
        "VB": "(b) variational bound on the integrand",
        "EP": "(c) expectation propagation",
    }
    for ax, name in zip(axes.flat, METHODS, strict=False):
        ax.fill_between(grid, truth, color="#dddddd", label="integrand (area 1)")
        ax.plot(grid, truth, **STYLES["exact"].curve())
        ax.plot(
            grid, array(one["curves"][name]), **STYLES[name].curve(), label=f"{name} (area {one['areas'][name]:.3f})"
        )
        label(ax, titles[name], "θ", "p(D, θ) / p(D)")
        legend(ax)
    ax = axes.flat[3]
    errors = {
        name: np.abs(joined(results, "integrands", f"error {name}")) for name in ("Laplace", "VB", "Jensen", "EP")
    }
    errors = {name: np.maximum(values[~np.isnan(values)], 1e-9) for name, values in errors.items()}
    box_by_name(ax, errors, {name: STYLES[name].colour for name in errors})
    label(ax, f"(d) {outcome.numbers['integrands']} random integrands", "", "|error of log integral| (nats)")
    return sheet


EXPERIMENT = Experiment(
    name="thesis-2-1",
    document=f"{DOCUMENT}, figure 2-1",
    title="Approximating an integrand: Laplace, a variational bound, EP",
    claim="Laplace's method is too local, a bound on the integrand is too inaccurate, and EP, which minimises a global "
    "measure of deviation, gives the most accurate integral.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
