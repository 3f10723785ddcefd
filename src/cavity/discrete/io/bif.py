"""Bayesian networks in the interchange format `.bif`.

A block `variable` names states. A block `probability ( child | parents )` gives a distribution of the child for every
combination of the parents' states: as rows `( states of the parents ) p, p;`, as a row `default p, p;` for combinations
without one, or as one `table`, in which the child runs slowest and the last parent fastest. Each becomes a factor with
the scope (child, parents…). Variables and states keep their names and the order of the text.
"""

import graphlib
import math
from typing import NamedTuple

import numpy as np

from cavity.discrete.graph import DiscreteGraph
from cavity.discrete.io.bif_lexer import Reader
from cavity.discrete.io.tokens import LARGEST, LARGEST_SCOPE, quoted

#: published networks round their probabilities, some to two digits
LARGEST_ROUNDING = 0.05


class Header(NamedTuple):
    """The child of a probability block and its parents by number, their numbers of states, and the places of the words
    at the opening bracket and behind the opening brace."""

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    place: int
    body: int


def parse_bif(text: str) -> DiscreteGraph:
    """The graph of a `.bif` text. Variables may be declared behind the tables that use them."""
    reader = Reader(text)
    graph = DiscreteGraph()
    tables = []
    while not reader.ended():
        word = reader.word("network, variable or probability")
        if word == "network":
            reader.skip_until("{", "{ of the network")
            reader.expect("}")
        elif word == "variable":
            parse_variable(reader, graph)
        elif word == "probability":
            tables.append(reader.place)
            reader.skip_until("}", "} of a probability block")
        else:
            raise reader.error(reader.place - 1, f"expected network, variable or probability; found {quoted(word)}.")
    if not len(graph.variables):
        raise reader.error(reader.place, "the text declares no variable.")
    cardinalities = graph.cardinalities.tolist()
    headers = [parse_header(reader, graph, place, cardinalities) for place in tables]
    check_network(reader, graph, headers)
    for header in headers:
        graph.add_factor(header.scope, parse_table(reader, graph, header))
    return graph


def parse_variable(reader: Reader, graph: DiscreteGraph) -> None:
    """variable NAME { type discrete [ n ] { state, state }; }"""
    place, name = reader.place, reader.word("the name of a variable")
    reader.expect("{")
    reader.expect("type")
    reader.expect("discrete")
    reader.expect("[")
    declared, where = reader.word("a number of states"), reader.place - 1
    reader.expect("]")
    reader.expect("{")
    states = reader.words_until("}")
    reader.accept(";")
    reader.expect("}")
    if declared != str(len(states)):
        raise reader.error(
            where, f"{quoted(name)} names {len(states)} states; found {quoted(declared)} as their number."
        )
    try:
        graph.add_variable(states, name)
    except ValueError as error:
        raise reader.error(place, str(error)) from None


def parse_header(reader: Reader, graph: DiscreteGraph, place: int, cardinalities: list[int]) -> Header:
    """( child | parent, parent ): the bar may be missing, as in older files."""
    reader.place = place
    reader.expect("(")
    child = reader.word("the name of a variable")
    reader.accept("|")
    names = [child, *reader.words_until(")")]
    scope = []
    for name in names:
        try:
            scope.append(graph.variables.number(name))
        except ValueError as error:
            raise reader.error(place, str(error)) from None
    reader.expect("{")
    if len(set(scope)) < len(scope):
        raise reader.error(place, f"the table of {quoted(child)} names a variable twice.")
    if len(scope) > LARGEST_SCOPE:
        raise reader.error(place, f"a table has at most {LARGEST_SCOPE} variables; found {len(scope)}.")
    return Header(tuple(scope), tuple(cardinalities[variable] for variable in scope), place, reader.place)


def check_network(reader: Reader, graph: DiscreteGraph, headers: list[Header]) -> None:
    """Every variable has one table, nobody is its own ancestor, and the tables fit into memory."""
    name = graph.variables.name
    tables: dict[int, Header] = {}
    total = 0
    for header in headers:
        child = header.scope[0]
        if child in tables:
            raise reader.error(header.place, f"{quoted(name(child))} has two tables.")
        tables[child] = header
        total += math.prod(header.shape)
        if total > LARGEST:
            raise reader.error(header.place, f"the tables up to here have {total} entries, above the limit {LARGEST}.")
    for number in range(len(graph.variables)):
        if number not in tables:
            raise reader.error(reader.place, f"{quoted(name(number))} has no table.")
    try:
        graphlib.TopologicalSorter({child: header.scope[1:] for child, header in tables.items()}).prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1]
        path = " → ".join(quoted(name(number)) for number in cycle[:6])
        raise reader.error(
            tables[cycle[-1]].place, f"variables must not be their own ancestors; found {path}."
        ) from None


def parse_table(reader: Reader, graph: DiscreteGraph, header: Header) -> np.ndarray:
    """The probabilities of a block, with an axis for the child and one for each parent."""
    shape = header.shape
    table = np.full((shape[0], math.prod(shape[1:])), np.nan)
    default, whole = None, False
    reader.place = header.body
    while not reader.accept("}"):
        start = reader.place
        if reader.accept("("):
            labels = reader.words_until(")")
            column = parent_column(reader, graph, header, labels, start)
            row = reader.probabilities(shape[0])
            if not np.isnan(table[0, column]):
                raise reader.error(start, f"the row ({quoted(', '.join(labels))}) is there twice.")
            table[:, column] = row
        elif reader.accept("table") and not whole and start == header.body:
            table, whole = reader.probabilities(table.size).reshape(table.shape), True
        elif reader.accept("default") and default is None and not whole:
            default = reader.probabilities(shape[0])
        else:
            raise reader.error(start, f"expected a row, one table or one default; found {quoted(reader.at(start))}.")
    missing = np.isnan(table[0])
    if missing.any() and default is None:
        states = np.unravel_index(int(np.argmax(missing)), shape[1:])
        labels = [graph.variables.states(v)[k] for v, k in zip(header.scope[1:], states, strict=True)]
        what = f"no row for ({', '.join(labels)})" if labels else "no row"
        raise reader.error(
            reader.place - 1, f"the table of {quoted(graph.variables.name(header.scope[0]))} has {what}."
        )
    table[:, missing] = 0 if default is None else default[:, None]
    off = np.abs(table.sum(axis=0) - 1)
    if (off > LARGEST_ROUNDING).any():
        child = quoted(graph.variables.name(header.scope[0]))
        found = table.sum(axis=0)[np.argmax(off)]
        raise reader.error(header.place, f"probabilities of {child} must sum to 1 in every row; found {found:.6g}.")
    return table.reshape(shape)


def parent_column(reader: Reader, graph: DiscreteGraph, header: Header, labels: list[str], place: int) -> int:
    """The column of a combination of the parents' states."""
    if len(labels) != len(header.scope) - 1:
        raise reader.error(
            place, f"a row must name the states of {len(header.scope) - 1} parents; found {len(labels)}."
        )
    column = 0
    for parent, count, label in zip(header.scope[1:], header.shape[1:], labels, strict=True):
        try:
            column = column * count + graph.variables.state(parent, label)
        except ValueError as error:
            raise reader.error(place, str(error)) from None
    return column
