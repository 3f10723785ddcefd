"""`cavity select`: the evidences of the estimators, the largest named, features taken while they help."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from command_line import QUICK, call, measurements, write_csv

from cavity._cli.options import Candidate
from cavity._cli.preprocessing import Reading
from cavity._cli.select import best_candidate, suggest_fit
from cavity.estimators import BayesPointMachine, GPClassifier
from cavity.kernels import RBF
from cavity.reports.classifier_report import Evidence


@pytest.fixture
def data(tmp_path):
    a, b, _, label = measurements()
    noise = np.random.default_rng(1).normal(size=30)
    return write_csv(tmp_path / "data.csv", ["noise", "a", "b", "y"], zip(noise, a, b, label, strict=True))


def columns(data):
    """Numbers scaled by hand, labels."""
    table = np.loadtxt(data, delimiter=",", skiprows=1, dtype=str)
    X = table[:, :3].astype(float)
    return (X - X.mean(axis=0)) / X.std(axis=0), table[:, 3]


def test_tables_of_evidences_and_the_best_named(data):
    result = call(
        "select", data, "--label", "y", "--kernel", "rbf", "--kernel", "linear", "--likelihood", "step", *QUICK
    )
    assert result.exit_code == 0, result.output
    X, y = columns(data)
    pairs = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))[np.triu_indices(30, 1)]
    gaussian = {
        factor: GPClassifier(RBF(factor * np.median(pairs)), label_noise=0.1, optimize=False).fit(X, y).log_evidence_
        for factor in (0.25, 1.0, 4.0)
    }
    linear = BayesPointMachine(label_noise=0.1).fit(X, y).log_evidence_
    for value in (*gaussian.values(), linear):
        assert f"{value:.3f}" in result.output
    best = "rbf" if gaussian[1.0] > linear else "linear"
    assert f"Best: {best}, step. Fit it with: cavity fit {data} --label y --kernel {best}" in result.output
    assert result.output.count("behind the best") == 2


def test_features_are_taken_while_they_help(data):
    result = call("select", data, "--label", "y", "--kernel", "rbf", "--likelihood", "step", "--features", *QUICK)
    assert result.exit_code == 0, result.output
    # labels depend on a and b, and more on a
    assert "Features: 'a', 'b', with log evidence" in result.output


def test_the_best_has_the_largest_evidence_that_can_be_relied_on():
    candidates = [Candidate(kernel) for kernel in ("rbf", "matern", "poly")]
    rows = [Evidence("", -5.0, "", True), Evidence("", -1.0, "", False), Evidence("", None, "", False)]
    assert best_candidate(rows, candidates) is candidates[0]
    assert best_candidate([*rows[:2], Evidence("", -4.0, "", True)], candidates) is candidates[2]
    with pytest.raises(ValueError, match="None of the models reached a fixed point"):
        best_candidate([row._replace(settled=False) for row in rows], candidates)


def test_mistakes_get_one_sentence(data):
    for options, part in (
        (("--kernel", "cubic"), "--kernel must be one of"),
        (("--missing", "no"), "--missing must be"),
    ):
        result = call("select", data, "--label", "y", *options)
        assert result.exit_code == 2
        assert part in result.output and result.output.count("\n") == 1


def test_the_command_it_names_reads_the_file_as_it_did():
    best = Candidate("rbf", "probit", "0.1", "ep", optimize=False, seed=3)
    words = shlex.split(
        suggest_fit(Path("my data.csv"), best, Reading("y", ["color"], ["id", "no"], "mean", False, ";"))
    )
    assert words[:3] == ["cavity", "fit", "my data.csv"] and words[-2:] == ["--out", "model.npz"]
    pairs = ["--label", "y", "--kernel", "rbf", "--likelihood", "probit", "--label-noise", "0.1", "--method", "ep"]
    pairs += ["--missing", "mean", "--separator", ";", "--seed", "3"]
    pairs += ["--categorical", "color", "--ignore", "id", "--ignore", "no", "--no-optimize", "--no-standardize"]
    assert words[3:-2] == pairs
