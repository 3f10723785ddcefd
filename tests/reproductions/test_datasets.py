"""Data sets: the strict reader, the folder before the network, labels recoded and counted."""

import os

import numpy as np
import pytest
import sklearn.datasets
from cavity_reproductions import datasets
from cavity_reproductions.datasets.catalogue import CLASSIFICATION
from sklearn.utils import Bunch

GOOD = "age,size,label\n1,2.5,1\n-3,1e3,-1\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def no_folder(monkeypatch):
    monkeypatch.delenv("CAVITY_DATA", raising=False)


def fake_openml(monkeypatch, result):
    calls = []

    def fetch(**arguments):
        calls.append(arguments)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    return calls


def bunch(X, target, names, categories=None):
    return Bunch(
        data=X,
        target=np.asarray(target, object),
        feature_names=names,
        categories=categories or {},
        url="openml.org/d/0",
    )


def test_a_file_in_the_folder_is_read(folder):
    (folder / "heart.csv").write_text(GOOD)
    X, y, columns, name, source = datasets.load("heart")
    np.testing.assert_array_equal(X, [[1.0, 2.5], [-3.0, 1000.0]])
    assert y.tolist() == [1, -1] and y.dtype.kind == "i"
    assert columns == ("age", "size") and name == "heart" and source == str(folder / "heart.csv")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "row of names"),
        ("label\n1\n", "at least one other column"),
        ("a,b\n1,1\n", "the last of them 'label'"),
        ("a,a,label\n1,1,1\n", "each column once; found 'a'"),
        ("a,label\n", "no row below it"),
        ("a,b,label\n1,2,1\n1,,1\n", "row 3, column 'b' must be a finite number; found ''"),
        ("a,b,label\n1,nan,1\n", "row 2, column 'b'.*found 'nan'"),
        ("a,label\n1_0,1\n", "found '1_0'"),
        ("a,label\n1,1\n1\n", "row 3 has 1 cells where there are 2 columns"),
        ("a,label\n1,2,1\n", "row 2 has 3 cells where there are 2 columns"),
        ("a,label\n1,0\n", "row 2, column 'label' must be -1 or 1; found '0'"),
        ('a,label\n"1"x,1\n', "CSV"),
        (b"\xff\xfe,label\n", "UTF-8"),
    ],
)
def test_bad_files_are_named_by_row_and_column(folder, text, word):
    (folder / "sonar.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=word) as caught:
        datasets.load("sonar")
    assert "sonar.csv" in str(caught.value)


def test_openml_is_asked_when_the_folder_has_no_file(folder, monkeypatch):
    # the year of operation is a category on OpenML: it arrives as a position among the texts 58 … 69
    X = np.column_stack([np.full(306, 50.0), np.arange(306) % 12, np.zeros(306)])
    years = [str(year) for year in range(58, 70)]
    target = ["2"] * 81 + ["1"] * 225
    calls = fake_openml(monkeypatch, bunch(X, target, ["age", "year", "nodes"], {"year": years}))
    data = datasets.load("haberman")
    assert calls == [{"data_id": 43, "as_frame": False, "parser": "liac-arff"}]
    assert (data.y[:81] == 1).all() and (data.y[81:] == -1).all()
    np.testing.assert_array_equal(data.X[:, 1], 58 + np.arange(306) % 12)
    assert "OpenML haberman" in data.source


def test_three_classes_are_merged_and_sets_without_a_number_asked_by_name(no_folder, monkeypatch):
    target = ["1"] * 150 + ["2"] * 35 + ["3"] * 30
    calls = fake_openml(monkeypatch, bunch(np.ones((215, 5)), target, list("abcde")))
    assert np.sum(datasets.load("thyroid").y) == 65 - 150
    assert calls[0]["name"] == "thyroid-new" and calls[0]["version"] == 1


@pytest.mark.parametrize(
    ("result", "error", "word"),
    [
        (OSError("no route"), ConnectionError, "no route.*CAVITY_DATA"),
        (bunch(np.ones((270, 13)), ["present"] * 120 + ["gone"] * 150, ["f"] * 13), ValueError, "found 'gone'"),
        (
            bunch(np.ones((270, 13)), ["present"] * 150 + ["absent"] * 120, [f"f{i}" for i in range(13)]),
            ValueError,
            "120 labels \\+1; found 270, 13 and 150",
        ),
        (bunch(np.full((270, 13), np.nan), ["absent"] * 270, ["f"] * 13), ValueError, "missing cells"),
    ],
    ids=["offline", "labels", "counts", "missing"],
)
def test_what_openml_gives_is_checked(no_folder, monkeypatch, result, error, word):
    fake_openml(monkeypatch, result)
    with pytest.raises(error, match=word):
        datasets.load("heart")


def test_a_set_that_is_nowhere_else_asks_for_the_folder(no_folder):
    with pytest.raises(FileNotFoundError, match=r"not on OpenML.*CAVITY_DATA"):
        datasets.load("pima_ripley")


def test_a_folder_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="CAVITY_DATA must name a folder"):
        datasets.load("heart")


def test_bundled_sets(no_folder):
    sizes = {"breast_cancer": (569, 30, 2), "iris": (150, 4, 3), "wine": (178, 13, 3), "digits": (1797, 64, 10)}
    for name, (rows, features, classes) in sizes.items():
        data = datasets.load(name)
        assert data.X.shape == (rows, features) and len(data.feature_names) == features
        assert set(data.y.tolist()) == set(range(classes))
    digits = datasets.load("digits_3_vs_5")
    assert digits.X.shape == (365, 64) and np.sum(digits.y == 1) == 183 and np.sum(digits.y == -1) == 182


def test_unknown_names_have_near_matches(no_folder):
    with pytest.raises(ValueError, match="did you mean ionosphere"):
        datasets.load("ionosfere")
    with pytest.raises(ValueError, match="known are banknote, "):
        datasets.load("zzz")
    assert len(datasets.names()) == 16 and datasets.names() == tuple(sorted(datasets.names()))


@pytest.mark.skipif("CAVITY_DATA" not in os.environ, reason="CAVITY_DATA names no folder with the data sets")
@pytest.mark.parametrize("name", CLASSIFICATION)
def test_files_have_the_sizes_of_the_catalogue(name):
    data, entry = datasets.load(name), CLASSIFICATION[name]
    assert data.source.endswith(f"{name}.csv")
    assert (*data.X.shape, np.sum(data.y == 1)) == (entry.rows, entry.features, entry.positives)
