"""What `cavity infer` computes: marginals and log evidence by EP or exactly, or the most probable states."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import cavity
from cavity.discrete import Clusters, DiscreteGraph, exact_discrete, exact_map, max_product
from cavity.discrete.evidence import Contradiction
from cavity.inference.methods import Method
from cavity.inference.status import FIXED_POINTS, Status

#: methods by name; auto is EP, and what helps where it fails
METHODS: dict[str, Method | None] = {
    "auto": None,
    "ep": cavity.EP(),
    "damped-ep": cavity.EP(damping=0.5, max_sweeps=1000),
    "power-ep": cavity.PowerEP(0.5),
    "adf": cavity.ADF(),
}
#: methods that max-product takes
MAXIMISERS = (METHODS["ep"], METHODS["damped-ep"])
#: what stands for q
APPROXIMATIONS = ("disconnected", "tree", "exact")
#: how an exact answer was found
EXACTLY = "exact: sums over a junction tree"


class InferenceAnswer(NamedTuple):
    """What was found.

    marginals: of every variable; None where states were asked for. states: the most probable ones. log_value: log
    evidence, or the log weight of these states. method, ending: in words. settled: whether the run ended as promised.
    """

    marginals: list[np.ndarray] | None
    states: np.ndarray | None
    log_value: float
    method: str
    ending: str
    settled: bool
    seconds: float


def approximated(
    graph: DiscreteGraph,
    form: str | Clusters,
    method: str,
    max_seconds: float | None,
    listen: Callable[[Any], None] | None,
) -> InferenceAnswer:
    """Marginals and log evidence by EP.

    listen: called with the solution after every sweep.
    """
    began = time.perf_counter()
    solution = cavity.infer(graph.approximate(form), METHODS[method], max_seconds=max_seconds, callback=listen)
    status = solution.status
    if status in (Status.NONFINITE_FACTOR, Status.IMPROPER_POSTERIOR) or not np.isfinite(solution.log_evidence):
        refuse_contradiction(graph)
    marginals = [np.asarray(own, float) for own in solution.marginals]
    proper = all(np.isfinite(own).all() for own in marginals) and np.isfinite(solution.log_evidence)
    if status == Status.IMPROPER_POSTERIOR or not proper:
        raise ValueError(f"There is no result: {status}. {status.sentence} Another --approximation may do better.")
    left = "".join(f"{rung.method}: {rung.reason}. " for rung in solution.rungs if rung.reason)
    ending = (
        f"{left}{str(status).replace('_', ' ')} after {int(solution.sweeps)} sweeps, "
        f"mismatch {float(solution.mismatch):.1e}. {status.sentence}"
    )
    settled = status in (*FIXED_POINTS, Status.SINGLE_PASS)
    log_evidence, seconds = float(solution.log_evidence), time.perf_counter() - began
    return InferenceAnswer(marginals, None, log_evidence, str(solution.method), ending, settled, seconds)


def refuse_contradiction(graph: DiscreteGraph) -> None:
    """Raise `Contradiction` where the evidence has probability zero and the graph is small enough to know."""
    try:
        exact_discrete(graph)
    except Contradiction:
        raise
    except ValueError:
        return


def exactly(graph: DiscreteGraph) -> InferenceAnswer:
    """Marginals and log evidence to rounding."""
    began = time.perf_counter()
    try:
        found = exact_discrete(graph)
    except Contradiction:
        raise
    except ValueError as error:
        raise ValueError(f"The model is too large: {error} Use --approximation tree or disconnected.") from None
    seconds = time.perf_counter() - began
    ending = f"exact to rounding, width {found.width}, largest table {found.table_size} entries."
    return InferenceAnswer(found.marginals, None, found.log_evidence, EXACTLY, ending, True, seconds)


def most_probable(graph: DiscreteGraph) -> InferenceAnswer:
    """The most probable states, exactly."""
    began = time.perf_counter()
    try:
        states, log_value = exact_map(graph)
    except Contradiction:
        raise
    except ValueError as error:
        raise ValueError(
            f"The model is too large for the exact answer: {error} Use --approximation disconnected."
        ) from None
    ending = "exact: no other states are more probable."
    method = "exact: maxima over a junction tree"
    return InferenceAnswer(None, states, log_value, method, ending, True, time.perf_counter() - began)


def by_max_product(
    graph: DiscreteGraph, method: str, max_seconds: float | None, listen: Callable[[Any], None] | None
) -> InferenceAnswer:
    """The most probable states by loopy max-product."""
    began = time.perf_counter()
    found = max_product(graph, METHODS[method], max_seconds=max_seconds, callback=listen)
    ending = f"{str(found.status).replace('_', ' ')} after {found.sweeps} sweeps. No promise that nothing is better."
    settled = found.status == Status.CONVERGED and np.isfinite(found.log_weight)
    seconds = time.perf_counter() - began
    return InferenceAnswer(None, found.states, found.log_weight, "max-product", ending, bool(settled), seconds)


def named_clusters(graph: DiscreteGraph, text: str) -> Clusters:
    """Clusters as they are written on the command line: "a,b;c,d", each variable by its name or its number from 0."""
    clusters = [[word.strip() for word in part.split(",")] for part in text.split(";")]
    if any(not word for own in clusters for word in own):
        raise ValueError(f'--clusters must be like "0,1;2,3"; found {text!r}.')
    try:
        return Clusters([[variable(graph, word) for word in own] for own in clusters])
    except ValueError as error:
        raise ValueError(f"--clusters: {error}") from None


def variable(graph: DiscreteGraph, word: str) -> int:
    """The number of a variable by its name, or by its number where no variable has that name."""
    try:
        return graph.variables.number(word)
    except ValueError:
        if not (word.isdecimal() and len(word) < 19):
            raise
        return graph.variables.number(int(word))
