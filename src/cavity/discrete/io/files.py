"""Graphs from files and texts, whichever format they are in, and back."""

import gzip
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cavity.discrete.graph import TableGraph
from cavity.discrete.io.bif import parse_bif
from cavity.discrete.io.fg import format_fg, parse_fg
from cavity.discrete.io.tokens import quoted
from cavity.discrete.io.uai import format_evidence, format_uai, parse_evidence, parse_uai

PARSERS = {"uai": parse_uai, "fg": parse_fg, "bif": parse_bif}
#: an .fg text begins with a number
FIRST_WORDS = {"MARKOV": "uai", "BAYES": "uai", "network": "bif", "variable": "bif", "probability": "bif"}
#: of a file, unpacked: a packed one can be a thousand times smaller than what it holds
LARGEST_BYTES = 2**30

Source = str | os.PathLike[str]


def read_graph(
    source: Source, evidence: Source | Mapping[Any, Any] | None = None, kind: str | None = None
) -> TableGraph:
    """The graph of a file in one of the formats .uai (competitions), .fg (libDAI) and .bif (Bayesian networks).

    Args:
        source: path of the file, which may be packed (.gz); or the text itself, where it is a string with a newline.
        evidence: variable → state; or an `.evid` file or text, in which numbers count the graph's variables. A file
            that lies beside the model is not looked for.
        kind: "uai", "fg" or "bif". By default the suffix says it, and where that is another one, the text.
    """
    if kind is not None and kind not in PARSERS:
        raise ValueError(f"kind must be {', '.join(PARSERS)} or None; found {kind!r}.")
    text, path = text_of(source)
    try:
        graph = PARSERS[kind or kind_of(text, path)](text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}" if path else str(error)) from None
    if evidence is None or isinstance(evidence, Mapping):
        return graph.given(evidence) if evidence else graph
    text, path = text_of(evidence)
    try:
        return graph.given(parse_evidence(text, graph.cardinalities))
    except ValueError as error:
        raise ValueError(f"{path or 'evidence'}: {error}") from None


def write_graph(graph: TableGraph, path: Source) -> None:
    """The graph into a .uai or .fg file; evidence that it has goes into <path>.evid beside a .uai file."""
    target = Path(path)
    if target.suffix == ".uai":
        target.write_text(format_uai(graph), encoding="ascii")
        if graph.evidence:
            target.with_name(f"{target.name}.evid").write_text(format_evidence(graph.evidence), encoding="ascii")
    elif target.suffix == ".fg":
        target.write_text(format_fg(graph), encoding="ascii")
    else:
        raise ValueError(f"path must end in .uai or .fg; found {str(target)!r}.")


def text_of(source: Source) -> tuple[str, str]:
    """A text and the path of its file, which is empty where the source is the text itself: it has a newline then."""
    if isinstance(source, str) and ("\n" in source or not source):
        return source, ""
    path = Path(source)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {quoted(path)}; a text, not a path, is one that has a newline.")
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be unpacked: {str(error).rstrip('.')}.") from None
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"{path} has more bytes than the limit, {LARGEST_BYTES}.")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n"), os.fspath(source)
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise ValueError(f"{path}: line {line}: found a byte 0x{byte:02x}, which is no UTF-8 text.") from None


def kind_of(text: str, path: str) -> str:
    """The format that the name of a file says, else its first word: every one of them begins in its own way."""
    suffix = Path(path.removesuffix(".gz")).suffix[1:]
    if suffix in PARSERS:
        return suffix
    start = re.match(r"(?:\s+|#[^\n]*|//[^\n]*|/\*.*?\*/)*([^\s{]{0,99})", text, re.DOTALL)
    word = start[1] if start else ""
    if word not in FIRST_WORDS and not word.isdecimal():
        raise ValueError(f"line 1: the format is not known from the first word {quoted(word)}; name it by kind.")
    return FIRST_WORDS.get(word, "fg")
