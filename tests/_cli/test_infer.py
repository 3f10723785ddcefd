"""`cavity infer`: result files against enumeration, and one sentence for everything that can be wrong."""

import gzip
import itertools
import math

import numpy as np
import pytest
from command_line import call

import cavity._cli.infer
from cavity._cli.infer import InferenceAnswer
from cavity.discrete import DiscreteGraph
from cavity.discrete.io.uai import read_map, read_mar, read_pr

BIF = """network n { }
variable rain { type discrete [ 2 ] { yes, no }; }
variable grass { type discrete [ 3 ] { dry, damp, wet }; }
probability ( rain ) { table 0.25, 0.75; }
probability ( grass | rain ) { (yes) 0.1, 0.3, 0.6; (no) 0.8, 0.15, 0.05; }
"""


def loop(edges=((0, 1), (1, 2), (2, 3), (3, 0))):
    """Four binary variables with fields and couplings."""
    rng = np.random.default_rng(1)
    graph = DiscreteGraph([2] * 4)
    for number in range(4):
        graph.add_factor([number], np.exp(rng.normal(size=2)))
    for edge in edges:
        graph.add_factor(edge, np.exp(0.5 * rng.normal(size=(2, 2))))
    return graph


def enumerated(graph):
    """Marginals, log Z and the best states by going through all of them."""
    cards, weights = graph.cardinalities, {}
    for states in itertools.product(*(range(k) for k in cards)):
        if all(states[v] == state for v, state in graph.evidence.items()):
            weights[states] = math.exp(sum(t.log_values[tuple(states[v] for v in t.scope)] for t in graph))
    total = sum(weights.values())
    marginals = [np.zeros(k) for k in cards]
    for states, weight in weights.items():
        for variable, state in enumerate(states):
            marginals[variable][state] += weight / total
    return marginals, math.log(total), max(weights, key=weights.get)


@pytest.fixture
def model(tmp_path):
    """A loop in a file, with evidence beside it."""
    loop().given({2: 1}).write(tmp_path / "m.uai")
    return tmp_path / "m.uai"


@pytest.mark.parametrize("observed", [False, True])
def test_exact_files_are_those_of_enumeration(model, tmp_path, observed):
    options = ["--evidence", f"{model}.evid"] if observed else []
    marginals, log_z, best = enumerated(loop().given({2: 1} if observed else {}))
    for task in ("MAR", "PR", "MAP"):
        exact = [] if task == "MAP" else ["--approximation", "exact"]
        result = call("infer", model, *options, *exact, "--task", task, "--out", tmp_path / task)
        assert result.exit_code == 0, result.output
        assert "exact" in result.output and "(base 10)" in result.output
    np.testing.assert_allclose(read_mar((tmp_path / "MAR").read_text()), marginals, rtol=1e-12)
    assert read_pr((tmp_path / "PR").read_text()) == pytest.approx(log_z, rel=1e-12)
    assert float((tmp_path / "PR").read_text().split()[1]) == pytest.approx(log_z / math.log(10))
    assert tuple(read_map((tmp_path / "MAP").read_text())) == best


def test_states_by_max_product(model, tmp_path):
    """The evidence opens the loop, so max-product is exact."""
    options = ["--evidence", f"{model}.evid", "--task", "MAP", "--approximation", "disconnected"]
    result = call("infer", model, *options, "--out", tmp_path / "MAP")
    assert result.exit_code == 0, result.output
    assert "max-product" in result.output and "No promise" in result.output
    assert tuple(read_map((tmp_path / "MAP").read_text())) == enumerated(loop().given({2: 1}))[2]
    assert "does not go with" in refused(model, *options, "--method", "adf")


@pytest.mark.parametrize("options", [["--approximation", "tree"], ["--approximation", "disconnected"], []])
def test_approximations_of_a_loop_are_near(model, tmp_path, options):
    out, plot = tmp_path / "m.MAR", tmp_path / "m.png"
    result = call("infer", model, "--evidence", f"{model}.evid", *options, "--out", out, "--plot", plot, "--top", 2)
    assert result.exit_code == 0, result.output
    for words in ("converged after", "agree within the tolerance", "4 variables, 8 factors, 1 observed", "log evidence",
                  "Least certain", "more are more certain", f"written: {out}", f"written: {plot}"):  # fmt: skip
        assert words in result.output.replace("\n", " ") or words in " ".join(result.output.split())
    # With one variable observed the rest is a chain, on which both are exact.
    marginals, *_ = enumerated(loop().given({2: 1}))
    np.testing.assert_allclose(read_mar(out.read_text()), marginals, atol=1e-6)
    assert plot.read_bytes().startswith(b"\x89PNG\r\n")


def test_a_tree_holds_all_of_a_chain(tmp_path):
    chain = loop(((0, 1), (1, 2), (2, 3)))
    chain.write(tmp_path / "chain.fg")
    result = call("infer", tmp_path / "chain.fg", "--approximation", "tree", "--task", "PR", "--out", tmp_path / "PR")
    assert result.exit_code == 0, result.output
    assert "converged" in result.output
    assert read_pr((tmp_path / "PR").read_text()) == pytest.approx(enumerated(chain)[1], rel=1e-12)


