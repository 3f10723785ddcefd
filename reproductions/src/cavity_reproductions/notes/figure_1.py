"""Lecture notes figure 1: Laplace's method and EP on posteriors of one variable.

Two kinds of skewed posterior: labels under a probit with a random prior, and few counts with a log rate θ, which has no
closed form and is integrated by quadrature. A data set is one row: the labels or counts, then prior mean and variance.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import cavity
from cavity.baselines import laplace
from cavity.exact_inference import exact, posterior_density
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import label, shared_legend
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
from cavity_reproductions.notes import DOCUMENT
from cavity_reproductions.workbench import Truth, exact_answers, gather, infer, normal_density, solve

LABELS, COUNTS = 8, 4
#: the sets drawn: eight labels that agree under a wide prior; a single event in four counts
DRAWN = {"probit": np.array([1.0] * 8 + [0.0, 16.0]), "counts": np.array([0.0, 0.0, 0.0, 1.0, 0.0, 9.0])}


def log_poisson(theta: Any, count: Any) -> jax.Array:
    """log of exp(θ)^y exp(−exp θ), without y!."""
    return count * theta - jnp.exp(theta)


POISSON = cavity.factors.from_log_density(log_poisson)


def probit_posterior(row: Any) -> cavity.Problem:
    """N(θ; mean, variance) ∏ Φ(label_i θ)."""
    return cavity.models.posterior(cavity.factors.Probit(), row[:-2], row[-2], row[-1])


def count_posterior(row: Any) -> cavity.Problem:
    """N(θ; mean, variance) ∏ Poisson(count_i; exp θ)."""
    return cavity.models.posterior(POISSON, row[:-2], row[-2], row[-1])


MODELS = {"probit": probit_posterior, "counts": count_posterior}


def random_sets(kind: str, seed: int, count: int) -> np.ndarray:
    """Labels of a θ from the prior, counts of rate ½; prior variances are spread over 1 to 30, means over −1 to 1."""
    rng = np.random.default_rng(seed)
    prior = np.column_stack([rng.uniform(-1.0, 1.0, count), np.exp(rng.uniform(0.0, np.log(30.0), count))])
    if kind == "counts":
        data = rng.poisson(0.5, (count, COUNTS)).astype(float)
    else:
        theta = rng.normal(prior[:, 0], np.sqrt(prior[:, 1]))
        data = np.where(theta[:, None] + rng.normal(size=(count, LABELS)) > 0, 1.0, -1.0)
    return np.column_stack([data, prior])


def units(config: Config) -> list[Unit]:
    count = config.pick(100, 10, 3)
    found = [make_unit(config, k, f"drawn-{kind}", kind=kind, row=list(DRAWN[kind])) for k, kind in enumerate(MODELS)]
    return [
        *found,
        *(make_unit(config, 2 + k, f"sets-{kind}", kind=kind, count=count) for k, kind in enumerate(MODELS)),
    ]


def run_unit(unit: Unit, config: Config) -> dict:
    kind = unit.options["kind"]
    if unit.name.startswith("drawn"):
        return portrait(kind, np.array(unit.options["row"]))
    sets = random_sets(kind, unit.seed, unit.options["count"])
    problems = [MODELS[kind](data) for data in sets]
    truth = exact_answers(problems)
    ep = solve(MODELS[kind], sets, cavity.EP())
    answers = {"EP": ep, "Laplace": gather([laplace(problem) for problem in problems])}
    result: dict[str, Any] = {"converged": ep.converged}
    for name, answer in answers.items():
        result[f"mean {name}"] = np.abs(answer.mean - truth.mean) / np.sqrt(truth.covariance)
        result[f"variance {name}"] = np.abs(np.log(answer.covariance / truth.covariance))
        result[f"evidence {name}"] = np.abs(answer.log_evidence - truth.log_evidence)
        whole, near = shape_errors(problems, truth, answers["Laplace"].mean, answer)
        result[f"whole {name}"], result[f"near {name}"] = whole, near
    return result


def shape_errors(problems: list, truth: Truth, modes: np.ndarray, answer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Total variation distance to the posterior, and the same within half an sd of the mode as a part of its mass."""
    whole, near = [], []
    for k, problem in enumerate(problems):
        width = np.sqrt(truth.covariance[k])
        grid = truth.mean[k] + width * np.linspace(-12, 12, 2401)
        p = posterior_density(problem, grid) / np.exp(truth.log_evidence[k])
        gap = np.abs(p - normal_density(grid, answer.mean[k], answer.covariance[k]))
        inside = np.abs(grid - modes[k]) <= 0.5 * width
        whole.append(0.5 * gap.sum() * (grid[1] - grid[0]))
        near.append(gap[inside].sum() / p[inside].sum())
    return np.array(whole), np.array(near)


