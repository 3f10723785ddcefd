"""EP for the linear machine with its rows on many workers."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from distributed import Client

from cavity._core.precision import float64
from cavity.distributed.clients import client_or_local
from cavity.distributed.contributions import Contributions
from cavity.distributed.linear.loading import loads_of
from cavity.distributed.linear.result import Fit
from cavity.distributed.linear.worker import Measurement, Request, measure_shard, shape_of, visit
from cavity.distributed.naturals import moments, pack
from cavity.distributed.options import check_options
from cavity.distributed.rounds import Rounds, Taken
from cavity.distributed.worker_pool import Team
from cavity.factors import Probit
from cavity.factors.base import Factor
from cavity.inference.status import Status
from cavity.models.latent_gaussian.build import weight_precision

#: by how much prior and contributions may differ from q's natural parameters, relative to the largest of them
BALANCE = 1e-10


@float64
def fit(
    X: Any,
    y: Any = None,
    *,
    factor: Factor = Probit(),
    prior_variance: Any = 1.0,
    client: Client | None = None,
    asynchronous: bool = False,
    damping: float = 1.0,
    tol: float = 1e-8,
    max_rounds: int = 200,
    max_seconds: float | None = None,
    callback: Callable[[Fit], Any] | None = None,
    resume: Fit | None = None,
) -> Fit:
    """EP for w ~ N(0, prior_variance) observed through `factor` along rows that stay on the workers of a client.

    In a round every shard makes sweeps against what all others say and hands back its natural parameters, which replace
    what it said before. The fixed points are those of the linear machine fitted to all rows in one place. An
    interruption from the keyboard hands back the state reached, from which `resume` goes on.

    Args:
        X: a Dask array or dataframe; or a list of shards, each a pair (rows, observations), a function without
            arguments that returns one, a `dask.delayed` object or a future of one. Functions and delayed objects can be
            loaded again when a worker dies.
        y: observations as a Dask array, or the name of their column; None where the shards hold them.
        factor: the likelihood of an observation given wᵀx, one that has a closed form.
        prior_variance: a number, one a feature, or a covariance matrix.
        client: of a Dask cluster; without one, processes on this machine do the work and end with it.
        asynchronous: take in answers as they come instead of waiting for all.
        damping: the share of a step taken, 1 for all of it.
        tol: bound on the moment mismatch of every row at the state handed back.
        max_rounds: rounds at most.
        max_seconds: stop after the round that passes this time.
        callback: called with the `Fit` so far after every round.
        resume: a fit of the same shards to go on from.
    """
    began = time.perf_counter()
    check_options(damping, tol, max_rounds, max_seconds)
    with client_or_local(client) as own, Team(own, loads_of(X, y, factor, own)) as team:
        team.load()
        rows, d = shapes(team)
        precision = np.asarray(weight_precision(prior_variance, d))
        run = Run(
            Contributions.none(pack(np.zeros(d), precision), len(rows), d),
            [Taken() for _ in rows],
            factor,
            np.atleast_1d(np.asarray(prior_variance, float)),
            rows,
            began,
        )
        if resume is not None:
            run.go_on_from(resume)
        deadline = None if max_seconds is None else began + max_seconds
        return run.driven(team, asynchronous, damping, tol, max_rounds, deadline, callback)


def shapes(team: Team) -> tuple[np.ndarray, int]:
    """Rows of every shard, and the columns, which all must share."""
    for number in range(len(team.loads)):
        team.ask(number, shape_of)
    found = dict(team.answers())
    d = found[0][1]
    for number, (_, columns) in sorted(found.items()):
        if columns != d:
            raise ValueError(f"Shard {number} has {columns} columns, shard 0 has {d}.")
    return np.array([found[number][0] for number in range(len(found))]), d


@dataclasses.dataclass
class Run:
    """One fit under way, on the client's side."""

    state: Contributions
    taken: list[Taken]
    factor: Factor
    prior_variance: np.ndarray
    rows: np.ndarray
    began: float
    mismatch: float = float("inf")
    log_evidence: float | None = None
    balance: float = float("nan")
    earlier: tuple[float, ...] = ()

    def go_on_from(self, fit: Fit) -> None:
        """Contributions of an earlier fit. Their sites are gone: every shard finds its own again."""
        if not np.array_equal(fit.rows, self.rows) or not np.array_equal(fit.prior, self.state.prior):
            raise ValueError(
                f"resume must be a fit of the same shards and prior; it has {fit.rows.tolist()} rows, "
                f"these shards {self.rows.tolist()}."
            )
        self.state.values = fit.contributions.copy()
        self.state.negative += 1  # as long as nobody knows, properness is looked at
        self.taken = [Taken("gone") for _ in self.rows]
        self.earlier = tuple(fit.residuals)

    def driven(
        self,
        team: Team,
        asynchronous: bool,
        damping: float,
        tol: float,
        max_rounds: int,
        deadline: float | None,
        callback: Callable[[Fit], Any] | None,
    ) -> Fit:
        """Rounds until the end, and the account of it."""

        def tell(number: int, cavity: np.ndarray, taken: Taken) -> Request:
            return Request(cavity, taken.token, taken.step, tol)

        def heard() -> None:
            if callback is not None:
                callback(self.fit(Status.RUNNING, rounds))

        def settled() -> bool:
            return self.measured(team, rounds) is None and self.mismatch <= tol

        rounds = Rounds(team, self.state, self.taken, visit, tell, settled, heard, damping, tol, max_rounds, deadline)
        try:
            ended = rounds.as_they_come() if asynchronous else rounds.together()
            if ended is not Status.CONVERGED:
                ended = self.measured(team, rounds) or ended
        except KeyboardInterrupt:
            self.mismatch, self.log_evidence = rounds.residual, None
            ended = Status.INTERRUPTED
        return self.fit(ended, rounds)

    def measured(self, team: Team, rounds: Rounds) -> Status | None:
        """Ask all shards about the state as it is; what keeps it from being a fixed point, if sites cannot be updated.

        The log evidence (3.40) is A(q) − A(prior) + Σ log sᵢ, and the scales of a shard's rows sᵢ follow from q and
        its own sites alone.
        """
        for number, own in enumerate(self.taken):
            team.ask(number, measure_shard, rounds.tell(number, self.state.cavity(number), own))
        found: dict[int, Measurement] = dict(team.answers())
        for number, own in found.items():
            self.taken[number].residual = own.mismatch
        self.mismatch = max(own.mismatch for own in found.values())
        if not np.isfinite(self.mismatch):
            self.log_evidence = None  # some sites were lost on the way
            return None
        again = self.state.prior + sum(found[number].naturals for number in sorted(found))
        self.balance = float(np.abs(again - self.state.total).max() / np.abs(self.state.total).max())
        if self.balance > BALANCE:
            raise AssertionError(f"contributions and sites differ by {self.balance:.1e} of the natural parameters.")
        q, prior = (moments(vector, self.state.d) for vector in (self.state.total, self.state.prior))
        scales = sum(own.log_scales for own in found.values())
        self.log_evidence = float(q.log_partition - prior.log_partition + scales)
        if any(own.nonfinite for own in found.values()):
            return Status.NONFINITE_FACTOR
        return Status.SITES_SKIPPED if any(own.improper for own in found.values()) else None

    def fit(self, status: Status, rounds: Rounds) -> Fit:
        """The state as a user sees it."""
        running = status is Status.RUNNING
        return Fit(
            prior=self.state.prior,
            contributions=self.state.values.copy(),
            factor=self.factor,
            prior_variance=self.prior_variance,
            rows=self.rows,
            status=status,
            log_evidence=None if running else self.log_evidence,
            mismatch=rounds.residual if running else self.mismatch,
            residuals=np.array([*self.earlier, *rounds.residuals]),
            shortened=self.state.shortened,
            balance=self.balance,
            seconds=time.perf_counter() - self.began,
        )
