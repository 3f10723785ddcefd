"""EP on shards against EP written out in NumPy, and against everything that may happen to workers and shards."""

import itertools
import os
import signal
import time
from functools import partial

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from shard_reference import draw_rows, probit_ep

from cavity import distributed
from cavity.distributed.gaussian import unpack_naturals
from cavity.factors import StudentT
from cavity.inference.status import Status

N, D = 60, 3
X, Y = draw_rows(0, N, D)
CUTS = (0, 25, 60)
SHARDS = [(X[a:b], Y[a:b]) for a, b in itertools.pairwise(CUTS)]


@pytest.fixture(scope="module")
def reference():
    return probit_ep(X, Y)


def assert_same(fit, reference):
    mean, covariance, log_evidence = reference
    assert fit.status is Status.CONVERGED and fit.mismatch <= 1e-8
    np.testing.assert_allclose(fit.mean, mean, atol=1e-6)
    np.testing.assert_allclose(fit.covariance, covariance, atol=1e-6)
    np.testing.assert_allclose(fit.log_evidence, log_evidence, atol=1e-6)


def slowly(number: int, seconds: float):
    """A shard whose loading takes a while."""
    time.sleep(seconds)
    return SHARDS[number]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_shards_have_the_fixed_point_of_all_rows_in_one_place(client, reference, asynchronous):
    seen = []
    fit = distributed.fit(SHARDS, client=client, asynchronous=asynchronous, callback=seen.append)
    assert_same(fit, reference)
    assert fit.balance <= 1e-10
    # After every round prior and contributions are the global natural parameters.
    for state in (*seen, fit):
        shift, precision = unpack_naturals(state.prior + sum(state.contributions))
        np.testing.assert_allclose(np.linalg.solve(precision, shift), state.mean, rtol=1e-10, atol=1e-10)
    assert [state.rounds for state in seen] == list(range(1, fit.rounds + 1))


def test_damping_reaches_the_same_state_by_smaller_steps(client, reference):
    damped = distributed.fit(SHARDS, client=client, damping=0.5)
    assert_same(damped, reference)
    assert damped.rounds > distributed.fit(SHARDS, client=client).rounds


@pytest.mark.parametrize(
    "given",
    [
        lambda: ([partial(slowly, k, 0.0) for k in range(2)], None),
        lambda: ([dask.delayed(slowly)(k, 0.0) for k in range(2)], None),
        lambda: (da.from_array(X, chunks=(20, D)), da.from_array(Y, chunks=30)),
        lambda: (dd.from_pandas(pd.DataFrame(X, columns=list("abc")).assign(y=Y), npartitions=3), "y"),
    ],
    ids=["loaders", "delayed", "arrays", "dataframe"],
)
def test_rows_may_come_in_many_forms(client, reference, given):
    rows, observations = given()
    fit = distributed.fit(rows, observations, client=client)
    assert_same(fit, reference)
    assert fit.rows.sum() == N


def test_rows_of_zeros_count_in_the_evidence_only(client, reference):
    mean, covariance, log_evidence = reference
    with_zeros = [*SHARDS[:1], (np.vstack([X[25:], np.zeros((2, D))]), np.append(Y[25:], [1.0, -1.0]))]
    assert_same(distributed.fit(with_zeros, client=client), (mean, covariance, log_evidence + 2 * np.log(0.5)))


def test_heavy_tails_give_negative_sites_and_the_same_answer_for_any_cut(client):
    y = X @ np.array([1.0, -2.0, 0.5]) + np.random.default_rng(1).standard_t(2, size=N)
    y[::10] += 8.0
    factor = StudentT(scale=0.5, df=4.0)
    fits = [
        distributed.fit([(X[a:b], y[a:b]) for a, b in itertools.pairwise(cuts)], factor=factor, client=client)
        for cuts in ((0, 25, 60), (0, 30, 60))
    ]
    assert all(fit.converged for fit in fits)
    np.testing.assert_allclose(fits[0].mean, fits[1].mean, atol=1e-6)
    np.testing.assert_allclose(fits[0].log_evidence, fits[1].log_evidence, atol=1e-6)


def test_a_worker_that_joins_and_one_that_is_killed_change_nothing(reference):
    loads, holders = [partial(slowly, k, 0.0) for k in range(2)], set()
    with distributed.local_client(1) as own:
        (first,) = own.run(os.getpid).values()

        def disturb(state):
            if state.rounds == 1:
                own.cluster.scale(2)
                own.wait_for_workers(2)
            if state.rounds == 3:
                holders.update(
                    worker for key, where in own.who_has().items() if "cavity-load" in str(key) for worker in where
                )
                os.kill(first, signal.SIGKILL)

        fit = distributed.fit(loads, client=own, callback=disturb)
    assert len(holders) == 2  # who came late was given a shard
    assert_same(fit, reference)


