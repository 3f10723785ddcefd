"""Graphs from and to networkx and pgmpy. Neither is needed elsewhere: they are imported where they are asked for."""

import importlib
import math
from typing import Any

import numpy as np

from cavity.discrete.graph import TableGraph
from cavity.discrete.io.tokens import written_tables

#: states of a spin, in their order
SPINS = ("-1", "+1")


def from_networkx(network: Any, graph_type: type[Any] = TableGraph) -> Any:
    """Spins on an undirected networkx graph: p(s) ∝ exp(Σ hᵢ sᵢ + Σ Jᵢⱼ sᵢ sⱼ) with s = ±1.

    The node attribute `field` is hᵢ, 0 where it is missing; the edge attribute `coupling` is Jᵢⱼ. Variables have the
    nodes' names and the states "-1" and "+1".
    """
    require("networkx")
    if network.is_directed() or network.is_multigraph():
        raise ValueError(f"network must be an undirected graph with single edges; found a {type(network).__name__}.")
    graph = graph_type()
    numbers = {node: graph.add_variable(SPINS, str(node)) for node in network.nodes}
    fields = {node: attribute(h, f"field of {node!r}") for node, h in network.nodes(data="field") if h is not None}
    couplings = []
    for a, b, J in network.edges(data="coupling"):
        if J is None:
            raise ValueError(f"every edge must have the attribute coupling; the edge {a!r}, {b!r} has none.")
        if a == b:
            raise ValueError(f"edges must join two nodes; found a loop at {a!r}.")
        couplings.append((numbers[a], numbers[b], attribute(J, f"coupling of {a!r}, {b!r}")))
    spin = np.array([float(state) for state in SPINS])
    if fields:
        scopes = np.array([[numbers[node]] for node in fields])
        graph.add_factors(scopes, np.array(list(fields.values()))[:, None] * spin, log=True)
    if couplings:
        scopes = np.array([pair[:2] for pair in couplings])
        graph.add_factors(scopes, np.array([J for *_, J in couplings])[:, None, None] * np.outer(spin, spin), log=True)
    return graph


def attribute(value: Any, what: str) -> float:
    """A finite number."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be a number; found {value!r}.") from None
    if not math.isfinite(found):
        raise ValueError(f"{what} must be finite; found {found}.")
    return found


def to_networkx(graph: TableGraph) -> Any:
    """The bipartite networkx graph of nodes ("variable", i) and ("factor", a), an edge where a's scope has i.

    Variables have the attributes `name`, `states`, and where there are any `observed` and `log_likelihood`; factors
    have `scope` and `log_values`. The attribute `bipartite` is 0 for variables and 1 for factors.
    """
    network = require("networkx").Graph()
    for number in range(len(graph.variables)):
        extra: dict[str, Any] = {"observed": graph.evidence[number]} if number in graph.evidence else {}
        if number in graph.likelihoods:
            extra["log_likelihood"] = graph.likelihoods[number]
        names = {"name": graph.variables.name(number), "states": graph.variables.states(number)}
        network.add_node(("variable", number), bipartite=0, **names, **extra)
    for number, table in enumerate(graph):
        network.add_node(("factor", number), bipartite=1, scope=table.scope, log_values=table.log_values)
        network.add_edges_from((("variable", variable), ("factor", number)) for variable in table.scope)
    return network


def from_pgmpy(model: Any, graph_type: type[Any] = TableGraph) -> Any:
    """The graph of a pgmpy DiscreteBayesianNetwork, DiscreteMarkovNetwork or FactorGraph.

    Variables and states keep their names as text, variables in the order of the model's nodes.
    """
    require("pgmpy")
    if hasattr(model, "get_cpds"):
        missing = set(model.nodes()).difference(table.variable for table in model.get_cpds())
        if missing:
            raise ValueError(f"every variable of a Bayesian network must have a table; {missing.pop()!r} has none.")
        factors = [table.to_factor() for table in model.get_cpds()]
    elif hasattr(model, "get_factors"):
        factors = list(model.get_factors())
    else:
        raise ValueError(f"model must be a discrete network of pgmpy; found a {type(model).__name__}.")
    states: dict[Any, list[Any]] = {}
    for factor in factors:
        for variable in factor.variables:
            states.setdefault(variable, list(factor.state_names[variable]))
    graph, numbers = graph_type(), {}
    for node in model.nodes():
        if node not in states:
            if hasattr(model, "get_factor_nodes"):  # among the nodes of a factor graph are its factors
                continue
            raise ValueError(f"every variable of the model must be in a factor; {node!r} is in none.")
        numbers[node] = graph.add_variable([str(state) for state in states[node]], str(node))
    for factor in factors:
        values = np.asarray(factor.values, np.float64)
        for axis, variable in enumerate(factor.variables):  # a factor may list the states in an order of its own
            own = list(factor.state_names[variable])
            if sorted(map(str, own)) != sorted(map(str, states[variable])):
                raise ValueError(f"{variable!r} has the states {states[variable]} in one factor, {own} in another.")
            values = values.take([own.index(state) for state in states[variable]], axis=axis)
        graph.add_factor([numbers[variable] for variable in factor.variables], values)
    return graph


def to_pgmpy(graph: TableGraph) -> Any:
    """The same distribution as pgmpy's DiscreteMarkovNetwork, with the graph's names of variables and states.

    Evidence, soft or not, becomes factors. pgmpy has no factor without a variable: constants go into the first factor.
    """
    require("pgmpy")
    network = importlib.import_module("pgmpy.models").DiscreteMarkovNetwork()
    make = importlib.import_module("pgmpy.factors.discrete").DiscreteFactor
    tables = written_tables(graph, evidence=True)
    constant = math.prod(table.weights[0] for table in tables if not table.scope)
    tables = [table for table in tables if table.scope]
    names = [graph.variables.name(number) for number in range(len(graph.variables))]
    network.add_nodes_from(names)
    for number, (scope, shape, weights) in enumerate(tables):
        own = [names[variable] for variable in scope]
        network.add_edges_from((a, b) for k, a in enumerate(own) for b in own[k + 1 :])
        states = {names[variable]: list(graph.variables.states(variable)) for variable in scope}
        scale = constant if number == 0 else 1.0
        network.add_factors(make(own, shape, np.array(weights) * scale, state_names=states))
    return network


def require(package: str) -> Any:
    """An optional package."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError(f"{package} is not installed: pip install {package}.") from None
