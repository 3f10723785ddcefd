"""EP on shards beside EP in one place: same answer, workers killed, bytes on the wire, speed.

    python benchmarks/bench_cluster.py             all of it
    python benchmarks/bench_cluster.py kills 20    one part, here with 20 runs

Times are ratios of runs made in turn, because the machine may be shared; the load is printed beside them.
"""

import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

# One thread everywhere: workers and the single process are compared on equal terms.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "cavity-bench-compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

import numpy as np
from distributed import wait
from distributed.protocol import serialize_bytes

from cavity import EP, distributed
from cavity.distributed._rounds import Request, Response
from cavity.distributed.gaussian import packed_size
from cavity.factors import Probit
from cavity.models._latent_gaussian.linear_model import fit_linear_model

FACTOR = Probit(label_noise=0.05)


def shard(number: int, shards: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one shard, made where they are needed."""
    weights = np.random.default_rng(0).normal(size=d) / np.sqrt(d)
    rng = np.random.default_rng([1, number])
    X = rng.normal(size=(n // shards, d))
    return X, np.where(X @ weights + rng.normal(size=len(X)) > 0, 1.0, -1.0)


def in_one_place(shards: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """All shards as one table."""
    parts = [shard(number, shards, n, d) for number in range(shards)]
    return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])


def difference(fit, machine) -> str:
    mean, covariance = np.abs(fit.mean - machine.mean).max(), np.abs(fit.covariance - machine.covariance).max()
    evidence = abs(fit.log_evidence - machine.log_evidence)
    return f"mean {mean:.1e}, covariance {covariance:.1e}, log evidence {evidence:.1e}, balance {fit.balance:.1e}"


def same_answer(n: int = 20_000, d: int = 20) -> None:
    """2, 3 and 4 workers, both kinds of rounds, against one process."""
    for workers in (2, 3, 4):
        loads = [partial(shard, k, workers, n, d) for k in range(workers)]
        machine = fit_linear_model(*in_one_place(workers, n, d), factor=FACTOR, method=EP())
        with distributed.local_client(workers) as client:
            for asynchronous in (False, True):
                fit = distributed.fit(loads, factor=FACTOR, client=client, asynchronous=asynchronous)
                kind = "as they come" if asynchronous else "together"
                print(f"{workers} workers, {kind}: {fit.rounds} rounds, {difference(fit, machine)}", flush=True)


def kills(runs: int = 20, n: int = 20_000, d: int = 20, shards: int = 4) -> None:
    """A worker killed at a random time in every run, each on a cluster of its own."""
    loads = [partial(shard, k, shards, n, d) for k in range(shards)]
    machine = fit_linear_model(*in_one_place(shards, n, d), factor=FACTOR, method=EP())
    rng, shortest, hits, number = random.Random(0), np.inf, 0, 0
    while hits < runs:
        number += 1
        with distributed.local_client(2) as client:
            # The first two are undisturbed: one compiles, one tells how long a run takes at least.
            victim, killed = rng.choice(list(client.run(os.getpid).values())), []
            when = rng.uniform(0, 0.9 * shortest) if number > 2 else np.inf

            def kill(pid: int = victim, note: list[int] = killed) -> None:
                os.kill(pid, signal.SIGKILL)
                note.append(pid)

            timer = threading.Timer(when, kill)
            if number > 2:
                timer.start()
            began = time.perf_counter()
            fit = distributed.fit(loads, factor=FACTOR, client=client, asynchronous=number % 2 == 1)
            took, inside = time.perf_counter() - began, bool(killed)
            timer.cancel()
        hits += inside
        shortest = min(shortest, took) if number > 1 else np.inf
        kind, hit = "as they come" if number % 2 else "together", f"killed at {when:.1f} s" if inside else "undisturbed"
        print(
            f"{hits}. {kind}, {hit}: {fit.status} after {took:.1f} s, {fit.rounds} rounds, {difference(fit, machine)}"
        )
        sys.stdout.flush()


def loopback() -> int:
    """Bytes that went over this machine's own network."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split()[9])
    raise RuntimeError("this machine does not count its loopback traffic in /proc/net/dev.")


def wire(d: int = 100, n: int = 20_000, workers: int = 2) -> None:
    """Bytes of a request and its response as Dask serialises them, and what really passed over the network."""
    vector = np.random.default_rng(0).normal(size=packed_size(d))
    request = len(serialize_bytes(Request(vector, "t" * 32, 1.0, 1e-8)))
    response = len(serialize_bytes(Response(vector, "t" * 32, True, 0.1, 0)))
    limit = 3 * d * d * 8
    print(
        f"d = {d}: request {request}, response {response}, together {(request + response) / limit:.2f} of 3 d² doubles"
    )
    loads = [partial(shard, k, workers, n, d) for k in range(workers)]
    with distributed.local_client(workers) as client:
        marks: list[int] = []
        distributed.fit(loads, factor=FACTOR, client=client, callback=lambda fit: marks.append(loopback()))
        steps = np.diff(marks) / workers
        print(
            f"over the network, each way by way of the scheduler: {np.median(steps):.0f} bytes per worker and round, "
            f"{np.median(steps) / limit:.2f} of 3 d² doubles"
        )


def on_core(number: int) -> None:
    """Keep this process on one core: XLA would take all there are, and a worker here is one core."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {number % (os.cpu_count() or 1)})


def speed(n: int = 320_000, d: int = 64, repeats: int = 5) -> None:
    """One worker, two workers and one process without a cluster, in turn; data are loaded before the clock starts.

    Each has one core, of two workers each its own. Wall time says what a shared machine leaves of the gain, processor
    time of the busiest process what it would be.
    """
    loads = [partial(shard, k, 2, n, d) for k in range(2)]
    table = in_one_place(2, n, d)
    walls: dict[str, list[float]] = {"one process": [], "1 worker": [], "2 workers": []}
    busy: dict[str, list[float]] = {name: [] for name in walls}
    with distributed.local_client(1) as single, distributed.local_client(2) as double:
        for client in (single, double):
            for number, worker in enumerate(client.scheduler_info()["workers"]):
                client.run(on_core, number, workers=[worker])
        on_core(0)
        for _ in range(repeats + 1):
            for name, client in (("1 worker", single), ("2 workers", double)):
                shards = client.map(lambda load: load(), loads, pure=False)
                wait(shards)
                before, began = client.run(time.process_time), time.perf_counter()
                fit = distributed.fit(shards, factor=FACTOR, client=client)
                walls[name].append(time.perf_counter() - began)
                after = client.run(time.process_time)
                busy[name].append(max(after[worker] - before[worker] for worker in after))
            used, began = time.process_time(), time.perf_counter()
            machine = fit_linear_model(*table, factor=FACTOR, method=EP())
            walls["one process"].append(time.perf_counter() - began)
            busy["one process"].append(time.process_time() - used)
            print(
                "  " + ", ".join(f"{name} {walls[name][-1]:.2f} s ({busy[name][-1]:.2f})" for name in walls), flush=True
            )
        print(
            f"n = {n}, d = {d}: {difference(fit, machine)}; {fit.rounds} rounds, {machine.sweeps} sweeps in one place"
        )
    for name in walls:
        wall, used = walls[name][1:], busy[name][1:]  # the first compiles
        print(f"  {name}: wall {statistics.median(wall):.2f} s, from {min(wall):.2f} to {max(wall):.2f}; ", end="")
        print(f"processor of the busiest process {statistics.median(used):.2f} s, at least {min(used):.2f}")
    for name in ("1 worker", "one process"):
        ratios = [
            statistics.median([a / b for a, b in zip(own[name][1:], own["2 workers"][1:], strict=True)])
            for own in (walls, busy)
        ]
        print(f"  two workers against {name}: wall {ratios[0]:.2f}, processor {ratios[1]:.2f}")
    print(f"  load {os.getloadavg()[0]:.1f}")


PARTS = {"same": same_answer, "kills": kills, "wire": wire, "speed": speed}

if __name__ == "__main__":
    chosen, numbers = sys.argv[1:2], [int(text) for text in sys.argv[2:]]
    for name in chosen or PARTS:
        print(f"-- {name}", flush=True)
        PARTS[name](*numbers)
