"""BLAS threads: one inside, as many as before outside, whatever happens in between."""

import subprocess
import sys
import threading

import pytest

from cavity._core.system import libraries, one_blas_thread


def blas():
    return [library for library in libraries().lib_controllers if library.user_api == "blas"]


def blas_threads():
    return {library.num_threads for library in blas()}


def set_threads(numbers):
    """From a thread that ends: nobody is then left in charge of the number."""

    def change():
        for library, number in zip(blas(), numbers, strict=True):
            library.set_num_threads(number)

    other = threading.Thread(target=change)
    other.start()
    other.join()


@pytest.fixture(autouse=True)
def two_threads():
    before = [library.num_threads for library in blas()]
    set_threads([2] * len(before))
    yield
    set_threads(before)


def test_one_inside_and_restored_outside():
    with one_blas_thread():
        assert blas_threads() == {1}
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_restored_after_an_error():
    with pytest.raises(RuntimeError), one_blas_thread():
        raise RuntimeError
    assert blas_threads() == {2}


def test_calls_that_overlap_in_other_threads():
    """Who comes second, and leaves last, does not leave a single thread behind."""
    entered, leave = threading.Event(), threading.Event()

    def second():
        with one_blas_thread():
            entered.set()
            leave.wait(10)

    other = threading.Thread(target=second)
    with one_blas_thread():
        other.start()
        entered.wait(10)
        assert blas_threads() == {1}
    leave.set()
    other.join()
    assert blas_threads() == {2}


def test_the_library_of_lapack_is_among_them():
    """JAX takes LAPACK from SciPy and loads it late: a process whose first act is a run must find it all the same."""
    script = (
        "from cavity._core.system import libraries; first = len(libraries().lib_controllers);"
        "import scipy.linalg, numpy, jax.numpy as jnp; jnp.linalg.cholesky(jnp.eye(3));"
        "from threadpoolctl import ThreadpoolController; print(first, len(ThreadpoolController().lib_controllers))"
    )
    first, later = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert first == later
