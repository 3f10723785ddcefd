"""Saving, forks, threads, interruptions and global state, at random: tried, refused, wrong, crashed, hung.

    python benchmarks/fuzz_processes.py --minutes 30

    saved      a random object, asked before and after pickle, joblib, cloudpickle, deepcopy or a process of loky
    forked     a random call in a fork: the answer, or the refusal that says what to do
    threads    2 to 6 threads with random work at once, against the same work one after another
    SIGINT     an interruption at a random moment of a call whose programs are compiled; the next call is as before
    compiling  an interruption at a random moment of the first call of a process, which compiles; it ends cleanly
    killed     SIGTERM or SIGKILL at a random moment of a stream with a checkpoint, resumed: the bits of a whole run
    state      a random call that succeeds, fails or is interrupted leaves the state of the process as it was

Every class of trials runs in processes of its own, which print one line per trial. A process that ends before its last
trial has crashed in the next one; one that prints nothing for ten minutes hangs (a busy machine compiles for minutes).
"""

import argparse
import collections
import contextlib
import copy
import io
import json
import os
import pickle
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import jax
import joblib
import numpy as np
import threadpoolctl

import cavity as cv

#: seconds without a line after which a process hangs, and trials of one process
PATIENCE, BATCH = 600.0, 20
OUTCOMES = ("right", "refused", "wrong", "crashed", "hung")
Answer = Callable[[], Any]


class Stop(Exception):
    """What a user's callback raises."""


def ask(instance: Any, X: np.ndarray) -> list[Any]:
    """Numbers that an object answers."""
    if isinstance(instance, cv.GPRegressor):
        return [*instance.predict(X, return_std=True), instance.sample_posterior(X, 2, 1)]
    if hasattr(instance, "predict_proba"):
        return [instance.predict_proba(X), instance.sample_posterior(X, 2, 1)]
    if isinstance(instance, cv.FactorGraph | cv.DiscreteGraph):
        return ask(cv.infer(instance, cv.EP()), X)
    found = [instance.log_evidence, *instance.sites, *jax.tree.leaves(instance.q)]
    return [*found, *instance.predict(X).values()] if hasattr(instance, "prediction") else found


def bits(instance: Any, X: np.ndarray) -> list[bytes]:
    return [np.asarray(own).tobytes() for own in ask(instance, X)]


def bits_elsewhere(data: bytes, X: np.ndarray) -> list[bytes]:
    return bits(pickle.loads(data), X)


def draw_fit(rng: np.random.Generator, **options: Any) -> tuple[Answer, np.ndarray]:
    """How a random object is made, and new rows."""
    rows, columns = int(rng.choice([12, 30, 60])), int(rng.integers(1, 4))
    X, new = rng.normal(size=(rows, columns)), rng.normal(size=(4, columns))
    score = X.sum(axis=1) + 0.3 * rng.normal(size=rows)
    labels, grades = np.where(score > 0, 1, -1), np.digitize(score, np.quantile(score, [0.3, 0.6]))
    process = {
        "kernel": rng.choice([None, cv.kernels.RBF(1.0), cv.kernels.Matern(0.7, nu=2.5)]),
        "optimize": bool(rng.random() < 0.3),
    }
    process |= {"approximation": rng.choice([None, "inducing", "features"]), "rank": 5} | options
    process["kernel"] = process["kernel"] if process["approximation"] != "features" else cv.kernels.RBF(1.0)
    latent = cv.models.latent_gaussian(labels.astype(float), cv.factors.Probit(), X=X, kernel=cv.kernels.RBF(1.0))

    def skills() -> cv.FactorGraph:
        graph = cv.FactorGraph()
        skill = graph.gaussian(rng_of_graph.normal(size=3), 2.0, name="skill")
        for one, other in ((0, 1), (1, 2)):
            graph.greater(graph.linear(skill[one], skill[other], weights=(1.0, -1.0), variance=1.0), 0.0)
        return graph

    def tables() -> cv.DiscreteGraph:
        graph = cv.DiscreteGraph([2, 3, 2])
        for pair, shape in (([0, 1], (2, 3)), ([1, 2], (3, 2)), ([0, 2], (2, 2))):
            graph.add_factor(pair, np.exp(rng_of_graph.normal(size=shape)))
        return graph

    rng_of_graph = np.random.default_rng(int(rng.integers(2**31)))
    graph, network = skills(), tables()
    choices: list[Answer] = [
        lambda: cv.GPRegressor(**process).fit(X, score),
        lambda: cv.GPClassifier(**process).fit(X, labels),
        lambda: cv.GPClassifier(**process).fit(X, grades),
        lambda: cv.GPOrdinal(**process).fit(X, grades),
        lambda: cv.BayesPointMachine(**options).fit(X, labels),
        lambda: cv.BayesPointMachine(**options).fit_stream((X, grades), classes=[0, 1, 2]),
        lambda: cv.infer(latent),
        lambda: copy.deepcopy(graph),
        lambda: cv.infer(graph),
        lambda: copy.deepcopy(network),
        lambda: cv.infer(network, cv.EP()),
    ]
    return choices[int(rng.integers(7 if options else len(choices)))], new