def test_clusters_by_name_and_number(tmp_path):
    path = tmp_path / "n.bif.gz"
    path.write_bytes(gzip.compress(BIF.encode()))
    for text in ("rain,grass", " 0 , 1"):
        result = call("infer", path, "--clusters", text)
        assert result.exit_code == 0, result.output
        assert "yes 0.2500, no 0.7500" in result.output and "dry 0.6250" in result.output
    for text, words in (("0,rain", "is in two"), ("0;snow", "no variable named 'snow'"), ("0,9", "numbered 0 to 1")):
        assert words in refused(path, "--clusters", text)
    assert "must be like" in refused(path, "--clusters", "0,;1")


def refused(*arguments):
    """The one sentence of a command that is refused."""
    result = call("infer", *arguments)
    assert result.exit_code == 2, result.output
    assert result.output.count("\n") == 1 and "Traceback" not in result.output
    return result.output


@pytest.mark.parametrize("approximation", ["disconnected", "tree", "exact", None])
def test_evidence_of_probability_zero(tmp_path, approximation):
    graph = DiscreteGraph([2, 2, 2])
    for edge in ((0, 1), (1, 2), (0, 2)):
        graph.add_factor(edge, np.eye(2))
    graph.given({0: 0, 1: 1}).write(tmp_path / "m.uai")
    task = ["--task", "MAP"] if approximation is None else ["--approximation", approximation]
    words = refused(tmp_path / "m.uai", "--evidence", tmp_path / "m.uai.evid", *task, "--out", tmp_path / "out")
    assert "m.uai: the evidence has probability zero" in words
    assert not (tmp_path / "out").exists()


def test_evidence_against_a_factor_of_its_own(tmp_path):
    graph = loop()
    graph.add_factor([0], [1.0, 0.0])
    graph.given({0: 1}).write(tmp_path / "m.uai")
    assert "probability zero" in refused(tmp_path / "m.uai", "--evidence", tmp_path / "m.uai.evid")


BAD_FILES = {
    "empty.uai": ("", "ends where MARKOV"),
    "cut.uai": ("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2", "cut.uai: "),
    "other.txt": ("<graph/>", "format is not known"),
    "words.bif": ("network n { }\nvariable a { type continuous; }\n", "words.bif: line"),
    "packed.uai.gz": ("plain", "cannot be unpacked"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_get_one_sentence(tmp_path, name):
    text, words = BAD_FILES[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert words in refused(tmp_path / name, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_that_are_not_there_or_in_the_way(model, tmp_path):
    assert "none.uai: No such file or directory." in refused(tmp_path / "none.uai")
    assert "none.evid: No such file" in refused(model, "--evidence", tmp_path / "none.evid")
    assert "is not a file" in refused(tmp_path)
    bad = tmp_path / "bad.evid"
    bad.write_text("1 0 7", encoding="utf-8")
    assert "bad.evid: line 1" in refused(model, "--evidence", bad)
    assert "must not name a file the command reads" in refused(model, "--out", model, "--overwrite")
    old = tmp_path / "old"
    old.write_text("mine", encoding="utf-8")
    assert "--overwrite" in refused(model, "--out", old)
    assert old.read_text(encoding="utf-8") == "mine"
    assert call("infer", model, "--approximation", "exact", "--out", old, "--overwrite").exit_code == 0
    assert old.read_text(encoding="utf-8").startswith("MAR\n4\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--task", "MMAP"], "--task must be"),
        (["--method", "magic"], "--method must be"),
        (["--approximation", "loopy"], "--approximation must be"),
        (["--task", "MAP", "--approximation", "tree"], "--task MAP is answered exactly"),
        (["--clusters", "0,1", "--approximation", "tree"], "--clusters is an approximation of its own"),
        (["--approximation", "exact", "--method", "ep"], "--method and --max-seconds do not go with it"),
        (["--max-seconds", "-1"], "--max-seconds must be a positive number; found -1.0."),
        (["--plot", "m.pdf"], "--plot must name a .png file"),
        (["--plot", "m.png", "--task", "MAP"], "--plot draws marginals"),
    ],
)
def test_options_that_do_not_go_together(model, options, words):
    assert words in refused(model, *options)


def test_what_is_too_large_is_said(tmp_path):
    side = 60
    graph = DiscreteGraph([2] * side**2)
    number = np.arange(side**2).reshape(side, side)
    for first, second in ((number[1:], number[:-1]), (number[:, 1:], number[:, :-1])):
        scopes = np.stack([first.ravel(), second.ravel()], axis=1)
        graph.add_factors(scopes, np.ones((len(scopes), 2, 2)))
    path = tmp_path / "grid.uai"
    graph.write(path)
    assert "model is too large: exact inference needs" in refused(path, "--approximation", "exact")
    assert "The model is too large for the exact answer" in refused(path, "--task", "MAP")
    assert "1 to 500 variables" in refused(path, "--plot", tmp_path / "grid.png")


def test_a_run_that_fell_short_is_written_with_a_warning(model, tmp_path, monkeypatch):
    half = [np.array([0.5, 0.5])] * 4
    short = InferenceAnswer(half, None, -1.0, "EP", "max sweeps after 3 sweeps.", False, 0.1)
    monkeypatch.setattr(cavity._cli.infer, "approximated", lambda *arguments: short)
    result = call("infer", model, "--out", tmp_path / "m.MAR")
    assert result.exit_code == 0
    assert "Note: the run did not reach a fixed point" in result.output
    assert read_mar((tmp_path / "m.MAR").read_text())[0].tolist() == [0.5, 0.5]
