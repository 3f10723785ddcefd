"""Loopy belief propagation on one large graph cut into parts, each on a worker; only messages across cuts travel."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from distributed import Client

from cavity._core.precision import float64
from cavity.discrete import DiscreteGraph
from cavity.discrete.graph import check_possible
from cavity.distributed.clients import client_or_local
from cavity.distributed.contributions import BorderMessages
from cavity.distributed.graph.cutting import Cut, cut_graph
from cavity.distributed.graph.worker import load_part, measure_part, visit_part
from cavity.distributed.protocol import Measurement
from cavity.distributed.results import RoundsResult
from cavity.distributed.rounds import RoundOptions, Rounds
from cavity.distributed.worker_pool import WorkerPool, loader_of
from cavity.inference.status import Status


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphFit(RoundsResult):
    """Marginals of every variable and the Bethe estimate of the log partition function, with the account of the run.

    Attributes:
        marginals: probabilities of the states of every variable.
        shared: how many variables are in several parts.
    """

    marginals: list[np.ndarray]
    shared: int


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

    Returns:
        A `GraphFit`: marginals, log evidence and status.

    Raises:
        ValueError: options that cannot be run, parts that do not name every factor once, or impossible evidence.

    Examples:
        >>> from cavity import distributed
        >>> from cavity.discrete import DiscreteGraph
        >>> graph = DiscreteGraph([2, 2, 2])
        >>> _ = graph.add_factor([0, 1], [[0.9, 0.1], [0.2, 0.8]]), graph.add_factor([1, 2], [[0.7, 0.3], [0.4, 0.6]])
        >>> with distributed.local_client(2) as client:  # doctest: +SKIP
        ...     print(distributed.infer_in_parts(graph, 2, client=client).status)
        converged
    """
    # Damping is done inside the parts.
    options = RoundOptions(asynchronous, damping, tol, max_rounds, max_seconds)
    check_possible(graph)
    cut = cut_graph(graph, parts)
    loaders = [loader_of(load_part, [plan], damping) for plan in cut.plans]
    with client_or_local(client) as own, WorkerPool(own, loaders, options.deadline) as pool:
        pool.load()
        rounds = GraphRounds(pool, dataclasses.replace(options, damping=1.0), callback, graph, cut)
        return rounds.result(rounds.finish(rounds.make_rounds()))


class GraphRounds(Rounds):
    """Rounds over the parts of a graph."""

    visit = staticmethod(visit_part)
    measure = staticmethod(measure_part)

    def __init__(
        self,
        pool: WorkerPool,
        options: RoundOptions,
        callback: Callable[[float], Any] | None,
        graph: DiscreteGraph,
        cut: Cut,
    ) -> None:
        self.graph, self.cut, self.messages = graph, cut, BorderMessages(graph, cut)
        super().__init__(pool, self.messages, options, callback)
        self.measured: dict[int, Measurement] = {}

    def report(self) -> None:
        if self.callback is not None:
            self.callback(self.mismatch)

    def is_settled(self) -> bool:
        self.measured = self.measure_all()
        return self.agrees

    def finish(self, status: Status) -> Status:
        while status is not Status.CONVERGED and not (self.is_settled() or np.isfinite(self.mismatch)):
            self.pool.check_workers()  # a part was lost between its last visit and now
            for number, own in enumerate(self.accepted):
                if not np.isfinite(own.mismatch):
                    self.ask(number)
            self.take(dict(self.pool.answers()))
        return status

    def result(self, status: Status) -> GraphFit:
        marginals: list[Any] = [None] * len(self.graph.variables)
        for number, plan in enumerate(self.cut.plans):
            for variable, own in zip(plan.variables.tolist(), self.measured[number].marginals, strict=True):
                marginals[variable] = own
        parts = sum(own.log_evidence for own in self.measured.values())
        log_evidence = self.cut.log_constant + parts + self.messages.log_partition()
        return GraphFit(
            marginals=marginals, log_evidence=log_evidence, shared=len(self.cut.shared), **self.account(status)
        )
