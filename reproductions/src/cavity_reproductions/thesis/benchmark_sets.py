"""Thesis figures 5-8 and 5-9: EP, billiard and SVM on four data sets, which figure 5-10 uses too.

60 % of the rows train, features have unit variance there, and the kernel is Gaussian with σ = 3.
"""

from functools import partial
from typing import Any

import numpy as np

from cavity.kernels import RBF
from cavity.reports import Figure
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit
from cavity_reproductions.datasets import load
from cavity_reproductions.relaxed.contest import Data, standardised
from cavity_reproductions.thesis import DOCUMENT, split_contest

WIDTH, TRAIN_SHARE, BOUNCES = 3.0, 0.6, 500
#: stands in where no folder of data is at hand, cut to this many rows
BUNDLED, FEW = "breast_cancer", 40


def split_of(name: str, split: int, config: Config) -> Data:
    """One random split, standardised by its training part."""
    data = load(BUNDLED if config.size == "tiny" else name)
    rows = FEW if config.size == "tiny" else len(data.y)
    y = np.where(data.y > 0, 1.0, -1.0)
    order = np.random.default_rng([config.seed, split]).permutation(len(y))[:rows]
    train, test = np.split(order, [round(TRAIN_SHARE * rows)])
    return standardised(data.X[train], y[train], data.X[test], y[test])


def run_unit(unit: Unit, config: Config) -> dict[str, Any]:
    """All methods on the splits of a unit."""
    bounces = config.pick(BOUNCES, BOUNCES, 20)
    return split_contest.gathered(
        [
            split_contest.errors(*split_of(unit.options["data"], split, config), RBF(WIDTH), bounces, split)
            for split in unit.options["splits"]
        ]
    )


NOTE = (
    f"60 % to train, Gaussian kernel of width {WIDTH:g} on features of unit variance, no label noise; the billiard "
    f"makes {BOUNCES} bounces from the SVM's solution. The thesis prints no numbers."
)

#: for each data set whether the thesis found EP better than each rival
Findings = dict[str, dict[str, Any]]


def plan(sets: Findings, config: Config) -> list[Unit]:
    """Units of the splits of these data sets."""
    return split_contest.units(config, tuple(sets))


def compare(sets: Findings, results: Results, config: Config) -> Outcome:
    """Wins and paired tests beside what the thesis found."""
    return split_contest.outcome(results, sets, NOTE)


def draw(sets: Findings, results: Results, outcome: Outcome, config: Config) -> Figure:
    """Test errors split by split."""
    return split_contest.draw(results, tuple(sets))


def experiment(figure: str, title: str, claim: str, sets: Findings) -> Experiment:
    """The experiment of one figure."""
    return Experiment(
        name=f"thesis-{figure}",
        document=f"{DOCUMENT}, figure {figure}",
        title=title,
        claim=claim,
        units=partial(plan, sets),
        run_unit=run_unit,
        summarise=partial(compare, sets),
        draw=partial(draw, sets),
    )


FIGURE_5_8 = experiment(
    "5-8",
    "Heart and thyroid",
    "On heart and thyroid EP beats the SVM on most of 40 splits and performs like the billiard.",
    {"heart": {"SVM": True, "billiard": "similar"}, "thyroid": {"SVM": True, "billiard": "similar"}},
)
FIGURE_5_9 = experiment(
    "5-9",
    "Ionosphere and sonar",
    "On ionosphere EP beats the SVM on most of 40 splits, on sonar the SVM wins; on both EP performs like the "
    "billiard.",
    {"ionosphere": {"SVM": True, "billiard": "similar"}, "sonar": {"SVM": False, "billiard": "similar"}},
)
