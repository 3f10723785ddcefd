"""Jitkrittum et al., supplement B.3: random features of the expected product kernel against the kernel itself."""

import jax
import numpy as np

from cavity.learned.feature_regression import MessageMoments
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import BLUE, GREY, VERMILION, label, legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.learned import DOCUMENT
from cavity_reproductions.learned.message_kernels import ExpectedProduct

SIZES = (100, 200, 500, 1000, 2000, 5000, 10_000)
#: squared width of the Gaussian kernel
SQUARE = 3.0
#: of the features; the paper has 10, and the errors of so few scatter too much for a slope
DRAWS = 40
MEASURES = ("mean entry", "largest entry", "Frobenius norm / n")


def gaussians(seed: int, count: int) -> MessageMoments:
    """N(m, v) with m ~ N(0, 9) and v ~ Gamma(shape 3, rate 1/4)."""
    rng = np.random.default_rng(seed)
    return MessageMoments(rng.normal(0.0, 3.0, (count, 1)), rng.gamma(3.0, 4.0, (count, 1)))


def units(config: Config) -> list[Unit]:
    return [
        make_unit(config, number, f"{size} features", size=size)
        for number, size in enumerate(SIZES[: config.pick(7, 4, 3)])
    ]


def run_unit(unit: Unit, config: Config) -> dict:
    """Errors of the Gram matrix for some draws of the features."""
    of, kernel = gaussians(config.seed, config.pick(1000, 300, 40)), ExpectedProduct((SQUARE,))
    gram = kernel.gram(of, of)
    found = []
    for key in jax.random.split(jax.random.key(unit.seed), config.pick(DRAWS, 5, 2)):
        x = kernel.features(key, unit.options["size"])(of)
        gap = x @ x.T - gram
        found.append((np.abs(gap).mean(), np.abs(gap).max(), np.linalg.norm(gap) / len(gap)))
    return {"errors": np.array(found), "size": unit.options["size"]}


def summarise(results: Results, config: Config) -> Outcome:
    sizes = np.array([result["size"] for result in results.values()], float)
    errors = np.array([array(result["errors"]).mean(axis=0) for result in results.values()])
    slopes = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    table = Table(
        "Error of the Gram matrix, mean over draws",
        ("features", *MEASURES),
        [(int(size), *row) for size, row in zip(sizes, errors, strict=True)],
    )
    checks = {
        "the largest error of an entry falls with every larger number": bool(np.all(np.diff(errors[:, 1]) < 0)),
        "the errors fall like features to the power −½, within 0.05": bool(np.all(np.abs(slopes + 0.5) < 0.05)),
    }
    numbers = {"slopes": dict(zip(MEASURES, slopes.tolist(), strict=True)), "errors": errors}
    sentence = (
        f"From {sizes[0]:.0f} to {sizes[-1]:.0f} features the largest error of an entry falls from {errors[0, 1]:.2f} "
        f"to {errors[-1, 1]:.3f}, with the power {slopes[1]:.2f} of their number."
    )
    return Outcome((table, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 1, width=5.8, height=4.2)
    ax = axes[0, 0]
    for measure, (name, colour, marker) in enumerate(zip(MEASURES, (BLUE, VERMILION, GREY), "os^", strict=True)):
        for number, result in enumerate(results.values()):
            values = array(result["errors"])[:, measure]
            ax.loglog([result["size"]] * len(values), values, marker, color=colour, markersize=4, alpha=0.4)
            mean = values.mean()
            ax.loglog(result["size"], mean, marker, color=colour, markersize=8, label=name if number == 0 else None)
    label(ax, "Expected product kernel", "random features", "error of the Gram matrix")
    legend(ax)
    return sheet


EXPERIMENT = Experiment(
    name="kjit-b3",
    document=f"{DOCUMENT}, supplement B.3",
    title="Random features of the expected product kernel",
    claim="The largest error of an entry of the Gram matrix becomes small as the number of random features grows. "
    "Ours: like its power −½.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
