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
from distributed.client import FutureCancelledError, FuturesCancelledError

#: seconds between two looks at who is alive
CHECK_EVERY = 0.5
#: seconds that a cluster may be without workers, and that a round goes on when the time of its run is over
PATIENCE = 60.0
GRACE = 30.0
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


class ClusterError(RuntimeError):
    """A run on a cluster cannot go on.

    Attributes:
        reached: the result so far, status `interrupted`; None before the end of the first round.

    Examples:
        >>> from cavity import distributed
        >>> print(distributed.ClusterError("The scheduler is gone.").reached)
        None
    """

    reached: Any = None


class OutOfTimeError(ClusterError):
    """The time a run may take is over, and what was asked has not been answered."""


class WorkerWatch:
    """Who is alive of the workers of a client. Nobody is waited for without end.

    deadline: on the clock of `time.perf_counter`; where no worker is alive then, none is waited for.
    """

    def __init__(self, client: Client, deadline: float | None = None) -> None:
        # Dask's methods may also be awaited and are typed for both.
        self.client: Any = client
        self.deadline = deadline
        self.seen = self.checked = time.perf_counter()

    @property
    def is_due(self) -> bool:
        """Whether it is time for another look."""
        return time.perf_counter() > self.checked + CHECK_EVERY

    def ask_scheduler(self, question: str, **what: Any) -> Any:
        """The scheduler's answer."""
        try:
            return self.client.sync(getattr(self.client.scheduler, question), callback_timeout=GRACE, **what)
        except Exception as error:
            raise ClusterError("The scheduler is gone, or does not answer.") from error

    def alive(self) -> list[str]:
        """The addresses of the workers, once there is nothing to give up."""
        found = list(self.ask_scheduler("ncores"))
        now, end = time.perf_counter(), self.deadline
        self.checked, self.seen = now, now if found else self.seen
        if end is None and now > self.seen + PATIENCE:
            raise ClusterError(f"No worker has been alive for {PATIENCE:g} seconds.")
        if end is not None and now > end and not found:
            raise OutOfTimeError("No worker is alive, and max_seconds is over.")
        if end is not None and now > end + GRACE:
            raise OutOfTimeError(f"max_seconds has been over for {GRACE:g} seconds, and workers have not answered.")
        return found

    def wait_for_one(self, futures: Iterable[Future]) -> None:
        """Returns when one of these is done, or after a while."""
        with contextlib.suppress(TimeoutError, FuturesCancelledError):
            wait(list(futures), timeout=CHECK_EVERY, return_when="FIRST_COMPLETED")


class WorkerPool(WorkerWatch):
    """The workers of a client with the shards they hold.

    Args:
        client: whose workers.
        loaders: for every shard a function from a key to the Dask task of this name that loads and checks it.
        deadline: as for `WorkerWatch`.
    """

    def __init__(self, client: Client, loaders: Sequence[Loader], deadline: float | None = None) -> None:
        super().__init__(client, deadline)
        self.loaders = loaders
        self.run = uuid.uuid4().hex
        self.keys = 0
        self.shards: list[Any] = []
        self.placement: list[str | None] = [None] * len(loaders)
        self.wanted = self.placement
        self.losses = [0] * len(loaders)
        self.pending: dict[int, PendingCall] = {}

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        for future in (*(call.future for call in self.pending.values()), *self.shards):
            with contextlib.suppress(Exception):
                future.release()
        self.pending, self.shards = {}, []
        if isinstance(error, Exception) and self.client.status != "running" and not isinstance(error, ClusterError):
            found = ClusterError("The scheduler is gone.")
            found.reached = getattr(error, "reached", None)
            raise found from error

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
        while pending := [future for future in self.shards if not future.done()]:
            self.wait_for_one(pending)
            self.alive()
        if any(future.cancelled() for future in self.shards):
            raise ClusterError("The tasks that load the shards were cancelled.")
        refused = [
            (number, future.exception()) for number, future in enumerate(self.shards) if future.status == "error"
        ]
        if refused:
            kind = ValueError if all(isinstance(error, ValueError) for _, error in refused) else RuntimeError
            raise kind(" ".join(shard_error(number, error) for number, error in refused))
        where = self.ask_scheduler("who_has", keys=[future.key for future in self.shards])
        self.placement = [next(iter(sorted(where.get(future.key, ()))), None) for future in self.shards]
        self.check_workers()

    def check_workers(self) -> None:
        """See who is alive: where every shard should be, evenly, and whose answer will not come."""
        alive = self.alive()
        self.wanted = assign_workers(self.placement, alive)
        for number, call in list(self.pending.items()):
            if call.worker not in alive:
                self.ask_again(number)

    def ask(self, number: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Have `function(shard, *arguments)` worked out where the shard lies, after moving it if it has to."""
        while self.wanted[number] is None:
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
            self.wait_for_one(call.future for call in self.pending.values())
            for number, call in list(self.pending.items()):
                if call.future.done():
                    yield from self.answer(number, call)
            if self.is_due:
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
            kind = ValueError if isinstance(error, ValueError) else ClusterError
            raise kind(shard_error(number, error)) from error
        self.losses[number] = 0
        del self.pending[number]
        yield number, found

    def ask_again(self, number: int) -> None:
        """The worker that was asked is gone: the same again, on another one."""
        call = self.pending.pop(number)
        with contextlib.suppress(Exception):
            call.future.release()
        self.losses[number] += 1
        if self.losses[number] > MAX_LOSSES:
            raise ClusterError(
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
