"""Shards on workers: loaded once, asked where they lie, moved when a worker dies or joins.

A shard lives on one worker and is asked there only: what the worker keeps of it between two requests (its sites) stays
of use. When that worker is gone, the shard is loaded on another one and asked the same again.

Dask's actors are not used: an actor is lost with its worker, and finding its shard another one is the whole task here.
"""

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import dask
from dask.delayed import Delayed
from distributed import Client, Future, KilledWorker, wait
from distributed.client import FutureCancelledError

#: seconds between two looks at who is alive
CHECK_EVERY = 0.5
#: how often in a row a shard may lose its worker before it is taken for the cause
MAX_LOSSES = 5

#: how a shard is loaded: from a key to the Dask task of this name
Loader = Callable[[str], Delayed]


def loader_of(function: Callable[..., Any], pieces: Sequence[Any], *arguments: Any) -> Loader:
    """The loader that calls `function(pieces, *arguments)` on a worker; pieces that are functions are called there."""

    def load(key: str) -> Delayed:
        given = [dask.delayed(piece, pure=False)() if is_function(piece) else piece for piece in pieces]
        return dask.delayed(function, pure=False)(given, *arguments, dask_key_name=key)

    return load


def is_function(piece: Any) -> bool:
    """Whether data are given as a function that loads them."""
    return callable(piece) and not isinstance(piece, Delayed | Future)


def assign_workers(placement: Sequence[str | None], workers: Iterable[str]) -> list[str | None]:
    """A worker for every shard: the one it has where that still lives, as few moves as leave the numbers even.

    Numbers of shards then differ by at most one. Without workers no shard has one.
    """
    alive = sorted(workers)
    if not alive:
        return [None] * len(placement)
    found: list[str | None] = [worker if worker in alive else None for worker in placement]
    load = Counter({worker: 0 for worker in alive})
    load.update(worker for worker in found if worker is not None)
    for number, worker in enumerate(found):
        if worker is None:
            found[number] = least = min(alive, key=lambda worker: load[worker])
            load[least] += 1
    while True:
        most, least = max(alive, key=lambda worker: load[worker]), min(alive, key=lambda worker: load[worker])
        if load[most] - load[least] <= 1:
            return found
        found[found.index(most)] = least
        load[most] -= 1
        load[least] += 1


class PendingCall(NamedTuple):
    """What a shard was asked, on which worker, and where the answer will be."""

    future: Future
    worker: str | None
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class NoWorkersError(RuntimeError):
    """No worker is alive, and the time a run may take is over."""


