"""Shards on workers: loaded once, asked where they lie, moved when a worker dies or joins.

A shard lives on one worker, its home, and is asked there only: what the worker keeps of it between two questions
(its sites) stays of use. When a home is gone, the shard is loaded on another worker and asked the same again.
"""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dask.delayed import Delayed
from distributed import Client, Future, KilledWorker, wait
from distributed.client import FutureCancelledError

from cavity.distributed.placement import assigned

#: seconds between two looks at who is alive
LOOK = 0.5
#: how often in a row a shard may lose its worker before it is taken for the cause
MAX_LOSSES = 5


class Question(NamedTuple):
    """What a shard was asked, where, and where the answer will be."""

    future: Future
    home: str | None
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Team:
    """The workers of a client with the shards they hold.

    Args:
        client: whose workers.
        loads: for every shard a function from a key to the Dask task of this name that loads and checks it.
    """

    def __init__(self, client: Client, loads: Sequence[Callable[[str], Delayed]]) -> None:
        # Dask's methods may also be awaited and are typed for both.
        self.client: Any = client
        self.loads = loads
        self.run = uuid.uuid4().hex
        self.asked = 0
        self.shards: list[Any] = []
        self.homes: list[str | None] = [None] * len(loads)
        self.wanted = self.homes
        self.losses = [0] * len(loads)
        self.flying: dict[int, Question] = {}
        self.looked = time.perf_counter()

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *_: Any) -> None:
        self.forget()
        with contextlib.suppress(Exception):
            self.client.cancel(self.shards)
        self.shards = []

    def key(self, what: str, number: int) -> str:
        """A name no other task has."""
        self.asked += 1
        return f"cavity-{what}-{self.run}-{number}-{self.asked}"

    def load(self) -> None:
        """Load all shards wherever Dask finds best, which is where their data are; then even out.

        Raises one error that names every shard that could not be used.
        """
        self.shards = [
            self.client.compute(load(self.key("load", number)), sync=False) for number, load in enumerate(self.loads)
        ]
        while any(not future.done() for future in self.shards):
            with contextlib.suppress(TimeoutError):
                wait(self.shards, timeout=LOOK)
        refused = [
            (number, future.exception()) for number, future in enumerate(self.shards) if future.status == "error"
        ]
        if refused:
            kind = ValueError if all(isinstance(error, ValueError) for _, error in refused) else RuntimeError
            raise kind(" ".join(refusal(number, error) for number, error in refused))
        where = self.client.who_has(self.shards)
        self.homes = [next(iter(sorted(where.get(future.key, ()))), None) for future in self.shards]
        self.look()

    def look(self) -> None:
        """See who is alive: where every shard should be, evenly, and whose answer will not come."""
        self.looked = time.perf_counter()
        alive = self.client.nthreads()
        self.wanted = assigned(self.homes, alive)
        for number, question in list(self.flying.items()):
            if question.home not in alive:
                self.lost(number)

    def reload(self, number: int) -> None:
        """Load a shard at its home."""
        task = self.loads[number](self.key("load", number))
        home = [self.homes[number]]
        self.shards[number] = self.client.compute(task, sync=False, workers=home, allow_other_workers=False)

    def ask(self, number: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Have `function(shard, *arguments)` worked out where the shard lies, after moving it if it has to."""
        while self.wanted[number] is None:
            time.sleep(LOOK)
            self.look()
        if self.homes[number] != self.wanted[number]:
            self.homes[number] = self.wanted[number]
            self.reload(number)
        future = self.client.submit(
            function,
            self.shards[number],
            *arguments,
            key=self.key("ask", number),
            workers=[self.homes[number]],
            allow_other_workers=False,
            pure=False,
        )
        self.flying[number] = Question(future, self.homes[number], function, arguments)

    def answers(self) -> Iterator[tuple[int, Any]]:
        """(shard, answer) as they arrive, until nothing is asked any more; more may be asked in between."""
        while self.flying:
            futures = [question.future for question in self.flying.values()]
            with contextlib.suppress(TimeoutError):
                wait(futures, timeout=LOOK, return_when="FIRST_COMPLETED")
            for number, question in list(self.flying.items()):
                if question.future.done():
                    yield from self.answer(number, question)
            if time.perf_counter() - self.looked > LOOK:
                self.look()

    def answer(self, number: int, question: Question) -> Iterator[tuple[int, Any]]:
        """The answer, if it can still be had: its worker may have died between working it out and handing it over."""
        try:
            found = question.future.result(timeout=LOOK)
        except TimeoutError:
            return
        except (KilledWorker, FutureCancelledError):
            self.look()
            if self.flying.get(number) is question:
                self.lost(number)
            return
        except Exception as error:
            kind = ValueError if isinstance(error, ValueError) else RuntimeError
            raise kind(refusal(number, error)) from error
        self.losses[number] = 0
        del self.flying[number]
        yield number, found

    def lost(self, number: int) -> None:
        """The worker that was asked is gone: the same question again, at another home."""
        question = self.flying.pop(number)
        with contextlib.suppress(Exception):
            question.future.cancel()
        self.losses[number] += 1
        if self.losses[number] > MAX_LOSSES:
            raise RuntimeError(
                f"Shard {number} lost its worker {self.losses[number]} times in a row: it may need more memory than a "
                "worker has."
            )
        self.homes[number] = None
        self.ask(number, question.function, *question.arguments)

    def forget(self) -> None:
        """Give up all questions."""
        with contextlib.suppress(Exception):
            self.client.cancel([question.future for question in self.flying.values()])
        self.flying = {}


def refusal(number: int, error: BaseException | None) -> str:
    """What is wrong with a shard, with its number in front."""
    text = " ".join(str(error).split())
    named = text.startswith(f"Shard {number}")
    if named:
        return text
    return (
        f"Shard {number}: {text}"
        if isinstance(error, ValueError)
        else f"Shard {number}: {type(error).__name__}: {text}"
    )
