"""`cavity predict`: the numbers of the estimator, columns found by name, and files that do not fit."""

import numpy as np
import pytest
from command_line import QUICK, call, labelled_file, measurements, read_csv, write_csv

from cavity import _storage
from cavity._cli.predict import harmless
from cavity.estimators import GPClassifier, load
from cavity.kernels import RBF


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    data = labelled_file(folder / "data.csv")
    path = folder / "model.npz"
    result = call("fit", data, "--label", "y", "--categorical", "colour", "--out", path, *QUICK)
    assert result.exit_code == 0, result.output
    return path


def as_matrix(a, b, colour):
    """What a user would do by hand: scaled by the training rows, a column for each colour."""
    train_a, train_b, *_ = measurements()
    hot = np.array(["blue", "green", "red"]) == np.asarray(colour)[:, None]
    numbers = [(a - train_a.mean()) / train_a.std(), (b - train_b.mean()) / train_b.std()]
    return np.column_stack([*numbers, hot.astype(float)])


def test_predictions_are_those_of_the_estimator_fitted_by_hand(model, tmp_path):
    a, b, colour, y = measurements()
    new = write_csv(
        tmp_path / "new.csv",
        ["colour", "unused", "b", "a"],
        [["red", "?", "90.5", "-1.25"], ["blue", "?", "120", "0.5"], ["green", "?", "1e2", "0.125"]],
    )
    rows = as_matrix(np.array([-1.25, 0.5, 0.125]), np.array([90.5, 120.0, 100.0]), ["red", "blue", "green"])
    length = load(model).kernel_.length_scale
    by_hand = GPClassifier(RBF(length), label_noise=0.1, optimize=False).fit(as_matrix(a, b, colour), y)
    for options, noisy in (((), False), (("--noisy",), True)):
        out = tmp_path / f"predicted{noisy}.csv"
        result = call("predict", model, new, "--out", out, *options)
        assert result.exit_code == 0, result.output
        assert "3 rows predicted" in result.output
        found = read_csv(out)
        assert [line["row"] for line in found] == ["2", "3", "4"]
        assert [line["label"] for line in found] == by_hand.predict(rows).tolist()
        numbers = [[float(line["P(no)"]), float(line["P(yes)"])] for line in found]
        np.testing.assert_allclose(numbers, by_hand.predict_proba(rows, noisy=noisy), rtol=1e-9)


def test_missing_values_and_unseen_levels_are_choices(model, tmp_path):
    new = write_csv(tmp_path / "new.csv", ["a", "b", "colour"], [["", "100", "red"], ["1", "100", "pink"]])
    out = tmp_path / "out.csv"

    def attempt(*options):
        return call("predict", model, new, "--out", out, "--overwrite", *options)

    assert "row 2, column 'a': the value is missing" in attempt().output
    assert "row 3, column 'colour': 'pink' was not there in training" in attempt("--missing", "mean").output
    assert not out.exists()
    assert attempt("--missing", "mean", "--unseen", "zero").exit_code == 0
    mean = read_csv(out)
    dropped = attempt("--missing", "drop", "--unseen", "zero")
    assert "1 rows predicted, 1 left out for missing values" in dropped.output
    assert [line["row"] for line in read_csv(out)] == ["3"]
    a, *_ = measurements()
    rows = as_matrix(np.array([a.mean(), 1.0]), np.array([100.0, 100.0]), ["red", "pink"])
    numbers = [[float(line["P(no)"]), float(line["P(yes)"])] for line in mean]
    np.testing.assert_allclose(numbers, load(model).predict_proba(rows), rtol=1e-9)


