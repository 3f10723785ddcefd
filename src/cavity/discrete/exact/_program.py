"""A program for all marginals of a discrete graph: which tables to multiply and what to sum out, in which order.

It depends on scopes and on what is observed, not on numbers: it serves again for other evidence on the same variables.
It is the messages of a junction tree worked out by scopes alone, kept as lists of tables that are multiplied only when
a variable of theirs is summed out (lazy propagation, Madsen and Jensen 1999). A table that is a distribution of
variables that were not asked for sums to one and is left out, so that messages against the arrows of a network are
uniform where nothing was observed below. What is sent to several neighbours is worked out by halves: first without the
one half's messages, then without the other's.

Small tables are multiplied and summed in one call. Of large ones two at a time are contracted as stacks of matrices,

    R[b, m, n] = Σ_k A[b, m, k] B[b, k, n],

so that the table over all their variables, the largest by far, is never written down. Their axes are moved first so
that the longest of b, m and n comes last, where loops are fast. (A library for matrices is no faster here: k is short,
and its threads wait for each other.)
"""

from __future__ import annotations

import math
import string
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cavity.discrete.exact._clique_tree import KEPT, CliqueTree, Scope, clique_tree

#: entries of the table over all variables up to which everything is multiplied and summed at once
SMALL = 2048
LETTERS = string.ascii_letters
#: entries of a table over all variables up to which it pays to sum out several of them at once
TINY = 256
#: tables that are multiplied at once
FEW = 6


