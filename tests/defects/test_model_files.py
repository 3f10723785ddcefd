"""Files that are written, and files that are read.

Each test states the right answer of a known defect and fails today; whoever mends the defect takes the mark off.
"""

import csv
import os
import pickle
import stat

import jax
import numpy as np
import pytest
from command_line import QUICK, call, write_csv

import cavity as cv
from cavity import _storage

X = np.linspace(-2.0, 2.0, 20)[:, None]
LABELS = np.where(X[:, 0] > 0, "yes", "no")


@pytest.fixture(scope="module")
def model():
    """A linear classifier of one feature."""
    return cv.BayesPointMachine(likelihood="probit", label_noise=0.05).fit(X, LABELS)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A model file of the command line, and a file to predict from."""
    folder = tmp_path_factory.mktemp("table")
    rows = [(*row, label) for row, label in zip(np.hstack([X, X**2]).tolist(), LABELS, strict=True)]
    data = write_csv(folder / "data.csv", ["a", "b", "y"], rows)
    result = call("fit", data, "--label", "y", "--out", folder / "model.npz", "--kernel", "linear", *QUICK)
    assert result.exit_code == 0, result.output
    return folder / "model.npz", data


def saved_or_refused(model, path):
    """Save to this path; a refusal must name it."""
    try:
        model.save(path)
    except (OSError, ValueError) as error:
        assert path.name in str(error), repr(error)  # noqa: PT017
        return False
    return True


def test_a_model_is_not_saved_over_a_fifo(model, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    written = saved_or_refused(model, path)
    assert stat.S_ISFIFO(os.lstat(path).st_mode) and not written


def test_a_file_that_is_replaced_keeps_its_mode(model, tmp_path):
    path = tmp_path / "model.npz"
    path.touch()
    path.chmod(0o600)
    saved_or_refused(model, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_model_is_saved_through_a_symbolic_link_or_not_at_all(model, tmp_path):
    target, path = tmp_path / "target.npz", tmp_path / "link.npz"
    target.write_bytes(b"old")
    path.symlink_to(target)
    written = saved_or_refused(model, path)
    assert path.is_symlink()
    assert (target.read_bytes() != b"old") == written


def test_no_output_of_the_command_line_replaces_a_fifo(tmp_path):
    network, path = tmp_path / "one.uai", tmp_path / "pipe"
    network.write_text("MARKOV\n1\n2\n1\n1 0\n2\n0.25 0.75\n")
    os.mkfifo(path)
    result = call("infer", network, "--approximation", "exact", "--out", path, "--overwrite")
    assert stat.S_ISFIFO(os.lstat(path).st_mode)
    assert result.exit_code == 2 and "--out" in result.output, result.output


def test_an_output_does_not_replace_a_dangling_link_unasked(tmp_path):
    network, path = tmp_path / "one.uai", tmp_path / "link"
    network.write_text("MARKOV\n1\n2\n1\n1 0\n2\n0.25 0.75\n")
    path.symlink_to(tmp_path / "nowhere")
    call("infer", network, "--approximation", "exact", "--out", path)
    assert path.is_symlink()


def changed(path, target, header=None, **arrays):
    """A model file with other values in it."""
    kind, head, held = _storage.load(path)
    if header is not None:
        header(head)
    for name, value in arrays.items():
        (own,) = (key for key in held if key.endswith(f"/{name}") or key == name)
        held[own] = value(held[own])
    _storage.save(target, kind, head, held)
    return target


def of_noise(head):
    """Label noise 5."""
    head["models"][0]["factor"]["label_noise"] = 5.0


CHANGES = {
    "mean that is not a number": {"mean": lambda own: own * np.nan},
    "negative covariance": {"covariance": lambda own: -own},
    "label noise of 5": {"header": of_noise},
    "three classes for one machine": {"classes_": lambda own: np.array(["maybe", "no", "yes"])},
    "one class": {"classes_": lambda own: own[:1]},
    "weights of text": {"mean": lambda own: own.astype(str)},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_model_file_with_impossible_values_is_refused_by_name(model, tmp_path, change):
    model.save(tmp_path / "good.npz")
    assert cv.load(tmp_path / "good.npz").predict(X).tolist() == model.predict(X).tolist()
    bad, found = changed(tmp_path / "good.npz", tmp_path / "bad.npz", **change), None
    try:
        cv.load(bad)
    except ValueError as error:
        found = str(error)
    assert found is not None and "bad.npz" in found, found


@pytest.mark.parametrize("change", ["mean that is not a number", "one class", "weights of text"])
def test_predicting_from_a_model_file_with_impossible_values_ends_in_a_sentence(table, tmp_path, change):
    path, data = table
    bad = changed(path, tmp_path / "bad.npz", **CHANGES[change])
    result = call("predict", bad, data, "--out", tmp_path / "out.csv")
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    if result.exit_code == 0:
        with open(tmp_path / "out.csv", newline="") as file:
            assert all(row["P(yes)"] != "nan" for row in csv.DictReader(file))
    assert result.exit_code == 2 and "bad.npz" in result.output, result.output


def test_a_pickled_ordinal_model_predicts_the_same_bits():
    grades = np.digitize(X[:, 0], [-0.7, 0.7])
    fitted = cv.GPOrdinal(cv.kernels.RBF(1.0), optimize=False).fit(X, grades)
    new = np.linspace(-3.0, 3.0, 7)[:, None]
    with jax.enable_x64(False):  # as users have it
        expected = fitted.predict_proba(new)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(new), expected)
