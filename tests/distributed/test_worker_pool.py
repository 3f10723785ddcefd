"""Which worker holds which shard."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cavity.distributed._worker_pool import assign_workers

WORKERS = ("a", "b", "c", "d")


def test_shards_of_a_dead_worker_go_to_those_that_live():
    assert assign_workers(["a", "b"], ["b"]) == ["b", "b"]


def test_a_worker_that_joins_gets_its_part():
    assert Counter(assign_workers(["a", "a", "a", "a"], ["a", "b"])) == {"a": 2, "b": 2}


def test_nobody_moves_without_need():
    assert assign_workers(["b", "a", "b"], ["a", "b"]) == ["b", "a", "b"]


def test_without_workers_no_shard_has_one():
    assert assign_workers(["a", None], []) == [None, None]


@given(
    st.lists(st.sampled_from((None, *WORKERS)), min_size=1, max_size=9), st.sets(st.sampled_from(WORKERS), min_size=1)
)
def test_every_shard_has_a_living_worker_and_numbers_are_even(placement, workers):
    found = assign_workers(placement, workers)
    load = Counter({worker: 0 for worker in workers})
    load.update(found)
    assert set(found) <= workers
    assert max(load.values()) - min(load.values()) <= 1
    # No fewer moves would do: of a living worker's shards only those above the even number leave.
    before = Counter(worker for worker in placement if worker in workers)
    most = -(-len(placement) // len(workers))
    for worker, count in before.items():
        kept = sum(old == new == worker for old, new in zip(placement, found, strict=True))
        assert kept >= min(count, most - 1)
