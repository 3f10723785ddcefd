"""The record: every figure, table and quantitative sentence of the documents, beside what we found.

The claims are files of their own, `claims/<document>.toml`. A claim is decided by an experiment (all of its verdict, or
some of its parts), by a test, or not at all: a drawing without a claim, or something left out with the reason.
What we found is read from the results of full runs, so that the page follows from them and from nothing else.
"""

import dataclasses
import json
import string
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from cavity.reports import Table, markdown
from cavity.reports.tables import cell
from cavity_reproductions.base import VERDICTS, grade

#: the files of claims, in the order of the page
STEMS = ("thesis", "lecture-notes", "relaxed-ep", "relaxed-ep-appendix", "kjit", "ours")
#: what a claim rests on; exactly one of them
GROUNDS = ("experiment", "test", "illustration", "left_out")
LEFT_OUT = "left out"
NOT_RUN = "not run"
TOO_SMALL = "too small to judge by"
INTRODUCTION = (
    "What the documents say, place by place, in our words, and what we found. A verdict is that of the experiment, or "
    "of the parts of it that the place is about; where a test decides, the test is named. The time is that of the "
    "whole experiment. `cavity reproduce record --out FOLDER` writes this page from the results in a folder."
)


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a document says at one place, in our words, and what decides it.

    experiment: its name; parts: those of its checks that count, all if none are named; ours: what it found, with the
    names of its numbers in braces. test: a file; its verdict and finding stand here. illustration, left_out: why
    nothing is decided.
    """

    place: str
    says: str
    experiment: str = ""
    parts: tuple[str, ...] = ()
    ours: str = ""
    test: str = ""
    verdict: str = ""
    illustration: str = ""
    left_out: str = ""

    def __post_init__(self) -> None:
        grounds = [name for name in GROUNDS if getattr(self, name)]
        if len(grounds) != 1:
            raise ValueError(f"{self.place}: a claim rests on one of {', '.join(GROUNDS)}; found {grounds or 'none'}.")
        if bool(self.verdict) != bool(self.test) or (self.verdict and self.verdict not in VERDICTS):
            raise ValueError(f"{self.place}: a verdict of {', '.join(VERDICTS)} belongs to a test, and only to a test.")
        if self.parts and not self.experiment:
            raise ValueError(f"{self.place}: parts belong to an experiment.")


@dataclasses.dataclass(frozen=True)
class Document:
    """A document and its claims, in its order. stem: the name of the file."""

    stem: str
    title: str
    claims: tuple[Claim, ...]


def documents() -> list[Document]:
    """All documents, and what we claim ourselves."""
    folder = resources.files("cavity_reproductions") / "claims"
    return [read_document(stem, (folder / f"{stem}.toml").read_text(encoding="utf-8")) for stem in STEMS]


def read_document(stem: str, text: str) -> Document:
    """A file of claims; a place that stands twice is a mistake."""
    content = tomllib.loads(text)
    claims = tuple(Claim(**row | {"parts": tuple(row.get("parts", ()))}) for row in content["claim"])
    twice = [place for place, count in Counter(claim.place for claim in claims).items() if count > 1]
    if twice:
        raise ValueError(f"{stem}: a place has one claim; found two at {', '.join(twice)}.")
    return Document(stem, content["document"], claims)


def results_in(folder: Path) -> dict[str, dict[str, Any]]:
    """result.json by experiment: <folder>/<name>.json, as in the documentation, or <folder>/<name>/result.json."""
    paths = [*sorted(folder.glob("*.json")), *sorted(folder.glob("*/result.json"))]
    found = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    return {result["experiment"]: result for result in found if isinstance(result, dict) and "experiment" in result}


def starts(words: list[str]) -> Iterator[list[str]]:
    """The words, and what they begin with, the longest first."""
    return (words[:size] for size in range(len(words), 0, -1))


class Numbers(string.Formatter):
    """`{some.number:.2g}` from nested numbers. A key may hold dots itself: the longest that fits is taken.

    A key with a colon stands in brackets, `{some[key: one].number}`, where it does not begin a format.
    """

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        value: Any = kwargs
        rest = field_name.replace("[", ".").replace("]", "")
        while rest:
            words = rest.split(".")
            if isinstance(value, Mapping):
                fitting = (key for key in map(".".join, starts(words)) if key in value)
                if (key := next(fitting, None)) is None:
                    raise KeyError(field_name)
                value = value[key]
            elif isinstance(value, list):
                key, value = words[0], value[int(words[0])]
            else:
                raise KeyError(field_name)
            rest = rest[len(key) + 1 :]
        return value, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        return cell(value) if value is None or not format_spec else super().format_field(value, format_spec)


def verdict_of(claim: Claim, result: Mapping[str, Any] | None) -> str:
    """The verdict of the run, or of the parts that count; what is missing says so."""
    if not claim.experiment:
        return claim.verdict or ("illustration" if claim.illustration else LEFT_OUT)
    if result is None:
        return NOT_RUN
    if "verdict" not in result:
        return TOO_SMALL
    return grade({text: result["parts"][text] for text in claim.parts}) if claim.parts else result["verdict"]


def finding(claim: Claim, result: Mapping[str, Any] | None) -> str:
    """What we found, or why nothing was looked for."""
    if not claim.experiment:
        return claim.ours or claim.illustration or claim.left_out
    if result is None or "verdict" not in result:
        return ""
    return Numbers().vformat(claim.ours, (), result["numbers"]) if claim.ours else result["sentence"]


def ground(claim: Claim, result: Mapping[str, Any] | None, folder: Path) -> str:
    """Where to look: the page of the experiment, or the test."""
    if claim.test:
        return f"`{claim.test}`"
    flat = (folder / f"{claim.experiment}.md").exists()
    page = f"{claim.experiment}.md" if flat else f"{claim.experiment}/table.md"
    return f"[`{claim.experiment}`]({page})" if result is not None else claim.experiment


def duration(result: Mapping[str, Any] | None) -> str:
    """How long the run took."""
    if result is None:
        return ""
    seconds = float(result["seconds"])
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def record_page(folder: Path) -> str:
    """The summary page of the results in a folder."""
    results = results_in(folder)
    kept = documents()
    verdicts = {
        document.stem: Counter(verdict_of(claim, results.get(claim.experiment)) for claim in document.claims)
        for document in kept
    }
    names = [
        name for name in (*VERDICTS, LEFT_OUT, NOT_RUN, TOO_SMALL) if any(name in found for found in verdicts.values())
    ]
    counts = [(document.title, *(verdicts[document.stem][name] for name in names)) for document in kept]
    total = ("all", *(sum(found[name] for found in verdicts.values()) for name in names))
    head = ["# The record", INTRODUCTION, markdown(Table("Claims", ("document", *names), [*counts, total]))]
    return (
        "\n\n".join(part.rstrip() for part in [*head, *(section(document, results, folder) for document in kept)])
        + "\n"
    )


def section(document: Document, results: Mapping[str, Mapping[str, Any]], folder: Path) -> str:
    """The claims of one document."""
    rows = []
    for claim in document.claims:
        result = results.get(claim.experiment)
        where = ground(claim, result, folder)
        rows.append(
            (claim.place, claim.says, finding(claim, result), verdict_of(claim, result), where, duration(result))
        )
    table = Table("", ("place", "claim", "ours", "verdict", "see", "time"), rows)
    return f"## {document.title}\n\n{markdown(table)}"
