"""LAPACK on one thread while compiled programs run: for drivers of long runs, around the calls of their programs.

Compiled programs divide their products among their own threads, and only small blocks reach LAPACK. The threads of
OpenBLAS wait for the next call by spinning, which after each factorisation would keep a core from those products for
some 30 ms: at n = 1000 that doubles the time of a run, at n = 200 it is nearly all of it.
"""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

#: held by the call that has set the number of threads and will give it back
SETTER = threading.Lock()


@functools.cache
def libraries() -> ThreadpoolController:
    """NumPy's, and SciPy's, from which JAX takes its LAPACK; looking for them takes milliseconds."""
    import scipy.linalg  # noqa: F401 — loads its library, which JAX itself does only when it first needs it

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
