"""Exact marginals of all variables of Bayesian networks: `cavity.exact` against pgmpy's VariableElimination.

pgmpy is asked for one variable at a time, which is how it is used and, since it then leaves out what is irrelevant, the
fastest way it has; its model and inference object are made beforehand. (BeliefPropagation, `--calibrated`, calibrates
one junction tree for all queries: on andes, pigs, hailfinder and water it runs out of memory or of patience.) Without
evidence, and with leaves observed in likely states. First: with everything that is worked out once, in a process that
has answered nothing before where it is the first row. Again: the best of several. Process time.
"""

import argparse
import importlib.util
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

# Process time counts every thread, also those of pgmpy's matrix products that only wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import cavity as cv

#: observed leaves
SEEN = 3


def generated() -> dict[str, cv.DiscreteGraph]:
    """Networks for a run without files: a long narrow one, and slices that each depend on the one before."""
    rng = np.random.default_rng(0)
    narrow, sliced = cv.DiscreteGraph(rng.integers(2, 5, 300)), cv.DiscreteGraph([3] * 32)
    for graph, reach, most in ((narrow, 10, 2), (sliced, 8, 3)):
        for v in range(len(graph.variables)):
            start = (v // reach - 1) * reach if graph is sliced else max(v - reach, 0)
            above = np.arange(max(start, 0), start + reach if graph is sliced else v)
            scope = [v, *rng.permutation(above[above < v])[:most].tolist()]
            table = rng.gamma(0.7, size=graph.cardinalities[scope])
            graph.add_factor(scope, table / table.sum(axis=0))
    return {"narrow, 300 variables": narrow, "4 slices of 8": sliced}


def with_likely_leaves(graph: cv.DiscreteGraph) -> dict[int, int]:
    """The first leaves, one after another, in the state that is most probable given those before."""
    parents = {v for table in graph for v in table.scope[1:]}
    seen: dict[int, int] = {}
    for leaf in [v for v in range(len(graph.variables)) if v not in parents][:SEEN]:
        seen[leaf] = int(np.argmax(cv.exact(graph.given(seen)).marginals[leaf]))
    return seen


def peer_model(graph: cv.DiscreteGraph) -> Any:
    """The same network in pgmpy; the first variable of a table is the child."""
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DiscreteBayesianNetwork

    model = DiscreteBayesianNetwork()
    model.add_nodes_from(range(len(graph.variables)))
    cards = graph.cardinalities.tolist()
    for child, *parents in (table.scope for table in graph):
        model.add_edges_from((parent, child) for parent in parents)
    for (child, *parents), log_values in graph:
        values = np.exp(log_values).reshape(cards[child], -1)
        model.add_cpds(TabularCPD(child, cards[child], values, parents, [cards[v] for v in parents]))
    return model


def peer_marginals(graph: cv.DiscreteGraph, calibrated: bool) -> Callable[[], dict[int, np.ndarray]]:
    """All marginals of the variables that are not observed, one query each."""
    from pgmpy.inference import BeliefPropagation, VariableElimination

    model = peer_model(graph)
    inference = BeliefPropagation(model) if calibrated else VariableElimination(model)
    free = [v for v in range(len(graph.variables)) if v not in graph.evidence]
    return lambda: {v: inference.query([v], graph.evidence, show_progress=False).values for v in free}


def timed(answer: Callable[[], Any], times: int) -> tuple[float, float, Any]:
    """Milliseconds of the first call, of the best of the next ones, and the answer."""
    spent, found = [], None
    for _ in range(1 + times):
        began = time.process_time()
        found = answer()
        spent.append(1e3 * (time.process_time() - began))
    return spent[0], min(spent[1:]), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="networks in .bif files; without any, two are made up")
    parser.add_argument("--calibrated", action="store_true", help="pgmpy's BeliefPropagation instead")
    options = parser.parse_args()
    graphs = {path: cv.DiscreteGraph.read(path) for path in options.files} or generated()
    peer = importlib.util.find_spec("pgmpy") is not None
    if not peer:
        print("pgmpy is not installed: only the times of cavity follow.")
    head = "| network | observed | cavity first, ms | again |"
    print(head + (" pgmpy first | again | ratio first | again | difference |" if peer else ""))
    print("|---" * (9 if peer else 4) + "|")
    exact = cv.exact
    for path, graph in graphs.items():
        for clamped in (graph, None):
            given = clamped or graph.given(with_likely_leaves(graph))
            first, again, ours = timed(lambda given=given: exact(given), 20)
            row = f"| {path.rsplit('/', 1)[-1]} | {len(given.evidence)} | {first:.1f} | {again:.2f} |"
            if peer:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    theirs_first, theirs, found = timed(peer_marginals(given, options.calibrated), 3)
                gap = max(np.abs(ours.marginals[v] - values).max() for v, values in found.items())
                row += f" {theirs_first:.0f} | {theirs:.0f} | {theirs_first / first:.1f} | {theirs / again:.0f} |"
                row += f" {gap:.0e} |"
            print(row, flush=True)


if __name__ == "__main__":
    main()
