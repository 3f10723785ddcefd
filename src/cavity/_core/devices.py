"""The device on which arrays are made, and how much memory there is for them.

Whoever allocates an array that grows with the square of the data calls `check_room` first, so that what cannot fit is
refused in a sentence instead of ending the process.
"""

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def device() -> Any:
    """The device on which new arrays are made: JAX's default, or that of `jax.default_device`."""
    with jax.ensure_compile_time_eval():  # also while a program is traced
        (found,) = jnp.zeros(()).devices()
    return found


def is_accelerator() -> bool:
    """Whether that device is a GPU or TPU, where many small steps cost more than a few large ones."""
    return device().platform != "cpu"


def room() -> int | None:
    """Bytes an array may take: what the device's allocator has left, or the machine's memory; None if unknown."""
    stats = device().memory_stats()
    if stats is not None and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def check_room(what: str, size: int, bytes_of: Callable[[int], float], instead: str) -> None:
    """Refuse what does not fit, before anything is allocated. bytes_of: what it takes, by its size."""
    limit, needed = room(), bytes_of(size)
    if limit is None or needed <= limit:
        return
    fits, beyond = 0, size
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        fits, beyond = (middle, beyond) if bytes_of(middle) <= limit else (fits, middle)
    raise ValueError(
        f"{what} of {size:,} takes about {needed / 1e9:.3g} GB, and {device().device_kind} has {limit / 1e9:.3g} GB; "
        f"{fits:,} would fit. {instead}"
    )
