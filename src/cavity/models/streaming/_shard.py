"""A shard of the rows against everything else, for streams, which read shards one after another, and for clusters.

q is kept as the sums that natural parameters are made of,

    shift = prior shift + Xᵀν,    precision = prior precision + Xᵀ diag(τ) X,    Σ log sᵢ,        (3.40)

in two parts: the shard's own, which its sites (ν, τ, log s) determine, and the rest, prior and all other rows. The loop
takes the rest as the prior of the shard's rows and makes a sweep from the old sites; the new part replaces the old.

At the end: how far each model of a stream is in its passes, and what a finished pass leads to.

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

from cavity._core.tiers import tiered_jit
from cavity.inference import stepping
from cavity.inference.problem import Problem
from cavity.inference.schedule import InOrder, Schedule
from cavity.inference.status import CODES, FIXED_POINTS, Status
from cavity.inference.stepping import Report, status_code
from cavity.inference.update_rule import UpdateRule
from cavity.models._latent_gaussian.fit_result import log_likelihood_at_zero
from cavity.models._latent_gaussian.linear_model import LinearRows, weight_schedule
from cavity.models._latent_gaussian.rows import feature_bucket, left_out
from cavity.posteriors.weight_gaussian import WeightGaussian, WeightPrior, Weights, weights


class NaturalSums(NamedTuple):
    """Natural parameters of q and Σ log sᵢ (3.40), or a part of them; padded features have a unit prior."""

    shift: Any
    precision: Any
    log_scale: Any

    @classmethod
    def padded(cls, shift: np.ndarray, precision: np.ndarray) -> "NaturalSums":
        """A proper Gaussian over the weights, and a standard one over those of the padding."""
        d, width = len(shift), feature_bucket(len(shift))
        wide = np.eye(width)
        wide[:d, :d] = precision
        return cls(np.concatenate([shift, np.zeros(width - d)]), wide, np.zeros(()))

    @classmethod
    def zero(cls, width: int) -> "NaturalSums":
        """The part of no row."""
        return cls(np.zeros(width), np.zeros((width, width)), np.zeros(()))

    def plus(self, other: "NaturalSums") -> "NaturalSums":
        """The sum of both."""
        return jax.tree.map(jnp.add, self, other)

    def minus(self, other: "NaturalSums") -> "NaturalSums":
        """The difference."""
        return jax.tree.map(jnp.subtract, self, other)

    def q(self) -> Weights:
        """The Gaussian with these natural parameters."""
        return weights(jnp.asarray(self.shift), jnp.asarray(self.precision))


class ShardWeights(NamedTuple):
    """`Weights` together with Xᵀν and Xᵀ diag(τ) X of the sites they were made from."""

    mean: jax.Array
    covariance: jax.Array
    log_partition: jax.Array
    proper: jax.Array
    shift: jax.Array
    precision: jax.Array


@dataclasses.dataclass(frozen=True)
class ShardGaussian(WeightGaussian):
    """The weight form whose q keeps the sums of its sites: they cost no further pass over the rows."""

    def refresh(self, prior: WeightPrior, groups: tuple[tuple[Any, jax.Array], ...]) -> Any:
        ((_, sites),) = groups
        return shard_weights(prior, *natural_sums(prior.rows, sites))


def shard_weights(rest: WeightPrior | NaturalSums, shift: jax.Array, precision: jax.Array) -> ShardWeights:
    """q, the product of the rest and the shard's own part."""
    return ShardWeights(*weights(rest.shift + shift, rest.precision + precision), shift, precision)


