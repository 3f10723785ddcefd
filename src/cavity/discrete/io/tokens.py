"""Words of a text that is made of numbers, and where they stand: what the readers of .uai and .fg files share."""

import itertools
import math
import re
from typing import Any

import numpy as np

#: words, numbers and lists of states are as long as a file makes them; sentences about them are not
LONGEST_QUOTE, LONGEST_SENTENCE = 40, 200
#: states, and entries of tables that a short text can declare: what is above needs gigabytes
LARGEST = 2**27
#: NumPy's arrays have 64 axes, one of which runs over the factors
LARGEST_SCOPE = 63


class Tokens:
    """The words of a text. Their lines are counted only where something is wrong with one of them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = text.split()
        if "_" in text:  # Python would read 1_0 as ten
            self.fail_at_first("_", "a number")

    def __len__(self) -> int:
        return len(self.words)

    def fail_at_first(self, part: str, wanted: str) -> None:
        """Refuse the first word with this part."""
        for k, word in enumerate(self.words):
            if part in word:
                raise self.unexpected(k, wanted)

    def error(self, k: int, sentence: str) -> ValueError:
        """The error that word k is the reason of; behind the last word, the last one."""
        place = max(0, min(k, len(self.words) - 1))
        match = next(itertools.islice(re.finditer(r"\S+", self.text), place, None), None)
        return error_at(self.text, 0 if match is None else match.start(), sentence)

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

    def integers(self, where: range | np.ndarray, what: str, least: int = 0) -> np.ndarray:
        """Words at these places as whole numbers."""
        words = self.at(where, what)
        try:
            found = np.array(list(map(int, words)), np.int64)
        except (ValueError, OverflowError):
            found = None
        strange = where if found is None else [where[k] for k in np.flatnonzero(found < least)[:1]]
        for k in map(int, strange):
            if abs(self.integer(k, what, least)) >= 2**63:
                raise self.error(k, f"{what} is too large; found {quoted(self.words[k])}.")
        return np.asarray(found)

    def weights(self, where: range | np.ndarray, what: str) -> np.ndarray:
        """Words at these places as numbers that are finite and not negative."""
        words = self.at(where, what)
        try:
            found = np.array(list(map(float, words)))
        except ValueError:
            found = None
        strange = where if found is None else [where[k] for k in np.flatnonzero(~((found >= 0) & (found < np.inf)))[:1]]
        for k in map(int, strange):
            if not 0 <= self.number(k, what) < math.inf:
                raise self.error(k, f"{what} must be finite and not negative; found {quoted(self.words[k])}.")
        return np.asarray(found)

    def number(self, k: int, what: str) -> float:
        """Word k as a number."""
        try:
            return float(self.words[k])
        except (IndexError, ValueError):
            raise self.unexpected(k, f"{what}, a number") from None

    def at(self, where: range | np.ndarray, what: str) -> list[str]:
        """The words at these places, which ascend."""
        if len(where) and where[-1] >= len(self.words):
            raise self.unexpected(len(self.words), what)
        if isinstance(where, range):
            return self.words[where.start : where.stop]
        return [self.words[k] for k in where.tolist()]

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
