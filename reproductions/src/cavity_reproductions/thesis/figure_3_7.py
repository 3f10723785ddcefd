"""Thesis figure 3-7: the weights of a mixture of two close, known Gaussians, N(0, 3) and N(1, 3) with variance 3."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import betaln

import cavity
from cavity.baselines import directed_decision, laplace, probabilistic_teacher, variational_bayes
from cavity.baselines._laplace import softmax_curvature
from cavity.exact_inference import exact, posterior_density
from cavity.exact_inference.problem_data import MIXTURE, mixture_data, unsupported
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import label, legend
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
from cavity_reproductions.workbench import cost_and_error, exact_answers, gather, normal_density, path_of, solve

POINTS = 50
MEANS, VARIANCE = np.array([0.0, 1.0]), 3.0
COWELL = cavity.EP(projection=cavity.Cowell())
METHODS = ("EP", "EP2", "Laplace", "VB", "ADF", "Directed Decision", "Probabilistic Teacher")


def mixture_sets(seed: int, count: int) -> np.ndarray:
    """Values p_k(x_i) of sets drawn with equal weights, (count, n, 2)."""
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 2, (count, POINTS))
    x = rng.normal(MEANS[which], np.sqrt(VARIANCE))
    return normal_density(x[..., None], MEANS, VARIANCE)


def units(config: Config) -> list[Unit]:
    batches, count = config.pick(4, 1, 1), config.pick(25, 10, 4)
    chunks = [make_unit(config, 1 + k, f"sets-{k}", count=count) for k in range(batches)]
    return [make_unit(config, 0, "drawn"), *chunks]


def run_unit(unit: Unit, config: Config) -> dict:
    return drawn(unit.seed) if unit.name == "drawn" else many(unit.seed, unit.options["count"])


def beta_density(grid: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Dirichlet(a) of two weights as a density of the first."""
    return np.exp((a[0] - 1) * np.log(grid) + (a[1] - 1) * np.log1p(-grid) - betaln(a[0], a[1]))


def logistic_normal(grid: np.ndarray, problem: cavity.Problem) -> np.ndarray:
    """Laplace's q(w₁): a Gaussian of log w₁/w₂ at the mode that EM climbs to."""
    data = mixture_data(problem)
    if data is None:
        raise unsupported("logistic_normal", problem, MIXTURE)
    w = np.array([0.5, 0.5])
    for _ in range(5000):
        w = softmax_curvature(data, w)[1]
    hessian = softmax_curvature(data, w)[2]
    b = np.log(grid) - np.log1p(-grid)
    return normal_density(b, np.log(w[0] / w[1]), -1.0 / hessian[0, 0]) / (grid * (1 - grid))


def matched_concentration(answer: Any) -> np.ndarray:
    """The Dirichlet parameters of an answer whose q is a Dirichlet, from its mean and variance."""
    mean = np.asarray(answer.mean)
    total = mean[0] * mean[1] / np.asarray(answer.covariance)[0, 0] - 1.0
    return total * mean


def drawn(seed: int) -> dict:
    """One set: posteriors times evidence, and the errors on the way."""
    problem = cavity.models.mixture_weights(mixture_sets(seed, 1)[0])
    truth = exact(problem)
    area = np.exp(truth.log_evidence)
    grid = np.linspace(0.002, 0.998, 401)
    runs = {"EP": path_of(problem, cavity.EP()), "EP2": path_of(problem, COWELL)}
    bounds = {"Laplace": laplace(problem), "VB": variational_bayes(problem)}
    scale = {name: np.exp(float(run[0].log_evidence) - truth.log_evidence) for name, run in runs.items()}
    scale |= {name: np.exp(answer.log_evidence - truth.log_evidence) for name, answer in bounds.items()}
    curves = {name: scale[name] * beta_density(grid, np.asarray(run[0].concentration)) for name, run in runs.items()}
    curves["Laplace"] = scale["Laplace"] * logistic_normal(grid, problem)
    curves["VB"] = scale["VB"] * beta_density(grid, matched_concentration(bounds["VB"]))
    traces = {name: run[1] for name, run in runs.items()} | {name: answer.trace for name, answer in bounds.items()}
    return {
        "grid": grid,
        "exact": posterior_density(problem, grid) / area,
        "curves": curves,
        "paths": {name: cost_and_error(trace, truth) for name, trace in traces.items()},
    }


def many(seed: int, count: int) -> dict:
    """Signed errors of log p(D) and of the mean weight on random sets."""
    sets = mixture_sets(seed, count)
    problems = [cavity.models.mixture_weights(table) for table in sets]
    truth = exact_answers(problems)

    def each(method: Callable[[Any], Any]) -> Any:
        return gather([method(problem) for problem in problems])

    draws = np.random.default_rng(seed + 1)
    model = cavity.models.mixture_weights
    ep, ep2 = solve(model, sets, cavity.EP()), solve(model, sets, COWELL)
    answers = {
        "EP": ep,
        "EP2": ep2,
        "ADF": solve(model, sets, cavity.ADF()),
        "Laplace": each(laplace),
        "VB": each(variational_bayes),
        "Directed Decision": each(directed_decision),
        "Probabilistic Teacher": each(lambda problem: probabilistic_teacher(problem, draws)),
    }
    result = {"converged": ep.converged, "converged EP2": ep2.converged}
    for name, answer in answers.items():
        result[f"evidence {name}"] = answer.log_evidence - truth.log_evidence
        result[f"mean {name}"] = np.abs(answer.mean[:, 0] - truth.mean[:, 0])
        result[f"variance {name}"] = np.abs(np.log(answer.covariance[:, 0, 0] / truth.covariance[:, 0, 0]))
    return result


