"""Reading graphs: suffix or text say the format, evidence comes only when asked for, packed files have limits."""

import gzip
import pickle

import numpy as np
import pytest

from cavity.discrete import DiscreteGraph
from cavity.discrete.io import tokens

UAI = "MARKOV\n2\n2 3\n1\n2 0 1\n6\n1 2 3 4 5 6\n"
FG = "# pair\n1\n\n2\n0 1\n2 3\n6\n0 1\n1 4\n2 2\n3 5\n4 3\n5 6\n"
BIF = "network n { }\nvariable a { type discrete [ 2 ] { x, y }; }\nprobability ( a ) { table 0.25, 0.75; }\n"


def weights(graph):
    return [(table.scope, np.exp(table.log_values).round(12).tolist()) for table in graph]


@pytest.mark.parametrize(("suffix", "text"), [("uai", UAI), ("fg", FG), ("bif", BIF)])
def test_a_path_a_packed_file_and_a_text_are_the_same_graph(tmp_path, suffix, text):
    plain, packed, other = tmp_path / f"m.{suffix}", tmp_path / f"m.{suffix}.gz", tmp_path / "model.txt"
    plain.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    packed.write_bytes(gzip.compress(text.encode(), mtime=0))
    other.write_text(text)
    wanted = weights(DiscreteGraph.read(text))
    assert wanted and wanted == weights(DiscreteGraph.read(text, kind=suffix))
    for path in (plain, packed, other, str(plain)):
        assert weights(DiscreteGraph.read(path)) == wanted


def test_uai_and_fg_of_one_table_agree():
    assert weights(DiscreteGraph.read(UAI)) == weights(DiscreteGraph.read(FG)) == [((0, 1), [[1, 2, 3], [4, 5, 6]])]


def test_evidence_comes_from_a_path_a_text_or_a_dictionary_and_not_by_itself(tmp_path):
    path = tmp_path / "m.uai"
    DiscreteGraph.read(UAI).given({1: 2}).write(path)
    beside = tmp_path / "m.uai.evid"
    assert DiscreteGraph.read(path).evidence == {}
    for evidence in (beside, str(beside), "1\n1 2\n", {1: 2}, {"x1": 2}):
        assert DiscreteGraph.read(path, evidence=evidence).evidence == {1: 2}
    assert DiscreteGraph.read(path, evidence="").evidence == {}
    with pytest.raises(ValueError, match=r"^evidence: line 2: variable 1 has 3 states"):
        DiscreteGraph.read(UAI, evidence="1\n1 3\n")
    with pytest.raises(ValueError, match="states of x1 are numbered"):
        DiscreteGraph.read(UAI, evidence={1: 3})


def test_written_files_are_read_back(tmp_path):
    graph = DiscreteGraph.read(UAI)
    for name in ("m.uai", "m.fg"):
        graph.write(tmp_path / name)
        assert weights(DiscreteGraph.read(str(tmp_path / name))) == weights(graph)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.fg", "m.uai"]
    with pytest.raises(ValueError, match=r"must end in .uai or .fg; found '.*m.bif'"):
        graph.write(tmp_path / "m.bif")


def test_a_file_is_named_in_front_of_its_line(tmp_path):
    path = tmp_path / "m.uai"
    path.write_text("MARKOV\n1\n0\n0\n")
    with pytest.raises(ValueError, match=r"^.*m\.uai: line 3: a cardinality must be at least 1"):
        DiscreteGraph.read(path)


@pytest.mark.parametrize("source", ["no-such-file.uai", "MARKOV 1 2 0", "a" * 5000, "a\0b"])
def test_what_is_neither_a_file_nor_a_text_is_said(source):
    with pytest.raises(FileNotFoundError, match=r"there is no file '.*newline"):
        DiscreteGraph.read(source)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("m.uai.gz", b"plain text", "cannot be unpacked"),
        ("m.uai.gz", gzip.compress(UAI.encode(), mtime=0)[:-12], "cannot be unpacked"),
        ("m.uai.gz", b"", "ends where MARKOV"),
        ("m.uai", b"MARKOV\n1\n\xff\n", "line 3: found a byte 0xff, which is no UTF-8 text"),
        ("m.uai", pickle.dumps({"MARKOV": 1}), "no UTF-8 text|expected MARKOV"),
        ("m.dat", b"\n<graph/>\n", "the format is not known from the first word '<graph/>'"),
        ("m.dat", b"", "the format is not known from the first word ''"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        DiscreteGraph.read(tmp_path / name)


def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "SMALL", 2**16)
    (tmp_path / "m.uai.gz").write_bytes(gzip.compress(b" " * 2**20, mtime=0))
    (tmp_path / "m.uai").write_bytes(b" " * 2**20)
    for name in ("m.uai.gz", "m.uai"):
        with pytest.raises(ValueError, match="more bytes than the limit, max_bytes=65536"):
            DiscreteGraph.read(tmp_path / name, max_bytes=65536 if name == "m.uai" else None)


def test_an_unknown_kind_is_named():
    with pytest.raises(ValueError, match="kind must be uai, fg, bif or None; found 'xml'"):
        DiscreteGraph.read(UAI, kind="xml")
    with pytest.raises(ValueError, match="expected MARKOV or BAYES"):
        DiscreteGraph.read(FG, kind="uai")
