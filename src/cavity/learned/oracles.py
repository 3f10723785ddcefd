"""Oracles of active learning: who is asked for a message. They run on the host, many questions at a time."""

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import Factor
from cavity.families.base import Family
from cavity.learned.simulation import simulator_of
from cavity.moments.base import Moments


class Answers(NamedTuple):
    """projected: natural parameters of the projections of factor × cavity, one row per question, not finite where
    refused. log_z: of each. spread: 1/ESS, 0 where nothing was sampled.
    """

    projected: np.ndarray
    log_z: np.ndarray
    spread: np.ndarray

    def part(self, places: Any) -> "Answers":
        """Those at some places."""
        return Answers(*(own[places] for own in self))


def join_answers(found: list[Answers]) -> Answers:
    """Answers to several batches of questions as one."""
    return Answers(*(np.concatenate(column) for column in zip(*found, strict=True)))


def stack_answers(found: list[Answers]) -> Answers:
    """Answers to single questions as one."""
    return Answers(*(np.stack([np.asarray(own) for own in column]) for column in zip(*found, strict=True)))


class Oracle(ABC):
    """Answers questions about factors."""

    def check(self, factor: Factor) -> None:  # noqa: B027
        """Refuse, in one sentence, a factor that it cannot answer for."""

    @abstractmethod
    def is_noisy(self, factor: Factor, family: Family) -> bool:
        """Whether its answers are sampled."""

    @abstractmethod
    def answer(self, factor: Factor, family: Family, cavities: np.ndarray, data: Any, key: jax.Array) -> Answers:
        """What factor × cavity looks like, for rows of cavities and of data."""


class Integrated(Oracle):
    """Integration by a `Moments` strategy, compiled for batches of one length."""

    def __init__(self, moments: Moments, least_ess: float, batch: int = 16) -> None:
        self.moments, self.least_ess, self.batch = moments, least_ess, batch

    def check(self, factor: Factor) -> None:
        if simulator_of(factor)[0] is not None:
            raise TypeError("a sampler has no density that could be integrated: leave oracle out.")

    def is_noisy(self, factor: Factor, family: Family) -> bool:
        return self.moments.random

    def answer(self, factor: Factor, family: Family, cavities: np.ndarray, data: Any, key: jax.Array) -> Answers:
        found = []
        for start in range(0, len(cavities), self.batch):
            places = np.resize(np.arange(start, min(start + self.batch, len(cavities))), self.batch)
            own, rows = jax.tree.map(lambda leaf, at=places: jnp.asarray(leaf)[at], (cavities, data))
            keys = jax.random.split(jax.random.fold_in(key, start), self.batch)
            tilted, info = tilt_batch(self.moments, factor, family, own, rows, keys)
            ess = np.asarray(info.get("ess", np.full(self.batch, np.inf)))
            usable = np.isfinite(tilted.log_z) & (ess >= self.least_ess)
            projected = np.where(usable[:, None], np.asarray(own + tilted.site), np.nan)
            batch = Answers(projected, np.asarray(tilted.log_z), 1.0 / ess)
            found.append(batch.part(slice(min(self.batch, len(cavities) - start))))
        return join_answers(found)


@partial(jax.jit, static_argnames=("moments", "family"))
def tilt_batch(
    moments: Moments, factor: Factor, family: Family, cavities: jax.Array, data: Any, keys: jax.Array
) -> Any:
    """The moments of rows of cavities, compiled."""

    def one(cavity: jax.Array, data: Any, key: jax.Array) -> Any:
        return moments.tilt((), factor, family, cavity, data, 1.0, key)

    return jax.vmap(one)(cavities, data, keys)
