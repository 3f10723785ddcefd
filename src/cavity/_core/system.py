"""The machine: the device on which arrays are made, how much memory there is for them, and the threads of LAPACK.

Code that allocates an array that grows with the square of the data calls `check_room` first, so that what cannot fit is
refused in a sentence instead of ending the process.

Drivers of long runs give LAPACK one thread around the calls of their compiled programs, which divide their products
among their own threads and hand only small blocks to LAPACK. The threads of OpenBLAS wait for the next call by
spinning, which after each factorisation would keep a core from those products for some 30 ms: at n = 1000 that doubles
the time of a run, at n = 200 it is nearly all of it.
"""

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import scipy.linalg  # noqa: F401 — loads its library, which JAX itself does only when it first needs it
from threadpoolctl import OpenBLASController, ThreadpoolController

from cavity._core.precision import refuse_fork


def device() -> Any:
    """The device on which new arrays are made: JAX's default, or that of `jax.default_device`."""
    refuse_fork()
    with jax.ensure_compile_time_eval():  # also while a program is traced
        (found,) = jnp.zeros(()).devices()
    return found


def is_accelerator() -> bool:
    """Whether that device is a GPU or TPU, where many small steps cost more than a few large ones."""
    return device().platform != "cpu"


def room() -> int | None:
    """Bytes an array may take: what the device's allocator has left, or the machine's memory; None if unknown."""
    stats = device().memory_stats()
    if stats is not None and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def check_room(what: str, n: int, squares: float, instead: str) -> None:
    """Refuse what does not fit, before anything is allocated. squares: how many arrays of n × n numbers it takes."""
    limit, needed = room(), 8.0 * squares * n**2
    if limit is not None and needed > limit:
        raise ValueError(
            f"{what} of {n:,} takes about {needed / 1e9:.3g} GB, and {device().device_kind} has {limit / 1e9:.3g} GB; "
            f"{int((limit / (8.0 * squares)) ** 0.5):,} would fit. {instead}"
        )


class Shared:
    """A context of the whole process that calls inside one another or in several threads share; also a decorator.

    The first call enters it and the last one leaves it, so that nobody gives back what another has set.

    Args:
        make: makes the context.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.lock, self.inside, self.context = make, threading.Lock(), 0, nullcontext()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.lock:
            if self.inside == 0:
                self.context = self.make()
                self.context.__enter__()
            self.inside += 1
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1
                if self.inside == 0:
                    self.context.__exit__(None, None, None)


@functools.cache
def libraries() -> ThreadpoolController:
    """NumPy's, and SciPy's, from which JAX takes its LAPACK; looking for them takes milliseconds."""
    return ThreadpoolController()


@contextmanager
def limited_blas() -> Iterator[None]:
    """The limit; OpenBLAS obeys the thread that sets it alone, which here need not be the one that lifts it."""
    OpenBLASController.clear_controlling_thread(force=True)
    limit = libraries().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        OpenBLASController.clear_controlling_thread(force=True)
        limit.restore_original_limits()
        OpenBLASController.clear_controlling_thread(force=True)


#: BLAS and LAPACK of this process use one thread inside
one_blas_thread = Shared(limited_blas)
