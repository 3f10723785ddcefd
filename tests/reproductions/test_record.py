"""The record has a row for every place of the documents, and says nothing that the results do not say."""

import json
from pathlib import Path

import pytest
from cavity_reproductions import REGISTRY
from cavity_reproductions.base import VERDICTS
from cavity_reproductions.record import (
    Claim,
    Numbers,
    documents,
    finding,
    read_document,
    record_page,
    results_in,
    verdict_of,
)

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "docs" / "reproductions"
DOCUMENTS = documents()
CLAIMS = [(document.stem, claim) for document in DOCUMENTS for claim in document.claims]
NAMES = [f"{stem}, {claim.place}" for stem, claim in CLAIMS]


def test_every_place_of_the_documents_has_a_row():
    places = json.loads((ROOT / "tests" / "tables" / "places.json").read_text())
    assert {document.stem: [claim.place for claim in document.claims] for document in DOCUMENTS} == places


def test_every_file_of_claims_is_read():
    files = (ROOT / "reproductions" / "src" / "cavity_reproductions" / "claims").glob("*.toml")
    assert {file.stem for file in files} == {document.stem for document in DOCUMENTS}


def test_every_experiment_stands_in_the_record():
    used = {claim.experiment for _, claim in CLAIMS}
    assert set(REGISTRY) <= used
    assert used - {""} <= set(REGISTRY)


def test_every_experiment_has_a_full_run_with_its_page_and_picture():
    results = results_in(PUBLISHED)
    assert set(results) == set(REGISTRY)
    for name, result in results.items():
        assert result["size"] == "full"
        assert result["verdict"] in VERDICTS
        assert (PUBLISHED / f"{name}.md").is_file()
        assert (PUBLISHED / f"{name}.png").is_file()


@pytest.mark.parametrize("claim", [claim for _, claim in CLAIMS], ids=NAMES)
def test_a_claim_rests_on_something_that_exists(claim):
    result = results_in(PUBLISHED).get(claim.experiment)
    assert finding(claim, result).strip()
    assert verdict_of(claim, result) in (*VERDICTS, "left out")
    if claim.test:
        file, _, name = claim.test.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not name or f"def {name}(" in text


def test_the_page_is_the_one_the_results_make():
    assert (PUBLISHED / "record.md").read_text(encoding="utf-8") == record_page(PUBLISHED)


RESULT = {
    "experiment": "toy",
    "numbers": {
        "error": 0.01234,
        "by n": {"0.5": [1.0, 2.5]},
        "nothing": None,
        "count": 12345,
        "of": {"x: y": {"z": 1.5}},
    },
    "verdict": "holds in part",
    "sentence": "It is so.",
    "parts": {"first": True, "second": False, "third": True},
    "seconds": 12.0,
}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), "holds in part"),
        (("first", "third"), "holds"),
        (("second",), "does not hold"),
        (("first", "second"), "holds in part"),
    ],
)
def test_a_verdict_is_that_of_the_parts_that_count(parts, expected):
    claim = Claim("here", "This.", experiment="toy", parts=parts)
    assert verdict_of(claim, RESULT) == expected
    assert verdict_of(claim, None) == "not run"
    assert verdict_of(claim, {"experiment": "toy", "numbers": {}}) == "too small to judge by"


def test_a_part_that_does_not_exist_is_a_mistake():
    with pytest.raises(KeyError, match="fourth"):
        verdict_of(Claim("here", "This.", experiment="toy", parts=("fourth",)), RESULT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{error:.1g} off", "0.01 off"),
        ("{by n.0.5.1}", "2.5"),
        ("{nothing:.2f}", "—"),
        ("{count}", "12\u2009345"),
        ("{of[x: y].z:.2f}", "1.50"),
        ("", "It is so."),
    ],
)
def test_findings_are_read_from_the_numbers(text, expected):
    assert finding(Claim("here", "This.", experiment="toy", ours=text), RESULT) == expected


@pytest.mark.parametrize("name", ["missing", "by n.0.7", "error.more"])
def test_a_number_that_does_not_exist_is_a_mistake(name):
    with pytest.raises(KeyError):
        Numbers().vformat("{" + name + "}", (), RESULT["numbers"])


@pytest.mark.parametrize(
    ("row", "part"),
    [
        ({}, "rests on one of"),
        ({"experiment": "toy", "left_out": "because"}, "rests on one of"),
        ({"test": "tests/x.py"}, "belongs to a test"),
        ({"experiment": "toy", "verdict": "holds"}, "belongs to a test"),
        ({"test": "tests/x.py", "verdict": "true"}, "belongs to a test"),
        ({"left_out": "because", "parts": ("first",)}, "parts belong"),
    ],
)
def test_a_row_that_says_too_little_or_too_much_is_a_mistake(row, part):
    with pytest.raises(ValueError, match=part):
        Claim("here", "This.", **row)


def test_a_place_stands_once():
    row = '[[claim]]\nplace = "p"\nsays = "s"\nleft_out = "l"\n'
    assert len(read_document("d", 'document = "D"\n' + row).claims) == 1
    with pytest.raises(ValueError, match="found two at p"):
        read_document("d", 'document = "D"\n' + row + row)
