"""The four sets of figures 5-8 to 5-10: 60 % to train, features of unit variance there, a Gaussian kernel, σ = 3."""

from typing import Any

import numpy as np

from cavity.kernels import RBF
from cavity_reproductions.base import Config, Unit
from cavity_reproductions.datasets import load
from cavity_reproductions.relaxed.contest import Data, standardised
from cavity_reproductions.thesis import split_contest

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
