"""Thesis figure 5-7: EP, billiard and SVM on handwritten 3s and 5s."""

from typing import Any

import numpy as np

from cavity.kernels import Linear
from cavity.reports import Figure
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit
from cavity_reproductions.datasets import load
from cavity_reproductions.thesis import DOCUMENT, split_contest

DIGITS = "digits_3_vs_5"
#: a pixel of 0 to 16 is on from here; training images; bounces of the billiard
ON, TRAIN, BOUNCES = 8, 70, 2000


def units(config: Config) -> list[Unit]:
    return split_contest.units(config, (DIGITS,))


def run_unit(unit: Unit, config: Config) -> dict[str, Any]:
    data = load(DIGITS)
    images = np.column_stack([data.X >= ON, np.ones(len(data.X))]).astype(float)
    found = []
    for split in unit.options["splits"]:
        rng = np.random.default_rng([config.seed, split])
        train, test = np.split(rng.permutation(len(images)), [TRAIN])
        y = data.y.astype(float)
        bounces = config.pick(BOUNCES, BOUNCES, 20)
        parts = images[train], y[train], images[test], y[test]
        found.append(split_contest.errors(*parts, Linear(), bounces, split))
    return split_contest.gathered(found)


def summarise(results: Results, config: Config) -> Outcome:
    return split_contest.outcome(
        results,
        {DIGITS: {"SVM": True, "billiard": True}},
        f"8×8 images of scikit-learn, on from {ON} of 16, and a bias; {TRAIN} to train and 295 to test; linear; the "
        f"billiard makes {BOUNCES} bounces. Thesis: EP beat the SVM on 34, the billiard on 28 of 40 splits (70/430).",
    )


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    return split_contest.draw(results, (DIGITS,))


EXPERIMENT = Experiment(
    name="thesis-5-7",
    document=f"{DOCUMENT}, figure 5-7",
    title="Handwritten 3s against 5s",
    claim="Over 40 splits EP beat the SVM 34 times and the billiard of 2000 iterations 28 times.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
