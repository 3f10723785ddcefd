"""Audits: queries about confident predictions, to see whether the errors they expect are calibrated."""

from typing import NamedTuple

import numpy as np

#: the share of confident predictions that is audited while a run goes on
RATE = 1.0 / 2000.0
#: sites audited when a run has converged
AT_THE_END = 6
#: audits that are looked at, the latest ones; and how many it takes to judge
WINDOW, ENOUGH = 64, 8
#: by how much at most variances are counted for more than they are
MOST = 100.0
#: an audit that finds so many times the KL divergence that is tolerated makes the run go on, with its answer learned
WORSE = 100.0
#: an audit that finds less than this share of it teaches nothing
UNSURPRISING = 0.1
#: audits at the end that inflate variances so many times more do the same: what was confident may be so no longer
SURPRISE = 2.0


class Audits(NamedTuple):
    """kl: of the projection predicted from the one the oracle found. expected: before it was asked."""

    kl: np.ndarray
    expected: np.ndarray

    def append(self, other: "Audits") -> "Audits":
        """These and others after them."""
        return Audits(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    @property
    def ratio(self) -> float:
        """Mean of KL over expected KL, 1 if variances are right; nan while there are too few."""
        if len(self.kl) < ENOUGH:
            return float("nan")
        return float(np.mean(self.kl[-WINDOW:] / self.expected[-WINDOW:]))

    @property
    def inflation(self) -> float:
        """What variances are to be multiplied with, 1 at least."""
        return 1.0 if np.isnan(self.ratio) else float(np.clip(self.ratio, 1.0, MOST))


def no_audits() -> Audits:
    """Before the first audit."""
    return Audits(np.zeros(0), np.zeros(0))
