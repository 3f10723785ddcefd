"""Which worker holds which shard."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cavity.distributed.placement import assigned

WORKERS = ("a", "b", "c", "d")


def test_shards_of_a_dead_worker_go_to_those_that_live():
    assert assigned(["a", "b"], ["b"]) == ["b", "b"]


def test_a_worker_that_joins_gets_its_part():
    assert Counter(assigned(["a", "a", "a", "a"], ["a", "b"])) == {"a": 2, "b": 2}


def test_nobody_moves_without_need():
    assert assigned(["b", "a", "b"], ["a", "b"]) == ["b", "a", "b"]


def test_without_workers_every_shard_is_homeless():
    assert assigned(["a", None], []) == [None, None]


@given(
    st.lists(st.sampled_from((None, *WORKERS)), min_size=1, max_size=9),
    st.sets(st.sampled_from(WORKERS), min_size=1),
)
def test_everyone_has_a_living_home_and_numbers_are_even(homes, workers):
    found = assigned(homes, workers)
    load = Counter({worker: 0 for worker in workers})
    load.update(found)
    assert set(found) <= workers
    assert max(load.values()) - min(load.values()) <= 1
    # No fewer moves would do: of a living worker's shards only those above the even number leave.
    before = Counter(home for home in homes if home in workers)
    most = -(-len(homes) // len(workers))
    for worker, count in before.items():
        kept = sum(old == new == worker for old, new in zip(homes, found, strict=True))
        assert kept >= min(count, most - 1)
