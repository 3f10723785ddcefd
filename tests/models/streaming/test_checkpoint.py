"""Runs over a stream that are interrupted, killed or taken up again, and files that do not fit."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from io import FileIO

import numpy as np
import pytest
from stream_rows import LABELS, ROWS, SMALL, check, cut, reference, streamed

import cavity
from cavity import _storage
from cavity.factors import Step
from cavity.models.streaming import _checkpoint, _chunks


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


def test_a_full_disk_is_one_error_and_the_last_checkpoint_is_whole(tmp_path, monkeypatch):
    """No file may grow beyond 2,000 bytes after the first pass, which 128 rows of sites do."""
    whole, path, passes = streamed((ROWS, LABELS)), tmp_path / "run.npz", []
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def batches():
        passes.append(1)
        if len(passes) == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
        yield from cut(ROWS, LABELS, 20)

    try:
        with pytest.raises(_storage.StorageError, match=r"run.npz.sites0 cannot be written: File too large") as full:
            streamed(batches, checkpoint=path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert full.value.__notes__ == [f"{path} holds all before row 0 of pass 2, for resume=."]
    kept = path.read_bytes()

    def no_room(file, members):
        file.write(b"PK")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("cavity._storage.npz.write_members", no_room)
        with pytest.raises(_storage.StorageError, match=r"run.npz cannot be written: No space left on device"):
            streamed(cut(ROWS, LABELS, 20), resume=path)
    assert path.read_bytes() == kept and not list(tmp_path.glob("*.part"))
    found = streamed(cut(ROWS, LABELS, 20), resume=path)
    np.testing.assert_array_equal(found.mean, whole.mean)
    np.testing.assert_array_equal(found.covariance, whole.covariance)


def test_whatever_moment_a_run_is_killed_at_it_goes_on_with_the_same_numbers(tmp_path, monkeypatch):
    """The files as they are before and in the middle of every write and every replacement of the checkpoint."""
    run, kept = tmp_path / "run", []
    run.mkdir()

    def keep():
        kept.append({file.name: file.read_bytes() for file in run.iterdir() if not file.name.endswith(".part")})

    class Torn(FileIO):
        def write(self, data):
            keep()
            half = super().write(data[: -(-len(data) // 2)])
            keep()
            return half

    def replace(part, target):
        keep()
        os.rename(part, target)

    with monkeypatch.context() as patch:
        patch.setattr(_checkpoint, "FileIO", Torn)
        patch.setattr("cavity._storage.npz.os.replace", replace)
        whole = streamed(cut(ROWS, LABELS, 20), checkpoint=run / "run.npz", every=1e-9)
    moments = [moment for moment in kept if "run.npz" in moment]
    assert len(moments) > 100
    for number in np.random.default_rng(0).choice(len(moments), 25, replace=False):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        for name, data in moments[number].items():
            (folder / name).write_bytes(data)
        found = streamed(cut(ROWS, LABELS, 20), resume=folder / "run.npz")
        np.testing.assert_array_equal(found.mean, whole.mean)
        np.testing.assert_array_equal(found.covariance, whole.covariance)
        assert found.log_evidence == whole.log_evidence and found.sweeps == whole.sweeps


@pytest.mark.parametrize("seed", range(3))
def test_sites_that_are_not_those_written_are_missed(tmp_path, seed):
    """One flipped bit, the sites of another sweep and those of another run."""
    path, other = tmp_path / "run.npz", tmp_path / "other.npz"
    streamed(Watched(15), checkpoint=path)
    streamed(Watched(15), factor=Step(0.2), checkpoint=other)
    places = [tmp_path / f"run.npz.sites{number}" for number in (0, 1)]
    read = places[1]  # by the second sweep
    data = bytearray(read.read_bytes())
    if seed == 0:
        data[1700] ^= 1 << np.random.default_rng(seed).integers(8)
    else:
        data = (places[0] if seed == 1 else tmp_path / "other.npz.sites1").read_bytes()
    read.write_bytes(data)
    with pytest.raises(_storage.StorageError, match=r"sites1 is damaged"):
        streamed(Watched(), resume=path)


def places_of(value, path=()):
    """The paths of all values in dictionaries and lists."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, own in pairs:
        yield (*path, name)
        yield from places_of(own, (*path, name))


def test_odd_values_in_a_checkpoint_are_refused_or_do_no_harm(tmp_path):
    """100 of all places in the header and all arrays, each with a value of another kind."""
    path, whole = tmp_path / "run.npz", streamed((ROWS, LABELS))
    streamed(Watched(15), checkpoint=path)
    kind, header, arrays = _storage.load(path)
    places = [("header", *place) for place in places_of(header)] + [("arrays", name) for name in arrays]
    odd = [None, "x", -1, 0.5, True, [], {}, 10**30, [[1]]]
    rng, ends = np.random.default_rng(1), []
    for _ in range(100):
        found = {"header": json.loads(json.dumps(header)), "arrays": dict(arrays)}
        *outer, last = places[rng.integers(len(places))]
        value, parent = odd[rng.integers(len(odd))], found
        for name in outer:
            parent = parent[name]
        parent[last] = value if outer[0] == "header" else np.array([["x"], [1j], np.zeros(3), 0][rng.integers(4)])
        _storage.save(path, kind, found["header"], found["arrays"])
        try:
            model = streamed(Watched(), resume=path)
            np.testing.assert_allclose(model.mean, whole.mean, atol=1e-10)
            ends.append(model.status)
        except ValueError as error:
            ends.append("refused" if "run.npz" in str(error) else f"{outer} {last} {value}: {error}")
    assert set(ends) <= {"refused", "converged"} and ends.count("refused") > 50
