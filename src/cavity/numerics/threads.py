"""LAPACK on one thread while our programs run.

Compiled programs divide their products among their own threads, and only small blocks reach LAPACK. The threads of
OpenBLAS wait for the next call by spinning, which after each factorisation would keep a core from those products for
some 30 ms: at n = 1000 that doubles the time of a run.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController


@functools.cache
def libraries() -> ThreadpoolController:
    """Those that are loaded at the first call, JAX's and NumPy's among them: looking for them takes milliseconds."""
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS and LAPACK of this process use one thread inside; also a decorator.

    Where calls in several threads overlap, the one that came first sets and restores the number.
    """
    with libraries().limit(limits=1, user_api="blas"):
        yield