def summarise(results: Results, config: Config) -> Outcome:
    def column(key: str) -> np.ndarray:
        return joined(results, "sets-", key)

    signed = {name: column(f"evidence {name}") for name in METHODS}
    evidence = {name: np.abs(values) for name, values in signed.items()}
    mean, variance = ({name: column(f"{kind} {name}") for name in METHODS} for kind in ("mean", "variance"))
    ratio = {name: median(evidence[name] / evidence["EP"]) for name in METHODS}
    worst = np.maximum(evidence["EP"], evidence["EP2"])
    rival = np.minimum(evidence["Laplace"], evidence["VB"])
    numbers = {
        "sets": int(signed["EP"].size),
        "EP converged": share(column("converged") > 0),
        "EP2 converged": share(column("converged EP2") > 0),
        "median error of the log evidence": {name: median(values) for name, values in evidence.items()},
        "median error of the mean": {name: median(values) for name, values in mean.items()},
        "median log ratio of the variance": {name: median(values) for name, values in variance.items()},
        "median evidence error ratio to EP": ratio,
        "EP and EP2 both better than Laplace and VB": share(worst < rival),
        "ADF better than Laplace and VB": share(evidence["ADF"] < rival),
        "below the evidence": {name: share(values <= 1e-9) for name, values in signed.items()},
    }
    simple = ("Directed Decision", "Probabilistic Teacher")
    checks = {
        "EP and EP2 are more accurate than Laplace and VB (on 90 %)": share(worst < rival) >= 0.9,
        "EP2 is within a factor 3 of EP (median)": 1 / 3 <= ratio["EP2"] <= 3,
        "even ADF is more accurate than Laplace and VB (on most)": share(evidence["ADF"] < rival) > 0.5,
        "VB is below the evidence on every set; EP and EP2 are not": numbers["below the evidence"]["VB"] == 1
        and max(numbers["below the evidence"][name] for name in ("EP", "EP2")) < 1,
        "ADF beats Directed Decision and Probabilistic Teacher (medians of evidence, mean, variance)": all(
            median(kind["ADF"]) < median(kind[name]) for kind in (evidence, mean, variance) for name in simple
        ),
    }
    rows = [
        (
            name,
            median(evidence[name]),
            ratio[name],
            median(mean[name]),
            median(variance[name]),
            numbers["below the evidence"][name],
        )
        for name in METHODS
    ]
    table = Table(
        f"{numbers['sets']} sets of {POINTS} points; medians",
        ("method", "|log evidence error|", "ratio to EP", "|mean error|", "|log variance ratio|", "share below p(D)"),
        rows,
        "EP2: EP with the update of Cowell et al. ADF and the two last see every point once.",
    )
    sentence = (
        f"EP converged on {numbers['EP converged']:.0%} of the sets. Relative to EP's, the median error of log p(D) is "
        f"{ratio['EP2']:.2g} times for EP2, {ratio['ADF']:.2g} for ADF, {ratio['Laplace']:.2g} for Laplace and "
        f"{ratio['VB']:.2g} for VB."
    )
    return Outcome((table, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    one = results["drawn"]
    grid, truth = array(one["grid"]), array(one["exact"])
    sheet, axes = figure(1, 2, width=11, height=4.4)
    ax = axes[0, 0]
    ax.fill_between(grid, truth, color="#dddddd")
    ax.plot(grid, truth, **STYLES["exact"].curve(), label="exact")
    for name in ("EP", "EP2", "Laplace", "VB"):
        ax.plot(grid, array(one["curves"][name]), **STYLES[name].curve(), label=name)
    label(ax, "(a) posteriors times their evidence", "weight of the first component, w₁", "p(D, w₁) / exact p(D)")
    legend(ax)
    ax = axes[0, 1]
    for name, path in one["paths"].items():
        cost_curve(ax, name, array(path["evaluations"]), array(path["evidence_error"]))
    first = one["paths"]["EP"]
    cost_curve(ax, "ADF", array(first["evaluations"])[:1], array(first["evidence_error"])[:1])
    label(ax, "(b) cost and accuracy of p(D)", "cost (factor evaluations)", "|log evidence error| (nats)")
    legend(ax, outside=True)
    return sheet


EXPERIMENT = Experiment(
    name="thesis-3-7",
    document=f"{DOCUMENT}, figure 3-7",
    title="Weights of a mixture: EP with two projections, Laplace, variational Bayes",
    claim="EP is the most accurate at p(D), with the exact update or the fast one of Cowell et al.; even ADF is very "
    "accurate. Variational Bayes gives a lower bound, the others do not. ADF beats Directed Decision and Probabilistic "
    "Teacher.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
