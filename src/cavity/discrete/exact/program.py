"""A program for all marginals of a discrete graph: which tables to multiply and what to sum out, in which order.

It depends on scopes and on what is observed, not on numbers: it serves again for other evidence on the same variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from cavity.discrete.exact.clique_tree import KEPT, CliqueTree, Scope, clique_tree
from cavity.discrete.exact.contraction import Step, size
from cavity.discrete.exact.planner import Output, Planner


class Program(NamedTuple):
    """Steps, each of which makes the table with the next number; the inputs have the first numbers.

    scalars: tables without variables whose product is the sum over everything. marginals: for every variable the table
    that is its marginal up to a factor, None where all states are alike. upward: how many steps the scalars need.
    log_count: log of the number of states of the variables that no table is left for when they are summed out.
    dropped: for every step the tables that no later one needs. entries: of all tables alive at the worst moment.
    """

    steps: list[Step]
    scalars: list[int]
    marginals: dict[int, int | None]
    upward: int
    log_count: float
    dropped: list[list[int]]
    entries: int


@lru_cache(KEPT)
def planned(
    scopes: tuple[Scope, ...], children: tuple[int, ...], states: tuple[tuple[int, int], ...], memory: float
) -> tuple[CliqueTree, Program]:
    """The tree and the program for factors with these scopes. children: what they are distributions of, −1 for none."""
    tree = clique_tree(scopes, states, memory, messages=2)
    return tree, program_of(tree, scopes, children, dict(states))


def program_of(
    tree: CliqueTree, scopes: Sequence[Scope], children: Sequence[int], states: Mapping[int, int]
) -> Program:
    """The program of a junction tree. scopes: of its factors; children: the variables they are distributions of."""
    planner = Planner(scopes, children, states)
    up: list[list[int]] = []
    for clique in tree.cliques:
        arriving = [*clique.held, *(t for child in clique.children for t in up[child])]
        up.append(planner.remove(arriving, frozenset(clique.separator)))
    scalars, upward = sorted(planner.scalars), len(planner.steps)
    log_count = math.fsum(math.log(count) for v, count in states.items() if v not in planner.summed)
    down: list[list[int]] = [[] for _ in tree.cliques]
    asked = smallest_cliques(tree)
    marginals: dict[int, int | None] = {}
    for index in reversed(range(len(tree.cliques))):
        children_here = tree.cliques[index].children
        outputs = [Output(frozenset(tree.cliques[child].separator), up[child]) for child in children_here]
        outputs += [Output(frozenset([v])) for v in asked[index]]
        found = planner.distribute([*tree.cliques[index].held, *down[index]], outputs)
        for child, tables in zip(children_here, found, strict=False):
            down[child] = tables
        for v, tables in zip(asked[index], found[len(children_here) :], strict=True):
            marginals[v] = planner.contract(sorted(tables), frozenset()) if tables else None
    dropped, entries = lifetimes(planner, len(scopes), scalars, marginals)
    return Program(planner.steps, scalars, marginals, upward, log_count, dropped, entries)


def smallest_cliques(tree: CliqueTree) -> list[list[int]]:
    """For every clique the variables that it is the smallest one to hold."""
    sizes = [math.prod(clique.shape) for clique in tree.cliques]
    place: dict[int, int] = {}
    for index, clique in enumerate(tree.cliques):
        for v in clique.variables:
            if v not in place or sizes[index] < sizes[place[v]]:
                place[v] = index
    found: list[list[int]] = [[] for _ in tree.cliques]
    for v, index in place.items():
        found[index].append(v)
    return found


def lifetimes(
    planner: Planner, inputs: int, scalars: Iterable[int], marginals: Mapping[int, int | None]
) -> tuple[list[list[int]], int]:
    """For every step the tables that no later one needs, and the entries of all tables alive at the worst moment."""
    last = {t: number for number, made in enumerate(planner.steps) for t in made.inputs}
    answers = {*scalars, *marginals.values()}
    dropped: list[list[int]] = [[] for _ in planner.steps]
    for t, number in last.items():
        if t >= inputs and t not in answers:
            dropped[number].append(t)
    alive = most = 0
    for number, made in enumerate(planner.steps):
        most = max(most, alive + made.entries)
        alive += size(planner.scopes[inputs + number], planner.states)
        alive -= sum(size(planner.scopes[t], planner.states) for t in dropped[number])
    return dropped, most
