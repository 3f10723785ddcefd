"""Clusters that break: no wait without end, one error, and nothing lost that was computed."""

import time

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from stream_rows import LABELS, ROWS

from cavity import distributed
from cavity.distributed import _worker_pool
from cavity.inference.status import Status

SHARDS = [(ROWS[:120], LABELS[:120]), (ROWS[120:], LABELS[120:])]
PRIOR = np.zeros(2), np.eye(2)


@pytest.fixture
def cluster():
    """A cluster in this process, which a test may break."""
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as local,
        Client(local) as client,
    ):
        yield local, client


def without_workers(cluster):
    local, client = cluster
    local.scale(0)
    while client.nthreads():
        time.sleep(0.05)


def without_scheduler(cluster):
    local, client = cluster
    client.sync(local.scheduler.close)


BREAKS = [(without_workers, "No worker has been alive for 1 seconds"), (without_scheduler, "The scheduler is gone")]


@pytest.mark.parametrize(("breaks", "sentence"), BREAKS, ids=["workers", "scheduler"])
def test_a_fit_on_a_broken_cluster_hands_over_what_was_reached(cluster, client, monkeypatch, breaks, sentence):
    monkeypatch.setattr(_worker_pool, "PATIENCE", 1.0)

    def heard(fit):
        if fit.rounds == 2:
            breaks(cluster)

    began = time.perf_counter()
    with pytest.raises(distributed.ClusterError, match=sentence) as broken:
        distributed.fit(SHARDS, client=cluster[1], callback=heard, tol=1e-12)
    assert time.perf_counter() - began < 60
    reached = broken.value.reached
    assert reached.status is Status.INTERRUPTED and reached.rounds >= 2
    again = distributed.fit(SHARDS, client=client, resume=reached, tol=1e-12)
    whole = distributed.fit(SHARDS, client=client, tol=1e-12)
    assert again.status == whole.status == "converged"
    np.testing.assert_allclose(again.mean, whole.mean, atol=1e-10)
    np.testing.assert_allclose(again.covariance, whole.covariance, atol=1e-10)


@pytest.mark.parametrize(("breaks", "sentence"), BREAKS, ids=["workers", "scheduler"])
def test_independent_work_on_a_broken_cluster_ends(cluster, monkeypatch, breaks, sentence):
    monkeypatch.setattr(_worker_pool, "PATIENCE", 1.0)
    found = distributed.map_unordered(slowly, [0.0, 3.0, 3.0, 3.0], cluster[1])
    assert next(found) == (0, 0.0)
    breaks(cluster)
    with pytest.raises(distributed.ClusterError, match=sentence):
        list(found)


def test_shards_that_no_worker_loads_are_not_waited_for(cluster):
    without_workers(cluster)
    with pytest.raises(distributed.ClusterError, match="No worker is alive, and max_seconds is over"):
        distributed.fit(SHARDS, client=cluster[1], max_seconds=0.5)


def slowly(seconds):
    time.sleep(seconds)
    return seconds


def halves(shard, mean, covariance, key):
    """Half the variance, in one round less well known than in the others."""
    shard["asked"] += 1
    if shard["asked"] == shard["slow"]:
        time.sleep(6.0)
    if shard["asked"] == shard["full"]:
        raise MemoryError("no room for this")
    return mean + 0.1 / shard["asked"], 0.5 * covariance


def test_a_slow_worker_ends_a_run_with_the_last_complete_state(cluster, monkeypatch):
    monkeypatch.setattr(_worker_pool, "GRACE", 1.0)
    shards = [{"asked": 0, "slow": 3, "full": 0}, {"asked": 0, "slow": 0, "full": 0}]
    began = time.perf_counter()
    found = distributed.infer_partitions(PRIOR, shards, tilted=halves, client=cluster[1], max_seconds=1.0)
    assert found.status is Status.TIME_BUDGET and found.rounds == 2 and time.perf_counter() - began < 6.0


def test_a_worker_out_of_memory_is_named_with_its_shard(cluster):
    shards = [{"asked": 0, "slow": 0, "full": 0}, {"asked": 0, "slow": 0, "full": 3}]
    with pytest.raises(distributed.ClusterError, match="Shard 1: MemoryError: no room for this") as full:
        distributed.infer_partitions(PRIOR, shards, tilted=halves, client=cluster[1])
    assert full.value.reached.rounds == 2
