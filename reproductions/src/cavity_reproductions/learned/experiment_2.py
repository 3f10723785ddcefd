"""Jitkrittum et al., experiment 2 with figure 4: what operators say about their own error along two curves of messages.

Curves are those of the paper's program: p hears Beta(1, 2), z hears N(m, v) with m from −13 to 13 and log precision
0.02 m + 2.6 (first) or 1.6 − 0.02 m² (second). Labels are by quadrature: a predictive variance does not depend on them
but for the choice of width and ridge. The paper's curves lack the ridge as a factor of the variance, and its forest's
were computed on −10 to 10 but drawn on −13 to 13; none of that is repeated.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from cavity.baselines.forests import MessageForest, MondrianForest
from cavity.baselines.forests.message_forest import regression_parameters
from cavity.learned.embedding_operator import BATCH, Embedding, fit_embedding, predict_projections
from cavity.learned.message_coordinates import Target
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import BLUE, GREY, VERMILION, label, legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.learned import DOCUMENT
from cavity_reproductions.learned.batch_rows import SMALL
from cavity_reproductions.learned.default_operator import default_operator, doubts
from cavity_reproductions.learned.logistic_messages import (
    FAMILY,
    Labelled,
    Z,
    collected,
    labelled,
    log_kl,
    slices_of,
    split,
)
from cavity_reproductions.learned.operators import task_of

CURVES = ("first", "second")
KJIT, ESLAMI, MONDRIAN, DEFAULT = "paper's operator", "forest of Eslami et al.", "Mondrian forest", "default operator"
NAMES = (KJIT, ESLAMI, MONDRIAN, DEFAULT)
WHAT = {
    KJIT: "log predictive variance of the mean",
    ESLAMI: "log disagreement of trees (KL)",
    MONDRIAN: "log predictive variance of the mean",
    DEFAULT: "log expected KL",
}
#: far narrower than any message of the training problems
NARROW = (0.0, 1e-3)


def curve(name: str, count: int) -> np.ndarray:
    """Cavities along a curve."""
    m = np.linspace(-13.0, 13.0, count)
    precision = np.exp(0.02 * m + 2.6 if name == "first" else 1.6 - 0.02 * m**2)
    return np.column_stack([np.ones(count), np.full(count, 2.0), m * precision, precision])


@lru_cache(maxsize=1)
def training(seed: int, size: str) -> Labelled:
    """The messages operators are trained with, those of experiment 1."""
    config = Config(size, seed)  # type: ignore[arg-type]
    problems = collected(seed, 10, config.pick(400, 100, 40), config.pick(20, 10, 5))
    return labelled(split(seed, problems, config.pick(5000, 1500, 120), 1)[0])


def units(config: Config) -> list[Unit]:
    names = NAMES if config.size != "tiny" else NAMES[:2]
    return [make_unit(config, number, name) for number, name in enumerate(names)]


def run_unit(unit: Unit, config: Config) -> dict:
    """Doubt and true error of one operator along both curves, and at one very narrow message."""
    labels, count = training(config.seed, config.size), config.pick(500, 200, 20)
    rows = {name: curve(name, count) for name in CURVES}
    m, v = NARROW
    rows["narrow"] = np.array([[1.0, 2.0, m / v, 1.0 / v]])
    result = {"trained": np.stack([slices_of(labels.cavities, Z)[:1500, k] for k in (0, 1)])}
    for name, cavities in rows.items():
        doubt, projected = asked(unit, config, labels, cavities)
        error = log_kl(Z, labelled(cavities), projected)
        result |= {f"{name} doubt": np.log(doubt), f"{name} error": error}
    return result


def asked(unit: Unit, config: Config, labels: Labelled, cavities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(how unsure an operator is, its projections)."""
    target = Target(FAMILY, Z)
    if unit.name == KJIT:
        found = predict_projections(kernel_operator(unit.seed, config.seed, config.size), target, jnp.asarray(cavities))
        return np.exp(np.asarray(found.log_variance)[:, 0]), np.asarray(found.projected)
    if unit.name == ESLAMI:
        forest = message_forest(unit.seed, config.seed, config.size)
        projected, doubt = forest.predict(cavities)
        return np.maximum(doubt, 1e-40), projected
    if unit.name == MONDRIAN:
        means, variances = mondrian(unit.seed, config.seed, config.size).predict(
            regression_parameters(FAMILY, cavities)
        )
        return variances[:, 0], np.asarray(jax.vmap(target.back)(jnp.asarray(cavities), jnp.asarray(means)))
    rows = np.arange(min(config.pick(1000, 200, 60), len(labels.cavities)))
    doubt, projected = doubts(default_operator(labels.at(rows)), cavities)
    return np.maximum(doubt, 1e-40), slices_of(projected, Z)


@lru_cache(maxsize=1)
def kernel_operator(seed: int, data_seed: int, size: str) -> Embedding:
    """The paper's operator, trained once for all questions."""
    labels = training(data_seed, size)
    settings = SMALL if size == "tiny" else BATCH
    return fit_embedding(jax.random.key(seed), Target(FAMILY, Z), labels.cavities, labels.of(Z), settings)


