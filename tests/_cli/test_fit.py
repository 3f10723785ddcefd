"""`cavity fit`: the file it writes, the suspects it names, and one sentence for everything that can be wrong."""

import signal
import warnings
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from command_line import QUICK, WRONG, call, labelled_file, measurements, write_csv
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import cavity._cli.fit
from cavity._cli.model_file import load_model
from cavity._cli.options import fit_with_notes
from cavity._cli.preprocessing import Reading, labels, learn_preprocessing, read_labelled
from cavity._storage.csv_table import read_sheet
from cavity.estimators import GPClassifier, load
from cavity.kernels import RBF


@pytest.fixture
def data(tmp_path):
    return labelled_file(tmp_path / "data.csv")


def fit(data, out, *options):
    return call("fit", data, "--label", "y", "--categorical", "colour", "--out", out, *QUICK, *options)


def test_the_model_the_table_and_the_page(data, tmp_path, monkeypatch):
    monkeypatch.setattr(cavity._cli.fit, "COMPARED", ("rbf", "matern"))  # each of the others compiles anew
    model, report = tmp_path / "model.npz", tmp_path / "report.html"
    result = fit(data, model, "--report", report)
    assert result.exit_code == 0, result.output
    for words in ("log evidence", "training error", "leave-one-out error", "calibration error", "Brier score", "RBF",
                  "label noise", "converged. The moments", "sweeps", "time", f"written: {model}"):  # fmt: skip
        assert words in result.output
    first = next(line for line in result.output.split("P(own label)", 1)[1].splitlines() if "yes" in line)
    assert first.split()[0] == str(WRONG + 2)
    page = report.read_text(encoding="utf-8")
    for words in ("Suspected wrong labels", "Calibration", "Evidence over kernels", "Convergence", "matern"):
        assert words in page
    assert page.count("data:image/png;base64,") == 3

    a, b, colour, _ = measurements()
    scaled = StandardScaler().fit_transform(np.column_stack([a, b]))
    hot = OneHotEncoder(sparse_output=False).fit_transform(colour[:, None])
    estimator, recipe = load_model(model)
    assert recipe.features == ("a", "b", "colour=blue", "colour=green", "colour=red")
    np.testing.assert_allclose(recipe.matrix(read_sheet(data)), np.hstack([scaled, hot]), rtol=1e-12, atol=1e-13)
    plain = load(model)  # the same file is one of the library's own
    np.testing.assert_array_equal(plain.predict_proba(np.hstack([scaled, hot])[:5]).shape, (5, 2))
    assert plain.log_evidence_ == estimator.log_evidence_


def test_an_existing_file_is_replaced_only_on_demand(data, tmp_path):
    model = tmp_path / "model.npz"
    model.write_text("mine", encoding="utf-8")
    refused = fit(data, model)
    assert (refused.exit_code, model.read_text(encoding="utf-8")) == (2, "mine")
    assert "--overwrite" in refused.output
    assert fit(data, model, "--overwrite").exit_code == 0
    assert load(model).classes_.tolist() == ["no", "yes"]


def test_the_model_is_kept_when_the_page_cannot_be_made(data, tmp_path, monkeypatch):
    def broken(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cavity._cli.fit, "classifier_page", broken)
    monkeypatch.setattr(cavity._cli.fit, "COMPARED", ())
    result = fit(data, tmp_path / "model.npz", "--report", tmp_path / "report.html")
    assert result.exit_code == 2
    assert "No space left on device." in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "model.npz"]
    assert load(tmp_path / "model.npz").classes_.tolist() == ["no", "yes"]


def test_a_search_that_failed_is_told():
    class Machine:
        history: ClassVar = [{"refused": True}]

    class Estimator:
        models_: ClassVar = [Machine()]

        def fit(self, X, y):
            warnings.warn("once", stacklevel=1)
            warnings.warn("once", stacklevel=1)

    assert [note.split()[:3] for note in fit_with_notes(Estimator(), None, None)] == [
        ["once"],
        ["The", "search", "for"],
    ]
    Machine.history = [{"refused": True}, {"refused": False}]
    assert fit_with_notes(Estimator(), None, None) == ["once"]


