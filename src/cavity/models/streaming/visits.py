"""One portion of the rows visited by the one loop, with what all other rows said as its prior.

q is kept as the sums that natural parameters are made of,

    shift = prior shift + Xᵀν,    precision = prior precision + Xᵀ diag(τ) X,    Σ log sᵢ.

A portion's own part of them is deleted, which is exact, the loop makes a sweep over the portion from that prior and the
old sites, and the new part is put in. A sweep over all rows also adds up the new parts alone: at its end q is made of
these, so that no rounding of the deletions is carried on.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.inference import stepping
from cavity.inference.methods import Method
from cavity.inference.problem import Problem
from cavity.models.latent_gaussian.linear_model import Rows
from cavity.posteriors.weight_gaussian import WeightGaussian, WeightPrior, Weights, weights


class Sums(NamedTuple):
    """Natural parameters of q and Σ log sᵢ (3.40), or a part of them."""

    shift: jax.Array
    precision: jax.Array
    log_scale: jax.Array

    def plus(self, other: "Sums") -> "Sums":
        """Both together."""
        return jax.tree.map(jnp.add, self, other)

    def minus(self, other: "Sums") -> "Sums":
        """Without a part."""
        return jax.tree.map(jnp.subtract, self, other)

    def q(self) -> Weights:
        """The Gaussian of these."""
        return weights(self.shift, self.precision)


class Met(NamedTuple):
    """What was met on the way through some portions.

    largest: mismatch of the sites that have one; the others are counted. unmatched: all of them. improper: those whose
    cavity is not a distribution. nonfinite: those whose factor gave no finite moments. given_up: sites of which the
    projection gave up a constraint. shortened: steps that were halved.
    """

    largest: jax.Array
    unmatched: jax.Array
    improper: jax.Array
    nonfinite: jax.Array
    given_up: jax.Array
    shortened: jax.Array

    def joined(self, other: "Met") -> "Met":
        """Both together."""
        return Met(jnp.maximum(self.largest, other.largest), *(a + b for a, b in zip(self[1:], other[1:], strict=True)))


def nothing_met() -> Met:
    """Before the first portion."""
    return Met(jnp.zeros(()), *(jnp.zeros((), int),) * 5)


def met(mismatch: jax.Array, improper: jax.Array, nonfinite: jax.Array, given_up: Any, shortened: Any) -> Met:
    """What was met at the sites of a portion."""
    known = jnp.isfinite(mismatch)
    return Met(
        jnp.max(jnp.where(known, mismatch, 0.0)),
        jnp.sum(~known),
        improper,
        nonfinite,
        jnp.asarray(given_up, int),
        jnp.asarray(shortened, int),
    )


class Tally(NamedTuple):
    """A pass of one machine so far. total: what q is made of now. fresh: the parts this sweep has put in."""

    total: Sums
    fresh: Sums
    met: Met


def as_problem(rows: Rows) -> Problem:
    """The rows of a portion as the programs below take them: the prior is in the tally they are given."""
    # NumPy arrays: compiled programs take them over sooner than anything else would.
    table: Any = rows.X
    blank: Any = np.zeros(0)
    return Problem(WeightPrior(table, blank, blank), (rows.group(rows.term),), WeightGaussian())


def part_of(problem: Problem, sites: jax.Array) -> Sums:
    """What sites (ν, τ, log s) of a portion add to the sums."""
    rows = problem.prior.rows
    nu, tau, scale = (problem.groups[0].copies[:, None] * sites).T
    return Sums(rows.T @ nu, rows.T @ (tau[:, None] * rows), jnp.sum(scale))


def beginning(problem: Problem, method: Method, tally: Tally, sites: jax.Array) -> tuple[Problem, Sums, stepping.State]:
    """The portion with what all other rows said as its prior, the sums of that prior, and the state before a sweep."""
    rest = tally.total.minus(part_of(problem, sites))
    problem = dataclasses.replace(problem, prior=WeightPrior(problem.prior.rows, rest.shift, rest.precision))
    state = stepping.init(problem, method, (sites[:, :2],))
    return problem, rest, state._replace(q=tally.total.q(), log_scales=(sites[:, 2],))


@jax.jit
def swept(
    problem: Problem, method: Method, tally: Tally, sites: jax.Array, number: jax.Array, key: jax.Array
) -> tuple[Tally, jax.Array]:
    """The tally after a sweep over a portion, and its new sites. number: of the sweep over all rows."""
    problem, rest, state = beginning(problem, method, tally, sites)
    state, info = stepping.step(problem, method, state._replace(sweep=number), key)
    new = jnp.concatenate([state.sites[0], state.log_scales[0][:, None]], axis=1)
    part, counts = part_of(problem, new), info.counts
    found = met(state.mismatch[0], counts.improper_cavity, counts.nonfinite, 0, counts.shortened)
    return Tally(rest.plus(part), tally.fresh.plus(part), tally.met.joined(found)), new


@jax.jit
def measured(problem: Problem, method: Method, tally: Tally, sites: jax.Array, key: jax.Array) -> Tally:
    """The tally after the sites of a portion were measured at q as it is; q stays."""
    problem, _, state = beginning(problem, method, tally, sites)
    report = stepping.measure(problem, method, state, key)
    flags = (report.improper, report.nonfinite, report.given_up)
    improper, nonfinite, given_up = (jnp.sum(flag[0]) for flag in flags)
    return tally._replace(met=tally.met.joined(met(report.mismatch[0], improper, nonfinite, given_up, 0)))