def portrait(kind: str, row: np.ndarray) -> dict:
    """Curves of the fixed example."""
    problem = MODELS[kind](row)
    truth, mode, ep = exact(problem), laplace(problem), infer(problem)
    width = np.sqrt(truth.covariance)
    grid = np.linspace(truth.mean - 4.5 * width, truth.mean + 4.5 * width, 401)
    rows = {"exact": truth, "Laplace": mode, "EP": ep}
    return {
        "grid": grid,
        "exact": posterior_density(problem, grid) / np.exp(truth.log_evidence),
        "curves": {
            n: normal_density(grid, float(a.mean), float(a.covariance)) for n, a in rows.items() if n != "exact"
        },
        "rows": [[n, float(a.mean), float(a.covariance) ** 0.5, float(a.log_evidence)] for n, a in rows.items()],
    }


def summarise(results: Results, config: Config) -> Outcome:
    tables, numbers, checks = [], {}, {}
    kinds = ("whole", "near", "mean", "variance", "evidence")
    for kind in MODELS:
        prefix = f"sets-{kind}"
        values = {
            f"{part} {name}": joined(results, prefix, f"{part} {name}") for part in kinds for name in ("Laplace", "EP")
        }
        better = share(values["whole EP"] < values["whole Laplace"])
        numbers[kind] = {
            "sets": int(values["whole EP"].size),
            "EP converged": share(joined(results, prefix, "converged") > 0),
            "EP closer in total variation": better,
            "medians": {key: median(column) for key, column in values.items()},
        }
        checks[f"{kind}: EP is closer to the whole posterior (on 90 %)"] = better >= 0.9
        checks[f"{kind}: Laplace is fair around the mode (median error below 15 % there)"] = (
            median(values["near Laplace"]) < 0.15
        )
        rows = [(name, *(median(values[f"{part} {name}"]) for part in kinds)) for name in ("Laplace", "EP")]
        tables.append(
            Table(
                f"{kind}: medians over {numbers[kind]['sets']} random posteriors",
                (
                    "method",
                    "total variation",
                    "error near the mode",
                    "|mean error| (sd)",
                    "|log variance ratio|",
                    "|log evidence error|",
                ),
                rows,
            )
        )
        tables.append(
            Table(
                f"{kind}: the posterior drawn",
                ("method", "mean", "sd", "log evidence"),
                results[f"drawn-{kind}"]["rows"],
            )
        )
    parts = [
        f"{kind}: total variation {numbers[kind]['medians']['whole EP']:.2g} with EP and "
        f"{numbers[kind]['medians']['whole Laplace']:.2g} with Laplace, EP closer on "
        f"{numbers[kind]['EP closer in total variation']:.0%}"
        for kind in MODELS
    ]
    return Outcome((*tables, check_table(checks)), numbers, grade(checks), "; ".join(parts) + ".")


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(2, 2, width=10.5, height=8)
    titles = {"probit": "eight labels under a probit", "counts": "four counts with log rate θ"}
    for row, kind in enumerate(MODELS):
        one = results[f"drawn-{kind}"]
        grid, truth = array(one["grid"]), array(one["exact"])
        ax = axes[row, 0]
        ax.fill_between(grid, truth, color="#dddddd")
        ax.plot(grid, truth, **STYLES["exact"].curve(), label="exact")
        for name, curve in one["curves"].items():
            ax.plot(grid, array(curve), **STYLES[name].curve(), label=name)
        label(ax, f"({'ac'[row]}) {titles[kind]}", "θ", "posterior density")
        ax = axes[row, 1]
        samples = {
            f"{name}\n{words}": np.maximum(joined(results, f"sets-{kind}", f"{part} {name}"), 1e-9)
            for part, words in (("whole", "whole posterior"), ("near", "near the mode"))
            for name in ("Laplace", "EP")
        }
        box_by_name(ax, samples, {key: STYLES[key.split("\n")[0]].colour for key in samples})
        ax.tick_params(axis="x", labelsize=8.5)
        label(ax, f"({'bd'[row]}) {outcome.numbers[kind]['sets']} random posteriors", "", "distance of the densities")
    shared_legend(sheet, axes[:, 0])
    return sheet


EXPERIMENT = Experiment(
    name="notes-1",
    document=f"{DOCUMENT}, figure 1",
    title="Laplace and EP on an intractable posterior of one variable",
    claim="Laplace's method does an acceptable job around the mode; EP is better at capturing the whole distribution.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
