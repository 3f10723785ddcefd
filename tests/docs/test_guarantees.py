"""The page of guarantees names tests and fuzzers that exist, and counts that may be so."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`((?:tests|benchmarks)/[\w/.]+)`", PAGE)))
#: rows of the table of counts: what, by which fuzzer, tried, right, refused, wrong, crashed, hung
ROW = r"^\| ([^|]+) \| `benchmarks/(fuzz_\w+)\.py` \|" + r" ([\d,]+) \|" * 6
COUNTS = re.findall(ROW, PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", NAMED)
def test_what_the_page_names_is_there(name):
    assert (ROOT / name).is_file()
    if name.startswith("tests/"):
        assert re.search(r"^def test_|^    def test_", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_guarantee_names_a_test():
    sections = PAGE.split("## The long fuzzers")[0].split("\n## ")[1:]
    rows = [row for section in sections for row in re.findall(r"^\| (?!you may|---).+\|$", section, re.MULTILINE)]
    assert len(rows) > 25
    assert [row for row in rows if "`tests/" not in row] == []


def test_every_fuzzer_is_named():
    assert {path.name for path in ROOT.glob("benchmarks/fuzz_*.py")} <= {Path(name).name for name in NAMED}


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: row[0])
def test_counts_add_up_and_nothing_was_wrong(row):
    tried, *ends = (int(number.replace(",", "")) for number in row[2:])
    assert tried == sum(ends) and ends[2:] == [0, 0, 0]
