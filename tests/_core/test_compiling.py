"""What surrounds a compilation: Ctrl-C, the clocks, and listeners that others may clear away."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cavity as cv
from cavity._core import compiling
from cavity._core.compiling import CompileClock, compile_clock, interruptions_held, split_seconds

# ---------------------------------------------------------------- Ctrl-C

INTERRUPTED = """
    import os, signal, sys, threading, time
    import jax, numpy as np
    import cavity as cv
    from cavity._core.compiling import STAGES

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start what runs behind it without one
    stage, begun, sent = sys.argv[1], [], []

    def interrupt(number):
        if len(begun) == number and not sent:  # the same program is still being made
            sent.append(time.perf_counter())
            os.kill(os.getpid(), signal.SIGINT)

    def begin(event, value, **unused):
        begun.append(event)
        if stage in event:
            threading.Timer(0.05, interrupt, (len(begun),)).start()

    def end(event, seconds, **unused):
        begun.append(event)

    def ask():
        graph = cv.FactorGraph()  # every stage of it takes long enough to be met
        graph.normal(graph.gaussian(0.0, 10.0), graph.gamma(1.0, 1.0), out=np.linspace(-1.0, 3.0, 12))
        return cv.infer(graph, cv.EP()).log_evidence

    jax.monitoring.register_scalar_listener(begin)
    jax.monitoring.register_event_duration_secs_listener(end)
    handler = signal.getsignal(signal.SIGINT)
    try:
        ask()
        print("not interrupted")
    except KeyboardInterrupt:
        print("KeyboardInterrupt")
    assert sent and signal.getsignal(signal.SIGINT) is handler
    if "again" in sys.argv:
        print(float(ask()).hex())
        jax.clear_caches()
        print(float(ask()).hex())
"""


@pytest.mark.parametrize("arguments", [("trace",), ("to_mlir",), ("backend",), ("backend", "again")])
def test_an_interrupted_compilation_ends_in_a_clean_keyboard_interrupt(arguments):
    """The process ends at once afterwards, while JAX's compiler would still be running; or it goes on computing."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMP")}
    environment |= {"CAVITY_CACHE": "off", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    # Python ends by the signal where the interruption came in code of its own that it compiled, as of a named tuple.
    assert done.returncode in (0, -signal.SIGINT), (done.returncode, done.stderr[-2000:])
    said, *numbers = done.stdout.split()
    assert said == "KeyboardInterrupt" and done.stderr == ""
    assert len(numbers) == 2 * ("again" in arguments) and len(set(numbers)) <= 1


@pytest.fixture
def told():
    """A handler of the user's own that counts."""
    calls = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    yield calls
    signal.signal(signal.SIGINT, before)


def test_what_is_held_back_is_told_to_the_users_handler_once(told):
    handler = signal.getsignal(signal.SIGINT)
    with interruptions_held(), interruptions_held():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert told == []
    assert told == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_third_interruption_is_obeyed_at_once(told):
    with interruptions_held():
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        assert told == []
        signal.raise_signal(signal.SIGINT)
        assert told == [signal.SIGINT]
        signal.raise_signal(signal.SIGINT)
        assert told == [signal.SIGINT] * 2
    assert told == [signal.SIGINT] * 2


def test_handlers_that_ignore_or_end_the_process_stay_and_other_threads_have_none():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptions_held():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    seen = []

    def elsewhere():
        with interruptions_held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]


# ---------------------------------------------------------------- whose programs


def test_programs_of_the_user_are_told_from_those_the_library_asks_for(monkeypatch):
    asked, found = [], compiling.is_asked_by_library
    monkeypatch.setattr(compiling, "is_asked_by_library", lambda frame: asked.append(found(frame)))
    compiling.listen()
    jax.jit(lambda x: x * 1.25 + 7)(jnp.ones(3))
    assert asked and not any(asked)
    del asked[:]
    cv.kernels.Matern(0.7)(np.linspace(0.0, 1.0, 23)[:, None])
    assert asked and all(asked)


# ---------------------------------------------------------------- clocks


def test_a_clock_counts_time_in_which_anything_is_compiled_once(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(compiling.time, "perf_counter", lambda: now[0])
    clock = CompileClock()
    assert clock.lasting() == 0.0
    for step, call in ((1.0, clock.begin), (2.0, clock.begin), (3.0, clock.end), (4.0, clock.end), (0.1, clock.begin)):
        now[0] += step
        call()
    assert clock.seconds == pytest.approx(9.0)
    now[0] += 1.0
    assert clock.lasting() == pytest.approx(10.1)  # so short a pause belongs to it
    clock.end()
    assert clock.seconds == pytest.approx(10.0)
    now[0] += 5.0
    assert clock.lasting() == 0.0
    clock.begin()
    now[0] += 0.25
    assert clock.lasting() == pytest.approx(0.25)
    assert split_seconds(20.0, clock.seconds) == "20.0 s: 10.0 s compiling, 10.0 s running"
    assert split_seconds(9.96, clock.seconds) == "10.0 s: 10.0 s compiling, 0.0 s running"


def test_a_clock_sees_the_programs_of_its_thread_alone():
    def compile_anew():
        jax.jit(lambda x: jnp.sin(x) @ x + 2.5)(jnp.ones(7))

    with compile_clock() as mine:
        thread = threading.Thread(target=compile_anew)
        thread.start()
        thread.join()
        assert mine.seconds == 0.0
        began = time.perf_counter()
        compile_anew()
        passed = time.perf_counter() - began
    assert 0.0 < mine.seconds < passed
    before = mine.seconds
    compile_anew()
    assert mine.seconds == before


def test_whoever_clears_the_listeners_of_jax_changes_nothing_but_what_they_tell():
    """In a process of its own: the suite's listeners are not ours to clear."""
    code = """
    import signal, jax, numpy as np, cavity as cv
    from cavity._core.compiling import surroundings
    kernel, handler = cv.kernels.RBF(1.0), signal.getsignal(signal.SIGINT)
    ask = lambda n: np.asarray(kernel(np.linspace(0.0, 1.0, n)[:, None])).sum()
    ask(3)
    jax.monitoring.clear_event_listeners()
    ask(4), ask(5)
    jax.monitoring.clear_event_listeners()
    ask(6), ask(7), ask(8)
    assert len(surroundings.open) == 0, surroundings.open
    assert signal.getsignal(signal.SIGINT) is handler
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
