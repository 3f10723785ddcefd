"""Streams and clusters under faults: killed at random moments, bad sources, full disks, edited files, odd labels.

    python benchmarks/fuzz_streams.py [--streams 50] [--dask 20] [--others 200] [--seed 0]

Every trial must end with the numbers of an untouched run, for streams to the last bit, or with one of the library's own
sentences, after which the last checkpoint goes on to these numbers. The table counts trials by outcome: right, refused,
wrong, crashed (another exception), hung (no end in five minutes: a busy machine takes one to start a worker).
"""

import argparse
import collections
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import numpy as np

import cavity as cv
from cavity import _storage, distributed
from cavity.models.streaming import _chunks, stream_linear_models

_chunks.CHUNK_ROWS = 64
ROWS, SECONDS = 500, 300
RNG = np.random.default_rng(4)
X = np.column_stack([RNG.standard_normal((ROWS, 3)), np.full(ROWS, 1.7e9)])
Y = np.where(X[:, :3] @ [1.0, -0.5, 0.3] + 0.3 * RNG.standard_normal(ROWS) > 0, 1.0, -1.0)
WEIGHTS = np.resize([1.0, 2.0, 3.0, 0.5], ROWS)


def without_time(rows):
    """The features: what comes before the time stamp."""
    return rows[:, :3]


def batches(length=23, pause=0.0):
    """The rows as they are."""
    for start in range(0, ROWS, length):
        own = slice(start, start + length)
        time.sleep(pause)
        yield X[own], Y[own], WEIGHTS[own]


def fit(source, **options):
    """The model of a stream."""
    (model,), _ = stream_linear_models(
        source, factor=cv.factors.Probit(), features=without_time, method=cv.EP(tol=1e-10), **options
    )
    return model


def same_bits(model, whole):
    """Whether a run has the numbers of another, all of them."""
    pairs = ((model.mean, whole.mean), (model.covariance, whole.covariance), (model.log_evidence, whole.log_evidence))
    return all(np.array_equal(one, other) for one, other in pairs)


@contextlib.contextmanager
def time_limit(seconds):
    """A block that is broken off by `TimeoutError`."""

    def late(*_):
        raise TimeoutError("no end in time")

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def outcome(trial, *arguments):
    """What became of a trial, which returns "right", "refused" or "wrong"."""
    try:
        with time_limit(SECONDS):
            return trial(*arguments)
    except TimeoutError:
        return "hung"
    except BaseException:
        traceback.print_exc()
        return "crashed"


# ---------------------------------------------------------------- killed streams


def child(folder):
    """One process of a run that is killed: it goes on from what is there."""
    path = Path(folder) / "run.npz"
    options = {"resume": path} if path.exists() else {"checkpoint": path}
    print("begun", flush=True)
    model = fit(lambda: batches(pause=0.004), every=1e-9, **options)
    np.savez(path.with_name("answer.npz"), mean=model.mean, covariance=model.covariance, log=model.log_evidence)


def killed_streams(count, whole, rng):
    """Runs that are killed again and again until one comes to its end; one entry per kill, that of its run's end."""
    found = []
    while len(found) < count:
        with tempfile.TemporaryDirectory() as folder:
            kills = 0
            while not os.path.exists(f"{folder}/answer.npz"):
                process = subprocess.Popen(
                    [sys.executable, __file__, "--child", folder], stdout=subprocess.PIPE, text=True
                )
                process.stdout.readline()
                if kills < 6:
                    time.sleep(rng.uniform(0.0, 3.0))
                    process.kill()
                ended = process.wait(5 * SECONDS)
                process.stdout.close()
                if ended not in (0, -signal.SIGKILL):
                    return [*found, "crashed"]
                kills += ended != 0
            answer = np.load(f"{folder}/answer.npz")
            right = np.array_equal(answer["mean"], whole.mean) and answer["log"] == whole.log_evidence
            right = right and np.array_equal(answer["covariance"], whole.covariance)
            found += ["right" if right else "wrong"] * kills
    return found


# ---------------------------------------------------------------- sources, disks, files


def goes_on(path, whole):
    """Whether the checkpoint that a refusal left leads to the numbers of an untouched run."""
    again = {"resume": path} if path.exists() else {}
    return "refused" if same_bits(fit(batches, **again), whole) else "wrong"


def misbehaving_source(whole, rng):
    """In a later pass rows are changed, left out, added or exchanged, or the source raises."""
    kind, at, place = rng.integers(6), int(rng.integers(1, 4)), int(rng.integers(ROWS - 1))
    passes = []

    def source():
        passes.append(1)
        rows, labels, weights = X.copy(), Y.copy(), WEIGHTS.copy()
        if len(passes) == at + 1:
            if kind == 0:
                rows[place, rng.integers(4)] += rng.choice([1e-9, 1.0, 1e5]) if place % 2 else 1e-3
            elif kind == 1:
                rows, labels, weights = (part[: max(place, 1)] for part in (rows, labels, weights))
            elif kind == 2:
                rows, labels, weights = (np.concatenate([part, part[:7]]) for part in (rows, labels, weights))
            elif kind == 3:
                order = np.arange(ROWS)
                order[[place, place + 1]] = place + 1, place
                rows, labels, weights = rows[order], labels[order], weights[order]
            elif kind == 4:
                weights[place] += 1.0
        length = int(rng.integers(1, 90))
        for start in range(0, len(rows), length):
            if kind == 5 and len(passes) == at + 1 and start > place:
                raise OSError("the connection is gone")
            own = slice(start, start + length)
            yield rows[own], labels[own], weights[own]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.npz"
        try:
            model = fit(source, checkpoint=path, every=1e-9)
        except (ValueError, OSError) as error:
            own = "the connection is gone" if kind == 5 else "batches must give the same rows"
            return goes_on(path, whole) if own in str(error) else "wrong"
        return "right" if same_bits(model, whole) else "wrong"


