"""BLAS threads: one inside, as many as before outside, whatever happens in between."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from cavity.numerics.threads import one_blas_thread


def blas_threads():
    np.zeros((2, 2)) @ np.zeros((2, 2))
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(limits=2, user_api="blas"):
        yield


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
    """Who comes second changes nothing, and does not leave a single thread behind."""
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