class WorkerPool:
    """The workers of a client with the shards they hold.

    Args:
        client: whose workers.
        loaders: for every shard a function from a key to the Dask task of this name that loads and checks it.
        deadline: on the clock of `time.perf_counter`; where no worker is alive then, none is waited for.
    """

    def __init__(self, client: Client, loaders: Sequence[Loader], deadline: float | None = None) -> None:
        # Dask's methods may also be awaited and are typed for both.
        self.client: Any = client
        self.loaders, self.deadline = loaders, deadline
        self.run = uuid.uuid4().hex
        self.keys = 0
        self.shards: list[Any] = []
        self.placement: list[str | None] = [None] * len(loaders)
        self.wanted = self.placement
        self.losses = [0] * len(loaders)
        self.pending: dict[int, PendingCall] = {}
        self.checked = time.perf_counter()

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *_: Any) -> None:
        for futures in ([call.future for call in self.pending.values()], self.shards):
            with contextlib.suppress(Exception):
                self.client.cancel(futures)
        self.pending, self.shards = {}, []

    def key(self, what: str, number: int) -> str:
        """A name no other task has."""
        self.keys += 1
        return f"cavity-{what}-{self.run}-{number}-{self.keys}"

    def load(self) -> None:
        """Load all shards wherever Dask finds best, which is where their data are; then even out.

        Raises:
            ValueError, RuntimeError: one error that names every shard that could not be used.
        """
        self.shards = [
            self.client.compute(load(self.key("load", number)), sync=False) for number, load in enumerate(self.loaders)
        ]
        while any(not future.done() for future in self.shards):
            with contextlib.suppress(TimeoutError):
                wait(self.shards, timeout=CHECK_EVERY)
        refused = [
            (number, future.exception()) for number, future in enumerate(self.shards) if future.status == "error"
        ]
        if refused:
            kind = ValueError if all(isinstance(error, ValueError) for _, error in refused) else RuntimeError
            raise kind(" ".join(shard_error(number, error) for number, error in refused))
        where = self.client.who_has(self.shards)
        self.placement = [next(iter(sorted(where.get(future.key, ()))), None) for future in self.shards]
        self.check_workers()

    def check_workers(self) -> None:
        """See who is alive: where every shard should be, evenly, and whose answer will not come."""
        self.checked = time.perf_counter()
        alive = self.client.nthreads()
        self.wanted = assign_workers(self.placement, alive)
        for number, call in list(self.pending.items()):
            if call.worker not in alive:
                self.ask_again(number)

    def ask(self, number: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Have `function(shard, *arguments)` worked out where the shard lies, after moving it if it has to."""
        while self.wanted[number] is None:
            if self.deadline is not None and time.perf_counter() >= self.deadline:
                raise NoWorkersError("no worker is alive, and max_seconds is over.")
            time.sleep(CHECK_EVERY)
            self.check_workers()
        worker = self.wanted[number]
        if self.placement[number] != worker:
            self.placement[number] = worker
            task = self.loaders[number](self.key("load", number))
            self.shards[number] = self.client.compute(task, sync=False, workers=[worker], allow_other_workers=False)
        future = self.client.submit(
            function,
            self.shards[number],
            *arguments,
            key=self.key("ask", number),
            workers=[worker],
            allow_other_workers=False,
            pure=False,
        )
        self.pending[number] = PendingCall(future, worker, function, arguments)

    def answers(self) -> Iterator[tuple[int, Any]]:
        """(shard, answer) as they arrive, until nothing is pending any more; more may be asked in between."""
        while self.pending:
            futures = [call.future for call in self.pending.values()]
            with contextlib.suppress(TimeoutError):
                wait(futures, timeout=CHECK_EVERY, return_when="FIRST_COMPLETED")
            for number, call in list(self.pending.items()):
                if call.future.done():
                    yield from self.answer(number, call)
            if time.perf_counter() - self.checked > CHECK_EVERY:
                self.check_workers()

    def answer(self, number: int, call: PendingCall) -> Iterator[tuple[int, Any]]:
        """The answer, if it can still be had: its worker may have died between working it out and handing it over."""
        try:
            found = call.future.result(timeout=CHECK_EVERY)
        except TimeoutError:
            return
        except (KilledWorker, FutureCancelledError):
            self.check_workers()
            if self.pending.get(number) is call:
                self.ask_again(number)
            return
        except Exception as error:
            kind = ValueError if isinstance(error, ValueError) else RuntimeError
            raise kind(shard_error(number, error)) from error
        self.losses[number] = 0
        del self.pending[number]
        yield number, found

    def ask_again(self, number: int) -> None:
        """The worker that was asked is gone: the same again, on another one."""
        call = self.pending.pop(number)
        with contextlib.suppress(Exception):
            call.future.cancel()
        self.losses[number] += 1
        if self.losses[number] > MAX_LOSSES:
            raise RuntimeError(
                f"Shard {number} lost its worker {self.losses[number]} times in a row: it may need more memory than a "
                "worker has."
            )
        self.placement[number] = None
        self.ask(number, call.function, *call.arguments)


def shard_error(number: int, error: BaseException | None) -> str:
    """What is wrong with a shard, with its number in front."""
    text = " ".join(str(error).split())
    if text.startswith(f"Shard {number}"):
        return text
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return f"Shard {number}: {kind}{text}"