def full_disk(whole, rng):
    """From some moment on no file can grow beyond a size."""
    before, at, size = resource.getrlimit(resource.RLIMIT_FSIZE), int(rng.integers(0, 60)), int(rng.integers(1, 14000))
    taken = []

    def source():
        for batch in batches():
            taken.append(1)
            if len(taken) == at:
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
            yield batch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.npz"
        try:
            model = fit(source, checkpoint=path, every=1e-9)
        except _storage.StorageError:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            return goes_on(path, whole)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        return "right" if same_bits(model, whole) else "wrong"


def places_of(value, path=()):
    """The paths of all values in dictionaries and lists."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, own in pairs:
        yield (*path, name)
        yield from places_of(own, (*path, name))


def edited_files(whole, rng):
    """A flipped bit in a checkpoint or in sites that are still to be read, or an odd value in the header."""
    with tempfile.TemporaryDirectory() as folder:
        path, taken = Path(folder) / "run.npz", []

        def source():
            for batch in batches():
                taken.append(1)
                if len(taken) == 35:
                    raise KeyboardInterrupt
                yield batch

        fit(source, checkpoint=path)
        if rng.random() < 0.5:
            own = [path, path.with_name("run.npz.sites0"), path.with_name("run.npz.sites1")][rng.integers(3)]
            data = bytearray(own.read_bytes())
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
            own.write_bytes(data)
        else:
            kind, header, arrays = _storage.load(path)
            *outer, last = (places := list(places_of(header)))[rng.integers(len(places))]
            parent = header = json.loads(json.dumps(header))
            for name in outer:
                parent = parent[name]
            parent[last] = [None, "x", -1, 0.5, True, [], {}, 10**30][rng.integers(8)]
            _storage.save(path, kind, header, arrays)
        try:
            model = fit(batches, resume=path)
        except ValueError as error:
            return "refused" if "run.npz" in str(error) else "wrong"
        return "right" if np.allclose(model.mean, whole.mean, atol=1e-9) else "wrong"


def odd_labels(_, rng):
    """Labels and classes of all kinds: each label is the class that it equals, or is refused."""
    kinds = [[False, True], [0, 1], [0.0, 1.0], ["0", "1"], ["no", "yes"], ["False", "True"], [0, 2]]
    classes, labels = kinds[rng.integers(7)], list(kinds[rng.integers(7)])
    labels += [[], [None], [0.4], ["yesterday"], [float("nan")]][rng.integers(5)]
    chosen = [labels[k] for k in rng.integers(len(labels), size=40)]
    kind = object if rng.random() < 0.5 or len({type(label) for label in chosen}) > 1 else None
    y, rows, known = np.array(chosen, kind), X[:40, :3], np.unique(np.asarray(classes)).tolist()
    machine = cv.BayesPointMachine(likelihood="probit", label_noise=0.05, method=cv.ADF())
    length = int(rng.integers(1, 41))
    source = [(rows[start : start + length], y[start : start + length]) for start in range(0, 40, length)]
    right = all(label in known for label in chosen)
    try:
        machine.fit_stream(source, classes)
    except ValueError as error:
        return "refused" if not right and "known labels" in str(error) else "wrong"
    signs = np.array([1.0 if label == known[1] else -1.0 for label in chosen])
    (model,), _ = stream_linear_models(
        (machine._features(rows), signs), factor=machine.models_[0].factor, method=cv.ADF()
    )
    return "right" if right and np.allclose(model.mean, machine.models_[0].mean, atol=1e-12) else "wrong"


# ---------------------------------------------------------------- clusters


def killed_workers(count, rng):
    """Fits during which a worker is killed; the nanny starts another."""
    shards = [(X[k::4, :3], Y[k::4]) for k in range(4)]
    found = []
    with distributed.local_client(2) as client:
        whole = distributed.fit(shards, client=client, tol=1e-10)

        def trial():
            client.wait_for_workers(2, timeout=SECONDS)
            pids = list(client.run(os.getpid).values())
            killer = threading.Timer(rng.uniform(0.0, 1.0), os.kill, (pids[rng.integers(len(pids))], signal.SIGKILL))
            killer.start()
            try:
                fit_found = distributed.fit(
                    shards,
                    client=client,
                    tol=1e-10,
                    asynchronous=bool(rng.integers(2)),
                    callback=lambda _: time.sleep(0.1),
                )
            except distributed.ClusterError:
                return "refused"
            finally:
                killer.join()
            right = fit_found.status == "converged" and np.allclose(fit_found.mean, whole.mean, atol=1e-8)
            return "right" if right and np.allclose(fit_found.covariance, whole.covariance, atol=1e-8) else "wrong"

        found.extend(outcome(trial) for _ in range(count))
    return found


def main():
    """All trials, and the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--dask", type=int, default=20)
    parser.add_argument("--others", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    rng, whole = np.random.default_rng(options.seed), fit(batches)
    ends = ("right", "refused", "wrong", "crashed", "hung")
    print(f"{'':20s} {'tried':>7s} " + " ".join(f"{end:>8s}" for end in ends))

    def row(name, found):
        counts = collections.Counter(found)
        print(f"{name:20s} {len(found):7d} " + " ".join(f"{counts[end]:8d}" for end in ends), flush=True)

    row("killed streams", killed_streams(options.streams, whole, rng))
    row("killed workers", killed_workers(options.dask, rng) if options.dask else [])
    for trial in (misbehaving_source, full_disk, edited_files, odd_labels):
        row(trial.__name__.replace("_", " "), [outcome(trial, whole, rng) for _ in range(options.others)])


if __name__ == "__main__":
    main()
