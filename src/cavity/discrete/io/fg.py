"""Factor graphs in libDAI's format.

An `.fg` text is the number of factors, then for every factor: the number of its variables, their labels, their
cardinalities, the number of entries that are given, and for each of these its index and value. Other entries are 0. The
first variable of the list runs fastest in the index. `#` starts a comment. Variables exist only through factors, and
their labels may have gaps: they become the names x<label>, while numbers follow the order of the labels.
"""

import re
from typing import Any, NamedTuple

import numpy as np

from cavity.discrete.graph import TableGraph
from cavity.discrete.io.tokens import LARGEST_SCOPE, SMALL, PlainTable, Scopes, Tokens, store_tables, written_tables


class Heads(NamedTuple):
    """Where factors stand among the words: the place each begins at, how many variables and entries it has."""

    places: np.ndarray
    lengths: np.ndarray
    entries: np.ndarray


def parse_fg(text: str, graph_type: type[Any] = TableGraph, limit: int = SMALL) -> Any:
    """The graph of an `.fg` text, its factors in the order of the text. limit: bytes that its tables may take."""
    tokens = Tokens(re.sub("#[^\n]*", "", text))
    heads = parse_heads(tokens)
    where = consecutive(heads.places + 1, heads.lengths)
    labels = tokens.array(where, "a label")
    where_cardinalities = consecutive(heads.places + 1 + heads.lengths, heads.lengths)
    states = tokens.array(where_cardinalities, "a cardinality", least=1)
    known, first, members = np.unique(labels, return_index=True, return_inverse=True)
    cardinalities = states[first]
    if (differ := states != cardinalities[members]).any():
        k = int(np.argmax(differ))
        found = f"{states[k]} states here and {cardinalities[members[k]]} before"
        raise tokens.error(where_cardinalities[k], f"the variable {labels[k]} has {found}.")
    scopes = Scopes(heads.lengths, members)
    if (twice := scopes.repeated()) is not None:
        raise tokens.error(where[twice], f"a factor names the variable {labels[twice]} twice.")
    sizes = checked_sizes(tokens, heads, scopes, cardinalities, limit)
    starts = np.cumsum(sizes) - sizes
    flat = parse_entries(tokens, heads, sizes, starts)
    without_gaps = np.array_equal(known, np.arange(len(known)))
    graph = graph_type(cardinalities if without_gaps else ())
    for label, count in () if without_gaps else zip(known.tolist(), cardinalities.tolist(), strict=True):
        graph.add_variable(count, f"x{label}")
    store_tables(graph, scopes, flat, starts, first_fastest=True)
    return graph


def parse_heads(tokens: Tokens) -> Heads:
    """Walk from factor to factor by the numbers each declares."""
    count, place = tokens.count(0, "the number of factors", words_each=2), 1
    found = np.empty((count, 3), np.int64)
    for number in range(count):
        length = tokens.count(place, f"the number of variables of factor {number} (of {count}, counted from 0)", 2)
        if length > LARGEST_SCOPE:
            raise tokens.error(place, f"a factor has at most {LARGEST_SCOPE} variables; found {length}.")
        entries = tokens.count(place + 1 + 2 * length, f"the number of entries of factor {number}", words_each=2)
        found[number] = place, length, entries
        place += 2 + 2 * length + 2 * entries
    tokens.end(place)
    return Heads(*found.T)


def checked_sizes(tokens: Tokens, heads: Heads, scopes: Scopes, cardinalities: np.ndarray, limit: int) -> np.ndarray:
    """Entries of every table, zeros counted: a few words can declare more than memory has."""
    sizes = scopes.sizes(cardinalities)
    if (total := 8 * np.cumsum(sizes)).size and total[-1] > limit:
        k = int(np.argmax(total > limit))
        found = f"the tables up to factor {k} take {total[k]:.0f} bytes"
        raise tokens.error(heads.places[k], f"{found}, above the limit max_bytes={limit}.")
    if (over := heads.entries > sizes).any():
        k = int(np.argmax(over))
        place = heads.places[k] + 1 + 2 * heads.lengths[k]
        raise tokens.error(place, f"factor {k} has a table of {sizes[k]:.0f}; found {heads.entries[k]} entries for it.")
    return sizes.astype(np.int64)


def parse_entries(tokens: Tokens, heads: Heads, sizes: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The tables, one after another, with zeros where no entry is given."""
    where = consecutive(heads.places + 2 + 2 * heads.lengths, 2 * heads.entries)
    index, owner = tokens.array(where[::2], "an index"), np.repeat(np.arange(len(sizes)), heads.entries)
    if (over := index >= sizes[owner]).any():
        k = int(np.argmax(over))
        what = f"factor {owner[k]} has a table of {sizes[owner[k]]}"
        raise tokens.error(where[2 * k], f"{what}; found the index {index[k]}.")
    weights = tokens.array(where[1::2], "a value", float)
    target = starts[owner] + index
    order = np.argsort(target, kind="stable")
    if (twice := target[order][1:] == target[order][:-1]).any():
        k = int(order[1:][twice].min())
        raise tokens.error(where[2 * k], f"factor {owner[k]} has the index {index[k]} twice.")
    flat = np.zeros(int(sizes.sum()))
    flat[target] = weights
    return flat


def consecutive(places: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """places[i], places[i] + 1, …, counts[i] of them, for one i after another."""
    ends = np.cumsum(counts)
    return np.repeat(places - (ends - counts), counts) + np.arange(int(counts.sum()))


def format_fg(graph: TableGraph) -> str:
    """The `.fg` text of a graph, every number in full.

    Evidence, soft or not, becomes factors, and a variable of no factor gets one of ones: the format has no other place
    for either. Labels are those of an `.fg` file the graph was read from, else numbers.
    """
    names = [graph.variables.name(number) for number in range(len(graph.variables))]
    labelled = len(set(names)) == len(names) and all(re.fullmatch("x(0|[1-9][0-9]{0,17})", name) for name in names)
    labels = [name[1:] for name in names] if labelled else [str(number) for number in range(len(names))]
    tables = written_tables(graph, evidence=True, first_fastest=True)
    alone = set(range(len(names))).difference(*(table.scope for table in tables))
    cardinalities = graph.cardinalities.tolist()
    tables += [PlainTable((v,), (cardinalities[v],), [1.0] * cardinalities[v]) for v in sorted(alone)]
    blocks = [str(len(tables))]
    for scope, shape, weights in tables:
        entries = [f"{index} {weight!r}" for index, weight in enumerate(weights) if weight > 0]
        head = [str(len(scope)), " ".join(labels[v] for v in scope), " ".join(map(str, shape)), str(len(entries))]
        blocks.append("\n".join(head + entries))
    return "\n\n".join(blocks) + "\n"
