"""Loopy belief propagation on one large graph cut into parts, each on a worker; only messages across cuts travel."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from distributed import Client

from cavity._core.precision import float64
from cavity.discrete import DiscreteGraph
from cavity.discrete.graph import check_possible
from cavity.distributed.clients import client_or_local
from cavity.distributed.graph_parts import Cut, cut_graph, load_part, measure_part, unary_weights, visit_part
from cavity.distributed.rounds import Measurement, Response, RoundOptions, Rounds, RoundsResult
from cavity.distributed.worker_pool import WorkerPool, loader_of
from cavity.families.categorical import Categorical
from cavity.inference.status import Status


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphFit(RoundsResult):
    """Marginals of every variable and the Bethe estimate of the log partition function. Made by `infer_in_parts`.

    Attributes:
        status: why it ended.
        log_evidence: the Bethe estimate of the log partition function.
        mismatch: the largest moment mismatch of all parts, measured at the state handed back.
        residuals: the largest mismatch met in every round.
        seconds: the run took.
        marginals: probabilities of the states of every variable.
        shared: how many variables are in several parts.

    Examples:
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> from cavity.discrete import DiscreteGraph
        >>> graph = DiscreteGraph([2, 2, 2])
        >>> _ = graph.add_factor([0, 1], [[0.9, 0.1], [0.2, 0.8]]), graph.add_factor([1, 2], [[0.7, 0.3], [0.4, 0.6]])
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     found = distributed.infer_in_parts(graph, 2, client=client)
        >>> found.shared, round(found.log_evidence, 6)  # log 2
        (1, 0.693147)
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
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> from cavity.discrete import DiscreteGraph
        >>> graph = DiscreteGraph([2, 2, 2])
        >>> _ = graph.add_factor([0, 1], [[0.9, 0.1], [0.2, 0.8]]), graph.add_factor([1, 2], [[0.7, 0.3], [0.4, 0.6]])
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     found = distributed.infer_in_parts(graph, 2, client=client)
        >>> str(found.status), found.marginals[2].round(3)
        ('converged', array([0.565, 0.435]))
    """
    # Damping is done inside the parts.
    options = RoundOptions(asynchronous, damping, tol, max_rounds, max_seconds)
    check_possible(graph)
    cut = cut_graph(graph, parts)
    loaders = [loader_of(load_part, [plan], damping) for plan in cut.plans]
    with client_or_local(client) as own, WorkerPool(own, loaders, options.deadline) as pool:
        pool.load()
        messages, options = BorderMessages(graph, cut), dataclasses.replace(options, damping=1.0)
        rounds = GraphRounds(pool, messages, options, callback, graph, cut)
        return rounds.result(rounds.finish(rounds.make_rounds()))


class BorderMessages:
    """The messages of all parts to the variables they share, on the client.

    own: weights of the shared variables themselves. index: which numbers of the vector of all shared variables a part
    sees. values: the messages of every part.
    """

    def __init__(self, graph: DiscreteGraph, cut: Cut) -> None:
        unary = unary_weights(graph)
        weights = [unary[variable] for variable in cut.shared]
        pairs = [(np.where(own == -np.inf, 0.0, own), own == -np.inf) for own in weights]
        self.own = np.concatenate([np.zeros(0), *(part for pair in pairs for part in pair)])
        self.families = [Categorical(len(own)) for own in weights]
        self.ends = np.cumsum([family.size for family in self.families], dtype=int)[:-1]
        places = dict(zip(cut.shared.tolist(), np.split(np.arange(len(self.own)), self.ends), strict=False))
        seen = [[places[v] for v in plan.variables[plan.shared].tolist()] for plan in cut.plans]
        self.index = [np.concatenate([np.zeros(0, int), *own]) for own in seen]
        self.values = [np.zeros(len(own)) for own in self.index]

    @property
    def total(self) -> np.ndarray:
        """Natural parameters of the shared variables."""
        found = self.own.copy()
        for index, messages in zip(self.index, self.values, strict=True):
            found[index] += messages
        return found

    def cavity(self, number: int) -> np.ndarray:
        """The messages of all others to the variables part `number` sees."""
        return self.total[self.index[number]] - self.values[number]

    def replace(self, responses: dict[int, Response], damping: float) -> dict[int, float]:
        """Take the messages of parts, whole: damping is done inside the parts."""
        for number, response in responses.items():
            self.values[number] = response.contribution
        return dict.fromkeys(responses, 1.0)

    def log_partition(self) -> float:
        """Σ log Z of the shared variables."""
        parts = zip(self.families, np.split(self.total, self.ends), strict=False)
        return sum(float(family.log_partition(jnp.asarray(eta))) for family, eta in parts)


@dataclasses.dataclass
class GraphRounds(Rounds):
    """Rounds over the parts of a graph."""

    state: BorderMessages
    graph: DiscreteGraph
    cut: Cut
    measured: dict[int, Measurement] = dataclasses.field(default_factory=dict)

    visit = staticmethod(visit_part)
    measure = staticmethod(measure_part)

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
        log_evidence = self.cut.log_constant + parts + self.state.log_partition()
        return GraphFit(
            marginals=marginals, log_evidence=log_evidence, shared=len(self.cut.shared), **self.account(status)
        )
