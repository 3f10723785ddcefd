"""Jitkrittum et al., experiment 1 with figure 3 and the table of section C: operators learned from a batch of messages.

The paper says 20 features and 300 points a problem; its program has 10 and 400 by all evidence. Both are run. Here
whole problems are held out. The paper splits messages, and its test messages have near copies among those for training.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from cavity.reports import Figure, Table
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, check_table, grade, make_unit
from cavity_reproductions.learned import DOCUMENT
from cavity_reproductions.learned.batch_drawing import QUANTILES, draw, scores
from cavity_reproductions.learned.batch_rows import (
    CHOLESKY,
    DEFAULTS,
    EXACT,
    FOREST_NAMES,
    KJIT,
    OTHER_KERNELS,
    PRINTED,
    QUADRATURE,
    ROWS,
    SAMPLED,
    SCRAMBLED,
    SMALL,
)
from cavity_reproductions.learned.default_operator import POINTS, asking, default_operator, scrambled_labels
from cavity_reproductions.learned.logistic_messages import (
    Labelled,
    P,
    Z,
    by_sampler,
    collected,
    labelled,
    log_kl,
    split,
)
from cavity_reproductions.learned.operators import Predictor, kernel_operator

SETTINGS = {"d = 10, n = 400": (10, 400), "d = 20, n = 300": (20, 300)}
OUTPUTS = {"to z": Z, "to p": P}


class Data(NamedTuple):
    """exact, sampled: the same messages with both kinds of labels; each to train and to test with."""

    exact: tuple[Labelled, Labelled]
    sampled: tuple[Labelled, Labelled]


@lru_cache(maxsize=2)
def data(seed: int, setting: str, size: str) -> Data:
    """Messages of 20 problems, the first five sweeps of each, in both labellings."""
    config = Config(size, seed)  # type: ignore[arg-type]
    d, n = SETTINGS[setting]
    problems = collected(seed, d, config.pick(n, 100, 40), config.pick(20, 10, 5))
    rows = split(seed, problems, config.pick(5000, 1500, 120), config.pick(3000, 500, 60))
    draws = config.pick(100_000, 20_000, 2000)
    first, second = jax.random.split(jax.random.key(seed))
    sampled = by_sampler(first, rows[0], draws), by_sampler(second, rows[1], draws)
    return Data((labelled(rows[0]), labelled(rows[1])), sampled)


def names(config: Config) -> list[str]:
    """All rows; a handful in tests."""
    found = [EXACT, *ROWS, *DEFAULTS]
    return [KJIT, FOREST_NAMES[1], EXACT, *DEFAULTS[:2], OTHER_KERNELS[3]] if config.size == "tiny" else found


def units(config: Config) -> list[Unit]:
    settings = list(SETTINGS)[: config.pick(2, 1, 1)]
    cases = [(s, o, name) for s in settings for o in list(OUTPUTS)[: config.pick(2, 1, 1)] for name in names(config)]
    return [
        make_unit(config, number, f"{setting}, {output}: {name}", setting=setting, output=output, operator=name)
        for number, (setting, output, name) in enumerate(cases)
    ]


def run_unit(unit: Unit, config: Config) -> dict:
    """One operator, scored on the test messages against both kinds of labels."""
    given = data(config.seed, unit.options["setting"], config.size)
    output, name = OUTPUTS[unit.options["output"]], unit.options["operator"]
    cavities = given.exact[1].cavities
    if name == KJIT and config.size == "tiny":
        found = kernel_operator(settings=SMALL)(given.sampled[0], output, unit.seed)(cavities)
    elif name == EXACT:
        found = given.exact[1].of(output)
    elif name in ROWS:
        found = ROWS[name](given.sampled[0], output, unit.seed)(cavities)
    else:
        found = by_default(name, given, unit, config)(cavities)
    labels = {"sampler": given.sampled[1], "exact": given.exact[1]}
    result: dict[str, Any] = {kind: log_kl(output, truth, found) for kind, truth in labels.items()}
    if name == KJIT and output == Z:
        order = np.argsort(result["sampler"])
        places = order[[int(q * (len(order) - 1)) for q in QUANTILES]]
        result |= {"labels": given.sampled[1].of(output)[places], "predicted": found[places]}
    return result


def by_default(name: str, given: Data, unit: Unit, config: Config) -> Predictor:
    """The default operator with labels of some kind; a thousand of the training messages are enough for it."""
    rows = np.arange(min(config.pick(1000, 200, 60), len(given.exact[0].cavities)))
    output = OUTPUTS[unit.options["output"]]
    if name == QUADRATURE:
        return asking(default_operator(given.exact[0].at(rows)), output)
    if name == SAMPLED:
        labels = given.sampled[0].at(rows)
        # The same noise for all: how large it is, is learned.
        return asking(default_operator(labels, np.full(len(rows), 1e-4)), output)
    return asking(
        default_operator(*scrambled_labels(unit.seed, given.exact[0].cavities[rows], config.pick(POINTS, 1024, 128))),
        output,
    )


def summarise(results: Results, config: Config) -> Outcome:
    cases = [(setting, output) for setting in SETTINGS for output in OUTPUTS]
    found = {case: scores(results, *case) for case in cases}
    tables = [table_of(*case, operators) for case, operators in found.items() if operators]
    means = {
        f"{setting}, {output}: {name}": {kind: float(values.mean()) for kind, values in errors.items()}
        | {"99th percentile": float(np.quantile(errors["exact"], 0.99))}
        for (setting, output), operators in found.items()
        for name, errors in operators.items()
    }
    checks = checked(means)
    return Outcome((*tables, check_table(checks)), {"mean log KL": means}, grade(checks), spoken(means))


def table_of(setting: str, output: str, operators: dict[str, dict[str, np.ndarray]]) -> Table:
    """All operators on messages in one direction."""
    rows = []
    for name, errors in operators.items():
        printed = PRINTED.get(name) if output == "to z" else None
        sampler, exact = errors["sampler"], errors["exact"]
        known = name == EXACT
        rows.append(
            (
                name,
                "" if printed is None else f"{printed[0]:.2f} ({printed[1]:.2f})",
                f"{sampler.mean():.2f} ({sampler.std():.2f})",
                "" if known else f"{exact.mean():.2f} ({exact.std():.2f})",
                "" if known else f"{np.quantile(exact, 0.99):.2f}",
            )
        )
    heads = ("operator", "printed", "against the sampler", "against exact moments", "99th percentile")
    return Table(f"Mean log KL (deviation), messages {output}, {setting}", heads, rows)


def checked(means: dict[str, dict[str, float]]) -> dict[str, bool]:
    """Parts of the claim, on messages to z."""
    checks = {}
    for setting in SETTINGS:
        found = {name.split(": ", 1)[1]: own for name, own in means.items() if name.startswith(f"{setting}, to z")}
        if not found:
            continue
        ours = found[KJIT]["sampler"]
        checks[f"{setting}: the operator's mean log KL is at most −8.97"] = ours <= -8.97
        others = [found[name]["sampler"] for name in OTHER_KERNELS if name in found]
        checks[f"{setting}: it is better than the other kernels with random features"] = ours < min(others)
        forests = [found[name]["sampler"] for name in FOREST_NAMES if name in found]
        checks[f"{setting}: it is better than the forests"] = ours < min(forests)
        if CHOLESKY in found:
            gap = ours - found[CHOLESKY]["sampler"]
            checks[f"{setting}: it loses less than 0.1 against incomplete Cholesky factors of its kernel"] = gap < 0.1
        checks[f"{setting}: ours, at most −20 against exact moments"] = found[QUADRATURE]["exact"] <= -20.0
        checks[f"{setting}: ours, at most −16 with scrambled points alone"] = found[SCRAMBLED]["exact"] <= -16.0
    return checks


def spoken(means: dict[str, dict[str, float]]) -> str:
    """The verdict in words."""
    first = next(iter(means)).split(", to ")[0]
    kjit, floor, best = (means[f"{first}, to z: {name}"] for name in (KJIT, EXACT, QUADRATURE))
    scrambled = means[f"{first}, to z: {SCRAMBLED}"]
    return (
        f"{first}: the paper's operator reaches {kjit['sampler']:.2f} against the sampler's labels, where exact "
        f"moments themselves reach {floor['sampler']:.2f}; against exact moments it is {kjit['exact']:.2f}. The "
        f"default operator is at {best['exact']:.1f}, with labels by scrambled points at {scrambled['exact']:.1f}."
    )


def drawn(results: Results, outcome: Outcome, config: Config) -> Figure:
    return draw(results, next(iter(SETTINGS)))


EXPERIMENT = Experiment(
    name="kjit-1",
    document=f"{DOCUMENT}, experiment 1, figure 3 and section C",
    title="Operators learned from a batch of messages",
    claim="A Gaussian kernel on joint mean embeddings, with random features, predicts the projected beliefs of the "
    "logistic factor with a mean log KL of −8.97, better than the other kernels and than random forests. Ours: the "
    "default operator of this library reaches −20 on the same messages against exact moments, and −16 with labels by "
    "scrambled points alone.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=drawn,
)
