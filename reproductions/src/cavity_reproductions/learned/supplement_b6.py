"""Jitkrittum et al., supplement B.6: how many inner and outer features the Gaussian kernel on embeddings needs.

The paper does not say which messages; they are those of B.3, with widths by the median heuristic.
"""

from dataclasses import replace

import jax
import numpy as np

from cavity.learned.feature_regression import mean_variances, median_gap
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import label
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.learned import DOCUMENT
from cavity_reproductions.learned.message_kernels import OnEmbeddings
from cavity_reproductions.learned.supplement_b3 import gaussians

INNER = (100, 200, 400, 800, 1600)
OUTER = (100, 200, 400, 800, 1600)


def units(config: Config) -> list[Unit]:
    few = config.pick(5, 3, 2)
    return [make_unit(config, number, f"{inner} inner", inner=inner) for number, inner in enumerate(INNER[:few])]


def run_unit(unit: Unit, config: Config) -> dict:
    """Mean Frobenius norm of the error over n, one number for each number of outer features."""
    of = gaussians(config.seed, config.pick(300, 100, 30))
    squares = mean_variances(of)
    kernel = replace(OnEmbeddings(squares, median_gap(of, squares)), inner=unit.options["inner"])
    gram = kernel.gram(of, of)
    found = []
    for number, outer in enumerate(OUTER[: config.pick(5, 3, 2)]):
        keys = jax.random.split(jax.random.key(unit.seed + number), config.pick(20, 5, 2))
        rows = [kernel.features(key, outer)(of) for key in keys]
        found.append([np.linalg.norm(x @ x.T - gram) / len(gram) for x in rows])
    return {"errors": np.array(found), "inner": unit.options["inner"]}


def grid(results: Results) -> np.ndarray:
    """Mean errors, (inner, outer)."""
    return np.array([array(result["errors"]).mean(axis=1) for result in results.values()])


def summarise(results: Results, config: Config) -> Outcome:
    errors = grid(results)
    inner, outer = INNER[: errors.shape[0]], OUTER[: errors.shape[1]]
    rows = [(own, *row) for own, row in zip(inner, errors, strict=True)]
    table = Table("Frobenius norm of the error / n", ("inner \\ outer", *map(str, outer)), rows)
    by_outer, by_inner = errors[0, 0] / errors[0, -1], errors[0, 0] / errors[-1, 0]
    last_outer, last_inner = errors[-1, 0] / errors[-1, -1], errors[0, -1] / errors[-1, -1]
    checks = {
        "with the fewest of the other, more outer features help more than more inner ones": by_outer > by_inner,
        "with the most of the other, too": last_outer > last_inner,
    }
    numbers = {
        "errors": errors, "fall by outer": [by_outer, last_outer], "fall by inner": [by_inner, last_inner]
    }  # fmt: skip
    sentence = (
        f"From {outer[0]} to {outer[-1]} outer features the error falls {by_outer:.1f} times at {inner[0]} inner ones "
        f"and {last_outer:.1f} times at {inner[-1]}; the same change of the inner ones lets it fall {by_inner:.1f} and "
        f"{last_inner:.1f} times. It goes from {errors[0, 0]:.3f} to {errors[-1, -1]:.3f}."
    )
    return Outcome((table, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 1, width=5.6, height=4.4)
    ax, errors = axes[0, 0], grid(results)
    ax.grid(False)
    shade = ax.imshow(errors, origin="lower", cmap="Blues", vmin=0.0)
    for (row, column), value in np.ndenumerate(errors):
        dark = value > 0.6 * errors.max()
        ax.text(column, row, f"{value:.3f}", ha="center", va="center", color="white" if dark else "black", fontsize=9)
    ax.set_xticks(range(errors.shape[1]), [str(own) for own in OUTER[: errors.shape[1]]])
    ax.set_yticks(range(errors.shape[0]), [str(own) for own in INNER[: errors.shape[0]]])
    sheet.colorbar(shade, ax=ax, label="Frobenius norm of the error / n")
    label(ax, "Gaussian kernel on embeddings", "outer features", "inner features")
    return sheet


EXPERIMENT = Experiment(
    name="kjit-b6",
    document=f"{DOCUMENT}, supplement B.6",
    title="Inner and outer random features",
    claim="More outer features improve the two-stage approximation of the kernel more than more inner ones.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
