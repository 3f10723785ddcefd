"""How far a stream is: the course of every machine through its passes, and what a finished pass leads to.

A pass reads all rows once. It is a sweep, in which a machine visits every row, or a measurement at the q the sweeps
have led to. As in the loop, a machine ends when the visits of a sweep and the measurement after it both say that the
moments agree.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity.inference.methods import Method
from cavity.inference.schedule import InOrder, Schedule
from cavity.inference.status import CODES, FIXED_POINTS, Status
from cavity.inference.stepping import Report, status_code
from cavity.models.latent_gaussian.build import weight_schedule
from cavity.models.streaming.visits import Met, Sums, Tally, nothing_met
from cavity.posteriors.weight_gaussian import WeightGaussian

#: a sweep that leaves more than this of the mismatch of the one before is too slow for parallel visits
SLOW = 0.5


@dataclasses.dataclass(frozen=True)
class Course:
    """Of one machine. stage: what it does in the present pass: "sweep", "measure" or, where it has ended, "done".

    constant: log likelihood of rows without features, which have no site. residuals: largest mismatch of every sweep.
    mismatch: as measured last. sequential: whether visits go one by one because parallel ones were slow.
    history: a record of every pass that is over.
    """

    tally: Tally
    stage: str = "sweep"
    constant: float = 0.0
    residuals: tuple[float, ...] = ()
    mismatch: float = float("inf")
    sequential: bool = False
    status: Status = Status.RUNNING
    history: tuple[dict[str, Any], ...] = ()

    @property
    def sweeps(self) -> int:
        """Sweeps that are over."""
        return len(self.residuals)

    def schedule(self, method: Method, others: int, d: int) -> Schedule:
        """In which order a portion is visited while q holds so many other rows: parallel where each weighs little."""
        if method.schedule is not None:
            return method.schedule
        return InOrder() if method.single_pass or self.sequential else weight_schedule(others, d)

    def after_pass(self, method: Method, prior: Sums, record: dict[str, Any]) -> "Course":
        """The course when all rows have been read."""
        if self.stage == "done":
            return self
        met, largest = self.tally.met, float(self.tally.met.largest)
        history = (*self.history, {"pass": self.stage, **record, "mismatch": largest, **counts(met)})
        if self.stage == "measure":
            ended = self.sweeps >= method.max_sweeps or max(largest, self.residuals[-1]) <= method.tol
            told = dataclasses.replace(self, mismatch=whole(met), status=self.judged(method), history=history)
            return told.entering("done" if ended else "sweep")
        # q made of this sweep's parts alone.
        tally = Tally(prior.plus(self.tally.fresh), nothing_yet(prior), met)
        slow = bool(self.residuals) and largest > SLOW * self.residuals[-1]
        told = dataclasses.replace(
            self, tally=tally, residuals=(*self.residuals, largest), sequential=self.sequential or slow, history=history
        )
        if method.single_pass:
            told = dataclasses.replace(told, mismatch=whole(met), status=told.judged(method))
            return told.entering("done")
        return told.entering("measure" if largest <= method.tol or told.sweeps >= method.max_sweeps else "sweep")

    def reopened(self, method: Method) -> "Course":
        """As it goes on from a file: what had ended short of a fixed point, or of the tolerance, where it may."""
        short = self.mismatch > method.tol or self.status not in FIXED_POINTS
        again = self.stage == "done" and short and not method.single_pass and self.sweeps < method.max_sweeps
        return self.entering("sweep") if again else self

    def entering(self, stage: str) -> "Course":
        """At the beginning of a pass."""
        return dataclasses.replace(self, stage=stage, tally=self.tally._replace(met=nothing_met()))

    def judged(self, method: Method) -> Status:
        """The status that what was met in this pass supports."""
        met, one = self.tally.met, lambda value: (jnp.atleast_1d(value),)
        report = Report(one(whole(met)), one(met.given_up > 0), one(met.improper > 0), one(met.nonfinite > 0), (), ())
        return CODES[int(status_code(WeightGaussian(), method, self.tally.total.q(), report, Status.MAX_SWEEPS))]


def begun(prior: Sums) -> Course:
    """Before the first row: q is the prior."""
    return Course(Tally(prior, nothing_yet(prior), nothing_met()))


def nothing_yet(prior: Sums) -> Sums:
    """The parts of no row."""
    return jax.tree.map(jnp.zeros_like, prior)


def whole(met: Met) -> float:
    """The largest mismatch of all sites; infinite where some have none."""
    return float("inf") if int(met.unmatched) else float(met.largest)


def counts(met: Met) -> dict[str, int]:
    """What went wrong on the way, never silent."""
    return {name: int(np.asarray(getattr(met, name))) for name in ("unmatched", "improper", "nonfinite", "shortened")}
