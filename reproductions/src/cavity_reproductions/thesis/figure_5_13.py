"""Thesis figure 5-13: how many features? Evidence, margin and span on the data of Weston et al. (2000)."""

import math
from typing import Any

import numpy as np

import cavity
from cavity.baselines import sphere_sampling, svm
from cavity.factors import Step
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import label
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.thesis.random_points import separable
from cavity_reproductions.workbench import infer

#: features that carry something, and how many there are in all
RELEVANT, FEATURES = 6, 20
SWAPPED, IRRELEVANT_VARIANCE = 0.3, 20.0
CRITERIA = ("evidence", "margin", "span")
#: numbers of features up to which the exact evidence is sampled; beyond, separators are too rare
SAMPLED = 8


def sizes(config: Config) -> list[int]:
    """Numbers of points."""
    return [20, 30, 50, 70, 100] if config.size == "full" else [20, 100][: config.pick(2, 2, 1)]


def units(config: Config) -> list[Unit]:
    # Draws have the seeds 0, 1, … themselves, so that a draw can be named.
    return [
        Unit(f"n = {n}, draw {draw}", draw, {"n": n})
        for n in sizes(config)
        for draw in range(config.seed, config.seed + config.pick(10, 2, 1))
    ]


def sample(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(5.94)–(5.99): features 1 to 3 say y with weights 1, 2, 3, or, with probability 0.3, features 4 to 6 do."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    telling = y[:, None] * np.array([1.0, 2.0, 3.0]) + rng.normal(size=(n, 3))
    silent = rng.normal(size=(n, 3))
    swapped = (rng.random(n) < SWAPPED)[:, None]
    parts = (np.where(swapped, silent, telling), np.where(swapped, telling, silent))
    rest = math.sqrt(IRRELEVANT_VARIANCE) * rng.normal(size=(n, FEATURES - RELEVANT))
    return np.hstack([*parts, rest]), y


def run_unit(unit: Unit, config: Config) -> dict[str, Any]:
    X, y = sample(unit.seed, unit.options["n"])
    found: dict[str, list[float | None]] = {name: [] for name in (*CRITERIA, "exact", "exact error")}
    for k in range(1, FEATURES + 1):
        rows = X[:, :k]
        if not separable(rows, y):
            # No separator: the evidence is 0 and there is no machine without slack.
            for values in found.values():
                values.append(None)
            continue
        K = rows @ rows.T  # one shape for all numbers of features
        found["evidence"].append(float(infer(cavity.models.latent_gaussian(y, Step(), kernel_matrix=K)).log_evidence))
        machine = svm(K, y)
        found["margin"].append(machine.margin_criterion)
        found["span"].append(machine.span_bound)
        if k <= SAMPLED:
            value, error = sampled_evidence(rows, y, unit.seed, config)
            found["exact"].append(value)
            found["exact error"].append(error)
    return found


def sampled_evidence(rows: np.ndarray, y: np.ndarray, seed: int, config: Config) -> tuple[float | None, float | None]:
    """Log evidence by sampling, with its error; None where separators are too rare: then it is far from the best."""
    try:
        exact = sphere_sampling(rows, y, draws=config.pick(1_000_000, 200_000, 100_000), seed=seed)
    except ValueError:
        return None, None
    return exact.log_evidence, exact.log_evidence_error


def chosen(result: Any, criterion: str) -> int:
    """How many features a criterion takes; of equally good ones the fewest."""
    values = array(result[criterion])
    best = np.nanargmax(values) if criterion == "evidence" else np.nanargmin(values)
    return int(best) + 1


def exact_too(result: Any) -> bool:
    """Whether the exact evidence has its maximum where EP's has it, within two standard errors."""
    values, errors = array(result["exact"])[:SAMPLED], array(result["exact error"])[:SAMPLED]
    taken = chosen(result, "evidence") - 1
    if taken >= SAMPLED:
        return False
    best = int(np.nanargmax(values))
    return bool(values[best] - values[taken] <= 2.0 * math.hypot(errors[best], errors[taken]))


def summarise(results: Results, config: Config) -> Outcome:
    rows, numbers = [], {}
    for n in sizes(config):
        own = [result for name, result in results.items() if name.startswith(f"n = {n},")]
        picks = {criterion: [chosen(each, criterion) for each in own] for criterion in CRITERIA}
        numbers[str(n)] = picks
        hits = [sum(pick == RELEVANT for pick in picks[criterion]) for criterion in CRITERIA]
        agree = sum(exact_too(each) for each in own)
        rows.append((f"n = {n}", len(own), *hits, agree, *(str(sorted(picks[criterion])) for criterion in CRITERIA)))
    hits = {criterion: sum(row[2 + k] for row in rows) for k, criterion in enumerate(CRITERIA)}
    total = sum(row[1] for row in rows)
    agree = sum(row[2 + len(CRITERIA)] for row in rows)
    most = max(pick for n in sizes(config) for pick in numbers[str(n)]["evidence"])
    checks = {
        "the evidence has its maximum at six features in every draw": hits["evidence"] == total,
        "in at least nine of ten draws": hits["evidence"] >= 0.9 * total,
        "it takes none of the irrelevant features in any draw": most <= RELEVANT,
        "its choice is that of the exact evidence in every draw": agree == total,
        "margin and span find six less often": max(hits["margin"], hits["span"]) < hits["evidence"],
    }
    table = Table(
        "Draws in which a criterion takes six features",
        ("points", "draws", *CRITERIA, "EP's choice is exact", *(f"{criterion}: taken" for criterion in CRITERIA)),
        rows,
        "Draws are the seeds 0, 1, …; linear kernel without bias, no slack. Where the first k features do not separate "
        "the labels, the evidence is 0 and k is out. EP's choice is exact where sampled "
        f"evidences of up to {SAMPLED} features have their maximum there as well, within two standard errors.",
    )
    numbers |= {"hits": hits, "exact choices": agree, "most features": most, "draws": total}
    sentence = "Six features are taken in " + ", ".join(f"{hits[c]} ({c})" for c in CRITERIA) + f" of {total} draws."
    return Outcome((table, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 3, width=12.5, height=3.8)
    names = {"evidence": "log evidence", "margin": "R²/M²", "span": "span bound"}
    largest = f"n = {sizes(config)[-1]},"
    features = np.arange(1, FEATURES + 1)
    for ax, criterion in zip(axes.flat, CRITERIA, strict=True):
        for name, result in results.items():
            if name.startswith(largest):
                style = STYLES["EP" if criterion == "evidence" else "SVM"].curve() | {"linestyle": "-", "alpha": 0.6}
                ax.plot(features, array(result[criterion]), **style)
        ax.axvline(RELEVANT, color="black", linewidth=0.8, linestyle=":")
        ax.set_yscale("log" if criterion == "margin" else "linear")
        ax.set_xticks([1, 6, 10, 15, 20])
        label(ax, f"{names[criterion]}, {largest} every draw"[:60], "features", names[criterion])
    return sheet


EXPERIMENT = Experiment(
    name="thesis-5-13",
    document=f"{DOCUMENT}, figure 5-13",
    title="Feature selection by evidence, margin and span",
    claim="Features are added one by one, the six relevant ones first. The evidence has a clear peak at six; the "
    "margin criterion has only a local minimum there, the span bound only one at five.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