def by_joblib(instance: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(instance, file)
    file.seek(0)
    return joblib.load(file)


def try_saved(rng: np.random.Generator) -> str:
    make, X = draw_fit(rng)
    instance = make()
    before = pickle.dumps(instance)
    answers = bits(instance, X)
    ways: list[Callable[[], list[bytes]]] = [
        lambda: bits(pickle.loads(before), X),
        lambda: bits(pickle.loads(pickle.dumps(instance)), X),
        lambda: bits(by_joblib(instance), X),
        lambda: bits(cloudpickle.loads(cloudpickle.dumps(instance)), X),
        lambda: bits(copy.deepcopy(instance), X),
        lambda: joblib.Parallel(n_jobs=2)([joblib.delayed(bits_elsewhere)(before, X)])[0],
    ]
    return "right" if ways[int(rng.integers(len(ways)))]() == answers else "wrong"


def try_forked(rng: np.random.Generator) -> str:
    make, X = draw_fit(rng)
    instance = make()
    answers = bits(instance, X)
    child_fits = rng.random() < 0.5
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = "right" if bits(make() if child_fits else instance, X) == answers else "wrong"
        except RuntimeError as error:
            found = "refused" if "forked" in str(error) and "spawn" in str(error) else "wrong"
        os.write(writing, found.encode())
        os._exit(0)
    end = time.monotonic() + 10
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hung"
        time.sleep(0.01)
    os.close(writing)
    return os.read(reading, 100).decode() or "crashed"


def try_threads(rng: np.random.Generator) -> str:
    work = [draw_fit(rng) for _ in range(int(rng.integers(2, 7)))]
    alone = [bits(make(), X) for make, X in work]
    state = global_state()
    with ThreadPoolExecutor(len(work)) as pool:
        together = list(pool.map(lambda own: bits(own[0](), own[1]), work))
    return "right" if together == alone and global_state() == state else "wrong"


def try_sigint(rng: np.random.Generator) -> str:
    make, X = draw_fit(rng)
    answers, began = bits(make(), X), time.monotonic()
    make()
    moment, state = rng.random() * (time.monotonic() - began), global_state()
    timer = threading.Timer(moment, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        make()
        timer.join()
        time.sleep(0.05)
    except KeyboardInterrupt:
        pass
    timer.join()
    return "right" if bits(make(), X) == answers and global_state() == state else "wrong"


def first_call(seed: int) -> None:
    """What a process that is interrupted does."""
    make, _ = draw_fit(np.random.default_rng(seed))
    print("ready", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        make()


def try_compiling(rng: np.random.Generator) -> str:
    seed, folder = int(rng.integers(2**31)), str(Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {folder!r}); import fuzz_processes; fuzz_processes.first_call({seed})"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION")}
    command = [sys.executable, "-W", "ignore", "-c", code]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment | {"CAVITY_CACHE": "off"}, text=True, **pipes) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(15.0 * rng.random())
        child.send_signal(signal.SIGINT)
        try:
            _, said = child.communicate(timeout=PATIENCE - 20.0)
        except subprocess.TimeoutExpired:
            child.kill()
            return "hung"
    # An interruption at the very end is Python's own, and one in code that Python makes for itself ends by the signal.
    return (
        "right" if child.returncode == 0 or (child.returncode == -signal.SIGINT and "Fatal" not in said) else "crashed"
    )


