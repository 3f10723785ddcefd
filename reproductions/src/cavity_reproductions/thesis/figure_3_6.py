"""Thesis figure 3-6: a clutter posterior with three modes, where a Gaussian cannot fit.

Such posteriors are rare (about 1 in 2500 sets of 20 points), so each unit searches a stretch of random sets for them.
A mode counts when it has a tenth of the height of the highest.
"""

from typing import Any

import numpy as np

import cavity
from cavity.baselines import gibbs, importance, laplace, variational_bayes
from cavity.inference.status import Status
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import GREY, ORANGE, label, legend, shared_legend
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
from cavity_reproductions.thesis.three_mode_portrait import POINTS, RESTRICTED, drawn
from cavity_reproductions.thesis.three_modes import GRID, MODES, log_joint, modes, three_mode_sets
from cavity_reproductions.workbench import clutter_sets, exact_answers, gather, solve

GAUSSIAN = ("Restricted EP", "Laplace", "VB")
SAMPLING = ("importance", "Gibbs")
#: of importance sampling, by size of the run; a fifth as many sweeps of Gibbs on the many sets
SAMPLES = (20_000, 5000, 200)
FIRST_PASS = cavity.RestrictedEP(max_sweeps=1)


def units(config: Config) -> list[Unit]:
    batches, candidates = config.pick(8, 1, 1), config.pick(25_000, 20_000, 2000)
    # A test must find a set among few: it is content with lower modes.
    height = 0.01 if config.size == "tiny" else 0.1
    # Batches are filled up with ordinary sets, so that a stretch without a find is no special case.
    batch, samples = config.pick(32, 32, 4), config.pick(*SAMPLES)
    chunks = [
        make_unit(config, 1 + k, f"sets-{k}", candidates=candidates, batch=batch, samples=samples, height=height)
        for k in range(batches)
    ]
    return [make_unit(config, 0, "drawn", samples=samples, height=height), *chunks]


def run_unit(unit: Unit, config: Config) -> dict:
    samples, height = unit.options["samples"], unit.options["height"]
    if unit.name == "drawn":
        return drawn(unit.seed, samples, height)
    candidates = clutter_sets(unit.seed, unit.options["candidates"], POINTS)
    found = three_mode_sets(candidates, height)[: unit.options["batch"]]
    filler = clutter_sets(unit.seed + 1, unit.options["batch"] - len(found), POINTS)
    result = many(np.concatenate([found, filler]), len(found), samples, unit.seed, height)
    return result | {"candidates": [len(candidates)]}


