"""Jitkrittum et al., figure 10: errors of predicted messages against what the operator says of them.

Drawn is the variance without the labels' noise, which would hide nearly all of it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity.learned.embedding_operator import BATCH, fit_embedding, predict_projections
from cavity.learned.message_coordinates import Target
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import BLUE, GREY, VERMILION, label, legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.learned import DOCUMENT
from cavity_reproductions.learned.batch_rows import SMALL
from cavity_reproductions.learned.experiment_1 import data
from cavity_reproductions.learned.logistic_messages import FAMILY, Z, log_kl
from cavity_reproductions.thesis.orders import rank_correlation

SETTING = "d = 10, n = 400"
PARTS = ("training", "test")
#: log predictive variance below which the paper's operator does not ask, in its experiment 3; and a large log KL
THRESHOLD, LARGE = -8.5, -5.0
#: shares that count as confident, and as wrong
SHARE = 0.1


def units(config: Config) -> list[Unit]:
    return [make_unit(config, 0, "operator")]


def run_unit(unit: Unit, config: Config) -> dict:
    """Log predictive variance of the mean, and log KL from the sampler's labels and from exact moments."""
    given, target = data(config.seed, SETTING, config.size), Target(FAMILY, Z)
    labels = given.sampled[0]
    now = fit_embedding(
        jax.random.key(unit.seed), target, labels.cavities, labels.of(Z), SMALL if config.size == "tiny" else BATCH
    )
    result: dict[str, Any] = {"noise": float(now.noise[0])}
    for part, exact, sampled in zip(PARTS, given.exact, given.sampled, strict=True):
        found = predict_projections(now, target, jnp.asarray(exact.cavities))
        result[f"{part} doubt"] = np.asarray(found.log_variance)[:, 0]
        for kind, truth in (("exact", exact), ("sampler", sampled)):
            result[f"{part} {kind}"] = log_kl(Z, truth, np.asarray(found.projected))
    return result


def summarise(results: Results, config: Config) -> Outcome:
    result = {key: array(values) for key, values in results["operator"].items()}
    rows, numbers = [], {}
    for part in PARTS:
        doubt, error = result[f"{part} doubt"], result[f"{part} sampler"]
        confident = doubt <= np.quantile(doubt, SHARE)
        wrong = error >= np.quantile(error, 1 - SHARE)
        own = {
            "mean log KL": float(error.mean()),
            "mean log KL, exact": float(result[f"{part} exact"].mean()),
            "rank correlation": float(rank_correlation(doubt, error)),
            "confident and wrong": float(np.mean(wrong[confident])),
            "large error": int(np.sum(error > LARGE)),
            "large error, not asked about": int(np.sum((error > LARGE) & (doubt < THRESHOLD))),
        }
        numbers[part] = own
        rows.append((part, *own.values()))
    heads = ("messages", "mean log KL, sampler", "mean log KL, exact", "rank correlation", "wrong among confident",
             f"log KL above {LARGE:g}", f"of these log variance below {THRESHOLD:g}")  # fmt: skip
    table = Table(
        f"Wrong: the tenth with the largest error; confident: with the least variance, {SHARE:.0%}", heads, rows
    )
    gap = numbers["test"]["mean log KL"] - numbers["training"]["mean log KL"]
    checks = {
        "error and predictive variance are positively correlated, on both": min(
            own["rank correlation"] for own in numbers.values()
        )
        > 0.1,
        "of the most confident tenth of the test messages none is among the tenth with the largest errors": numbers[
            "test"
        ]["confident and wrong"]
        == 0.0,
        f"no test message has a log KL above {LARGE:g} with a log variance below {THRESHOLD:g}": numbers["test"][
            "large error, not asked about"
        ]
        == 0,
        "the mean log KL of training and test messages differs by less than 0.3": abs(gap) < 0.3,
    }
    sentence = (
        f"Rank correlation {numbers['training']['rank correlation']:.2f} in training and "
        f"{numbers['test']['rank correlation']:.2f} in test; {numbers['test']['confident and wrong']:.1%} of the "
        f"confident test messages are wrong, where chance would have {SHARE:.0%}; test is {gap:+.2f} "
        f"worse in mean log KL. Of {numbers['test']['large error']} test messages with a log KL above {LARGE:g}, "
        f"{numbers['test']['large error, not asked about']} are below the variance at which the paper's operator asks."
    )
    return Outcome((table, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 2, width=10.5, height=4.4)
    noise = float(results["operator"]["noise"])
    for ax, kind, title in zip(
        axes[0], ("sampler", "exact"), ("(a) from the sampler's labels", "(b) from exact moments"), strict=True
    ):
        for part, colour in zip(PARTS, (BLUE, VERMILION), strict=True):
            doubt, error = (array(results["operator"][f"{part} {own}"]) for own in ("doubt", kind))
            own = np.log(np.maximum(np.exp(doubt) - noise, 1e-12))
            ax.plot(error, own, ".", color=colour, markersize=3, alpha=0.3, label=f"{part} messages")
        ax.axhline(
            np.log(max(np.exp(THRESHOLD) - noise, 1e-12)), color=GREY, linestyle="--", label="the paper's threshold"
        )
        label(ax, title, "log KL", "log variance of the mean, without noise")
    legend(axes[0, 0], loc="upper left", markerscale=3)
    return sheet


EXPERIMENT = Experiment(
    name="kjit-10",
    document=f"{DOCUMENT}, figure 10",
    title="Errors of messages against predictive variance",
    claim="The predictive variance of the kernel operator goes with the error of its messages; nothing is predicted "
    "badly with confidence, and training messages are predicted no better than others.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