def test_three_classes_and_the_linear_machine(tmp_path):
    a, b, *_ = measurements()
    size = np.where(a > 0.4, "high", np.where(a < -0.4, "low", "mid"))
    data = write_csv(tmp_path / "sizes.csv", ["a", "b", "c", "size"], zip(a, b, a + b, size, strict=True), ";")
    common = ("--label", "size", "--separator", ";", *QUICK)
    for kernel in ("rbf", "linear"):
        model, out = tmp_path / f"{kernel}.npz", tmp_path / f"{kernel}.csv"
        fitted = call("fit", data, "--kernel", kernel, "--out", model, *common)
        assert fitted.exit_code == 0, fitted.output
        assert call("predict", model, data, "--out", out, "--separator", ";").exit_code == 0
        lines = read_csv(out)
        sums = [sum(float(line[f"P({name})"]) for name in ("high", "low", "mid")) for line in lines]
        np.testing.assert_allclose(sums, 1.0, rtol=1e-12)
        right = np.mean([line["label"] == name for line, name in zip(lines, size, strict=True)])
        assert right > (0.85 if kernel == "rbf" else 0.55)  # no plane separates the middle from the rest


@pytest.mark.parametrize(
    ("columns", "rows", "part"),
    [
        (["a", "colour"], [["1", "red"]], "lacks columns the model was fitted to: 'b'."),
        (["a", "b", "colour"], [["1", "two", "red"]], "row 2, column 'b' must be a number; found 'two'."),
        (["a", "b", "colour"], [["1e308", "1", "red"], ["-1.7e308", "1", "red"]], "is too large"),
    ],
)
def test_a_file_that_does_not_fit_gets_one_sentence(model, tmp_path, columns, rows, part):
    new = write_csv(tmp_path / "new.csv", columns, rows)
    result = call("predict", model, new, "--out", tmp_path / "out.csv")
    assert result.exit_code == 2
    assert part in result.output and result.output.count("\n") == 1
    assert not (tmp_path / "out.csv").exists()


def test_models_that_are_none(model, tmp_path):
    new = labelled_file(tmp_path / "new.csv")
    cut = tmp_path / "cut.npz"
    cut.write_bytes(model.read_bytes()[:-100])
    plain = tmp_path / "plain.npz"
    load(model).save(plain)
    bad = tmp_path / "bad.npz"
    kind, header, arrays = _storage.load(model)
    _storage.save(bad, kind, {**header, "table": {**header["table"], "columns": [{"kind": "NumberColumn"}]}}, arrays)
    fewer = tmp_path / "fewer.npz"
    _storage.save(
        fewer, kind, {**header, "table": {**header["table"], "columns": header["table"]["columns"][1:]}}, arrays
    )
    for path, part in (
        (bad, "the columns in the model file cannot be read"),
        (fewer, "its columns do not fit its estimator."),
        (cut, "or its end is missing."),
        (plain, "not written by `cavity fit`."),
        (tmp_path / "none.npz", "does not exist."),
        (new, "is not a file written by cavity"),
    ):
        result = call("predict", path, new, "--out", tmp_path / "out.csv")
        assert result.exit_code == 2
        assert part in result.output and result.output.count("\n") == 1
    assert "already" in call("predict", model, new, "--out", model, "--overwrite").output


@pytest.mark.parametrize("label", ["=1+1", "+cmd|' /C calc'!A0", "-a", "@SUM(A1)", "+", "-1-1", "\tx", "-1e", "=-1"])
def test_a_label_that_begins_as_a_formula_gets_an_apostrophe(label):
    assert harmless(label) == f"'{label}"


@pytest.mark.parametrize("label", ["no", "-1", "+1", "-.5", "+1.e-3", "1=2", "", "a-b"])
def test_numbers_and_other_words_stay(label):
    assert harmless(label) == label


def test_labels_of_minus_and_plus_one_are_written_as_numbers(tmp_path):
    data = write_csv(tmp_path / "data.csv", ["", "x", "y"], [[k, k - 5, -1 if k < 5 else "+1"] for k in range(10)])
    assert call("fit", data, "--label", "y", "--out", tmp_path / "model.npz", *QUICK).exit_code == 0
    result = call("predict", tmp_path / "model.npz", data, "--out", tmp_path / "out.csv")
    assert "has no name and was passed over" in result.output
    assert {row["label"] for row in read_csv(tmp_path / "out.csv")} == {"-1", "+1"}