def natural_sums(rows: jax.Array, sites: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Xᵀν and Xᵀ diag(τ) X."""
    nu, tau = sites.T
    return rows.T @ nu, rows.T @ (tau[:, None] * rows)


def shard_problem(rows: LinearRows) -> Problem:
    """The rows of a shard as the programs below take them, which put the rest in the place of the prior."""
    # NumPy arrays: compiled programs take them over sooner than anything else would.
    table: Any = rows.X
    blank: Any = np.zeros(0)
    return Problem(WeightPrior(table, blank, blank), (rows.sites,), ShardGaussian())


def constant_log_likelihood(rows: LinearRows) -> float:
    """log p(y | 0) of the rows without features: they have no site, their latent is 0 whatever the weights."""
    without = left_out(rows.multiplicity, rows.sites)
    (fixed,) = np.nonzero(without)
    known = log_likelihood_at_zero(rows.sites.factor, rows.sites.data) if fixed.size else np.zeros(0)
    return float(without[fixed] @ known[fixed])


def own_sums(problem: Problem, sites: jax.Array) -> NaturalSums:
    """What the sites (ν, τ, log s) of a shard add to the sums."""
    multiplicity = problem.groups[0].multiplicities
    weighted = natural_sums(problem.prior.rows, multiplicity[:, None] * sites[:, :2])
    return NaturalSums(*weighted, multiplicity @ sites[:, 2])


class ShardSites(NamedTuple):
    """Sites (ν, τ, log s) of a shard, one row each, and their sums."""

    sites: Any
    own: NaturalSums

    @classmethod
    def flat(cls, problem: Problem) -> "ShardSites":
        """Before the first sweep."""
        rows, width = problem.prior.rows.shape
        return cls(np.zeros((rows, 3)), NaturalSums.zero(width))


def shard_state(
    problem: Problem, method: UpdateRule, rest: NaturalSums, given: ShardSites
) -> tuple[Problem, stepping.State]:
    """The shard with the rest as its prior, and the loop's state at given sites."""
    sites, own = given
    problem = dataclasses.replace(problem, prior=WeightPrior(problem.prior.rows, rest.shift, rest.precision))
    state = stepping.init(problem, method, (sites[:, :2],))
    return problem, state._replace(q=shard_weights(rest, own.shift, own.precision), log_scales=(sites[:, 2],))


class ShardSweep(NamedTuple):
    """The outcome of a sweep: new sites, the mismatch met at each row, what went wrong on the way.

    evidence: in a single pass log p of these rows given the rest; else 0.
    """

    new: ShardSites
    mismatch: jax.Array
    counts: stepping.Counts
    evidence: jax.Array


@tiered_jit
def sweep_shard(
    problem: Problem, method: UpdateRule, rest: NaturalSums, old: ShardSites, number: jax.Array, key: jax.Array
) -> ShardSweep:
    """One sweep over a shard against the rest. number: of the sweep, which orders drawn at random depend on."""
    problem, state = shard_state(problem, method, rest, old)
    state, info = stepping.step(problem, method, state._replace(sweep=number), key)
    scales = state.log_scales[0]
    own = NaturalSums(state.q.shift, state.q.precision, problem.groups[0].multiplicities @ scales)
    new = ShardSites(jnp.column_stack([state.sites[0], scales]), own)
    evidence = stepping.evidence_of_pass(problem, method, state) if method.single_pass else jnp.zeros(())
    return ShardSweep(new, state.mismatch[0], info.counts, evidence)


def log_mean_of_rows(problem: Problem, report: Report) -> jax.Array:
    """Σ multiplicityᵢ E[log t̃ᵢ] under the q at which the rows were measured."""
    return problem.groups[0].multiplicities @ report.log_means[0]


@tiered_jit
def measure_shard(
    problem: Problem, method: UpdateRule, rest: NaturalSums, sites: jax.Array, key: jax.Array
) -> tuple[stepping.Report, NaturalSums]:
    """The report of the sites at the q they make with the rest, and their sums; Σ log sᵢ as measured there."""
    own = own_sums(problem, sites)
    problem, state = shard_state(problem, method, rest, ShardSites(sites, own))
    report = stepping.measure(problem, method, state, key)
    return report, own._replace(log_scale=problem.groups[0].multiplicities @ report.log_scales[0])


#: a sweep that leaves more than this of the mismatch of the one before is too slow for parallel visits
SLOW = 0.5


class VisitCounts(NamedTuple):
    """What a pass has met so far, summed over its chunks.

    largest: mismatch of the sites that have one; the others are counted. unmatched: all of them. improper: those whose
    cavity is not a distribution. nonfinite: those whose factor gave no finite moments. constraint_relaxed: sites of
    which the projection gave up a constraint. shortened: steps that were halved.
    """

    largest: Any
    unmatched: Any
    improper: Any
    nonfinite: Any
    constraint_relaxed: Any
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
    """A pass of one model so far. total: what q is made of now. fresh: the parts this sweep has put in.

    evidence: of the rows of this pass: measured, Σ E[log t̃ᵢ] under q; in a single pass log p given those before.
    """

    total: NaturalSums
    fresh: NaturalSums
    counts: VisitCounts
    evidence: Any


@tiered_jit
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
    evidence = totals.evidence + found.evidence
    return PassTotals(rest.plus(new.own), totals.fresh.plus(new.own), counts, evidence), new.sites


@tiered_jit
def measure_chunk(
    problem: Problem, method: UpdateRule, totals: PassTotals, sites: jax.Array, key: jax.Array
) -> PassTotals:
    """The totals after the sites of a chunk were measured at q as it is; q stays."""
    own = own_sums(problem, sites)
    problem, state = shard_state(problem, method, totals.total.minus(own), ShardSites(sites, own))
    # Rest and chunk make the total: with q from there nothing needs the sums of the chunk, a second pass over its rows.
    state = state._replace(q=ShardWeights(*totals.total.q(), own.shift, own.precision))
    report = stepping.measure(problem, method, state, key)
    numbers = (jnp.sum(flags[0]) for flags in (report.improper, report.nonfinite, report.constraint_relaxed))
    evidence = totals.evidence + log_mean_of_rows(problem, report)
    return totals._replace(counts=totals.counts.plus(report.mismatch[0], *numbers, 0), evidence=evidence)


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
        return cls(PassTotals(prior, NaturalSums.zero(len(prior.shift)), VisitCounts.zero(), jnp.zeros(())))

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
            return self.with_report(method, history=history).entering("done" if ended else "sweep")
        # q made of this sweep's parts alone.
        totals = self.totals._replace(
            total=prior.plus(self.totals.fresh), fresh=NaturalSums.zero(len(prior.shift)), counts=counts
        )
        slow = bool(self.residuals) and largest > SLOW * self.residuals[-1]
        residuals, sequential = (*self.residuals, largest), self.sequential or slow
        changed = {"totals": totals, "residuals": residuals, "sequential": sequential, "history": history}
        if method.single_pass:
            return self.with_report(method, **changed).entering("done")
        measures = largest <= method.tol or len(residuals) >= method.max_sweeps
        return dataclasses.replace(self, **changed).entering("measure" if measures else "sweep")

    def reopened(self, method: UpdateRule) -> "PassState":
        """As it goes on from a file: what had ended short of a fixed point, or of the tolerance, where it may."""
        short = self.mismatch > method.tol or self.status not in FIXED_POINTS
        again = self.stage == "done" and short and not method.single_pass and self.sweeps < method.max_sweeps
        return self.entering("sweep") if again else self

    def entering(self, stage: str) -> "PassState":
        """At the beginning of a pass, or at the end of all."""
        totals = self.totals._replace(counts=VisitCounts.zero())
        if stage != "done":
            totals = totals._replace(evidence=jnp.zeros(()))
        return dataclasses.replace(self, stage=stage, totals=totals)

    def log_evidence(self, method: UpdateRule, prior: NaturalSums) -> float:
        """Of all rows, from what the last pass has summed; while a pass goes on, from the scales of the last visits."""
        total, before = self.totals.total, prior.q()
        if self.stage != "done":
            found = total.q().log_partition - before.log_partition + total.log_scale
        elif method.single_pass:
            found = self.totals.evidence
        else:
            form, blank = WeightGaussian(), jnp.zeros((0, len(prior.shift)))
            found = self.totals.evidence - form.divergence(WeightPrior(blank, prior.shift, prior.precision), total.q())
        return float(found) + self.constant

    def with_report(self, method: UpdateRule, **changed: Any) -> "PassState":
        """With the mismatch of this pass as that of the state, and the status that what was met supports."""
        state = dataclasses.replace(self, **changed)
        counts, one = state.totals.counts, lambda value: (jnp.atleast_1d(value),)
        some = (one(n > 0) for n in (counts.constraint_relaxed, counts.improper, counts.nonfinite))
        relaxed, improper, nonfinite = some
        report = Report(one(counts.mismatch), relaxed, improper, nonfinite, (), ())
        code = status_code(
            WeightGaussian(), method, state.totals.total.q(), report, Status.MAX_SWEEPS, int(counts.improper) > 0
        )
        return dataclasses.replace(state, mismatch=counts.mismatch, status=CODES[int(code)])
