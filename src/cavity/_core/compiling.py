"""What happens around every program that JAX compiles: kept, counted, and not interrupted.

JAX reports to listeners when it begins and ends to trace, to lower and to compile a program. Ours are registered by the
first call that computes. For the length of such a stage, and for programs that the library has asked for, they

* let JAX's compilation cache look into the folder of `kept_programs`, if the user has named no cache folder. JAX's
  settings are not changed: a folder the user names, at any time, is the one that is used from then on;
* hold back Ctrl-C in the main thread until the stage is over. JAX would leave the compiler running, and a process that
  ends meanwhile is killed by a segmentation fault; while a program is traced, an interruption may also get lost in one
  of JAX's callbacks that may not raise;
* tell the clocks of `compile_clock`, so that seconds of compiling and of running can be told apart.

Programs of the user's own, a `jit` around the library among them, are left alone.
"""

import contextlib
import functools
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any

import jax

from cavity._core.kept_programs import ProgramFolder, open_folder

jax_cache: Any = None
jax_config: Any = None
with contextlib.suppress(ImportError):  # a version of JAX that has them elsewhere keeps no programs
    from jax._src import compilation_cache as jax_cache
    from jax._src import config as jax_config

COMPILED = "/jax/core/compile/backend_compile_duration"
#: what is done to a program before it can run; that it is read from a file instead is part of the last
STAGES = {"/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration", COMPILED}
#: seconds between two programs that count as one stretch of compiling
PAUSE = 0.5
#: how often Ctrl-C is pressed until it is obeyed at once, whatever may come of it
IMPATIENT = 3

the_folder = functools.cache(open_folder)


class CompileClock:
    """Seconds in which at least one program was being traced, lowered, compiled or read."""

    def __init__(self) -> None:
        self.lock, self.programs, self.seconds = threading.Lock(), 0, 0.0
        self.began, self.ended, self.stretch = 0.0, -PAUSE, 0.0

    def begin(self) -> None:
        """A stage of a program begins."""
        with self.lock:
            now = time.perf_counter()
            if self.programs == 0:
                self.stretch = now if now - self.ended >= PAUSE else self.stretch
                self.began = now
            self.programs += 1

    def end(self) -> None:
        """A stage of a program ends."""
        with self.lock:
            if self.programs == 1:
                self.ended = time.perf_counter()
                self.seconds += self.ended - self.began
            self.programs = max(self.programs - 1, 0)

    def lasting(self) -> float:
        """For how many seconds programs have been compiled one after another until now; 0 where none is."""
        now = time.perf_counter()
        return now - self.stretch if self.programs or now - self.ended < PAUSE else 0.0


#: the clocks that run in this thread
clocks: ContextVar[tuple[CompileClock, ...]] = ContextVar("clocks", default=())


@contextlib.contextmanager
def compile_clock() -> Iterator[CompileClock]:
    """A clock of the programs that this thread asks for inside."""
    listen()
    clock = CompileClock()
    token = clocks.set((*clocks.get(), clock))
    try:
        yield clock
    finally:
        clocks.reset(token)


def split_seconds(seconds: float, compiling: float) -> str:
    """Seconds in words: how many went into compiling, and how many into running what was compiled."""
    compiling = min(compiling, seconds)
    return f"{seconds:.1f} s: {compiling:.1f} s compiling, {seconds - compiling:.1f} s running"


@contextlib.contextmanager
def interruptions_held() -> Iterator[None]:
    """Ctrl-C in the main thread is noted inside and obeyed at the end."""
    before: Any = signal.getsignal(signal.SIGINT)
    here = threading.current_thread() is threading.main_thread()
    if not here or not callable(before):  # ignored, or it ends the process without a word
        yield
        return
    came: list[Any] = []

    def note(number: int, frame: Any) -> None:
        came.append(frame)
        if len(came) == IMPATIENT:
            obey()

    def obey() -> None:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)
            if came:
                before(signal.SIGINT, came[0])

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        obey()


class LentFolder:
    """The folder as JAX's compilation cache, while a thread compiles for the library and for that thread alone."""

    def __init__(self) -> None:
        self.lock, self.borrowers, self.mine = threading.Lock(), 0, threading.local()
        self._path = "programs of cavity"  # JAX names it in its log

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        named = getattr(jax_config, "compilation_cache_dir", None)  # of JAX's settings
        folder = None if named is None or named.value else the_folder()
        with self.lock:
            lent = folder is not None and getattr(jax_cache, "_cache", "unknown") in (None, self)
            if lent:
                jax_cache._cache = self  # type: ignore[assignment]
                self.borrowers += 1
        if not lent:
            yield
            return
        self.mine.folder = folder
        least = jax_config.persistent_cache_min_compile_time_secs
        try:
            # JAX keeps what took it a second to compile; the many small programs are worth keeping as well.
            with least(0.0) if least.value == 1.0 else contextlib.nullcontext():
                yield
        finally:
            self.mine.folder = None
            with self.lock:
                self.borrowers -= 1
                if self.borrowers == 0 and jax_cache._cache is self:
                    jax_cache._cache = None

    def get(self, key: str) -> bytes | None:
        """What JAX asks for before it compiles."""
        folder: ProgramFolder | None = getattr(self.mine, "folder", None)
        return None if folder is None else folder.get(key)

    def put(self, key: str, program: bytes) -> None:
        """What JAX has compiled."""
        folder: ProgramFolder | None = getattr(self.mine, "folder", None)
        if folder is not None:
            folder.put(key, program)


lent_folder = LentFolder()


class Surroundings(threading.local):
    """What surrounds the stages that this thread is in: tracing one program may ask for another."""

    def __init__(self) -> None:
        self.open: list[tuple[str, contextlib.ExitStack]] = []


surroundings = Surroundings()


def began(event: str, value: float, **unused: Any) -> None:
    """JAX begins a stage."""
    if event not in STAGES:
        return
    if event == COMPILED and any(own == COMPILED for own, _ in surroundings.open):
        # No program is compiled inside another: whoever cleared JAX's listeners has taken away the one of the end.
        while surroundings.open:
            surroundings.open.pop()[1].close()
        listen.cache_clear()
        listen()
    with contextlib.ExitStack() as around:
        if is_asked_by_library(sys._getframe(1)):
            around.enter_context(interruptions_held())
            if event == COMPILED:
                around.enter_context(lent_folder())
        surroundings.open.append((event, around.pop_all()))
    for clock in clocks.get():
        clock.begin()


def ended(event: str, duration_secs: float, **unused: Any) -> None:
    """JAX has ended a stage. An interruption that has come is obeyed here."""
    if event not in STAGES:
        return
    for clock in clocks.get():
        clock.end()
    if surroundings.open and surroundings.open[-1][0] == event:
        surroundings.open.pop()[1].close()


def is_asked_by_library(frame: FrameType | None) -> bool:
    """Whether a function of the library, here or further out, waits for the program."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("cavity."):
            return True
        frame = frame.f_back
    return False


@functools.cache
def listen() -> None:
    """Register the listeners, once; JAX has none of them more than once."""
    with contextlib.suppress(AssertionError):  # it is not registered
        jax.monitoring.unregister_scalar_listener(began)
    with contextlib.suppress(AssertionError):
        jax.monitoring.unregister_event_duration_listener(ended)
    jax.monitoring.register_scalar_listener(began)
    jax.monitoring.register_event_duration_secs_listener(ended)
