"""How far each model of a stream is in its passes, and what a finished pass leads to.

A pass reads all rows once. It is a sweep, in which a model visits every row, or a measurement at the q the sweeps have
led to. As in the loop, a model ends when the visits of a sweep and the measurement after it both say that the moments
agree. A sweep also adds up the new parts of its chunks alone: at its end q is made of these, so that no rounding of the
deletions is carried on.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.inference.problem import Problem
from cavity.inference.schedule import InOrder, Schedule
from cavity.inference.status import CODES, FIXED_POINTS, Status
from cavity.inference.stepping import Report, status_code
from cavity.inference.update_rule import UpdateRule
from cavity.models.latent_gaussian.assembly import weight_schedule
from cavity.models.streaming.shard import NaturalSums, ShardSites, measure_shard, own_sums, sweep_shard
from cavity.posteriors.weight_gaussian import WeightGaussian

#: a sweep that leaves more than this of the mismatch of the one before is too slow for parallel visits
SLOW = 0.5


class VisitCounts(NamedTuple):
    """What a pass has met so far, summed over its chunks.

    largest: mismatch of the sites that have one; the others are counted. unmatched: all of them. improper: those whose
    cavity is not a distribution. nonfinite: those whose factor gave no finite moments. given_up: sites of which the
    projection gave up a constraint. shortened: steps that were halved.
    """

    largest: Any
    unmatched: Any
    improper: Any
    nonfinite: Any
    given_up: Any
    shortened: Any

    @classmethod
    def zero(cls) -> "VisitCounts":
        """Before the first chunk."""
        return cls(jnp.zeros(()), *(jnp.zeros((), int),) * 5)

    def plus(self, mismatch: jax.Array, *numbers: Any) -> "VisitCounts":
        """With the mismatch of the sites of a chunk and the numbers of those that were improper and so on."""
        known = jnp.isfinite(mismatch)
        largest = jnp.maximum(self.largest, jnp.max(jnp.where(known, mismatch, 0.0)))
        added = (jnp.sum(~known), *numbers)
        return VisitCounts(largest, *(old + new for old, new in zip(self[1:], added, strict=True)))

    @property
    def mismatch(self) -> float:
        """The largest mismatch of all sites; infinite where some have none."""
        return float("inf") if int(self.unmatched) else float(self.largest)


class PassTotals(NamedTuple):
    """A pass of one model so far. total: what q is made of now. fresh: the parts this sweep has put in."""

    total: NaturalSums
    fresh: NaturalSums
    counts: VisitCounts


@jax.jit
def sweep_chunk(
    problem: Problem, method: UpdateRule, totals: PassTotals, sites: jax.Array, number: jax.Array, key: jax.Array
) -> tuple[PassTotals, jax.Array]:
    """The totals after a sweep over a chunk, and its new sites. number: of the sweep over all rows."""
    own = own_sums(problem, sites)
    rest = totals.total.minus(own)
    found = sweep_shard(problem, method, rest, ShardSites(sites, own), number, key)
    numbers = (found.counts.improper_cavity, found.counts.nonfinite, 0, found.counts.shortened)
    counts = totals.counts.plus(found.mismatch, *numbers)
    new = found.new
    return PassTotals(rest.plus(new.own), totals.fresh.plus(new.own), counts), new.sites


@jax.jit
def measure_chunk(
    problem: Problem, method: UpdateRule, totals: PassTotals, sites: jax.Array, key: jax.Array
) -> PassTotals:
    """The totals after the sites of a chunk were measured at q as it is; q stays."""
    report, _ = measure_shard(problem, method, totals.total.minus(own_sums(problem, sites)), sites, key)
    numbers = (jnp.sum(flags[0]) for flags in (report.improper, report.nonfinite, report.constraint_relaxed))
    return totals._replace(counts=totals.counts.plus(report.mismatch[0], *numbers, 0))


@dataclasses.dataclass(frozen=True)
class PassState:
    """Of one model. stage: what it does in the present pass: "sweep", "measure" or, where it has ended, "done".

    constant: log likelihood of rows without features, which have no site. residuals: largest mismatch of every sweep.
    mismatch: as measured last. sequential: whether visits go one by one because parallel ones were slow.
    history: a record of every pass that is over.
    """

    totals: PassTotals
    stage: str = "sweep"
    constant: float = 0.0
    residuals: tuple[float, ...] = ()
    mismatch: float = float("inf")
    sequential: bool = False
    status: Status = Status.RUNNING
    history: tuple[dict[str, Any], ...] = ()

    @classmethod
    def initial(cls, prior: NaturalSums) -> "PassState":
        """Before the first row: q is the prior."""
        return cls(PassTotals(prior, NaturalSums.zero(len(prior.shift)), VisitCounts.zero()))

    @property
    def sweeps(self) -> int:
        """Sweeps that are over."""
        return len(self.residuals)

    def schedule(self, method: UpdateRule, others: int, d: int) -> Schedule:
        """In which order a chunk is visited while q holds so many other rows: parallel where each weighs little."""
        if method.schedule is not None:
            return method.schedule
        return InOrder() if method.single_pass or self.sequential else weight_schedule(others, d)

    def after_pass(self, method: UpdateRule, prior: NaturalSums, record: dict[str, Any]) -> "PassState":
        """The state when all rows have been read."""
        if self.stage == "done":
            return self
        counts, largest = self.totals.counts, float(self.totals.counts.largest)
        names = ("unmatched", "improper", "nonfinite", "shortened")
        wrong = {name: int(np.asarray(getattr(counts, name))) for name in names}
        history = (*self.history, {"pass": self.stage, **record, "mismatch": largest, **wrong})
        if self.stage == "measure":
            ended = self.sweeps >= method.max_sweeps or max(largest, self.residuals[-1]) <= method.tol
            return self.judged(method, history=history).entering("done" if ended else "sweep")
        # q made of this sweep's parts alone.
        totals = PassTotals(prior.plus(self.totals.fresh), NaturalSums.zero(len(prior.shift)), counts)
        slow = bool(self.residuals) and largest > SLOW * self.residuals[-1]
        residuals, sequential = (*self.residuals, largest), self.sequential or slow
        changed = {"totals": totals, "residuals": residuals, "sequential": sequential, "history": history}
        if method.single_pass:
            return self.judged(method, **changed).entering("done")
        measures = largest <= method.tol or len(residuals) >= method.max_sweeps
        return dataclasses.replace(self, **changed).entering("measure" if measures else "sweep")

    def reopened(self, method: UpdateRule) -> "PassState":
        """As it goes on from a file: what had ended short of a fixed point, or of the tolerance, where it may."""
        short = self.mismatch > method.tol or self.status not in FIXED_POINTS
        again = self.stage == "done" and short and not method.single_pass and self.sweeps < method.max_sweeps
        return self.entering("sweep") if again else self

    def entering(self, stage: str) -> "PassState":
        """At the beginning of a pass."""
        return dataclasses.replace(self, stage=stage, totals=self.totals._replace(counts=VisitCounts.zero()))

    def judged(self, method: UpdateRule, **changed: Any) -> "PassState":
        """With the mismatch of this pass as that of the state, and the status that what was met supports."""
        state = dataclasses.replace(self, **changed)
        counts, one = state.totals.counts, lambda value: (jnp.atleast_1d(value),)
        given_up, improper, nonfinite = (one(n > 0) for n in (counts.given_up, counts.improper, counts.nonfinite))
        report = Report(one(counts.mismatch), given_up, improper, nonfinite, (), ())
        code = status_code(WeightGaussian(), method, state.totals.total.q(), report, Status.MAX_SWEEPS)
        return dataclasses.replace(state, mismatch=counts.mismatch, status=CODES[int(code)])
