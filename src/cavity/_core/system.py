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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import scipy.linalg  # noqa: F401 — loads its library, which JAX itself does only when it first needs it
from threadpoolctl import ThreadpoolController


def device() -> Any:
    """The device on which new arrays are made: JAX's default, or that of `jax.default_device`."""
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


#: held by the call that has set the number of threads and will give it back
SETTER = threading.Lock()


@functools.cache
def libraries() -> ThreadpoolController:
    """NumPy's, and SciPy's, from which JAX takes its LAPACK; looking for them takes milliseconds."""
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS and LAPACK of this process use one thread inside; also a decorator.

    A call inside another, or beside one in another thread, changes nothing: who came first gives the threads back.
    """
    if not SETTER.acquire(blocking=False):
        yield
        return
    try:
        with libraries().limit(limits=1, user_api="blas"):
            yield
    finally:
        SETTER.release()
