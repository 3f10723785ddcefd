"""Loopy belief propagation on one large graph cut into parts, each on a worker; only messages across cuts travel."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import dask
import jax.numpy as jnp
import numpy as np
from distributed import Client

from cavity._core.precision import float64
from cavity.discrete import DiscreteGraph
from cavity.discrete.evidence import check_possible
from cavity.distributed.clients import client_or_local
from cavity.distributed.contributions import Proposal
from cavity.distributed.graph.cutting import Plan, in_parts
from cavity.distributed.graph.worker import Asked, Read, part_of, read_part, visit_part
from cavity.distributed.options import check_options
from cavity.distributed.rounds import Rounds, Taken
from cavity.distributed.worker_pool import Team
from cavity.families.categorical import Categorical
from cavity.inference.status import FIXED_POINTS, Status


@dataclasses.dataclass
class Messages:
    """What the parts say of shared variables, on the client: own weights of these, and for each part what it says.

    index: which numbers of the vector of all shared variables a part sees.
    """

    own: np.ndarray
    index: list[np.ndarray]
    values: list[np.ndarray]

    @property
    def total(self) -> np.ndarray:
        """Natural parameters of the shared variables."""
        found = self.own.copy()
        for index, said in zip(self.index, self.values, strict=True):
            found[index] += said
        return found

    def cavity(self, number: int) -> np.ndarray:
        """What all others say of the variables part `number` sees."""
        return self.total[self.index[number]] - self.values[number]

    def replace(self, proposals: dict[int, Proposal], damping: float) -> dict[int, float]:
        """Take the messages of parts; damping is done inside the parts."""
        for number, proposal in proposals.items():
            self.values[number] = proposal.naturals
        return {number: 1.0 for number in proposals}


@dataclasses.dataclass(frozen=True)
class GraphFit:
    """Marginals of every variable and the Bethe estimate of the log partition function, with the account of the run.

    shared: how many variables are in several parts.
    """

    marginals: list[np.ndarray]
    log_evidence: float
    status: Status
    mismatch: float
    residuals: np.ndarray
    shared: int
    seconds: float

    @property
    def converged(self) -> bool:
        """Whether a fixed point was reached."""
        return self.status in FIXED_POINTS


@float64
def infer_in_parts(
    graph: DiscreteGraph,
    parts: int | Sequence[Sequence[int]],
    *,
    client: Client | None = None,
    asynchronous: bool = False,
    damping: float = 1.0,
    tol: float = 1e-8,
    max_rounds: int = 200,
    max_seconds: float | None = None,
    callback: Callable[[float], Any] | None = None,
) -> GraphFit:
    """Loopy belief propagation with the graph cut into parts; the fixed points are those of the graph in one place.

    Args:
        graph: with its evidence.
        parts: so many of about equal size, or the factors of every part, by number.
        client: of a Dask cluster; without one, processes on this machine do the work.
        asynchronous: take in messages as they come.
        damping: of the updates inside the parts.
        tol: bound on the moment mismatch of every factor.
        max_rounds: rounds at most.
        max_seconds: stop after the round that passes this time.
        callback: called after every round with the largest mismatch met.
    """
    began = time.perf_counter()
    check_options(damping, tol, max_rounds, max_seconds)
    check_possible(graph)
    cut = in_parts(graph, parts)
    state = messages_of(graph, cut.plans, cut.shared)
    taken = [Taken() for _ in cut.plans]
    read: dict[int, Read] = {}
    loads = [lambda key, plan=plan: dask.delayed(part_of, pure=False)(plan, dask_key_name=key) for plan in cut.plans]
    with client_or_local(client) as own, Team(own, loads) as team:
        team.load()

        def tell(number: int, cavity: np.ndarray, have: Taken) -> Asked:
            return Asked(cavity, have.token, damping, tol)

        def look() -> float:
            for number, have in enumerate(taken):
                team.ask(number, read_part, tell(number, state.cavity(number), have))
            read.update(dict(team.answers()))
            for number, found in read.items():
                taken[number].residual = found.mismatch
            return max(found.mismatch for found in read.values())

        rounds = Rounds(
            team,
            state,
            taken,
            visit_part,
            tell,
            settled=lambda: look() <= tol,
            heard=lambda: None if callback is None else callback(rounds.residual),
            damping=1.0,
            tol=tol,
            max_rounds=max_rounds,
            deadline=None if max_seconds is None else began + max_seconds,
        )
        ended = rounds.as_they_come() if asynchronous else rounds.together()
        while ended is not Status.CONVERGED and not np.isfinite(look()):
            team.look()  # a part was lost between its last visit and now
            for number, have in enumerate(taken):
                if not np.isfinite(have.residual):
                    rounds.ask(number)
            rounds.take(dict(team.answers()))
        mismatch = max(found.mismatch for found in read.values())
    marginals: list[Any] = [None] * len(graph.variables)
    for number, plan in enumerate(cut.plans):
        for variable, own_marginal in zip(plan.variables.tolist(), read[number].marginals, strict=True):
            marginals[variable] = own_marginal
    evidence = (
        cut.log_constant
        + sum(found.log_evidence for found in read.values())
        + shared_evidence(graph, cut.shared, state)
    )
    return GraphFit(
        marginals, evidence, ended, mismatch, np.array(rounds.residuals), len(cut.shared), time.perf_counter() - began
    )


def messages_of(graph: DiscreteGraph, plans: list[Plan], shared: np.ndarray) -> Messages:
    """Flat messages, with the own weights of the shared variables."""
    starts = np.concatenate([[0], np.cumsum(graph.cardinalities)])
    weights, flat = [graph.flat_unary()[starts[v] : starts[v + 1]] for v in shared], []
    for own in weights:
        zero = own == -np.inf
        flat += [np.where(zero, 0.0, own), zero.astype(float)]
    ends = np.cumsum([2 * len(own) for own in weights])
    place = {int(v): np.arange(end - 2 * len(own), end) for v, own, end in zip(shared, weights, ends, strict=True)}
    nothing = np.zeros(0, np.int64)
    index = [np.concatenate([nothing, *(place[int(v)] for v in plan.variables[plan.shared])]) for plan in plans]
    own_weights = np.concatenate(flat) if flat else np.zeros(0)
    return Messages(own_weights, index, [np.zeros(len(each)) for each in index])


def shared_evidence(graph: DiscreteGraph, shared: np.ndarray, state: Messages) -> float:
    """Σ log Z of the shared variables."""
    total, start, found = state.total, 0, 0.0
    for variable in shared:
        family = Categorical(int(graph.cardinalities[variable]))
        found += float(family.log_partition(jnp.asarray(total[start : start + family.size])))
        start += family.size
    return found
