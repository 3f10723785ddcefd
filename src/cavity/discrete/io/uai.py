"""Models, evidence and results in the formats of the UAI inference competitions.

A `.uai` text is MARKOV or BAYES; the number of variables; their cardinalities; the number of factors; for every factor
the length of its scope and the scope; for every factor the number of its entries and the entries, the last variable of
the scope running fastest. Any white space separates. A `.evid` text is the number of observed variables, then pairs of
variable and state. Results are MAR (marginals), PR (log₁₀ Z) and MAP (states).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cavity.discrete.graph import TableGraph
from cavity.discrete.io.tokens import LARGEST_SCOPE, SMALL, Scopes, Tokens, quoted, store_tables, written_tables


def parse_uai(text: str, graph_type: type[Any] = TableGraph, limit: int = SMALL) -> Any:
    """The graph of a `.uai` text, its factors in the order of the text. BAYES tables are factors like any other.

    limit: bytes that the marginals of all variables may take; tables take no more than the text.
    """
    tokens = Tokens(text, "MARKOV", "BAYES")
    count = tokens.count(1, "the number of variables")
    cardinalities = tokens.array(range(2, 2 + count), "a cardinality", least=1)
    if (size := 8 * sum(cardinalities.tolist())) > limit:
        raise tokens.error(2, f"the states of the variables take {size} bytes, above the limit max_bytes={limit}.")
    scopes, place = parse_scopes(tokens, 2 + count, cardinalities)
    starts = table_starts(tokens, place, scopes, cardinalities)
    flat = tokens.array(range(place, len(tokens.words)), "an entry of a table", float)
    graph = graph_type(cardinalities)
    store_tables(graph, scopes, flat, starts - place)
    return graph


def parse_scopes(tokens: Tokens, place: int, cardinalities: np.ndarray) -> tuple[Scopes, int]:
    """All scopes, and the place of the word behind them."""
    count = tokens.count(place, "the number of factors", words_each=2)
    first = place = place + 1
    places = []
    for number in range(count):
        length = tokens.count(place, f"the length of scope {number} (of {count}, counted from 0)")
        if length > LARGEST_SCOPE:
            raise tokens.error(place, f"a scope has at most {LARGEST_SCOPE} variables; found {length}.")
        places.append(place)
        place += 1 + length
    found = tokens.array(range(first, place), "a variable of a scope")
    heads = np.array(places, np.int64) - first
    member = np.ones(len(found), bool)
    member[heads] = False
    scopes = Scopes(found[heads], found[member])
    where = first + np.flatnonzero(member)
    if (strange := scopes.members >= len(cardinalities)).any():
        k = int(np.argmax(strange))
        found = f"{scopes.members[k]} of {len(cardinalities)}, numbered from 0"
        raise tokens.error(where[k], f"a scope names the variable {found}.")
    if (twice := scopes.repeated()) is not None:
        raise tokens.error(where[twice], f"a scope names the variable {scopes.members[twice]} twice.")
    return scopes, place


def table_starts(tokens: Tokens, place: int, scopes: Scopes, cardinalities: np.ndarray) -> np.ndarray:
    """The place of every table's first entry: every declared size is what its scope says, and the text ends there."""
    sizes = scopes.sizes(cardinalities)
    ends = np.cumsum(scopes.lengths)
    starts = np.empty(len(sizes), np.int64)
    total = len(tokens.words)
    for number, size in enumerate(sizes.tolist()):
        declared = tokens.integer(place, f"the size of table {number} (of {len(sizes)}, counted from 0)")
        if declared != size:
            scope = scopes.members[ends[number] - scopes.lengths[number] : ends[number]]
            wanted = math.prod(cardinalities[scope].tolist())
            what = f"table {number} must have {wanted} entries, as its scope says"
            raise tokens.error(place, f"{what}; found {declared}.")
        if place + size >= total:
            left = total - place - 1
            raise tokens.error(total, f"the text ends within table {number}: {left} of {declared} entries are there.")
        starts[number] = place + 1
        place += 1 + declared
    tokens.end(place)
    return starts