def many(sets: np.ndarray, count: int, samples: int, seed: int, height: float) -> dict:
    """Errors and convergence on the first `count` sets of a batch."""
    problems = [cavity.models.clutter(x) for x in sets[:count]]
    truth = exact_answers(problems)
    plain, restricted, first = (
        solve(cavity.models.clutter, sets, method) for method in (cavity.EP(), RESTRICTED, FIRST_PASS)
    )
    draws = np.random.default_rng(seed + 2)
    climbs = {"Laplace": [laplace(p) for p in problems], "VB": [variational_bayes(p) for p in problems]}
    answers = {
        "Laplace": gather(climbs["Laplace"]),
        "VB": gather(climbs["VB"]),
        "importance": gather([importance(p, samples, draws) for p in problems]),
        "Gibbs": gather([gibbs(p, samples // 5, 0, draws) for p in problems]),
    }
    peaks = [GRID[modes(values, height)] for values in log_joint(sets[:count])]
    spread = np.sqrt(restricted.covariance[:count])
    covered = [np.sum(np.abs(at - m) <= 2 * s) for at, m, s in zip(peaks, restricted.mean, spread, strict=False)]
    result: dict[str, Any] = {
        "EP converged": plain.is_(Status.CONVERGED)[:count],
        "EP skipped": plain.is_(Status.SITES_SKIPPED)[:count],
        "restricted converged": restricted.converged[:count],
        "covered": covered,
        "evidence EP": np.abs(plain.log_evidence[:count] - truth.log_evidence),
        "mean EP": np.abs(plain.mean[:count] - truth.mean),
        "evidence Restricted EP": np.abs(restricted.log_evidence[:count] - truth.log_evidence),
        "mean Restricted EP": np.abs(restricted.mean[:count] - truth.mean),
        "first Restricted EP": np.abs(first.mean[:count] - truth.mean),
    }
    for name, answer in answers.items():
        result[f"evidence {name}"] = np.abs(answer.log_evidence - truth.log_evidence)
        result[f"mean {name}"] = np.abs(answer.mean - truth.mean)
    for name, found in climbs.items():
        result[f"first {name}"] = np.abs(np.array([each.trace[0][2] for each in found]) - truth.mean)
    return result


def summarise(results: Results, config: Config) -> Outcome:
    def column(key: str) -> np.ndarray:
        return joined(results, "sets-", key)

    samples = config.pick(*SAMPLES)
    plain, restricted = column("EP converged") > 0, column("restricted converged") > 0
    mean = {name: column(f"mean {name}") for name in (*GAUSSIAN, *SAMPLING)}
    evidence = {name: column(f"evidence {name}") for name in (*GAUSSIAN, *SAMPLING)}
    grows = {name: share(mean[name] > column(f"first {name}")) for name in GAUSSIAN}
    reference, rough = mean["Restricted EP"], evidence["Restricted EP"]
    better = {
        name: {"mean": share(reference < mean[name]), "evidence": share(~(evidence[name] <= rough))}
        for name in ("Laplace", "VB")
    }
    gaussian_best = np.min([mean[name] for name in GAUSSIAN], axis=0) if plain.size else np.zeros(0)
    sampling = {name: share(mean[name] < gaussian_best) for name in SAMPLING}
    numbers = {
        "sets with three modes": int(plain.size),
        "sets searched": int(column("candidates").sum()),
        "EP converged": share(plain),
        "EP stopped by improper cavities": share(column("EP skipped") > 0),
        "Restricted EP converged": share(restricted),
        "modes within 2 sd of Restricted EP": {str(k): share(column("covered") == k) for k in range(MODES + 1)},
        "median error of the mean": {name: median(values) for name, values in mean.items()},
        "median error of the evidence": {name: median(values) for name, values in evidence.items()},
        "median errors of EP where it converged": {
            "mean": median(column("mean EP")[plain]),
            "evidence": median(column("evidence EP")[plain]),
            "mean of Restricted EP there": median(reference[plain]),
            "evidence of Restricted EP there": median(rough[plain]),
        },
        "Restricted EP better than": better,
        "mean error larger at the end than at the start": grows,
        "sampling better than all three for the mean": sampling,
    }
    checks = {
        "plain EP fails on most": share(plain) < 0.5,
        "Restricted EP converges (on 95 %)": share(restricted) >= 0.95,
        "it captures a single mode on most": numbers["modes within 2 sd of Restricted EP"]["1"] > 0.5,
        **{
            f"Laplace and VB are worse than it on most, {kind}": all(each[kind] > 0.5 for each in better.values())
            for kind in ("mean", "evidence")
        },
        "the mean's error grows with the iterations for all three on most": all(part > 0.5 for part in grows.values()),
        **{f"{name} beats all three for the mean on most": part > 0.5 for name, part in sampling.items()},
    }
    rows = [
        (
            name,
            median(mean[name]),
            median(evidence[name]),
            grows.get(name),
            better.get(name, {}).get("mean"),
            better.get(name, {}).get("evidence"),
        )
        for name in (*GAUSSIAN, *SAMPLING)
    ]
    table = Table(
        f"{plain.size} posteriors with three modes, among {numbers['sets searched']} sets of {POINTS} points",
        (
            "method",
            "median |mean error|",
            "median |log evidence error|",
            "mean error grew",
            "worse than REP (mean)",
            "worse than REP (evidence)",
        ),
        rows,
        f"EP converged on {share(plain):.0%}; Restricted EP (REP) on {share(restricted):.0%}. The set drawn: EP ended "
        f"with {results['drawn']['EP']}, Restricted EP with {results['drawn']['restricted status']}. "
        f"Importance: {samples} samples; Gibbs: {samples // 5} sweeps, none discarded.",
    )
    sentence = (
        f"On {plain.size} posteriors with three modes EP converged on {share(plain):.0%} and Restricted EP on "
        f"{share(restricted):.0%}, covering one mode on {numbers['modes within 2 sd of Restricted EP']['1']:.0%}. "
        f"Median error of the mean: Restricted EP {median(reference):.2g}, Laplace {median(mean['Laplace']):.2g}, VB "
        f"{median(mean['VB']):.2g}, importance {median(mean['importance']):.2g}, Gibbs {median(mean['Gibbs']):.2g}."
    )
    return Outcome((table, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    one = results["drawn"]
    grid, truth = array(one["grid"]), array(one["exact"])
    sheet, axes = figure(2, 2, width=11, height=8.4)
    ax = axes[0, 0]
    ax.fill_between(grid, truth, color="#dddddd")
    ax.plot(grid, truth, **STYLES["exact"].curve(), label="exact")
    for name in GAUSSIAN:
        ax.plot(grid, array(one["curves"][name]), **STYLES[name].curve(), label=name)
    label(ax, "(a) three modes: exact and Gaussian approximations", "θ", "posterior density")
    legend(ax)
    ax = axes[0, 1]
    ax.stairs(array(one["histogram"]), array(one["bins"]), fill=True, color=GREY, alpha=0.4, label="Gibbs, histogram")
    ax.plot(grid, truth, **STYLES["exact"].curve(), label="exact")
    ax.plot(
        grid, array(one["averaged"]), color=ORANGE, linestyle="--", linewidth=1.8, label="Gibbs, averaged conditionals"
    )
    label(ax, "(b) exact and Gibbs sampling", "θ", "posterior density")
    legend(ax)
    kinds = {"evidence_error": "|log evidence error| (nats)", "mean_error": "|mean error|"}
    for ax, (kind, axis), letter in zip(axes[1], kinds.items(), "cd", strict=True):
        for name, path in one["paths"].items():
            cost_curve(ax, name, array(path["evaluations"]), array(path[kind]))
        label(ax, f"({letter}) cost and accuracy", "cost (factor evaluations)", axis)
    shared_legend(sheet, axes[1])
    return sheet


EXPERIMENT = Experiment(
    name="thesis-3-6",
    document=f"{DOCUMENT}, figure 3-6",
    title="A clutter posterior with three modes",
    claim="On a posterior with three modes EP crashes; Restricted EP converges, but to a poor result with a single "
    "mode; Laplace's method and variational Bayes are worse still, and for all three the error of the mean grows with "
    "the iterations. Sampling is only slightly challenged.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