def test_a_long_fit_is_told_and_can_be_saved(tmp_path):
    told = []
    estimator = GPClassifier(RBF(1.0), optimize=False)
    a, b, _, label = measurements()
    assert fit_with_notes(estimator, np.column_stack([a, b / 30]), label, told.append) == []
    assert told[0].startswith("GPClassifier: sweep 1, mismatch")
    estimator.save(tmp_path / "model.npz")


def test_memory_that_is_not_there(data, tmp_path, monkeypatch):
    def hungry(*arguments):
        raise MemoryError

    monkeypatch.setattr(cavity._cli.fit, "fit_with_notes", hungry)
    result = fit(data, tmp_path / "model.npz")
    assert result.exit_code == 2
    assert "not enough memory" in result.output and result.output.count("\n") == 1


def test_an_interruption_ends_with_a_sentence(data, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(cavity._cli.fit, "fit_with_notes", lambda *arguments: signal.raise_signal(signal.SIGINT))
    result = fit(data, tmp_path / "model.npz")
    assert (result.exit_code, result.output) == (130, "Stopped; nothing was written.\n")
    assert not (tmp_path / "model.npz").exists()
    assert signal.getsignal(signal.SIGINT) is before


BAD_FILES = {
    "empty": (b"", "is empty: it must begin with a row of names"),
    "names only": (b"a,y\n", "has a row of names and no row below it"),
    "twice": (b"a,b,a,y\n1,2,3,yes\n", "row 1 must name each column once; found 'a' in columns 1 and 3"),
    "no name": (b"a,,y\n1,2,yes\n", "row 1, column 2 has no name"),
    "text": (b"a,y\n1,yes\n\nred,no\n", "row 4, column 'a' must be a number; found 'red'"),
    "infinite": (b"a,y\n1,yes\ninf,no\n", "row 3, column 'a' must be a finite number; found 'inf'"),
    "underscore": (b"a,y\n1_0,yes\n2,no\n", "row 2, column 'a' must be a number; found '1_0'"),
    "missing": (b"a,b,y\n1,2,yes\n3,,no\n", "row 3, column 'b': the value is missing; --missing drop"),
    "NaN": (b"a,b,y\n1,NaN,yes\n3,1,no\n", "row 2, column 'b': the value is missing; --missing drop"),
    "no label": (b"a,b,y\n1,2,yes\n3,4,?\n", "row 3, column 'y': the label is missing"),
    "short": (b"a,b,y\n1,2,yes\n3,no\n", "row 3 has 2 cells where there are 3 columns: column 'y' is missing"),
    "long": (b"a,b,y\n1,2,yes,4\n", "row 2 has 4 cells where there are 3 columns, 'y' last"),
    "latin": ("a,b,y\n1,2,yes\n3,é,no\n".encode("latin-1"), "row 3, column 'b' is not text in UTF-8"),
    "utf-16": ("a,b,y\n1,2,yes\n".encode("utf-16"), "row 1, column 1 is not text in UTF-8"),
    "quote": (b'a,y\n1,yes\n"2,no\n', "row 3 cannot be read as CSV"),
    "one name": (b",y\n1,yes\n", "at least one other column; found 'y' alone"),
    "two of text": (b"a,b,c,y\nred,1,blue,no\n", "or with --ignore. Other columns that cannot be used: 'c'."),
    "long cell": (b"a,y\n" + b"z" * 9000 + b",no\n", "row 2, column 'a' must be a number; found 'zzz"),
    "semicolons": (b"a;b;y\n1;2;yes\n", "Is --separator ';' meant?"),
    "another label": (b"a,label\n1,yes\n", "there is no 'y' among 'a', 'label'"),
    "one class": (b"a,y\n1,yes\n2,yes\n", "column 'y' must hold at least two labels; found 'yes' alone"),
    "no classes": (b"a,y\n" + b"".join(b"1,%d\n" % row for row in range(51)), "51 different values, more than 50"),
    "steering": (b"a,y\n1,yes\n\x1b[2J,no\n", r"found '\x1b[2J'"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_named_by_row_and_column_in_one_sentence(name, tmp_path):
    content, part = BAD_FILES[name]
    data = tmp_path / "data.csv"
    data.write_bytes(content)
    result = call("fit", data, "--label", "y", "--out", tmp_path / "model.npz", *QUICK)
    assert result.exit_code == 2, result.output
    assert part in result.output
    assert result.output.count("\n") == 1 and result.output.endswith((".\n", "?\n")), result.output
    assert not (tmp_path / "model.npz").exists()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--kernel", "cubic"], "--kernel must be one of rbf, ard, matern, poly, linear; found 'cubic'."),
        (["--likelihood", "normal"], "--likelihood must be one of step, probit, logistic; found 'normal'."),
        (["--label-noise", "half"], "--label-noise must be auto or a number in [0, 0.5); found 'half'."),
        (["--label-noise", "0.5"], "--label-noise must be auto or a number in [0, 0.5); found 0.5."),
        (["--method", "adf", "--label-noise", "auto"], "--label-noise must be a number with it; found auto."),
        (["--missing", "guess"], "--missing must be one of error, drop, mean; found 'guess'."),
        (["--separator", "::"], "--separator must be one character"),
        (["--categorical", "shape"], "--categorical must name a column of"),
        (["--ignore", "y"], "--ignore must not name the label column 'y'."),
        (["--ignore", "a", "--ignore", "b", "--ignore", "colour"], "has no column left beside the label 'y'."),
        (["--out", "nowhere/model.npz"], "--out must name a file in a folder that exists"),
    ],
)
def test_a_bad_option_gets_one_sentence(data, tmp_path, options, part):
    result = call("fit", data, "--label", "y", "--out", tmp_path / "model.npz", *options)
    assert result.exit_code == 2
    assert part in result.output
    assert result.output.count("\n") == 1


def test_the_data_are_never_overwritten(data, tmp_path):
    before = data.read_bytes()
    for options in (["--out", data], ["--out", tmp_path / "model.npz", "--report", data]):
        result = call("fit", data, "--label", "y", "--overwrite", *options)
        assert result.exit_code == 2
        assert "must not name a file the command reads or writes already" in result.output
    assert data.read_bytes() == before


def test_missing_values_are_dropped_or_replaced_by_means(tmp_path):
    rows = [["1", "x", "yes"], ["NA", "x", "no"], ["3", "", "yes"], ["5", "z", "no"]]
    sheet = read_sheet(write_csv(tmp_path / "gaps.csv", ["a", "c", "y"], rows))
    recipe, kept = learn_preprocessing(sheet, "y", ("c",), (), "drop", True)
    assert kept.numbers == (2, 5)
    np.testing.assert_allclose(recipe.matrix(kept), [[-1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    recipe, kept = learn_preprocessing(sheet, "y", ("c",), (), "mean", False)
    expected = [[1.0, 1.0, 0.0], [3.0, 1.0, 0.0], [3.0, 2 / 3, 1 / 3], [5.0, 0.0, 1.0]]
    np.testing.assert_allclose(recipe.matrix(kept), expected)
    assert labels(kept, "y").tolist() == ["yes", "no", "yes", "no"]


def test_rows_are_numbered_as_a_spreadsheet_does(tmp_path):
    path = tmp_path / "excel.csv"
    path.write_bytes('\ufeffa, b ,y\r\n1,"two\nlines",yes\r\n,,\r\n 3 ,4,no\r\n'.encode())
    sheet = read_sheet(path)
    assert (sheet.columns, sheet.numbers) == (("a", "b", "y"), (2, 4))
    assert sheet.rows == [["1", "two\nlines", "yes"], ["3", "4", "no"]]


def test_labels_that_are_one_number_are_one_class_and_empty_rows_are_named(tmp_path):
    a, b, _, label = measurements()
    spelled = [("1", "1.0", "01")[row % 3] if word == "yes" else "0" for row, word in enumerate(label)]
    rows = [[str(x), str(z), word] for x, z, word in zip(a, b, spelled, strict=True)]
    path = write_csv(tmp_path / "data.csv", ["a", "b", "y"], [*rows[:2], ["", " ", ""], *rows[2:], ["", "", ""]])
    result = call("fit", path, "--label", "y", "--out", tmp_path / "model.npz", *QUICK)
    assert result.exit_code == 0, result.output
    assert load(tmp_path / "model.npz").classes_.tolist() == ["0", "1"]
    assert f"Note: Empty rows of {path} that were passed over: 2 (row 4, 33)." in result.output
    assert "Note: Labels that are the same number are one class; other spellings were: '01', '1.0'." in result.output
    predicted = call("predict", tmp_path / "model.npz", path, "--out", tmp_path / "out.csv")
    assert "passed over: 2 (row 4, 33)." in predicted.output and "30 rows predicted" in predicted.output


def test_long_numbers_that_differ_are_different_labels(tmp_path):
    rows = [["1", "9007199254740992"], ["2", "9007199254740993"]]
    sheet = read_sheet(write_csv(tmp_path / "long.csv", ["a", "y"], rows))
    assert labels(sheet, "y").tolist() == [row[1] for row in rows]


def test_constant_and_huge_columns_stay_finite(tmp_path):
    rows = [["0.1", "1e308", "yes"], ["0.1", "-1e308", "no"], ["0.1", "1e308", "no"]]
    sheet = read_sheet(write_csv(tmp_path / "huge.csv", ["a", "b", "y"], rows))
    recipe, kept = learn_preprocessing(sheet, "y", (), (), "error", True)
    expected = StandardScaler().fit_transform([[0.1, 1.0], [0.1, -1.0], [0.1, 1.0]])
    np.testing.assert_allclose(recipe.matrix(kept), expected, atol=1e-15)


def notes(path, content):
    """What is said of a labelled file."""
    path.write_text(content, encoding="utf-8")
    return read_labelled(path, Reading("y", ["colour"], None, "mean", True, ","))[-1]


def test_columns_and_classes_that_may_be_mistakes_are_mentioned(tmp_path):
    rows = "".join(f"{k % 3},red,{'Yes' if k % 2 else 'YES'}\n" for k in range(12))
    path = tmp_path / "data.csv"
    same, one = notes(path, f"a,colour,y\n{rows}")
    assert "'YES', 'Yes'" in same and "'colour' holds one value alone, 'red'" in one
    quiet = "".join(f"{k % 5 + 0.5},{('red', 'blue')[k % 2]},{k % 2}\n" for k in range(12))
    assert notes(path, f"a,colour,y\n{quiet}") == []
    (found,) = notes(path, f"a,colour,y\n{quiet}1e5,red,1\n")
    assert found.startswith(
        f"{path}, row 14, column 'a': 100000 is so far from the others that these become nearly equal"
    )
    words = "".join(f"{k % 5 + 0.5},{k},{k % 2}\n" for k in range(12))
    (found,) = notes(path, f"a,colour,y\n{words}")
    assert "'colour' holds another word in every row" in found


def test_a_table_without_an_end_is_refused(tmp_path):
    for source, words in ((Path("/dev/zero"), "a line of more than"), (tmp_path / "long.csv", "too many characters")):
        if source.name == "long.csv":
            source.write_text("a,y\n" + "1,2\n" * 100, encoding="utf-8")
        with pytest.raises(ValueError, match=words):
            read_sheet(source, max_bytes=2**30 if source.name == "zero" else 100)
