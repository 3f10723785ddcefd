"""Texts and their words, and what .uai and .fg files are made of: numbers, and tables as flat arrays of plain weights.

A file of a million factors is checked and stored without a loop over them.
"""

import gzip
import math
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity.discrete.graph import TableGraph
from cavity.discrete.tables import Tables, log_weights

#: words, numbers and lists of states are as long as a file makes them; sentences about them are not
LONGEST_QUOTE, LONGEST_SENTENCE = 40, 200
#: a file may unpack to this many bytes, and its tables may take as many, or this many times its size if that is more
SMALL, EXPANSION = 2**26, 32
#: words cut from a text, and converted to numbers, at a time
STEP = 2**14
#: NumPy's arrays have 64 axes, one of which runs over the factors
LARGEST_SCOPE = 63

#: a path, or a text itself
Source = str | os.PathLike[str]


class Text(NamedTuple):
    """A text, the path of its file, empty where the source was the text itself, and what may be made of it.

    limit: bytes that its tables may take, and that a packed file may unpack to.
    """

    content: str
    path: str
    limit: int


def size_limit(size: int, max_bytes: int | None) -> int:
    """What a file or a text of this size may become."""
    return max(SMALL, EXPANSION * size) if max_bytes is None else max_bytes


def text_of(source: Source, max_bytes: int | None = None) -> Text:
    """A text from a file, or the source itself where it has a newline."""
    if isinstance(source, str) and ("\n" in source or not source):
        return Text(source, "", size_limit(len(source), max_bytes))
    path = Path(source)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {quoted(path)}; a text, not a path, is one that has a newline.")
    limit = size_limit(os.path.getsize(path), max_bytes)
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            data = file.read(limit + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be unpacked: {str(error).rstrip('.')}.") from None
    if len(data) > limit:
        hint = "; unpack it if it is to be trusted" if path.suffix == ".gz" and max_bytes is None else ""
        raise ValueError(f"{path} has more bytes than the limit, max_bytes={limit}{hint}.")
    try:
        content = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        return Text(content, os.fspath(source), limit)
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise ValueError(f"{path}: line {line}: found a byte 0x{byte:02x}, which is no UTF-8 text.") from None


class Words:
    """The words of a text, cut out when they are asked for: as a list they take thirty times the memory of the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        solid = ~BLANK[np.frombuffer(text.encode("ascii"), np.uint8)]
        solid[1:] &= ~solid[:-1]
        self.starts = np.flatnonzero(solid)
        self.first, self.near = 0, self.cut(0, STEP)

    def __len__(self) -> int:
        return len(self.starts)

    def cut(self, first: int, end: int) -> list[str]:
        """The words from one up to another one."""
        places = self.starts[first : end + 1]
        stop = places[end - first] if len(places) > end - first else len(self.text)
        return self.text[places[0] : stop].split() if len(places) else []

    def __getitem__(self, k: int) -> str:
        if not 0 <= k - self.first < len(self.near):
            self.first, self.near = k, self.cut(k, k + STEP)
        return self.near[k - self.first]

    def at(self, where: range | np.ndarray) -> Iterator[list[str]]:
        """The words at places that ascend, some at a time."""
        while len(where):
            first = int(where[0])
            own = where[: STEP if isinstance(where, range) else int(np.searchsorted(where, first + STEP))]
            near, where = self.cut(first, first + STEP), where[len(own) :]
            yield near[: len(own)] if isinstance(own, range) else [near[k] for k in (own - first).tolist()]


#: Python would read 1_0 as ten, and digits of other scripts as digits
STRANGE, SOLID = re.compile("[_\x80-\U0010ffff]"), re.compile(r"\S*", re.ASCII)
#: which bytes are white space
BLANK = np.array([chr(code).isspace() for code in range(128)])


class Tokens:
    """The words of a text, whose first is one of `heads`. Lines are counted only where something is wrong with one."""

    def __init__(self, text: str, *heads: str) -> None:
        self.text = text
        if (strange := STRANGE.search(text)) is not None:
            start = max(text.rfind(blank, 0, strange.start()) for blank in " \t\n\f\v") + 1
            raise error_at(
                text, start, f"expected a number; found {quoted(SOLID.findall(text, start, start + 99)[0])}."
            )
        self.words = Words(text)
        if heads and (not len(self.words) or self.words[0] not in heads):
            raise self.unexpected(0, " or ".join(heads))

    def error(self, k: int, sentence: str) -> ValueError:
        """The error that word k is the reason of; behind the last word, the last one."""
        starts = self.words.starts
        return error_at(self.text, int(starts[max(0, min(k, len(starts) - 1))]) if len(starts) else 0, sentence)

    def unexpected(self, k: int, wanted: str) -> ValueError:
        """The error that word k is not what should stand there, or that the text ends before it."""
        if k >= len(self.words):
            return self.error(k, f"the text ends where {wanted} should stand.")
        return self.error(k, f"expected {wanted}; found {quoted(self.words[k])}.")

    def integer(self, k: int, what: str, least: int = 0) -> int:
        """Word k as a whole number."""
        try:
            found = int(self.words[k])
        except (IndexError, ValueError):
            raise self.unexpected(k, f"{what}, a whole number") from None
        if found < least:
            raise self.error(k, f"{what} must be at least {least}; found {found}.")
        return found

    def count(self, k: int, what: str, words_each: int = 1) -> int:
        """Word k as the number of things that follow, each of so many words at least: no more than there are words."""
        found = self.integer(k, what)
        left = len(self.words) - k - 1
        if found * words_each > left:
            raise self.error(k, f"{what} is {found}, but only {left} words follow.")
        return found

    def array(self, where: range | np.ndarray, what: str, kind: type = int, least: int = 0) -> np.ndarray:
        """Words at these places, which ascend, as numbers of a kind, int or float, finite and at least `least`."""
        own, place = self.words, 0
        if len(where) and where[-1] >= len(own):
            raise self.unexpected(len(own), what)
        found: np.ndarray | None = np.empty(len(where), kind)
        try:
            for words in own.at(where):
                found[place : place + len(words)] = list(map(kind, words))
                place += len(words)
        except (ValueError, OverflowError):
            found = None
        if found is None or not ((found >= least) & (found < np.inf)).all():
            for k in map(int, where):
                if kind is float and not 0 <= self.number(k, what) < math.inf:
                    raise self.error(k, f"{what} must be finite and not negative; found {quoted(own[k])}.")
                if kind is int and abs(self.integer(k, what, least)) >= 2**63:
                    raise self.error(k, f"{what} is too large; found {quoted(own[k])}.")
        return np.asarray(found)

    def number(self, k: int, what: str) -> float:
        """Word k as a number."""
        try:
            return float(self.words[k])
        except (IndexError, ValueError):
            raise self.unexpected(k, f"{what}, a number") from None

    def end(self, k: int) -> None:
        """Nothing may follow."""
        if k < len(self.words):
            raise self.error(k, f"the text should end here; found {quoted(self.words[k])}.")


def error_at(text: str, offset: int, sentence: str) -> ValueError:
    """An error with the line of a place in a text, counted from 1."""
    short = sentence if len(sentence) <= LONGEST_SENTENCE else sentence[:LONGEST_SENTENCE] + "…."
    return ValueError(f"line {text.count(chr(10), 0, offset) + 1}: {short}")


def quoted(word: Any) -> str:
    """A word as a sentence shows it: files are not trusted to have short ones."""
    text = str(word)
    return repr(text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "…")


class Scopes(NamedTuple):
    """lengths: (n,), how many variables every factor has. members: their numbers, one factor after another."""

    lengths: np.ndarray
    members: np.ndarray

    def by_length(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Factors of one length after those of another: their numbers (n,), their scopes (n, length)."""
        starts = np.cumsum(self.lengths) - self.lengths
        for length in np.unique(self.lengths):
            numbers = np.flatnonzero(self.lengths == length)
            yield numbers, self.members[starts[numbers][:, None] + np.arange(length)]

    def sizes(self, cardinalities: np.ndarray) -> np.ndarray:
        """Entries of every table, as floats: exact up to 2⁵³, and no overflow above."""
        sizes = np.ones(len(self.lengths))
        for numbers, rows in self.by_length():
            with np.errstate(over="ignore"):
                sizes[numbers] = cardinalities[rows].astype(np.float64).prod(axis=1)
        return sizes

    def repeated(self) -> int | None:
        """The place in `members` of the first one that its factor has twice."""
        owners = np.repeat(np.arange(len(self.lengths)), self.lengths)
        order = np.lexsort((self.members, owners))
        members, owners = self.members[order], owners[order]
        twice = (members[1:] == members[:-1]) & (owners[1:] == owners[:-1])
        return int(order[1:][twice].min()) if twice.any() else None


def store_tables(
    graph: TableGraph, scopes: Scopes, flat: np.ndarray, starts: np.ndarray, *, first_fastest: bool = False
) -> None:
    """The factors of a graph that has none yet, already checked, by shape, in their own order.

    flat: weights of all of them. starts: where the table of each begins. first_fastest: whether the first variable of
    a scope runs fastest in it, else the last.
    """
    parts: dict[int, Tables] = {}
    for numbers, rows in scopes.by_length():
        shapes, group = np.unique(graph.cardinalities[rows], axis=0, return_inverse=True)
        group = group.ravel()  # a column in NumPy 2.0
        order = np.argsort(group, kind="stable")
        for own in np.split(order, np.cumsum(np.bincount(group))[:-1]):
            shape, first = tuple(shapes[group[own[0]]].tolist()), starts[numbers[own]]
            stored = shape[::-1] if first_fastest else shape
            size = np.prod(shape, dtype=np.int64)
            if len(own) == 1:  # a table with no equal may be as large as they get: no index as large as itself
                values = flat[first[0] :][:size].reshape(1, *stored)
            else:
                values = flat[first[:, None] + np.arange(size)].reshape(len(own), *stored)
            if first_fastest:
                values = values.transpose(0, *range(len(shape), 0, -1))
            parts[int(numbers[own[0]])] = Tables(rows[own], log_weights("values", values, log=False), numbers[own])
    for first in sorted(parts):
        graph.add_tables(parts[first])


class PlainTable(NamedTuple):
    """One factor. weights: flat, the last variable of the scope running fastest or, where asked for, the first."""

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    weights: list[float]


def written_tables(graph: TableGraph, *, evidence: bool = False, first_fastest: bool = False) -> list[PlainTable]:
    """Every factor of the graph in its own order, then soft evidence as factors.

    evidence: whether what was observed is added as well, as factors of 0 and 1: then the tables alone have the graph's
    distribution and its Z.
    """
    found: dict[int, PlainTable] = {}
    for own in graph.factors.by_shape:
        weights = plain_weights(own.log_values, own.numbers)
        if first_fastest:
            weights = weights.transpose(0, *range(len(own.shape), 0, -1))
        rows = weights.reshape(len(weights), -1).tolist()
        for number, scope, row in zip(own.numbers.tolist(), own.scopes.tolist(), rows, strict=True):
            found[number] = PlainTable(tuple(scope), own.shape, row)
    tables = [found[number] for number in range(len(found))]
    for variable, log_likelihood in graph.likelihoods.items():
        row = plain_weights(log_likelihood[None], np.array([len(tables)]))[0]
        tables.append(PlainTable((variable,), row.shape, row.tolist()))
    for variable, state in graph.evidence.items() if evidence else ():
        row = np.eye(int(graph.cardinalities[variable]))[state]
        tables.append(PlainTable((variable,), row.shape, row.tolist()))
    return tables


def plain_weights(log_values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """exp of the logarithms, where doubles can hold it: an entry that became 0 or ∞ would be another model."""
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp(log_values)
    lost = (weights == np.inf) | ((weights == 0) & (log_values > -np.inf))
    if lost.any():
        place = tuple(np.argwhere(lost)[0])
        what = f"factor {numbers[place[0]]} has an entry exp({log_values[place]:.6g}), which a double cannot hold"
        raise ValueError(f"{what}; move a constant into another factor.")
    return weights
