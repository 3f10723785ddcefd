"""A shard of the rows against everything else, for streams, which read shards one after another, and for clusters.

q is kept as the sums that natural parameters are made of,

    shift = prior shift + Xᵀν,    precision = prior precision + Xᵀ diag(τ) X,    Σ log sᵢ,        (3.40)

in two parts: the shard's own, which its sites (ν, τ, log s) determine, and the rest, prior and all other rows. The loop
takes the rest as the prior of the shard's rows and makes a sweep from the old sites; the new part replaces the old.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.inference import stepping
from cavity.inference.problem import Problem
from cavity.inference.update_rule import UpdateRule
from cavity.models.latent_gaussian.assembly import LinearRows
from cavity.models.latent_gaussian.fit_result import log_likelihood_at_zero
from cavity.models.latent_gaussian.rows import feature_bucket
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
    return Problem(WeightPrior(table, blank, blank), (rows.group(),), ShardGaussian())


def constant_log_likelihood(rows: LinearRows) -> float:
    """log p(y | 0) of the rows without features: they have no site, their latent is 0 whatever the weights."""
    (fixed,) = np.nonzero(rows.left_out)
    known = log_likelihood_at_zero(rows.factor, rows.data) if fixed.size else np.zeros(0)
    return float(rows.left_out[fixed] @ known[fixed])


def own_sums(problem: Problem, sites: jax.Array) -> NaturalSums:
    """What the sites (ν, τ, log s) of a shard add to the sums."""
    copies = problem.groups[0].copies
    return NaturalSums(*natural_sums(problem.prior.rows, copies[:, None] * sites[:, :2]), copies @ sites[:, 2])


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
    """The outcome of a sweep: new sites, the mismatch met at each row, what went wrong on the way."""

    new: ShardSites
    mismatch: jax.Array
    counts: stepping.Counts


@jax.jit
def sweep_shard(
    problem: Problem, method: UpdateRule, rest: NaturalSums, old: ShardSites, number: jax.Array, key: jax.Array
) -> ShardSweep:
    """One sweep over a shard against the rest. number: of the sweep, which orders drawn at random depend on."""
    problem, state = shard_state(problem, method, rest, old)
    state, info = stepping.step(problem, method, state._replace(sweep=number), key)
    scales = state.log_scales[0]
    own = NaturalSums(state.q.shift, state.q.precision, problem.groups[0].copies @ scales)
    new = ShardSites(jnp.column_stack([state.sites[0], scales]), own)
    return ShardSweep(new, state.mismatch[0], info.counts)


@jax.jit
def measure_shard(
    problem: Problem, method: UpdateRule, rest: NaturalSums, sites: jax.Array, key: jax.Array
) -> tuple[stepping.Report, NaturalSums]:
    """The report of the sites at the q they make with the rest, and their sums; Σ log sᵢ as measured there."""
    own = own_sums(problem, sites)
    problem, state = shard_state(problem, method, rest, ShardSites(sites, own))
    report = stepping.measure(problem, method, state, key)
    return report, own._replace(log_scale=problem.groups[0].copies @ report.log_scales[0])