@lru_cache(maxsize=1)
def message_forest(seed: int, data_seed: int, size: str) -> MessageForest:
    """The forest of Eslami et al."""
    labels = training(data_seed, size)
    return MessageForest(Target(FAMILY, Z), labels.cavities, labels.of(Z), seed)


@lru_cache(maxsize=1)
def mondrian(seed: int, data_seed: int, size: str) -> MondrianForest:
    """The Mondrian forest."""
    labels = training(data_seed, size)
    values = task_of(labels, Z, "parameters", np.random.default_rng(seed)).values
    return MondrianForest(regression_parameters(FAMILY, labels.cavities), values, seed, least=5)


def roughness(values: np.ndarray) -> float:
    """Total variation over range: 1 or 2 where a curve rises, or falls and rises; more where it jumps."""
    return float(np.abs(np.diff(values)).sum() / max(np.ptp(values), 1e-12))


def summarise(results: Results, config: Config) -> Outcome:
    rows, numbers = [], {}
    for name, result in results.items():
        for which in CURVES:
            doubt, error = array(result[f"{which} doubt"]), array(result[f"{which} error"])
            middle = len(doubt) // 2
            own = {
                "mean": float(doubt.mean()),
                "at the ends": float(0.5 * (doubt[0] + doubt[-1])),
                "at m = 0": float(doubt[middle]),
                "roughness": roughness(doubt),
                "correlation with log KL": float(np.corrcoef(doubt, error)[0, 1]),
            }
            numbers[f"{name}, {which}"] = own
            rows.append((name, which, *own.values(), float(error.mean())))
    heads = ("operator", "curve", "mean", "at the ends", "at m = 0", "roughness", "correlation", "mean log KL")
    table = Table("How unsure operators are along the curves, logarithms", heads, rows)
    narrow = [
        (name, WHAT[name], float(array(result["narrow doubt"])[0]), float(array(result["narrow error"])[0]))
        for name, result in results.items()
    ]
    second = Table("A very narrow message, N(0, 0.001)", ("operator", "what it says", "doubt", "log KL"), narrow)
    checks = {
        "the paper's operator is less rough than the forest on both curves": all(
            numbers[f"{KJIT}, {which}"]["roughness"] < numbers[f"{ESLAMI}, {which}"]["roughness"] for which in CURVES
        ),
        "it is unsurer at the ends than in the middle, on both": all(
            numbers[f"{KJIT}, {which}"]["at the ends"] > numbers[f"{KJIT}, {which}"]["at m = 0"] for which in CURVES
        ),
        "it is unsurer on the first curve than on the second": numbers[f"{KJIT}, first"]["mean"]
        > numbers[f"{KJIT}, second"]["mean"],
    }
    smooth, rough = (
        [numbers[f"{name}, {which}"]["roughness"] for which in CURVES] for name in (KJIT, ESLAMI)
    )  # fmt: skip
    sentence = (
        f"Total variation over range is {smooth[0]:.1f} and {smooth[1]:.1f} for the paper's operator, {rough[0]:.1f} "
        f"and {rough[1]:.1f} for the forest. At N(0, 0.001) the paper's operator says {narrow[0][2]:.1f} where its "
        f"log KL is {narrow[0][3]:.1f}."
    )
    return Outcome((table, second, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, grid = figure(2, 3, width=13.0, height=7.6)
    axes = grid.ravel()
    ax = axes[0]
    nu, tau = array(next(iter(results.values()))["trained"])
    shown = ~((np.abs(nu / tau) <= 1e-3) & (tau < 1.0))  # without the first sweep, whose means are all 0
    ax.plot(
        (nu / tau)[shown], np.log(tau)[shown], ".", color=GREY, markersize=2.5, alpha=0.5, label="training messages"
    )
    m = np.linspace(-13.0, 13.0, 200)
    ax.plot(m, 0.02 * m + 2.6, color=BLUE, label="first curve")
    ax.plot(m, 1.6 - 0.02 * m**2, color=VERMILION, label="second curve")
    label(ax, "(a) messages from z", "mean", "log precision")
    legend(ax)
    for ax in axes[len(results) + 1 :]:
        ax.set_axis_off()
    for number, (ax, (name, result)) in enumerate(zip(axes[1:], results.items(), strict=False)):
        for which, colour in zip(CURVES, (BLUE, VERMILION), strict=True):
            doubt, error = array(result[f"{which} doubt"]), array(result[f"{which} error"])
            m = np.linspace(-13.0, 13.0, len(doubt))
            ax.plot(m, error, color=colour, linewidth=0.7, alpha=0.35, label=f"{which}: true log KL")
            ax.plot(m, doubt, color=colour, linewidth=1.4, label=f"{which}: doubt")
        label(ax, f"({'bcdef'[number]}) {name}", "mean of the message", WHAT[name])
        ax.set_ylim(bottom=-40)
    # The last panel is empty and has room for the names of the curves.
    axes[-1].legend(*axes[1].get_legend_handles_labels(), loc="center", frameon=False, fontsize=10)
    return sheet


EXPERIMENT = Experiment(
    name="kjit-2",
    document=f"{DOCUMENT}, experiment 2 and figure 4",
    title="How unsure operators are",
    claim="Away from the training messages the predictive variance of the kernel operator rises, more smoothly than "
    "the disagreement of a random forest's trees, which jumps; it is higher on a curve through empty places than on "
    "one through the messages.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
