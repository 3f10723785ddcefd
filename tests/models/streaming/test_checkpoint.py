"""Runs over a stream that are interrupted, killed or taken up again, and files that do not fit."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from stream_rows import LABELS, ROWS, SMALL, check, cut, reference, streamed

import cavity
from cavity import _storage
from cavity.factors import Step
from cavity.models.streaming import _chunks


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(_chunks, "CHUNK_ROWS", SMALL)


class Watched:
    """Batches that can be read again, note what was taken, and may break off."""

    def __init__(self, stop=None, error=KeyboardInterrupt):
        self.taken, self.stop, self.error = [], stop, error

    def __call__(self):
        for number, batch in enumerate(cut(ROWS, LABELS, 20)):
            if self.stop is not None and len(self.taken) >= self.stop:
                raise self.error
            self.taken.append(number)
            yield batch


@pytest.mark.parametrize("stop", [4, 13, 27])
def test_an_interrupted_run_goes_on_with_the_same_numbers(tmp_path, stop):
    whole = streamed(Watched(), checkpoint=tmp_path / "whole.npz")
    path = tmp_path / "run.npz"
    broken = streamed(Watched(stop), checkpoint=path)
    assert broken.status == "interrupted" and np.isfinite(broken.mean).all() and np.isfinite(broken.log_evidence)
    _, header, _ = _storage.load(path)
    finished = sum(entry["pass"] == "sweep" for entry in header["models"][0]["history"])
    position = header["progress"]["position"]
    assert (finished, position) == (stop * 20 // 200, stop * 20 % 200 // SMALL * SMALL)
    again = Watched()
    found = streamed(again, resume=path)
    np.testing.assert_array_equal(found.mean, whole.mean)
    np.testing.assert_array_equal(found.covariance, whole.covariance)
    assert found.log_evidence == whole.log_evidence and found.sweeps == whole.sweeps
    # Rows of a finished pass are not visited again, and the pass that broke off goes on where it stopped.
    assert [entry["rows"] for entry in found.history] == [200] * (whole.sweeps + 1)
    assert [entry["resumed"] for entry in found.history] == [
        [position] if position and number == finished else [] for number in range(whole.sweeps + 1)
    ]
    # The end is a checkpoint too: it answers at once, and a tighter tolerance goes on from it.
    rest = Watched()
    np.testing.assert_array_equal(streamed(rest, resume=path).mean, whole.mean)
    assert len(rest.taken) <= 4


def test_a_finished_run_goes_on_to_a_tighter_tolerance(tmp_path):
    path = tmp_path / "run.npz"
    loose = streamed((ROWS, LABELS), method=cavity.EP(tol=1e-3), checkpoint=path)
    tight = streamed((ROWS, LABELS), resume=path)
    assert loose.sweeps < tight.sweeps and tight.mismatch <= 1e-12
    check(tight, reference())


def test_a_bad_batch_late_in_a_run_loses_nothing(tmp_path):
    path = tmp_path / "run.npz"
    with pytest.raises(OSError, match="gone"):
        streamed(Watched(15, OSError("gone")), checkpoint=path)
    found = streamed(Watched(), resume=path)
    check(found, reference())


KILLED = """
import os, signal, sys
import numpy as np
import cavity
from cavity.factors import Step
from cavity.models.streaming import _chunks, stream_linear_models

_chunks.CHUNK_ROWS = 64
folder, kill_at, ending = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data = np.load(folder + "/rows.npz")
taken = open(folder + "/taken.txt", "a", buffering=1)


def batches():
    for number in range(10):
        own = slice(20 * number, 20 * number + 20)
        taken.write(f"{number}\\n")
        if kill_at and len(open(folder + "/taken.txt").readlines()) == kill_at:
            os.kill(os.getpid(), ending)
        yield data["X"][own], data["y"][own]


path = folder + "/run.npz"
known = {"resume": path} if os.path.exists(path) else {"checkpoint": path}
(model,), _ = stream_linear_models(batches, factor=Step(0.1), method=cavity.EP(tol=1e-12), every=1e-9, **known)
np.savez(folder + "/answer.npz", mean=model.mean, covariance=model.covariance, evidence=model.log_evidence)
print([entry["rows"] for entry in model.history], [entry["resumed"] for entry in model.history])
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_goes_on(tmp_path, ending):
    """A signal in the third pass, after a checkpoint at every chunk: the answer is that of an untouched run."""
    np.savez(tmp_path / "rows.npz", X=ROWS, y=LABELS)

    def run(kill_at):
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), str(kill_at), str(int(ending))]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert run(28).returncode == -ending
    before = (tmp_path / "taken.txt").read_text().split()
    assert len(before) == 28 and not os.path.exists(tmp_path / "answer.npz")
    ended = run(0)
    assert ended.returncode == 0, ended.stderr
    answer = np.load(tmp_path / "answer.npz")
    expected = reference()
    np.testing.assert_allclose(answer["mean"], expected.mean, atol=1e-11)
    np.testing.assert_allclose(answer["covariance"], expected.covariance, atol=1e-11)
    assert answer["evidence"] == pytest.approx(expected.log_evidence, abs=1e-9)
    whole = streamed((ROWS, LABELS))
    assert ended.stdout.split("] [")[0] + "]" == str([200] * len(whole.history))
    assert "[], [], [64], []" in ended.stdout  # of two chunks seen of the third pass the first was behind a checkpoint


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    streamed((ROWS, LABELS), method=cavity.ADF(), checkpoint=path)

    def refused(match, batches=(ROWS, LABELS), **changes):
        with pytest.raises(ValueError, match=match):
            streamed(batches, **{"method": cavity.ADF(), "resume": path, **changes})

    refused("belongs to another run: it differs in first rows", (ROWS + 1e-9, LABELS))
    refused("differs in columns, first rows", (ROWS[:, :2], LABELS))
    refused("differs in likelihood", factor=Step(0.2))
    refused("differs in prior", prior_variance=2.0)
    refused("differs in method", method=cavity.EP(damping=0.5))
    refused("resume needs batches that can be read again; found an iterator", iter(cut(ROWS, LABELS, 20)))
    refused("checkpoint must be the file given as resume", checkpoint=tmp_path / "other.npz")
    refused("is there already; go on from it with resume=, or remove it", resume=None, checkpoint=path)
    refused("does not exist", resume=tmp_path / "nothing.npz")
    refused("every must be positive", every=0.0)
    _storage.save(path, "GPClassifier", {}, {})
    refused("holds 'GPClassifier', which is not the checkpoint of a stream")
    _storage.save(path, "stream", {"fingerprint": {}}, {})
    refused("is damaged: it does not describe a stream")


def test_sites_that_are_gone_are_missed(tmp_path):
    path = tmp_path / "run.npz"
    streamed(Watched(15), checkpoint=path)
    for file in tmp_path.glob("run.npz.sites*"):
        file.write_bytes(b"")
    with pytest.raises(_storage.StorageError, match="is damaged: it ends before the sites of chunk 1"):
        streamed(Watched(), resume=path)
