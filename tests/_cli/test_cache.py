"""Programs compiled beforehand, shown and deleted from the command line."""

import os
import signal
import subprocess
import sys

import pytest
from command_line import call

import cavity._cli.warm
from cavity._core.kept_programs import ProgramFolder, kept_files


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder for programs, and nothing that JAX has been told."""
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CAVITY_CACHE", str(tmp_path / "programs"))
    return tmp_path / "programs"


def words(result):
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_programs_compiled_beforehand_are_found_shown_and_deleted(root):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "cavity", "warm", "clutter"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    kept = list(kept_files(root))
    assert len(kept) > 5
    last = done.stdout.splitlines()[-1]
    assert last == f"kept: {len(kept)} programs, {sum(file.size for file in kept) / 1e6:.1f} MB, in {root}"
    assert f"s {len(kept)}" in " ".join(done.stdout.split())
    again = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert again.returncode == 0, again.stderr
    before, kept = {file.path for file in kept}, list(kept_files(root))
    assert before <= {file.path for file in kept}
    assert len(kept) <= len(before) + 2  # the clock divides sweeps into chunks, so a run may take one program more
    shown = words(call("cache"))
    assert f"programs {len(kept)} of this version and machine {len(kept)}" in shown and f"folder: {root}" in shown
    (kept[0].path.parent / "notes.txt").write_text("mine", encoding="utf-8")
    assert words(call("cache", "--clear")).startswith(f"deleted: {len(kept)} programs")
    assert list(kept_files(root)) == [] and (kept[0].path.parent / "notes.txt").exists()


def test_other_versions_are_counted_apart(root):
    root.mkdir(mode=0o700)
    ProgramFolder(root).put("jit_f-0", b"x" * 1_000_000)
    other = root / "cavity-0.0.1-jax-0.1-jaxlib-0.1-x86_64-00"
    other.mkdir()
    (other / "jit_g-1.program").write_bytes(b"x" * 500_000)
    shown = words(call("cache"))
    assert "programs 2 of this version and machine 1 size 1.5 MB, at most 1000.0 MB" in shown


@pytest.mark.parametrize("command", ["cache", "warm"])
def test_where_nothing_is_kept_a_sentence_says_why(root, monkeypatch, command):
    monkeypatch.setenv("CAVITY_CACHE", "off")
    result = call(command)
    assert (result.exit_code, result.output) == (2, "No programs are kept: CAVITY_CACHE is off.\n")
    monkeypatch.setenv("CAVITY_CACHE", str(root))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/somewhere")
    result = call(command)
    assert result.exit_code == 2 and "JAX_COMPILATION_CACHE_DIR is set" in result.output


def test_an_unknown_case_is_named(root):
    result = call("warm", "clutter", "dragons")
    assert result.exit_code == 2 and "found 'dragons'" in result.output


def test_a_folder_that_cannot_be_used_is_named(root, monkeypatch):
    monkeypatch.setattr(cavity._cli.warm, "the_folder", lambda: None)
    result = call("warm", "clutter")
    assert result.exit_code == 2 and f"{root} cannot be used" in result.output


def test_ctrl_c_ends_with_a_sentence(root, monkeypatch):
    monkeypatch.setitem(cavity._cli.warm.CASES, "clutter", [lambda: signal.raise_signal(signal.SIGINT)])
    result = call("warm", "clutter")
    assert (result.exit_code, result.output) == (130, "Stopped; what was compiled until now is kept.\n")


def test_every_case_computes_something(root, monkeypatch):
    """The quick ones are run; estimators are replaced, and are tested elsewhere."""
    asked = []

    class Estimator:
        def fit(self, X, y):
            asked.append(len(X))
            return self

        def predict_proba(self, X):
            return X

        def predict(self, X, return_std):
            return X

    for name in ("GPClassifier", "GPRegressor", "BayesPointMachine"):
        monkeypatch.setattr(cavity._cli.warm, name, Estimator)
    for name in ("classifier", "regressor", "bayes-point"):
        for compute in cavity._cli.warm.CASES[name]:
            compute()
    assert asked == [*cavity._cli.warm.ROWS, *cavity._cli.warm.ROWS, 1000]
    for name in ("network", "mean-precision", "ratings"):
        (compute,) = cavity._cli.warm.CASES[name]
        assert compute().converged
