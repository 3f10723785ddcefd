"""Many problems at once: one on each free worker."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from distributed import Client

from cavity.distributed.fan_out import map
from cavity.inference.infer import infer
from cavity.inference.methods import Rule
from cavity.inference.solution import Solution


def infer_all(problems: Sequence[Any], method: Rule | None = None, *, client: Client | None = None) -> list[Solution]:
    """`infer` for every one of many graphs or problems, in their order; one that fails is named by its number.

    Args:
        problems: discrete graphs, approximations of them, or anything else `infer` takes.
        method: as for `infer`.
        client: of a Dask cluster; without one, processes on this machine do the work.
    """
    names = [f"problem {number}" for number in range(len(problems))]
    return map(partial(infer, method=method), problems, client=client, names=names)
