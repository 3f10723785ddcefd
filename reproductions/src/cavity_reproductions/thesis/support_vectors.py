"""Thesis 5.5, an idea it leaves untested: reduce the data to the support vectors, then run EP."""

from typing import Any

import numpy as np

import cavity
from cavity.baselines import svm
from cavity.factors import Step
from cavity.kernels import RBF
from cavity.models._latent_gaussian import fit_exact_gp, fit_linear_model
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import label
from cavity_reproductions.axes import box_by_name
from cavity_reproductions.base import (
    Config,
    Experiment,
    Outcome,
    Results,
    Unit,
    check_table,
    grade,
    joined,
    make_unit,
    median,
    share,
)
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.thesis.benchmark_sets import WIDTH, split_of
from cavity_reproductions.thesis.random_points import clustered_points, random_points
from cavity_reproductions.thesis.three_points import Points, bayes_point, distance, points

METHODS = ("EP", "EP on support vectors", "SVM")
COLOURS = {"EP": STYLES["EP"].colour, "EP on support vectors": STYLES["TAP"].colour, "SVM": STYLES["SVM"].colour}
#: problems in the plane: points, and copies of each within a small distance
PLANE = {"8 points": (8, 1), "30 points": (30, 1), "8 clusters of 5": (8, 5), "8 clusters of 20": (8, 20)}
SPREAD = 0.02
SETS = ("heart", "thyroid", "ionosphere", "sonar")
PORTION = 5


def units(config: Config) -> list[Unit]:
    sets = SETS[: config.pick(4, 2, 1)]
    splits = range(0, config.pick(20, 2, 1), PORTION)
    return [
        make_unit(config, 0, "three points"),
        *(make_unit(config, 1 + k, name) for k, name in enumerate(list(PLANE)[: config.pick(4, 4, 2)])),
        *(
            make_unit(config, 10 + k, f"{data} {first}", data=data, splits=list(range(first, first + PORTION)))
            for k, (data, first) in enumerate((data, first) for data in sets for first in splits)
        ),
    ]


def ep_mean(data: Points) -> np.ndarray:
    """EP's Bayes point; rows are padded, so that few shapes are compiled."""
    return np.asarray(fit_linear_model(data.X, data.y, factor=Step(), method=cavity.EP()).mean)


def in_plane(data: Points) -> dict[str, float]:
    """Distances to the exact Bayes point, and the share of support vectors."""
    truth, machine = bayes_point(data), svm(data.K, data.y)
    kept = Points(data.X[machine.support], data.y[machine.support])
    weights = (ep_mean(data), ep_mean(kept), data.X.T @ machine.alpha)
    found = {name: distance(w, truth) for name, w in zip(METHODS, weights, strict=True)}
    return found | {"support": len(kept.y) / len(data.y)}


def on_split(name: str, split: int, config: Config) -> dict[str, float]:
    """Test errors on a split of a data set."""
    data, kernel = split_of(name, split, config), RBF(WIDTH).fix()
    cross = np.asarray(kernel(data.test_X, data.X))
    machine = svm(np.asarray(kernel(data.X)), data.y)
    wrong = {"SVM": float(np.mean(np.sign(machine.decide(cross)) != data.test_y))}
    for method, rows in (("EP", np.arange(len(data.y))), ("EP on support vectors", machine.support)):
        fitted = fit_exact_gp(
            data.X[rows], data.y[rows], kernel=kernel, factor=Step(), method=cavity.EP(), optimize=False
        )
        wrong[method] = float(np.mean(np.sign(cross[:, rows] @ fitted.alpha) != data.test_y))
    return wrong | {"support": len(machine.support) / len(data.y)}


def run_unit(unit: Unit, config: Config) -> dict[str, Any]:
    rng = np.random.default_rng(unit.seed)
    if unit.name == "three points":
        found = [in_plane(points(copies)) for copies in (1, 10, 50)]
    elif unit.name in PLANE:
        count, copies = PLANE[unit.name]
        repeats = config.pick(50, 5, 2)
        sets = [
            random_points(rng, count) if copies == 1 else clustered_points(rng, count, copies, SPREAD)
            for _ in range(repeats)
        ]
        found = [in_plane(data) for data in sets]
    else:
        found = [on_split(unit.options["data"], split, config) for split in unit.options["splits"]]
    return {key: [own[key] for own in found] for key in found[0]}


def groups(results: Results) -> list[str]:
    """Problems, in order."""
    return list(dict.fromkeys(name if name in PLANE or name == "three points" else name.split()[0] for name in results))


def summarise(results: Results, config: Config) -> Outcome:
    rows, better = [], {}
    for group in groups(results):
        own = {name: joined(results, group, name) for name in METHODS}
        middle = [median(own[name]) if group in PLANE else float(np.mean(own[name])) for name in METHODS]
        better[group] = share(own["EP on support vectors"] < own["EP"])
        worse = share(own["EP on support vectors"] > own["EP"])
        rows.append((group, *middle, better[group], worse, float(np.mean(joined(results, group, "support")))))
    clusters = [group for group in better if "clusters" in group]
    sets = [row for row in rows if row[0] in SETS]
    checks = {
        "with clusters EP on the support vectors is closer to the Bayes point, in most draws": all(
            better[group] > 0.5 for group in clusters
        ),
        "without clusters it loses nothing: as close or closer in most draws": all(
            row[5] <= 0.5 for row in rows if row[0] in PLANE and row[0] not in clusters
        ),
        "on data sets its mean test error is not above EP's": all(row[2] <= row[1] for row in sets),
    }
    table = Table(
        "EP on all points and on the support vectors",
        ("problem", *METHODS, "better on support vectors", "worse", "share of support vectors"),
        rows,
        "In the plane: distance to the exact Bayes point (median; of the three points the mean over 1, 10 and 50 "
        "copies of (1, 0)). On data sets: mean test error, Gaussian kernel of width 3.",
    )
    sentence = "EP on the support vectors is better on " + ", ".join(
        f"{value:.0%} ({group})" for group, value in better.items()
    )
    return Outcome((table, check_table(checks)), {"rows": rows}, grade(checks), sentence + ".")


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    shown = [group for group in PLANE if group in results]
    sheet, axes = figure(1, len(shown), width=3.5 * len(shown), height=3.8)
    for ax, group in zip(axes.flat, shown, strict=True):
        samples = {name: np.maximum(joined(results, group, name), 1e-6) for name in METHODS}
        box_by_name(ax, samples, COLOURS)
        ax.set_xticks([1, 2, 3], ["EP", "EP on\nsupport vectors", "SVM"], fontsize=8)
        label(ax, group, "", "distance to the Bayes point")
    return sheet


EXPERIMENT = Experiment(
    name="thesis-5-sv",
    document=f"{DOCUMENT}, section 5.5",
    title="EP on the support vectors only",
    claim="Clusters of points degrade EP; a work-around would be to reduce the data in advance, e.g. to the support "
    "vectors. The thesis has not tested it.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
