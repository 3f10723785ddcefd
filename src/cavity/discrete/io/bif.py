"""Bayesian networks in the interchange format `.bif`.

A block `variable` names states. A block `probability ( child | parents )` gives a distribution of the child for every
combination of the parents' states: as rows `( states of the parents ) p, p;`, as a row `default p, p;` for combinations
without one, or as one `table`, in which the child runs slowest and the last parent fastest. Each becomes a factor with
the scope (child, parents…). Variables and states keep their names and the order of the text.
"""

import graphlib
import math
import re
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cavity.discrete.graph import TableGraph
from cavity.discrete.io.tokens import LARGEST_SCOPE, SMALL, error_at, quoted

#: published networks round their probabilities, some to two digits
LARGEST_ROUNDING = 0.05
SIGNS = "{}()[]|,;"
#: white space and comments, a quoted name, a sign, or a word; a word may hold single slashes and is ended by a comment
PIECE = re.compile(
    r"""(?P<gap>\s+|//[^\n]*|/\*.*?\*/)|"(?P<quoted>[^"\n]*)"|(?P<sign>[{}()\[\]|,;])|(?P<word>(?:(?!//|/\*)[^\s{}()\[\]|,;"])+)""",
    re.DOTALL,
)
#: the rest of a property, up to a semicolon that is not inside quotation marks
PROPERTY = re.compile(r'(?:"[^"]*"|[^";])*;')


class Header(NamedTuple):
    """The child of a probability block and its parents by number, their numbers of states, and the places of the words
    at the opening bracket and behind the opening brace."""

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    place: int
    body: int


class BifWords:
    """A place in the words of a text. Commas mean nothing and are left out; so are properties, wherever they stand."""

    def __init__(self, text: str) -> None:
        self.text = text
        # Numbers and no objects: a list of the words takes many times the memory of the text.
        self.offsets, self.ends, self.is_sign = array("q"), array("q"), bytearray()
        self.place = offset = 0
        while offset < len(self.text):
            match = PIECE.match(self.text, offset)
            if match is None:
                what = "comment" if self.text[offset] == "/" else "quotation"
                raise error_at(self.text, offset, f"a {what} is not closed.")
            start, offset = offset, match.end()
            if match["word"] == "property" and self.at_statement():
                rest = PROPERTY.match(self.text, offset)
                if rest is None:
                    raise error_at(self.text, start, "a property has no semicolon.")
                offset = rest.end()
            elif match["gap"] is None and match["sign"] != ",":
                begin, end = match.span("quoted" if match["quoted"] is not None else 0)
                self.offsets.append(begin)
                self.ends.append(end)
                self.is_sign.append(match["sign"] is not None)

    def piece(self, place: int) -> str:
        """A word, without the quotation marks, or a sign."""
        return self.text[self.offsets[place] : self.ends[place]]

    def at_statement(self) -> bool:
        """Whether what comes next begins a statement: elsewhere, property may be a name."""
        return not self.ends or (bool(self.is_sign[-1]) and self.piece(-1) in "{};")

    def ended(self) -> bool:
        """Whether no word is left."""
        return self.place >= len(self.ends)

    def error(self, place: int, sentence: str) -> ValueError:
        """The error that what stands at a place is the reason of."""
        offset = self.offsets[min(place, len(self.offsets) - 1)] if self.offsets else 0
        return error_at(self.text, offset, sentence)

    def unexpected(self, wanted: str) -> ValueError:
        """The error that something else should stand here."""
        if self.ended():
            return self.error(self.place, f"the text ends where {wanted} should stand.")
        return self.error(self.place, f"expected {wanted}; found {quoted(self.piece(self.place))}.")

    def accept(self, piece: str) -> bool:
        """Go on if this is what stands here."""
        here = (
            not self.ended() and self.piece(self.place) == piece and bool(self.is_sign[self.place]) == (piece in SIGNS)
        )
        self.place += here
        return here

    def expect(self, *pieces: str) -> None:
        """Go on if these stand here, else refuse."""
        for piece in pieces:
            if not self.accept(piece):
                raise self.unexpected(piece)

    def attempt(self, place: int, call: Callable[..., Any], *arguments: Any) -> Any:
        """What a call returns; what it refuses is the fault of what stands at a place."""
        try:
            return call(*arguments)
        except ValueError as error:
            raise self.error(place, str(error)) from None

    def word(self, wanted: str) -> str:
        """The word that stands here."""
        if self.ended() or self.is_sign[self.place]:
            raise self.unexpected(wanted)
        self.place += 1
        return self.piece(self.place - 1)

    def words_until(self, sign: str) -> list[str]:
        """All words up to a sign."""
        found = []
        while not self.accept(sign):
            found.append(self.word(sign))
        return found

    def skip_until(self, sign: str, wanted: str) -> None:
        """Go behind the next such sign."""
        while not self.accept(sign):
            if self.ended():
                raise self.unexpected(wanted)
            self.place += 1

    def probabilities(self, count: int) -> np.ndarray:
        """So many numbers between 0 and 1, up to a semicolon."""
        start = self.place
        words = self.words_until(";")
        if len(words) != count:
            raise self.error(start, f"expected {count} probabilities; found {len(words)}.")
        for k, word in enumerate(words):
            try:
                inside = "_" not in word and 0 <= float(word) <= 1
            except ValueError:
                inside = False
            if not inside:
                raise self.error(start + k, f"expected a probability; found {quoted(word)}.")
        return np.array([float(word) for word in words])


