"""Clients: the user's own, used and left alone, or a cluster of processes on this machine, started and closed again.

`map`, `map_unordered` and `infer_all` do independent pieces of work on their workers: results in order, failures named,
nothing lost to a kill.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from distributed import Client, LocalCluster, as_completed

from cavity._core.precision import double_precision, to_numpy
from cavity._core.system import one_blas_thread
from cavity.distributed._worker_pool import ClusterError, WorkerWatch
from cavity.inference.infer import infer
from cavity.inference.methods import Method
from cavity.inference.solution import Solution

#: workers share the cores: one thread each, in compiled programs as in BLAS
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

#: seconds to wait for a scheduler, and between two looks for results
CONNECT, POLL = 10, 0.02


@contextmanager
def local_client(workers: int | None = None) -> Iterator[Client]:
    """A context with a client of worker processes on this machine; all are gone when the block ends.

    Args:
        workers: number of processes, one per core by default.

    Returns:
        A context manager that gives a `distributed.Client`.

    Raises:
        ValueError: workers is not a whole number of at least 1.

    Examples:
        >>> from cavity import distributed
        >>> with distributed.local_client(1) as client:
        ...     client.submit(sum, [1, 2]).result()
        3
    """
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


def connect(address: str) -> Client:
    """A client of the scheduler at an address, to be closed by the caller.

    Args:
        address: such as `"tcp://192.168.0.1:8786"`.

    Returns:
        A `distributed.Client`.

    Raises:
        OSError: there is no scheduler at that address.

    Examples:
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> with Client(processes=False, dashboard_address=":0") as own:
        ...     with distributed.connect(own.scheduler.address) as client:
        ...         client.submit(sum, [1, 2]).result()
        3
    """
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


class Failure(RuntimeError):
    """An item for which the function failed.

    Args:
        number: place of the item among all items.
        name: of the item, in the message.
        error: what the function raised.

    Attributes:
        number: place of the item among all items.

    Examples:
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     try:
        ...         distributed.map(lambda x: 1 / x, [1, 0], client=client)
        ...     except distributed.Failure as failure:
        ...         print(failure)
        item 1: ZeroDivisionError: division by zero
    """

    def __init__(self, number: int, name: str, error: BaseException) -> None:
        self.number = number
        super().__init__(f"{name}: {type(error).__name__}: {error}")


def map_unordered(
    function: Callable[..., Any], items: Iterable[Any], client: Client, names: Sequence[str] | None = None
) -> Iterator[tuple[int, Any]]:
    """(number, result) of `function(item)` as they are finished, in any order.

    Dask itself does the work of a worker that died again elsewhere. What is not finished is given up when the iterator
    is closed.

    Args:
        function: of one item; sent to the workers with what it refers to.
        items: each sent to one worker.
        client: whose workers.
        names: of the items, for the error that names one that failed.

    Returns:
        An iterator over (place among the items, result).

    Raises:
        Failure: the function failed for an item.
        ClusterError: the scheduler is gone, or there are no workers any more.

    Examples:
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     sorted(distributed.map_unordered(lambda x: x**2, [1.0, 2.0, 3.0], client))
        [(0, 1.0), (1, 4.0), (2, 9.0)]
    """
    # A JAX array would be unpacked outside the scope of double precision, and rounded.
    items, run = [to_numpy(item) for item in items], uuid.uuid4().hex
    futures = [
        client.submit(call_in_float64, function, item, key=f"cavity-item-{run}-{number}", pure=False)
        for number, item in enumerate(items)
    ]
    places, watch = {future.key: number for number, future in enumerate(futures)}, WorkerWatch(client)
    ready: Any = as_completed(futures)
    try:
        while places:
            finished = ready.next_batch(block=False)
            for future in finished:
                number = places.pop(future.key)
                if future.cancelled():
                    watch.alive()
                    raise ClusterError(f"The task of item {number} was cancelled.")
                if future.status == "error":
                    error: Any = future.exception()
                    raise Failure(number, f"item {number}" if names is None else names[number], error) from error
                yield number, future.result()
                future.release()
            if not finished:
                time.sleep(POLL)
            if watch.is_due:
                watch.alive()
    finally:
        for future in futures:
            with contextlib.suppress(Exception):
                future.release()


def map(
    function: Callable[..., Any],
    items: Iterable[Any],
    *,
    client: Client | None = None,
    names: Sequence[str] | None = None,
) -> list[Any]:
    """[function(item) for item in items], each on some worker, in double precision.

    Args:
        function: of one item; sent to the workers with what it refers to.
        items: each sent to one worker.
        client: of a Dask cluster; without one, processes on this machine do the work.
        names: of the items, for the error that names one that failed.

    Returns:
        The results, in the order of the items.

    Raises:
        Failure: the function failed for an item.

    Examples:
        >>> from distributed import Client
        >>> from cavity import distributed
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     distributed.map(lambda x: x**2, [1.0, 2.0, 3.0], client=client)
        [1.0, 4.0, 9.0]
    """
    items = list(items)
    with client_or_local(client) as own:
        found = dict(map_unordered(function, items, own, names))
    return [found[number] for number in range(len(items))]


def infer_all(problems: Sequence[Any], method: Method | None = None, *, client: Client | None = None) -> list[Solution]:
    """`infer` for every one of many graphs or problems, in their order; one that fails is named by its number.

    Args:
        problems: discrete graphs, approximations of them, or anything else `infer` takes.
        method: as for `infer`.
        client: of a Dask cluster; without one, processes on this machine do the work.

    Returns:
        The solutions, in the order of the problems.

    Raises:
        Failure: a problem could not be solved.

    Examples:
        >>> from distributed import Client
        >>> import cavity as cv
        >>> from cavity import distributed
        >>> problems = [cv.models.clutter([0.5, 1.0, x]) for x in (1.5, 2.0)]
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     solutions = distributed.infer_all(problems, cv.EP(), client=client)
        >>> [str(solution.status) for solution in solutions]
        ['converged', 'converged']
    """
    names = [f"problem {number}" for number in range(len(problems))]
    return map(partial(infer, method=method), problems, client=client, names=names)


@one_blas_thread()
def call_in_float64(function: Callable[..., Any], item: Any) -> Any:
    """The function's value in double precision."""
    with double_precision():
        return to_numpy(function(item))
