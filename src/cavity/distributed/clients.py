"""Clients: the user's own, used and left alone, or a cluster of processes on this machine, started and closed again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client, LocalCluster

#: workers share the cores: one thread each, in compiled programs as in BLAS
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

#: seconds to wait for a scheduler
CONNECT = 10


@contextmanager
def local_client(workers: int | None = None) -> Iterator[Client]:
    """A client of worker processes on this machine, one per core unless told; all are gone when the block ends."""
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers must be a whole number of at least 1; found {workers!r}.")
    environment = ONE_THREAD | ({"XLA_FLAGS": os.environ["XLA_FLAGS"]} if "XLA_FLAGS" in os.environ else {})
    with (
        LocalCluster(
            n_workers=workers or os.cpu_count() or 1,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # any free port: several clusters may run beside each other
            silence_logs=50,
            env=environment,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def connected(address: str) -> Client:
    """A client of the scheduler at this address; an OSError with one sentence where there is none."""
    try:
        return Client(address, timeout=CONNECT)
    except (OSError, TimeoutError, ValueError) as error:
        raise OSError(f"There is no Dask scheduler at {address!r}: {' '.join(str(error).split())}") from None


@contextmanager
def client_or_local(client: Client | None) -> Iterator[Client]:
    """The given client, left open; without one, a local cluster for the length of the block."""
    if client is None:
        with local_client() as own:
            yield own
        return
    if not isinstance(client, Client):
        raise TypeError(f"client must be a distributed.Client or None; found {type(client).__name__}.")
    if client.status != "running":
        raise ValueError(f"client must be connected; its status is {client.status!r}.")
    yield client
