"""Streams: ten million rows in a bounded memory, the fixed point of all rows at once, a run killed and taken up again.

Every part runs in a process of its own, whose largest memory is measured. `python benchmarks/bench_streaming.py 1e6`
takes fewer rows.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import cavity as cv
from cavity._core.system import one_blas_thread
from cavity.models._latent_gaussian import fit_linear_model
from cavity.models.streaming import stream_linear_models

FEATURES, BATCH = 30, 65536
WEIGHTS = np.random.default_rng(1).normal(size=FEATURES) * 0.3


def made(number, rows):
    """Batch `number` of a stream of so many rows: 30 normal features and a probit label."""
    rng = np.random.default_rng([7, number])
    length = min(BATCH, rows - number * BATCH)
    X = rng.standard_normal((length, FEATURES))
    return X, np.where(X @ WEIGHTS + rng.standard_normal(length) > 0, 1.0, -1.0)


def batches(rows):
    def generate():
        for number in range(-(-rows // BATCH)):
            yield made(number, rows)

    return generate


def line(told):
    return f"{told.stage:8} {told.sweep:2} {told.rows:>10} rows {told.speed:9.3g} rows/s  mismatch {told.mismatch:.1e}"


def memory():
    """The largest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def large(rows, folder):
    """A whole run, sites in memory or in files."""
    began = time.perf_counter()
    for _ in batches(rows)():
        pass
    generation = time.perf_counter() - began
    empty = memory()
    known = {} if folder is None else {"checkpoint": Path(folder) / "run.npz"}
    passes = []
    began = time.perf_counter()
    (machine,), _ = stream_linear_models(
        batches(rows),
        factor=cv.factors.Probit(),
        callback=lambda progress: passes.append(progress) if progress.ended else None,
        **known,
    )
    seconds = time.perf_counter() - began
    where = "in memory" if folder is None else "in files"
    print(f"{rows} rows × {FEATURES} features ({8 * rows * FEATURES / 1e9:.1f} GB), sites {where}")
    for told in passes:
        print("   ", line(told))
    print(f"    {machine.status}, {machine.sweeps} sweeps, {len(passes)} passes, {seconds:.0f} s; ", end="")
    print(f"making the rows alone {generation:.1f} s a pass")
    print(f"    largest memory {memory():.0f} MB, of which {empty:.0f} MB before the run")
    print(f"    mean within {np.abs((machine.mean - WEIGHTS) / np.sqrt(np.diag(machine.covariance))).max():.1f} sd")


def equal(rows=100_000):
    """The fixed point of all rows in memory at once, and how sweeps compare."""
    X, y = (np.concatenate(parts) for parts in zip(*batches(rows)(), strict=True))
    for tol in (1e-8, 1e-11):
        method = cv.EP(tol=tol)
        (found,), _ = stream_linear_models((X, y), factor=cv.factors.Probit(), method=method)
        whole = fit_linear_model(X, y, factor=cv.factors.Probit(), method=method)
        gaps = [np.abs(getattr(found, name) - getattr(whole, name)).max() for name in ("mean", "covariance")]
        print(
            f"{rows} rows, tol {tol:g}: streamed {found.sweeps} sweeps, in memory {whole.sweeps}; difference of ",
            end="",
        )
        evidence = found.log_evidence - whole.log_evidence
        print(f"mean {gaps[0]:.1e}, covariance {gaps[1]:.1e}, log evidence {evidence:.1e} of {whole.log_evidence:.0f}")


def speed(rows=200_000):
    """Rows from an array: what a pass costs by kind, beside one product of the rows with a square matrix."""
    X, y = (np.concatenate(parts) for parts in zip(*batches(rows)(), strict=True))
    square, times = np.eye(FEATURES), []
    with one_blas_thread():
        for _ in range(5):
            began = time.perf_counter()
            for start in range(0, rows, 4096):
                X[start : start + 4096] @ square
            times.append(time.perf_counter() - began)
    for name, schedule in (("by chunks", None), ("one by one", cv.InOrder())):
        fastest = {}

        def note(told, fastest=fastest):
            fastest[told.stage] = max(fastest.get(told.stage, 0.0), told.speed if told.ended else 0.0)

        for _ in range(2):  # the first compiles
            stream_linear_models((X, y), factor=cv.factors.Probit(), method=cv.EP(schedule=schedule), callback=note)
        products = rows / fastest["sweep"] / min(times)
        print(
            f"visits {name}: sweep {fastest['sweep']:.2g} rows/s, measurement {fastest['measure']:.2g} rows/s; ", end=""
        )
        print(f"a sweep is {products:.0f} products of the rows with a square matrix on one thread")


def killed(rows, folder, kill_after):
    """One process of the demonstration: it notes the batches it makes, and may kill itself after so many."""
    folder = Path(folder)
    log = open(folder / "batches.txt", "a", buffering=1)  # noqa: SIM115 — open until the process ends, however it ends
    seen = 0

    def generate():
        nonlocal seen
        for number in range(-(-rows // BATCH)):
            log.write(f"{number}\n")
            seen += 1
            if kill_after and seen > kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
            yield made(number, rows)

    path = folder / "run.npz"
    known = {"resume": path} if path.exists() else {"checkpoint": path}
    (machine,), _ = stream_linear_models(generate, factor=cv.factors.Probit(), every=0.2, **known)
    told = {"mean": machine.mean.tolist(), "evidence": machine.log_evidence, "history": machine.history}
    (folder / "answer.json").write_text(json.dumps(told))


def kill_and_resume(rows=1_000_000):
    """Killed in the third pass, taken up again, beside a run that nobody touched."""
    whole = -(-rows // BATCH)
    answers = []
    for kill_after in (0, 2 * whole + whole // 2):
        with tempfile.TemporaryDirectory() as folder:
            codes = [process("killed", rows, folder, kill_after).returncode]
            first = len((Path(folder) / "batches.txt").read_text().split())
            if kill_after:
                codes.append(process("killed", rows, folder, 0).returncode)
            answers.append(json.loads((Path(folder) / "answer.json").read_text()))
            history = answers[-1]["history"]
            print(f"exit codes {codes}; batches made by the first process {first}")
            visited = sum(entry["rows"] for entry in history if entry["pass"] == "sweep")
            print(f"    rows visited in sweeps {visited}, passes taken up again at", [e["resumed"] for e in history])
    gap = np.abs(np.subtract(answers[0]["mean"], answers[1]["mean"])).max()
    print(f"    difference of mean {gap:.1e}, log evidence {answers[0]['evidence'] - answers[1]['evidence']:.1e}")


def process(*arguments):
    return subprocess.run([sys.executable, __file__, *map(str, arguments)], check=False)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["large", rows, *folder]:
            large(int(rows), folder[0] if folder else None)
        case ["killed", rows, folder, kill_after]:
            killed(int(rows), folder, int(kill_after))
        case ["equal"]:
            equal()
        case ["speed"]:
            speed()
        case given:
            rows = int(float(given[0])) if given else 10_000_000
            process("equal")
            process("speed")
            kill_and_resume()
            process("large", rows)
            with tempfile.TemporaryDirectory() as folder:
                process("large", rows, folder)
