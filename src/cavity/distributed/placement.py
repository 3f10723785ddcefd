"""Which worker holds which shard."""

from collections import Counter
from collections.abc import Iterable, Sequence


def assigned(homes: Sequence[str | None], workers: Iterable[str]) -> list[str | None]:
    """A worker for every shard: the one it has where that still lives, as few moves as leave the numbers even.

    Numbers of shards then differ by at most one. Without workers every shard is homeless.
    """
    alive = sorted(workers)
    if not alive:
        return [None] * len(homes)
    found: list[str | None] = [home if home in alive else None for home in homes]
    load = Counter({worker: 0 for worker in alive})
    load.update(home for home in found if home is not None)
    for number, home in enumerate(found):
        if home is None:
            found[number] = least = min(alive, key=lambda worker: load[worker])
            load[least] += 1
    while True:
        most, least = max(alive, key=lambda worker: load[worker]), min(alive, key=lambda worker: load[worker])
        if load[most] - load[least] <= 1:
            return found
        found[found.index(most)] = least
        load[most] -= 1
        load[least] += 1