class Stacks(NamedTuple):
    """How two tables become stacks of matrices: which is A, order of their axes, shapes; then the shape of R."""

    swapped: bool
    axes: tuple[tuple[int, ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]


class Contraction(NamedTuple):
    """One product of tables, by number, with variables summed out.

    terms: states that are summed into one entry. entries: of the tables it makes, copies included.
    """

    inputs: tuple[int, ...]
    subscripts: str
    stacks: Stacks | None
    terms: int
    entries: int

    def value(self, tables: Sequence[np.ndarray]) -> np.ndarray:
        """The table that results."""
        if self.stacks is None:
            return np.einsum(self.subscripts, *tables)
        ordered = tables[::-1] if self.stacks.swapped else tables
        parts = zip(ordered, self.stacks.axes, self.stacks.shapes, strict=True)
        first, second = (table.transpose(axes).reshape(shape) for table, axes, shape in parts)
        return np.einsum(self.subscripts, first, second).reshape(self.stacks.shape)


def size(variables: Iterable[int], states: Mapping[int, int]) -> int:
    """Entries of a table over these variables."""
    return math.prod([states[v] for v in variables])


def plan_contraction(
    inputs: Sequence[int], scopes: Sequence[Scope], gone: Collection[int], states: Mapping[int, int]
) -> tuple[Contraction, Scope]:
    """The step that multiplies tables with these scopes and sums `gone` out, and the scope of its result."""
    letters: dict[int, str] = {}
    words: list[str] = []
    for scope in scopes:
        for v in scope:
            if v not in letters:
                letters[v] = LETTERS[len(letters)]
        words.append("".join([letters[v] for v in scope]))
    terms = size(gone, states)
    if len(scopes) == 2 and size(letters, states) > SMALL:
        subscripts, stacks, kept = matrix_stacks(scopes[0], scopes[1], gone, states)
        copies = size(scopes[0], states) + size(scopes[1], states)
        return Contraction(tuple(inputs), subscripts, stacks, terms, copies + size(kept, states)), kept
    kept = tuple([v for v in letters if v not in gone])
    subscripts = f"{','.join(words)}->{''.join([letters[v] for v in kept])}"
    return Contraction(tuple(inputs), subscripts, None, terms, size(kept, states)), kept


def matrix_stacks(
    one: Scope, other: Scope, gone: Collection[int], states: Mapping[int, int]
) -> tuple[str, Stacks, Scope]:
    """Two tables as stacks of matrices, how they are multiplied, and the scope of the result. Every variable of `gone`
    is in both.
    """
    alone = [size(set(scope).difference(rest), states) for scope, rest in ((one, other), (other, one))]
    swapped = alone[0] > alone[1]
    first, second = (other, one) if swapped else (one, other)
    groups = {
        "b": [v for v in second if v in first and v not in gone],
        "k": [v for v in second if v in gone],
        "m": [v for v in first if v not in second],
        "n": [v for v in second if v not in first],
    }
    lengths = {name: size(own, states) for name, own in groups.items()}
    orders = ("bmk", "bkn", "bmn") if lengths["n"] >= lengths["b"] else ("mkb", "knb", "mnb")
    wanted = [[v for group in order for v in groups[group]] for order in orders]
    axes = tuple(tuple(map(own.index, order)) for own, order in zip((first, second), wanted, strict=False))
    shapes = tuple(tuple(lengths[group] for group in order) for order in orders[:2])
    stacks = Stacks(swapped, axes, shapes, tuple(states[v] for v in wanted[2]))
    return "{},{}->{}".format(*orders), stacks, tuple(wanted[2])


class Program(NamedTuple):
    """Steps, each of which makes the table with the next number; the inputs have the first numbers.

    scalars: tables without variables whose product is the sum over everything. marginals: for every variable the table
    that is its marginal up to a factor, None where all states are alike. upward: how many steps the scalars need.
    log_count: log of the number of states of the variables that no table is left for when they are summed out.
    dropped: for every step the tables that no later one needs. entries: of all tables alive at the worst moment.
    """

    steps: list[Contraction]
    scalars: list[int]
    marginals: dict[int, int | None]
    upward: int
    log_count: float
    dropped: list[list[int]]
    entries: int


class Output(NamedTuple):
    """What a clique is asked for: tables over these variables, made without those received from the one who asks."""

    variables: frozenset[int]
    received: Sequence[int] = ()


class Planner:
    """The tables there are so far: scopes, and the heads of those that are distributions p(heads | the others)."""

    def __init__(self, scopes: Iterable[Scope], children: Iterable[int], states: Mapping[int, int]) -> None:
        self.scopes = list(scopes)
        self.heads = [frozenset([child]) if child >= 0 else frozenset[int]() for child in children]
        self.states = states
        self.steps: list[Contraction] = []
        self.known: dict[tuple[frozenset[int], frozenset[int]], int] = {}
        self.summed: set[int] = set()
        self.scalars: set[int] = set()

    def combine(self, tables: Sequence[int], gone: frozenset[int]) -> int | None:
        """The product with `gone` summed out; None where that is one for all states."""
        heads = self.joint_heads(tables)
        if heads and heads <= gone:
            self.summed |= heads
            return None
        self.summed |= gone
        # Summed over what it is conditional on, it would sum to more than one.
        return self.contract(tables, gone, heads - gone if gone <= heads else frozenset())

    def joint_heads(self, tables: Sequence[int]) -> frozenset[int]:
        """Heads of the product where it is a distribution: its tables can be summed out one after another."""
        if not all(self.heads[t] for t in tables):
            return frozenset()
        left = list(tables)
        while left:
            free = next(
                (t for t in left if not any(self.heads[t].intersection(self.scopes[u]) for u in left if u != t)), None
            )
            if free is None:
                return frozenset()
            left.remove(free)
        return frozenset[int]().union(*(self.heads[t] for t in tables))

    def contract(self, tables: Sequence[int], gone: frozenset[int], heads: frozenset[int] = frozenset()) -> int:
        """The product with `gone` summed out; of large tables two at a time, first those with the smallest result."""
        if len(tables) == 1 and not gone:
            return tables[0]
        key = (frozenset(tables), gone)
        if key in self.known:
            return self.known[key]
        left = self.gather_small(tables) if len(tables) > FEW else list(tables)
        while len(left) > 2 and self.joint_size(left) > SMALL:
            pairs = [(a, b) for k, a in enumerate(left) for b in left[:k]]
            first, second = min(pairs, key=lambda pair: self.growth(left, pair, gone))
            done = self.last_seen(left, (first, second), gone)
            left = [t for t in left if t not in (first, second)]
            left.append(self.emit([first, second], done))
            gone -= done
        self.known[key] = self.emit(left, gone, heads)
        return self.known[key]

    def gather_small(self, tables: Iterable[int]) -> list[int]:
        """The tables with small ones multiplied into each other, as long as the products stay small."""
        bundles: list[list[int]] = []
        joint: set[int] = set()
        for t in sorted(tables, key=lambda t: (self.scopes[t], t)):
            more = joint.union(self.scopes[t])
            if bundles and (len(more) == len(joint) or size(more, self.states) <= SMALL):
                bundles[-1].append(t)
                joint = more
            else:
                bundles.append([t])
                joint = set(self.scopes[t])
        for place, own in enumerate(bundles):
            while len(own) > 1:
                own = [*own[FEW:], self.emit(own[:FEW], frozenset())]
            bundles[place] = own
        return [own[0] for own in bundles]

    def last_seen(self, tables: Iterable[int], pair: tuple[int, int], gone: frozenset[int]) -> frozenset[int]:
        """Those of `gone` that are in this pair of tables and in no other."""
        others = {v for t in tables if t not in pair for v in self.scopes[t]}
        return frozenset(v for t in pair for v in self.scopes[t] if v in gone and v not in others)

    def growth(self, tables: Iterable[int], pair: tuple[int, int], gone: frozenset[int]) -> int:
        """Entries that multiplying a pair adds."""
        result = {v for t in pair for v in self.scopes[t]} - self.last_seen(tables, pair, gone)
        return size(result, self.states) - sum(size(self.scopes[t], self.states) for t in pair)

    def emit(self, tables: list[int], gone: frozenset[int], heads: frozenset[int] = frozenset()) -> int:
        """One step. What only one of two large tables has is summed out of it first."""
        if len(tables) == 2 and self.joint_size(tables) > SMALL:
            for place in (0, 1):
                alone = gone.intersection(self.scopes[tables[place]]).difference(self.scopes[tables[1 - place]])
                if alone:
                    tables[place] = self.emit([tables[place]], alone)
                    gone -= alone
        made, scope = plan_contraction(tables, [self.scopes[t] for t in tables], gone, self.states)
        self.steps.append(made)
        self.scopes.append(scope)
        self.heads.append(heads)
        return len(self.scopes) - 1

    def joint_size(self, tables: Iterable[int]) -> int:
        """Entries of the table over all variables of these."""
        return size({v for t in tables for v in self.scopes[t]}, self.states)

    def remove(self, tables: Iterable[int], kept: frozenset[int]) -> list[int]:
        """Sum all variables but `kept` out of a product; what is left of it."""
        left = set(tables)
        if all(kept.issuperset(self.scopes[t]) for t in left):
            return self.merge(left)
        holders: dict[int, set[int]] = {}
        for t in left:
            for v in self.scopes[t]:
                holders.setdefault(v, set()).add(t)
        doubtful = [t for t in left if self.heads[t]]
        while doubtful:
            t = doubtful.pop()
            if t in left and all(v not in kept and len(holders[v]) == 1 for v in self.heads[t]):
                left.discard(t)
                self.summed |= self.heads[t]
                for v in self.scopes[t]:
                    holders[v].discard(t)
                    doubtful.extend(u for u in holders[v] if v in self.heads[u])
        waiting = {v for v, own in holders.items() if own and v not in kept}
        while waiting:
            used = self.next_used(waiting, holders)
            gone = frozenset(v for v in waiting if holders[v] <= used)
            made = self.combine(sorted(used), gone)
            left -= used
            if made is not None:
                (left if self.scopes[made] else self.scalars).add(made)
            for v in {v for t in used for v in self.scopes[t]}:
                holders[v] -= used
                if made is not None and v in self.scopes[made]:
                    holders[v].add(made)
            waiting = {v for v in waiting if holders[v]}
        return self.merge(left)

    def next_used(self, waiting: set[int], holders: Mapping[int, set[int]]) -> set[int]:
        """The tables that are multiplied next: those of the variable with the smallest table over all of them, with
        those of others that make it no larger or leave it tiny.
        """
        if len(waiting) == 1:
            return set(holders[next(iter(waiting))])
        costs = {v: self.joint_size(holders[v]) for v in waiting}
        order = sorted(waiting, key=lambda v: (costs[v], v))
        used = set(holders[order[0]])
        joint = {v for t in used for v in self.scopes[t]}
        for v in order[1:]:
            if not holders[v].isdisjoint(used):
                more = joint.union(*(self.scopes[t] for t in holders[v]))
                if len(more) == len(joint) or size(more, self.states) <= TINY:
                    used |= holders[v]
                    joint = more
        return used

    def merge(self, tables: Collection[int]) -> list[int]:
        """Tables that are no distributions multiplied into those that hold their variables: no table becomes larger."""
        found = [t for t in tables if self.heads[t]]
        others = [t for t in tables if not self.heads[t]]
        if len(others) < 2:
            return found + others
        groups: list[list[int]] = []
        for t in sorted(others, key=lambda t: (-len(self.scopes[t]), t)):
            own = set(self.scopes[t])
            holder = next((group for group in groups if own.issubset(self.scopes[group[0]])), None)
            if holder is None:
                groups.append([t])
            else:
                holder.append(t)
        return found + [self.contract(group, frozenset()) for group in groups]

    def distribute(self, tables: list[int], outputs: Sequence[Output]) -> list[list[int]]:
        """For every output the tables over its variables, from `tables` and from what all other outputs sent."""
        if len(outputs) < 2:
            return [self.remove(tables, output.variables) for output in outputs]
        middle = len(outputs) // 2
        found: list[list[int]] = []
        for here, there in ((outputs[:middle], outputs[middle:]), (outputs[middle:], outputs[:middle])):
            arriving = [*tables, *(t for output in there for t in output.received)]
            kept = frozenset(v for output in here for v in output.variables)
            found += self.distribute(self.remove(arriving, kept), here)
        return found


@lru_cache(KEPT)
def plan_program(
    scopes: tuple[Scope, ...], children: tuple[int, ...], states: tuple[tuple[int, int], ...], memory: float
) -> tuple[CliqueTree, Program]:
    """The tree and the program for factors with these scopes. children: what they are distributions of, −1 for none."""
    tree = clique_tree(scopes, states, memory, messages=2)
    planner = Planner(scopes, children, dict(states))
    up: list[list[int]] = []
    for clique in tree.cliques:
        arriving = [*clique.held, *(t for child in clique.children for t in up[child])]
        up.append(planner.remove(arriving, frozenset(clique.separator)))
    scalars, upward = sorted(planner.scalars), len(planner.steps)
    log_count = math.fsum(math.log(count) for v, count in states if v not in planner.summed)
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
    return tree, Program(planner.steps, scalars, marginals, upward, log_count, dropped, entries)


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
