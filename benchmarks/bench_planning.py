"""What a run on a cluster will cost: measured constants, a model, and the model against runs with slow networks and
slow workers, made by sleeping.

    time of a round = sweeps of a visit · rows of a worker · (a + b d²)    the slowest worker
                    + latency + bytes / bandwidth + overhead               the messages
    messages        = d + d(d + 1)/2 doubles to every worker, as many back

    python benchmarks/bench_planning.py            constants, then predicted against measured
"""

import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "cavity-bench-compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

import jax
import jax.numpy as jnp
import numpy as np

from cavity import distributed
from cavity.distributed import linear_fit
from cavity.distributed._rounds import Request, Response
from cavity.distributed.gaussian import pack_naturals, packed_size
from cavity.distributed.linear_shards import Shard, accepted_sites, shard_arguments, sweep_rows, visit_rows
from cavity.factors import Probit
from cavity.models._latent_gaussian.linear_model import LinearRows

FACTOR = Probit()


class Constants(NamedTuple):
    """Seconds of a row and sweep: a + b d²."""

    a: float
    b: float

    def sweep(self, rows: float, d: int) -> float:
        """Seconds of a sweep."""
        return rows * (self.a + self.b * d * d)


def shard(number: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one shard."""
    weights = np.random.default_rng(0).normal(size=d) / np.sqrt(d)
    rng = np.random.default_rng([1, number])
    X = rng.normal(size=(n, d))
    return X, np.where(X @ weights + rng.normal(size=n) > 0, 1.0, -1.0)


def constants(sizes: tuple[int, ...] = (8, 32, 64, 128, 200), n: int = 20_480, repeats: int = 25) -> Constants:
    """Parallel sweeps of one shard on one thread, the shortest of some."""
    found = []
    for d in sizes:
        rows = LinearRows.of(*shard(0, n, d), FACTOR)
        request = Request(pack_naturals(np.zeros(d), np.eye(d)))
        flat, _ = accepted_sites(Shard(rows), request)
        arguments = jax.tree.map(jnp.asarray, (*shard_arguments(rows, request), flat))
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            jax.block_until_ready(sweep_rows(*arguments))
            times.append(time.perf_counter() - began)
        each = min(times) / n
        found.append(each)
        print(f"  d = {d}: {1e6 * each:.2f} µs a row and sweep, {4 * d * d / each / 1e9:.1f} GFlop/s of 4 d² flops")
    matrix = np.stack([np.ones(len(sizes)), np.square(sizes)], axis=1)
    # Relative errors count alike.
    scaled = matrix / np.array(found)[:, None]
    a, b = np.linalg.lstsq(scaled, np.ones(len(sizes)), rcond=None)[0]
    print(f"  a = {1e6 * a:.2f} µs, b = {1e9 * b:.3f} ns; load {os.getloadavg()[0]:.1f}")
    return Constants(float(a), float(b))


def hindered(latency: float, slow: int, factor: float, held: Shard, request: Request) -> Response:
    """A visit that waits for a slow network, and on one shard works as if its worker were slower."""
    time.sleep(latency)
    began = time.perf_counter()
    found = visit_rows(held, request)
    if len(held.rows.multiplicity) == slow:  # told by its number of rows
        time.sleep((factor - 1) * (time.perf_counter() - began))
    return found


class Timed(NamedTuple):
    """A run: seconds of its rounds without the first, which compiles, and how many these were."""

    seconds: float
    rounds: int
    fit: Any


def run(client: Any, loads: list[Any], asynchronous: bool, latency: float, slow: int, factor: float) -> Timed:
    """One fit with the given hindrances."""
    marks: list[float] = []
    with mock.patch.object(linear_fit.RowRounds, "visit", partial(hindered, latency, slow, factor)):
        fit = distributed.fit(
            loads,
            factor=FACTOR,
            client=client,
            asynchronous=asynchronous,
            callback=lambda state: marks.append(time.perf_counter()),
        )
    return Timed(marks[-1] - marks[0], len(marks) - 1, fit)


def simulate(n: int = 20_480, d: int = 16, workers: int = 2, repeats: int = 5) -> None:
    """Predicted against measured: the model knows the undisturbed run, an empty question, and what is added."""
    sizes = [n + 64 * k for k in range(workers)]  # the first shard can be told from the others
    loads = [partial(shard, k, size, d) for k, size in enumerate(sizes)]
    with distributed.local_client(workers) as client:
        run(client, loads, False, 0.0, sizes[0], 1.0)
        for latency, factor in ((0.1, 1.0), (0.4, 1.0), (0.0, 4.0), (0.2, 4.0)):
            for asynchronous in (False, True):
                found, ratios = [], []
                for _ in range(repeats):  # each beside an undisturbed one, because the load of the machine changes
                    plain = run(client, loads, False, 0.0, sizes[0], 1.0)
                    base, overhead = plain.seconds / plain.rounds, empty_question(client, workers)
                    found.append(run(client, loads, asynchronous, latency, sizes[0], factor))
                    predicted = base + latency + (factor - 1) * max(base - overhead, 0.0)
                    ratios.append(found[-1].seconds / found[-1].rounds / predicted)
                each = statistics.median(own.seconds / own.rounds for own in found)
                kind = "as they come" if asynchronous else "together"
                print(
                    f"  latency {1e3 * latency:.0f} ms, one worker {factor:.0f} times as slow, {kind}: "
                    f"{found[0].rounds + 1} rounds, {1e3 * each:.0f} ms each, measured / predicted "
                    f"{statistics.median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f})",
                    flush=True,
                )
    print(f"  load {os.getloadavg()[0]:.1f}")


def empty_question(client: Any, workers: int) -> float:
    """Seconds to ask every worker for nothing."""
    began = time.perf_counter()
    for future in client.map(abs, range(workers), pure=False):
        future.result()
    return time.perf_counter() - began


def predict(known: Constants, rows: float = 1e9, d: int = 200, workers: int = 100) -> None:
    """A billion rows: what the model says."""
    share = rows / workers
    sweep, doubles = known.sweep(share, d), packed_size(d)
    print(f"  {rows:.0e} rows × {d} features on {workers} workers of one thread:")
    print(f"  memory of the rows: {share * d * 8 / 1e9:.0f} GB a worker")
    print(f"  a sweep: {sweep:.0f} s; messages: {2 * 8 * doubles / 1e6:.2f} MB a worker and round")
    print(f"  all messages at 1 GB/s through one client: {2 * 8 * doubles * workers / 1e9:.2f} s a round")
    for sweeps in (12, 20):
        print(f"  a fit of {sweeps} sweeps in all: {sweeps * sweep / 60:.0f} minutes of computing")


if __name__ == "__main__":
    print("-- constants")
    measured = constants()
    print("-- predicted")
    predict(measured)
    print("-- simulated")
    simulate()
