"""How a run ended, from its state and what was measured there: one program, where single operations would be twenty."""

from functools import reduce
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp

from cavity._core.tiers import tiered_jit
from cavity.inference._visit import Counts, Report, without_news
from cavity.inference.status import CODES, Status
from cavity.inference.update_rule import UpdateRule
from cavity.posteriors.base import Posterior

#: in the place of a status where what was measured supports none
SILENT = -1


class StatusRule(NamedTuple):
    """What decides a status beside numbers.

    compromise: what a fixed point is called that gives up a constraint. single_pass: whether one pass is all.
    """

    posterior: Posterior
    compromise: Status
    single_pass: bool

    @classmethod
    def of(cls, posterior: Posterior, method: UpdateRule) -> Self:
        """The rule for runs of a method."""
        return cls(posterior, method.projection.compromise, method.single_pass)

    def __call__(self, tol: Any, q: Any, report: Report, left_out: Any = False) -> jax.Array:
        """The place in `CODES` of the status that the report supports, `SILENT` where it supports none.

        left_out: whether visits were left out, in a single pass for good.
        """
        within = report.largest <= tol
        compromise = jnp.any(jnp.concatenate(report.constraint_relaxed))
        cases = [
            (~self.posterior.is_normalisable(q), Status.IMPROPER_POSTERIOR),
            (within & compromise, self.compromise),
            (within, Status.CONVERGED),
            (jnp.any(jnp.concatenate(report.nonfinite)), Status.NONFINITE_FACTOR),
            (reduce(jnp.logical_or, map(jnp.any, report.unsure), jnp.array(False)), Status.UNSURE_FACTOR),
            (left_out & jnp.array(self.single_pass), Status.SITES_SKIPPED),
            (jnp.array(self.single_pass), Status.SINGLE_PASS),
            (jnp.any(jnp.concatenate(report.improper)), Status.SITES_SKIPPED),
        ]
        code = jnp.asarray(SILENT)
        for condition, status in reversed(cases):
            code = jnp.where(condition, CODES.index(status), code)
        return code


class Outcome(NamedTuple):
    """What a solution tells of a run beside its state: its fields of these names; `code` may be `SILENT`."""

    code: Any
    evaluations: Any
    residuals: Any
    mismatch: Any
    site_mismatch: Any


@tiered_jit(static_argnames=("rule",))
def outcome_of(
    rule: StatusRule, tol: float, costs: tuple[int, ...], q: Any, report: Report, counts: Counts, residuals: jax.Array
) -> Outcome:
    """The outcome of a state and its report, by one program where its operations would be some twenty.

    costs: factor evaluations of one integration, by group.
    """
    return Outcome(
        rule(tol, q, report, counts.improper_cavity > 0),
        sum(tilts * cost for tilts, cost in zip(counts.tilts, costs, strict=True)),
        without_news(residuals),
        without_news(report.largest),
        tuple(map(without_news, report.mismatch)),
    )