def parse_evidence(text: str, cardinalities: np.ndarray) -> dict[int, int]:
    """Variable → state, by number, of an `.evid` text; no words mean no evidence.

    The older layout begins with the number of samples, which must be 1; it has an even number of words, the newer one
    an odd number, so that none can be taken for the other.
    """
    tokens = Tokens(text)
    if not len(tokens.words):
        return {}
    head = int(len(tokens.words) % 2 == 0 and tokens.words[0] == "1")
    count = tokens.count(head, "the number of observed variables", words_each=2)
    tokens.end(head + 1 + 2 * count)
    pairs = tokens.array(range(head + 1, len(tokens.words)), "a variable or its state").reshape(-1, 2)
    evidence: dict[int, int] = {}
    for number, (variable, state) in enumerate(pairs.tolist()):
        place = head + 1 + 2 * number
        if variable >= len(cardinalities):
            raise tokens.error(place, f"evidence on the variable {variable} of {len(cardinalities)}, numbered from 0.")
        if variable in evidence:
            raise tokens.error(place, f"evidence on the variable {variable} twice.")
        if state >= (count := cardinalities[variable]):
            what = f"variable {variable} has {count} states, numbered from 0"
            raise tokens.error(place + 1, f"{what}; found {state}.")
        evidence[variable] = state
    return evidence


def format_uai(graph: TableGraph) -> str:
    """The `.uai` text (MARKOV) of a graph, numbers in full. Soft evidence becomes factors, evidence is left out."""
    cardinalities = graph.cardinalities.tolist()
    tables = written_tables(graph)
    lines = ["MARKOV", str(len(cardinalities)), " ".join(map(str, cardinalities)), str(len(tables))]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope, _, _ in tables]
    lines += [f"\n{len(weights)}\n{' '.join(map(repr, weights))}" for _, _, weights in tables]
    return "\n".join(lines) + "\n"


def format_evidence(evidence: Mapping[int, int]) -> str:
    """The `.evid` text of variable → state, by number."""
    return " ".join(map(str, (len(evidence), *(number for pair in evidence.items() for number in pair)))) + "\n"


def read_mar(text: str) -> list[np.ndarray]:
    """Marginals of every variable: MAR, the number of variables, for each its cardinality and probabilities.

    They are as rounded as the file has them: nothing is normalised.
    """
    tokens = Tokens(text, "MAR")
    count, place = tokens.count(1, "the number of variables", words_each=2), 2
    marginals = []
    for variable in range(count):
        states = tokens.count(place, f"the number of states of variable {variable}")
        if states == 0:
            raise tokens.error(place, f"variable {variable} must have at least one state; found 0.")
        where = range(place + 1, place + 1 + states)
        marginals.append(tokens.array(where, f"a probability of variable {variable}", float))
        place += 1 + states
    tokens.end(place)
    return marginals


def write_mar(marginals: Iterable[Sequence[float] | np.ndarray]) -> str:
    """The text of marginals, every number in full."""
    rows = [np.asarray(marginal, np.float64) for marginal in marginals]
    for variable, row in enumerate(rows):
        if row.ndim != 1 or not row.size or not ((row >= 0) & (row < np.inf)).all():
            raise ValueError(f"the marginal of variable {variable} must be probabilities of its states; found {row}.")
    lines = [" ".join(map(repr, (len(row), *row.tolist()))) for row in rows]
    return "\n".join(["MAR", str(len(rows)), *lines]) + "\n"


def read_pr(text: str) -> float:
    """The natural logarithm of Z: PR and log₁₀ Z, which is what the file holds. −inf where Z is 0."""
    tokens = Tokens(text, "PR")
    found = tokens.number(1, "log10 of Z")
    if math.isnan(found) or found == math.inf:
        raise tokens.error(1, f"log10 of Z must be finite, or -inf; found {quoted(tokens.words[1])}.")
    tokens.end(2)
    return found * math.log(10)


def write_pr(log_z: float) -> str:
    """The text of a natural log Z; the file holds log₁₀ Z."""
    found = float(log_z)
    if math.isnan(found) or found == math.inf:
        raise ValueError(f"log_z must be finite, or -inf where Z is 0; found {log_z!r}.")
    return f"PR\n{found / math.log(10)!r}\n"


def read_map(text: str) -> np.ndarray:
    """The state of every variable: MAP, the number of variables, their states."""
    tokens = Tokens(text, "MAP")
    count = tokens.count(1, "the number of variables")
    tokens.end(2 + count)
    return tokens.array(range(2, 2 + count), "a state")


def write_map(states: Sequence[int] | np.ndarray) -> str:
    """The text of one state per variable."""
    found = np.asarray(states)
    if found.ndim != 1 or (found.size and (found.dtype.kind not in "iu" or (found < 0).any())):
        raise ValueError(f"states must be whole numbers of at least 0, one per variable; found {states!r}.")
    return "\n".join(["MAP", " ".join(map(str, (len(found), *found.tolist())))]) + "\n"