def stream(folder: Path, seed: int) -> list[bytes]:
    """The answers of a stream of slow batches that writes a checkpoint, or goes on from it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20_000, 3))
    y = np.where(X @ rng.normal(size=3) + 0.5 * rng.normal(size=len(X)) > 0, 1.0, -1.0)
    path = folder / "run.npz"
    options = {"resume": path} if path.exists() else {"checkpoint": path}

    def batches() -> Any:
        for start in range(0, len(X), 1000):
            time.sleep(0.005)
            yield X[start : start + 1000], y[start : start + 1000]

    (model,), _ = cv.models.streaming.stream_linear_models(
        batches, factor=cv.factors.Probit(), method=cv.EP(max_sweeps=8), every=0.02, **options
    )
    return [own.tobytes() for own in (model.mean, model.covariance, np.asarray(model.log_evidence))]


def try_killed(rng: np.random.Generator) -> str:
    seed, ending = int(rng.integers(2**31)), int(rng.choice([signal.SIGTERM, signal.SIGKILL]))
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import fuzz_processes, pathlib;"
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as broken:
        began = time.monotonic()
        answers = stream(Path(whole), seed)
        code += f"print(1, flush=True); fuzz_processes.stream(pathlib.Path({broken!r}), {seed})"
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(2.0 * rng.random() * (time.monotonic() - began))
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(ending)
            ended = child.wait(60)
        if ended not in (0, -ending):
            return "wrong"
        return "right" if stream(Path(broken), seed) == answers else "wrong"


def global_state() -> dict[str, Any]:
    """What a process has once."""
    return {
        "numpy.random": [str(own) for own in np.random.get_state()],  # noqa: NPY002
        "random": random.getstate(),
        "warnings": list(warnings.filters),
        "floating point": np.geterr(),
        "jax": dict(jax.config.values),
        "signals": [signal.getsignal(own) for own in signal.valid_signals()],
        "threads of libraries": [(own["filepath"], own["num_threads"]) for own in threadpoolctl.threadpool_info()],
        "environment": dict(os.environ),
    }


def try_state(rng: np.random.Generator) -> str:
    calls: list[Any] = []
    error = [None, Stop(), KeyboardInterrupt()][int(rng.integers(3))]
    after = int(rng.integers(1, 6))

    def listen(line: str) -> None:
        calls.append(line)
        if error is not None and len(calls) == after:
            raise error

    make, X = draw_fit(rng, verbose=listen, random_state=None)
    if rng.random() < 0.2:
        make, X = draw_fit(rng, verbose=listen, rank=-1, approximation="inducing")
    before = global_state()
    with contextlib.suppress(Stop, KeyboardInterrupt, ValueError, TypeError):
        bits(make(), X)
    return "right" if global_state() == before else "wrong"


TRIALS = {
    "saved": try_saved,
    "forked": try_forked,
    "threads": try_threads,
    "SIGINT": try_sigint,
    "compiling": try_compiling,
    "killed": try_killed,
    "state": try_state,
}


def run_trials(name: str, seed: int) -> None:
    """One line per trial."""
    warnings.simplefilter("ignore")
    for number in range(BATCH):
        try:
            found = TRIALS[name](np.random.default_rng([seed, number]))
        except BaseException as error:  # what a user would not expect either
            print(f"{name}, seed {seed}, trial {number}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            found = "wrong"
        print(json.dumps(found), flush=True)


def watch(name: str, seed: int, end: float) -> collections.Counter[str]:
    """The outcomes of one process of trials, which is stopped at the end of the time."""
    command = [sys.executable, __file__, "--trials", name, "--seed", str(seed)]
    found: collections.Counter[str] = collections.Counter()
    # A group of its own, because processes that loky has started hold the pipe open when their parent is gone.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        lines: queue.Queue[str] = queue.Queue()
        stdout = child.stdout
        assert stdout is not None
        reader = threading.Thread(target=lambda: [lines.put(own) for own in (*stdout, "")], daemon=True)
        reader.start()
        for _ in range(BATCH):
            try:
                line = lines.get(timeout=PATIENCE)
            except queue.Empty:
                found["hung"] += 1
                break
            if not line:
                found["crashed"] += 1
                break
            found[json.loads(line)] += 1
            if time.monotonic() > end:
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", choices=TRIALS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.trials is not None:
        run_trials(given.trials, given.seed)
        return
    print(f"{'':10}{'tried':>9}" + "".join(f"{own:>9}" for own in OUTCOMES[1:]))
    for name in TRIALS:
        end, seed = time.monotonic() + 60 * given.minutes / len(TRIALS), given.seed
        total: collections.Counter[str] = collections.Counter()
        while time.monotonic() < end:
            total += watch(name, seed, end)
            seed += 1
        print(f"{name:10}{total.total():9}" + "".join(f"{total[own]:9}" for own in OUTCOMES[1:]), flush=True)


if __name__ == "__main__":
    main()
