"""Every schedule reaches the same fixed point; bad ones are refused."""

import numpy as np
import pytest

import cavity as cv

X = np.array([-3.1, 0.2, 1.1, 1.7, 2.0, 2.2, 2.4, 2.9, 3.3, 5.0, 1.9])
SCHEDULES = [
    cv.Shuffled(),
    cv.Order(tuple(reversed(range(11)))),
    cv.Order((0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 5)),
    cv.LargestMismatchFirst(),
    cv.Parallel(),
    cv.Blocks(4),
    cv.Blocks(4, shuffled=True),
    cv.Blocks(100),
    cv.EveryNth(3),
    cv.EveryNth(100),
]


@pytest.fixture(scope="module")
def reference():
    return cv.infer(cv.models.clutter(X), cv.EP(tol=1e-12))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_same_fixed_point(schedule, reference):
    damping = 0.5 if isinstance(schedule, cv.Parallel | cv.Blocks | cv.EveryNth) else 1.0
    solution = cv.infer(cv.models.clutter(X), cv.EP(schedule=schedule, damping=damping, tol=1e-10))
    assert solution.converged
    np.testing.assert_allclose(solution.q, reference.q, rtol=1e-8)
    np.testing.assert_allclose(solution.log_evidence, reference.log_evidence, rtol=1e-9)


def test_an_order_that_leaves_sites_out_is_not_called_converged():
    solution = cv.infer(cv.models.clutter(X), cv.EP(schedule=cv.Order((0, 1, 2)), max_sweeps=30))
    assert not solution.converged and solution.mismatch > 1e-3
    assert np.all(solution.sites[0][3:] == 0)


def test_blocks_of_one_are_sequential():
    one, sequential = (
        cv.infer(cv.models.clutter(X), cv.EP(schedule=s, max_sweeps=2)) for s in (cv.Blocks(1), cv.InOrder())
    )
    np.testing.assert_allclose(one.sites[0], sequential.sites[0], rtol=1e-13)


def test_every_nth_site_is_in_one_block():
    (table,) = cv.EveryNth(3).visits(0, 11, None, None)
    assert table.tolist() == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    (table,) = cv.EveryNth(100).visits(0, 2, None, None)
    assert table.tolist() == [[0], [1]]


def test_one_block_is_parallel():
    block, parallel = (
        cv.infer(cv.models.clutter(X), cv.EP(schedule=s, max_sweeps=3)) for s in (cv.Blocks(11), cv.Parallel())
    )
    np.testing.assert_allclose(block.sites[0], parallel.sites[0], rtol=1e-12)


def test_shuffling_is_repeatable_and_follows_the_key():
    import jax

    method = cv.EP(schedule=cv.Shuffled(), max_sweeps=1)
    problem = cv.models.clutter(X)
    a, b, c = (cv.infer(problem, method, key=jax.random.key(k)) for k in (1, 1, 2))
    np.testing.assert_array_equal(a.sites[0], b.sites[0])
    assert not np.allclose(a.sites[0], c.sites[0])


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: cv.Blocks(0), "block_size"),
        (lambda: cv.Order(()), "sites"),
        (lambda: cv.infer(cv.models.clutter(X), cv.EP(schedule=cv.Order((0, 99)))), "0..10"),
        (lambda: cv.EP(damping=0.0), "damping"),
        (lambda: cv.EP(damping=1.5), "damping"),
        (lambda: cv.EP(tol=0.0), "tol"),
        (lambda: cv.EP(tol=float("inf")), "tol"),
        (lambda: cv.EP(max_sweeps=2.5), "max_sweeps"),
        (lambda: cv.Blocks(2.5), "block_size"),
        (lambda: cv.Order((0.7, 1.9)), "sites"),
        (lambda: cv.PowerEP("a"), "power"),
        (lambda: cv.EP(max_sweeps=0), "max_sweeps"),
        (lambda: cv.PowerEP(0.0), "power"),
        (lambda: cv.PowerEP(float("nan")), "power"),
    ],
)
def test_bad_settings_are_named(make, word):
    with pytest.raises(ValueError, match=word):
        make()
