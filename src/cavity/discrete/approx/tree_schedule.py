"""A schedule of loopy belief propagation tree by tree: forests of factors, each passed inward and then outward."""

from collections import deque

import numpy as np

from cavity.discrete.approx.approximate import pad_states
from cavity.discrete.graph import TableGraph
from cavity.inference.schedule import Order

#: group and number of a site, and the variables it sees
Site = tuple[int, int, tuple[int, ...]]


def tree_by_tree(graph: TableGraph) -> Order:
    """Every factor in one forest; a sweep goes through the forests, each inward and then outward.

    Sites are visited group by group, factors of one shape being a group; within a group the order is that of the trees.
    """
    groups = [own for own in pad_states(graph).factors.by_shape if len(own.shape) > 1]
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
