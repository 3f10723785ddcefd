"""The disconnected approximation q = ∏ q_k(x_k): EP on it is loopy belief propagation (thesis 4.1).

Also its schedule tree by tree: forests of factors, each passed inward and then outward.
"""

from collections import deque
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.discrete.approx.parallel_bp import InColumns
from cavity.discrete.approx.rewriting import pad_states
from cavity.discrete.graph import TableGraph
from cavity.factors.table import Table
from cavity.families import Categorical, Product
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.schedule import InOrder, Order, Parallel
from cavity.moments.enumeration import Enumeration
from cavity.posteriors.factorised import Factorised, GraphPrior, Reach

#: group and number of a site, and the variables it sees
Site = tuple[int, int, tuple[int, ...]]

#: sites up to which a method that names no schedule visits them one after another; more are visited at once
ONE_BY_ONE = 5_000


class StoredRows(NamedTuple):
    """Where each variable is stored: the number of its family, and its row there. cardinalities: of the families."""

    family: np.ndarray
    row: np.ndarray
    cardinalities: np.ndarray


def stored_by_cardinality(cardinalities: np.ndarray) -> StoredRows:
    """Variables of equal cardinality together, in their own order."""
    kinds, family = np.unique(cardinalities, return_inverse=True)
    row = np.zeros(len(cardinalities), np.int64)
    for number in range(len(kinds)):
        own = family == number
        row[own] = np.arange(own.sum())
    return StoredRows(family, row, kinds)


@float64
def disconnected(graph: TableGraph) -> Problem:
    """The problem whose EP is loopy BP: factors of one variable are in the prior, exactly; every other is a site."""
    rows = stored_by_cardinality(graph.cardinalities)
    families = tuple(map(Categorical, rows.cardinalities.tolist()))
    wires, groups = [], []
    for own in graph.tables():
        if len(own.shape) < 2:
            continue
        slots = tuple(np.searchsorted(rows.cardinalities, own.shape).tolist())
        family = Product(tuple(map(Categorical, own.shape)))
        groups.append(SiteGroup(Table(), own.log_values, family, Enumeration(), scope=Reach(len(wires), slots)))
        wires.append(rows.row[own.scopes].astype(np.int32))
    if not groups:
        # Everything is held exactly; a site that says nothing gives the loop something to visit.
        family, nothing = Product((families[rows.family[0]],)), np.zeros((1, graph.cardinalities[0]))
        groups.append(SiteGroup(Table(), nothing, family, Enumeration(), scope=Reach(0, (int(rows.family[0]),))))
        wires.append(np.zeros((1, 1), np.int32))
    etas, flat, starts = [], graph.flat_unary(), np.cumsum(graph.cardinalities) - graph.cardinalities
    for number, k in enumerate(rows.cardinalities):
        weights = flat[starts[rows.family == number][:, None] + np.arange(k)]
        zero = weights == -np.inf
        etas.append(jnp.asarray(np.concatenate([np.where(zero, 0.0, weights), zero], axis=1, dtype=float)))
    prior = GraphPrior(tuple(etas), tuple(map(jnp.asarray, wires)), jnp.asarray(graph.log_constant))
    schedule = Parallel() if sum(map(len, wires)) > ONE_BY_ONE else InOrder()
    return Problem(prior, tuple(groups), Factorised(families), schedule=schedule, shortcut=InColumns())


def tree_by_tree(graph: TableGraph) -> Order:
    """Every factor in one forest; a sweep goes through the forests, each inward and then outward.

    Sites are visited group by group, factors of one shape being a group; within a group the order is that of the trees.
    """
    groups = [own for own in pad_states(graph).tables() if len(own.shape) > 1]
    left: list[Site] = []
    for number, own in enumerate(groups):
        left += [(number, site, tuple(scope)) for site, scope in enumerate(own.scopes.tolist())]
    if not left:
        return Order(((0,),))
    orders: list[list[int]] = [[] for _ in groups]
    while left:
        taken, left = split_forest(len(graph.variables), left)
        outward = walk_outward(taken)
        for number, site, _ in [*reversed(outward), *outward]:
            orders[number].append(site)
    return Order(tuple(tuple(own) for own in orders))


def split_forest(count: int, sites: list[Site]) -> tuple[list[Site], list[Site]]:
    """Sites that close no loop among themselves, as they come; and the others."""
    label = np.arange(count)

    def root(variable: int) -> int:
        while label[variable] != variable:
            label[variable] = label[label[variable]]
            variable = int(label[variable])
        return variable

    taken, others = [], []
    for site in sites:
        roots = {root(variable) for variable in site[2]}
        (taken if len(roots) == len(site[2]) else others).append(site)
        if len(roots) == len(site[2]):
            for own in roots:
                label[own] = min(roots)
    return taken, others


def walk_outward(sites: list[Site]) -> list[Site]:
    """The sites of a forest from its roots outward."""
    at: dict[int, list[int]] = {}
    for number, (_, _, scope) in enumerate(sites):
        for variable in scope:
            at.setdefault(variable, []).append(number)
    seen, order = set(), []
    for start in at:
        waiting = deque([start])
        while waiting:
            for number in at[waiting.popleft()]:
                if number not in seen:
                    seen.add(number)
                    order.append(sites[number])
                    waiting.extend(sites[number][2])
    return order