def parse_bif(text: str, graph_type: type[Any] = TableGraph, limit: int = SMALL) -> Any:
    """The graph of a `.bif` text. Variables may be declared behind the tables that use them.

    limit: bytes that its tables may take.
    """
    words = BifWords(text)
    graph = graph_type()
    tables = []
    while not words.ended():
        word = words.word("network, variable or probability")
        if word == "network":
            words.skip_until("{", "{ of the network")
            words.expect("}")
        elif word == "variable":
            parse_variable(words, graph)
        elif word == "probability":
            tables.append(words.place)
            words.skip_until("}", "} of a probability block")
        else:
            raise words.error(words.place - 1, f"expected network, variable or probability; found {quoted(word)}.")
    if not len(graph.variables):
        raise words.error(words.place, "the text declares no variable.")
    cardinalities = graph.cardinalities.tolist()
    headers = [parse_header(words, graph, place, cardinalities) for place in tables]
    check_network(words, graph, headers, limit)
    for header in headers:
        graph.add_factor(header.scope, parse_table(words, graph, header))
    return graph


def parse_variable(words: BifWords, graph: TableGraph) -> None:
    """variable NAME { type discrete [ n ] { state, state }; }"""
    place, name = words.place, words.word("the name of a variable")
    words.expect("{", "type", "discrete", "[")
    declared, where = words.word("a number of states"), words.place - 1
    words.expect("]", "{")
    states = words.words_until("}")
    words.accept(";")
    words.expect("}")
    if declared != str(len(states)):
        found = f"found {quoted(declared)} as their number"
        raise words.error(where, f"{quoted(name)} names {len(states)} states; {found}.")
    words.attempt(place, graph.add_variable, states, name)


def parse_header(words: BifWords, graph: TableGraph, place: int, cardinalities: list[int]) -> Header:
    """( child | parent, parent ): the bar may be missing, as in older files."""
    words.place = place
    words.expect("(")
    child = words.word("the name of a variable")
    words.accept("|")
    names = [child, *words.words_until(")")]
    scope = [words.attempt(place, graph.variables.number, name) for name in names]
    words.expect("{")
    if len(set(scope)) < len(scope):
        raise words.error(place, f"the table of {quoted(child)} names a variable twice.")
    if len(scope) > LARGEST_SCOPE:
        raise words.error(place, f"a table has at most {LARGEST_SCOPE} variables; found {len(scope)}.")
    return Header(tuple(scope), tuple(cardinalities[variable] for variable in scope), place, words.place)


def check_network(words: BifWords, graph: TableGraph, headers: list[Header], limit: int) -> None:
    """Every variable has one table, none is its own ancestor, and the tables fit into memory."""
    name = graph.variables.name
    tables: dict[int, Header] = {}
    total = 0
    for header in headers:
        child = header.scope[0]
        if child in tables:
            raise words.error(header.place, f"{quoted(name(child))} has two tables.")
        tables[child] = header
        total += 8 * math.prod(header.shape)
        if total > limit:
            found = f"the tables up to here take {total} bytes"
            raise words.error(header.place, f"{found}, above the limit max_bytes={limit}.")
    for number in range(len(graph.variables)):
        if number not in tables:
            raise words.error(words.place, f"{quoted(name(number))} has no table.")
    try:
        graphlib.TopologicalSorter({child: header.scope[1:] for child, header in tables.items()}).prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1]
        path, place = " → ".join(quoted(name(number)) for number in cycle[:6]), tables[cycle[-1]].place
        raise words.error(place, f"variables must not be their own ancestors; found {path}.") from None


def parse_table(words: BifWords, graph: TableGraph, header: Header) -> np.ndarray:
    """The probabilities of a block, with an axis for the child and one for each parent."""
    shape = header.shape
    table = np.full((shape[0], math.prod(shape[1:])), np.nan)
    default, whole = None, False
    words.place = header.body
    while not words.accept("}"):
        start = words.place
        if words.accept("("):
            labels = words.words_until(")")
            column = parent_column(words, graph, header, labels, start)
            row = words.probabilities(shape[0])
            if not np.isnan(table[0, column]):
                raise words.error(start, f"the row ({quoted(', '.join(labels))}) is there twice.")
            table[:, column] = row
        elif words.accept("table") and not whole and start == header.body:
            table, whole = words.probabilities(table.size).reshape(table.shape), True
        elif words.accept("default") and default is None and not whole:
            default = words.probabilities(shape[0])
        else:
            raise words.error(start, f"expected a row, one table or one default; found {quoted(words.piece(start))}.")
    missing = np.isnan(table[0])
    if missing.any() and default is None:
        states = np.unravel_index(int(np.argmax(missing)), shape[1:])
        labels = [graph.variables.states(v)[k] for v, k in zip(header.scope[1:], states, strict=True)]
        what = f"no row for ({', '.join(labels)})" if labels else "no row"
        raise words.error(words.place - 1, f"the table of {quoted(graph.variables.name(header.scope[0]))} has {what}.")
    table[:, missing] = 0 if default is None else default[:, None]
    off = np.abs(table.sum(axis=0) - 1)
    if (off > LARGEST_ROUNDING).any():
        child = quoted(graph.variables.name(header.scope[0]))
        found = table.sum(axis=0)[np.argmax(off)]
        raise words.error(header.place, f"probabilities of {child} must sum to 1 in every row; found {found:.6g}.")
    return table.reshape(shape)


def parent_column(words: BifWords, graph: TableGraph, header: Header, labels: list[str], place: int) -> int:
    """The column of a combination of the parents' states."""
    if len(labels) != len(header.scope) - 1:
        raise words.error(place, f"a row must name the states of {len(header.scope) - 1} parents; found {len(labels)}.")
    column = 0
    for parent, count, label in zip(header.scope[1:], header.shape[1:], labels, strict=True):
        column = column * count + words.attempt(place, graph.variables.state, parent, label)
    return column
