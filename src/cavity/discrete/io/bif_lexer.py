"""Words and signs of a `.bif` text, read one after another."""

import re

import numpy as np

from cavity.discrete.io.tokens import error_at, quoted

SIGNS = "{}()[]|,;"
#: white space and comments, a quoted name, a sign, or a word; a word may hold single slashes and is ended by a comment
PIECE = re.compile(
    r"""(?P<gap>\s+|//[^\n]*|/\*.*?\*/)|"(?P<quoted>[^"\n]*)"|(?P<sign>[{}()\[\]|,;])|(?P<word>(?:(?!//|/\*)[^\s{}()\[\]|,;"])+)""",
    re.DOTALL,
)
#: the rest of a property, up to a semicolon that is not inside quotation marks
PROPERTY = re.compile(r'(?:"[^"]*"|[^";])*;')


class Reader:
    """A place in the words of a text. Commas mean nothing and are left out; so are properties, wherever they stand."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: list[str] = []
        self.is_sign: list[bool] = []
        self.offsets: list[int] = []
        self.place = 0
        self.split()

    def split(self) -> None:
        """Find the words and signs."""
        offset = 0
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
                self.pieces.append(match["quoted"] if match["quoted"] is not None else match[0])
                self.is_sign.append(match["sign"] is not None)
                self.offsets.append(start)

    def at_statement(self) -> bool:
        """Whether what comes next begins a statement: elsewhere, property may be a name."""
        return not self.pieces or (self.is_sign[-1] and self.pieces[-1] in "{};")

    def ended(self) -> bool:
        """Whether no word is left."""
        return self.place >= len(self.pieces)

    def at(self, place: int) -> str:
        """The word or sign at a place."""
        return self.pieces[place]

    def error(self, place: int, sentence: str) -> ValueError:
        """The error that what stands at a place is the reason of."""
        offset = self.offsets[min(place, len(self.offsets) - 1)] if self.offsets else 0
        return error_at(self.text, offset, sentence)

    def unexpected(self, wanted: str) -> ValueError:
        """The error that something else should stand here."""
        if self.ended():
            return self.error(self.place, f"the text ends where {wanted} should stand.")
        return self.error(self.place, f"expected {wanted}; found {quoted(self.pieces[self.place])}.")

    def accept(self, piece: str) -> bool:
        """Go on if this is what stands here."""
        here = not self.ended() and self.pieces[self.place] == piece and self.is_sign[self.place] == (piece in SIGNS)
        self.place += here
        return here

    def expect(self, piece: str) -> None:
        """Go on if this is what stands here, else refuse."""
        if not self.accept(piece):
            raise self.unexpected(piece)

    def word(self, wanted: str) -> str:
        """The word that stands here."""
        if self.ended() or self.is_sign[self.place]:
            raise self.unexpected(wanted)
        self.place += 1
        return self.pieces[self.place - 1]

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
