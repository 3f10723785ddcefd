"""Thesis figure 5-3: the three points seen in the space of weights, and the average over all separators (5.7)."""

from typing import Any

import numpy as np

import cavity
from cavity.baselines import exact_bayes_point, sphere_sampling, svm
from cavity.factors import Step
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import label, legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.thesis.sphere_view import draw_sphere, ellipse, view
from cavity_reproductions.thesis.three_points import distance, points, unit
from cavity_reproductions.workbench import infer

#: printed in section 5.5
PRINTED = {
    "exact": [[0.366, 0.0551, -0.125], [0.0551, 0.533, -0.073], [-0.125, -0.073, 0.164]],
    "EP": [[0.358, 0.0589, -0.118], [0.0589, 0.542, -0.0809], [-0.118, -0.0809, 0.163]],
}
#: half a unit of the last printed digit
DIGITS = 6e-4
#: the square of inputs over which votes are compared
SQUARE = (-1.0, 2.0)


def units(config: Config) -> list[Unit]:
    return [make_unit(config, 0, "three points")]


def run_unit(unit_: Unit, config: Config) -> dict[str, Any]:
    data = points()
    truth = exact_bayes_point(data.X, data.y)
    sampled = sphere_sampling(data.X, data.y, draws=config.pick(4_000_000, 200_000, 20_000), seed=unit_.seed)
    solution = infer(cavity.models.latent_gaussian(data.y, Step(), X=data.X))
    rng = np.random.default_rng(unit_.seed)
    places = np.column_stack(
        [rng.uniform(*SQUARE, (config.pick(2000, 500, 50), 2)), np.ones(config.pick(2000, 500, 50))]
    )
    votes, error = sampled.vote(places)
    sure = np.abs(votes - 0.5) > 4 * error
    sides = {"exact Bayes point": truth.mean, "EP": solution.mean, "SVM": data.X.T @ svm(data.K, data.y).alpha}
    return {
        "exact": {"mean": truth.mean, "covariance": truth.covariance, "evidence": np.exp(truth.log_evidence)},
        "EP": {"mean": solution.mean, "covariance": solution.covariance, "evidence": np.exp(solution.log_evidence)},
        "sampled": {
            "mean": sampled.mean,
            "covariance": sampled.covariance,
            "evidence": np.exp(sampled.log_evidence),
            "error": sampled.direction_error,
        },
        "SVM": {"mean": sides["SVM"]},
        "against the vote": {
            name: float(np.mean(((places @ w > 0) != (votes > 0.5))[sure])) for name, w in sides.items()
        },
        "probability": float(np.max(np.abs(solution.predict(places)["probability"] - votes))),
        "vote error": float(error.max()),
    }


def summarise(results: Results, config: Config) -> Outcome:
    found = results["three points"]
    truth = unit(found["exact"]["mean"])
    away = {name: distance(found[name]["mean"], truth) for name in ("EP", "sampled", "SVM")}
    gaps = {name: float(np.max(np.abs(array(found[name]["covariance"]) - PRINTED[name]))) for name in PRINTED}
    against = found["against the vote"]
    checks = {
        "EP's covariance is the printed one, to its digits": gaps["EP"] < DIGITS,
        "the exact covariance is the printed one, to its digits": gaps["exact"] < DIGITS,
        "EP's Bayes point is closer to the exact one than sampling's own error": away["EP"] < found["sampled"]["error"],
        "the Bayes point sides with the vote of all separators more often than the SVM": against["exact Bayes point"]
        < against["SVM"],
    }
    rows = [
        (name, away.get(name), found[name]["evidence"], str(array(found[name]["covariance"]).round(4).tolist()))
        for name in ("exact", "EP", "sampled")
    ]
    tables = (
        Table(
            "Posterior of the weights",
            ("", "error of the direction", "p(D)", "covariance"),
            rows,
            f"Sampling: likelihood-weighted, standard error of its direction {found['sampled']['error']:.1e}.",
        ),
        Table(
            "One classifier against the vote of all (5.7)",
            ("classifier", "share of inputs where it is outvoted"),
            list(against.items()),
            f"Inputs even on the square {SQUARE}. EP's own probability differs from the vote by at most "
            f"{found['probability']:.3f}; the vote has a standard error up to {found['vote error']:.4f}.",
        ),
        check_table(checks),
    )
    sentence = (
        f"EP's direction is {away['EP']:.1e} from the exact one; its covariance is the print to {gaps['EP']:.0e}. "
        f"Outvoted on {against['exact Bayes point']:.1%} of inputs (exact Bayes point), {against['EP']:.1%} (EP), "
        f"{against['SVM']:.1%} (SVM)."
    )
    numbers = {"errors": away, "printed": gaps, "outvoted": against, "probability": found["probability"]}
    return Outcome(tables, numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 2, width=10.5, height=4.8)
    found, data = results["three points"], points()
    plane = view(array(found["exact"]["mean"]) + np.array([0.0, -0.8, 0.3]))
    for ax in axes.flat:
        draw_sphere(ax, data, plane)
    for name, size in (("exact", 9), ("EP", 8), ("SVM", 6)):
        place = plane @ unit(found[name]["mean"])
        mark = STYLES[name].marker or "o"
        axes[0, 0].plot(*place, mark, color=STYLES[name].colour, markersize=size, label=name)
    label(axes[0, 0], "(a) Separators on the sphere", "", "")
    for name in ("exact", "EP"):
        own = ellipse(array(found[name]["mean"]), array(found[name]["covariance"]), plane)
        axes[0, 1].plot(*own, **STYLES[name].curve(), label=f"{name}, one deviation")
    label(axes[0, 1], "(b) Gaussian of the weights", "", "")
    for ax in axes.flat:
        legend(ax, loc="lower left")
    return sheet


EXPERIMENT = Experiment(
    name="thesis-5-3",
    document=f"{DOCUMENT}, figure 5-3",
    title="The three points in the space of weights",
    claim="The Bayes point is the centroid of the separators on the sphere. EP's estimate is indistinguishable from "
    "it, and its covariance is accurate; both covariances are printed.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
