"""Result files of the UAI inference competitions: MAR (marginals), PR (log₁₀ Z) and MAP (states)."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from cavity.discrete.io.tokens import Tokens, quoted


def read_mar(text: str) -> list[np.ndarray]:
    """Marginals of every variable: MAR, the number of variables, for each its cardinality and probabilities.

    They are as rounded as the file has them: nothing is normalised.
    """
    tokens = result_tokens(text, "MAR")
    count, place = tokens.count(1, "the number of variables", words_each=2), 2
    marginals = []
    for variable in range(count):
        states = tokens.count(place, f"the number of states of variable {variable}")
        if states == 0:
            raise tokens.error(place, f"variable {variable} must have at least one state; found 0.")
        marginals.append(tokens.weights(range(place + 1, place + 1 + states), f"a probability of variable {variable}"))
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
    tokens = result_tokens(text, "PR")
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
    tokens = result_tokens(text, "MAP")
    count = tokens.count(1, "the number of variables")
    tokens.end(2 + count)
    return tokens.integers(range(2, 2 + count), "a state")


def write_map(states: Sequence[int] | np.ndarray) -> str:
    """The text of one state a variable."""
    found = np.asarray(states)
    if found.ndim != 1 or (found.size and (found.dtype.kind not in "iu" or (found < 0).any())):
        raise ValueError(f"states must be whole numbers of at least 0, one a variable; found {states!r}.")
    return "\n".join(["MAP", " ".join(map(str, (len(found), *found.tolist())))]) + "\n"


def result_tokens(text: str, head: str) -> Tokens:
    """The words of a result, if it is of this kind."""
    tokens = Tokens(text)
    if not tokens.words or tokens.words[0] != head:
        raise tokens.unexpected(0, head)
    return tokens