def test_a_slow_shard_does_not_keep_the_others_waiting(client, reference):
    fit = distributed.fit([partial(slowly, 0, 1.0), partial(slowly, 1, 0.0)], client=client, asynchronous=True)
    assert_same(fit, reference)


def test_an_interruption_leaves_a_state_from_which_a_run_goes_on(client, reference, tmp_path):
    def interrupt(state):
        if state.rounds == 3:
            raise KeyboardInterrupt

    stopped = distributed.fit(SHARDS, client=client, callback=interrupt)
    assert stopped.status is Status.INTERRUPTED and stopped.rounds == 3 and stopped.log_evidence is None
    stopped.save(tmp_path / "fit")
    again = distributed.load(tmp_path / "fit")
    np.testing.assert_array_equal(again.contributions, stopped.contributions)
    resumed = distributed.fit(SHARDS, client=client, resume=again)
    assert_same(resumed, reference)
    np.testing.assert_array_equal(resumed.residuals[:3], stopped.residuals)
    with pytest.raises(ValueError, match="resume must be a fit of the same shards"):
        distributed.fit(SHARDS[:1], client=client, resume=again)


def test_limits_end_a_run_with_a_measured_state(client):
    short = distributed.fit(SHARDS, client=client, max_rounds=1)
    assert short.status is Status.MAX_SWEEPS and short.rounds == 1
    assert short.mismatch > 1e-8 and short.log_evidence is not None
    assert distributed.fit(SHARDS, client=client, max_seconds=1e-3).status is Status.TIME_BUDGET


def test_the_model_predicts_as_its_q_says(client):
    fit = distributed.fit(SHARDS, client=client)
    mean, variance = fit.model().latent(X[:4])
    np.testing.assert_allclose(mean, X[:4] @ fit.mean, rtol=1e-12)
    np.testing.assert_allclose(variance, [x @ fit.covariance @ x for x in X[:4]], rtol=1e-12)
    np.testing.assert_allclose(fit.model().precision @ fit.covariance, np.eye(D), atol=1e-9)


def with_value(k: int, row: int, column: int, value: float):
    """The shards with one entry changed; column −1 is the label."""
    shards = [(a.copy(), b.copy()) for a, b in SHARDS]
    part = shards[k][1] if column < 0 else shards[k][0][:, column]
    part[row] = value
    return shards


@pytest.mark.parametrize(
    ("shards", "said"),
    [
        (with_value(1, 4, 2, np.nan), r"Shard 1, row 4: column 2 must hold finite numbers between ±1e\+100; found nan"),
        (with_value(0, 7, 0, np.inf), r"Shard 0, row 7: column 0 must hold finite numbers between ±1e\+100; found inf"),
        (with_value(1, 9, -1, np.nan), r"Shard 1, row 9: the observation must be finite"),
        (with_value(1, 11, -1, 3.0), r"Shard 1, row 11: .*labels −1 or \+1; found 3"),
        ([SHARDS[0], (X[25:, :2], Y[25:])], r"Shard 1 has 2 columns, shard 0 has 3"),
        ([SHARDS[0], (X[:0], Y[:0])], r"Shard 1 is empty"),
        ([SHARDS[0], (X[25:], Y[:3])], r"Shard 1 must have rows of shape"),
        ([SHARDS[0], (np.array([["a"]]), np.ones(1))], r"Shard 1 must be real numbers"),
        ([lambda: None, (X[:0], Y[:0])], r"Shard 0 must be a pair .* Shard 1 is empty"),
    ],
)
def test_bad_shards_are_named(client, shards, said):
    with pytest.raises(ValueError, match=said):
        distributed.fit(shards, client=client)


def test_a_loader_that_fails_is_named(client):
    def broken():
        raise OSError("no such disk")

    with pytest.raises(RuntimeError, match=r"Shard 1: OSError: no such disk"):
        distributed.fit([SHARDS[0], broken], client=client)


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"damping": 0.0}, "damping must lie in"),
        ({"tol": -1.0}, "tol must be positive"),
        ({"max_rounds": 0}, "max_rounds must be a whole number"),
        ({"max_seconds": 0}, "max_seconds must be positive"),
    ],
)
def test_options_are_checked_before_anything_is_started(keywords, said):
    with pytest.raises(ValueError, match=said):
        distributed.fit(SHARDS, **keywords)


def test_what_is_no_collection_is_refused(client):
    with pytest.raises(TypeError, match="X must be a Dask array"):
        distributed.fit(X, Y, client=client)
    with pytest.raises(ValueError, match="at least one shard"):
        distributed.fit([], client=client)
    with pytest.raises(ValueError, match="y must name a column"):
        distributed.fit(dd.from_pandas(pd.DataFrame({"a": [1.0]}), npartitions=1), "b", client=client)
    with pytest.raises(TypeError, match=r"client must be a distributed\.Client"):
        distributed.fit(SHARDS, client="tcp://nobody")
    with pytest.raises(TypeError, match="Shard 0 must be a pair"):
        distributed.fit([3.0], client=client)
