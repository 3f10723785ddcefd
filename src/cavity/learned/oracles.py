"""Oracles: who answers when an operator is unsure. They run on the host, many questions at a time."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import Factor
from cavity.factors.conditioned import Conditioned
from cavity.families.base import Family
from cavity.moments.base import Moments


class Answers(NamedTuple):
    """projected: natural parameters of the projections of factor × cavity, one row a question, not finite where
    refused. log_z: of each. spread: 1/ESS, 0 where nothing was sampled.
    """

    projected: np.ndarray
    log_z: np.ndarray
    spread: np.ndarray

    def part(self, places: Any) -> "Answers":
        """Those at some places."""
        return Answers(*(own[places] for own in self))


def joined(found: list[Answers]) -> Answers:
    """Answers to several batches of questions as one."""
    return Answers(*(np.concatenate(column) for column in zip(*found, strict=True)))


def stacked(found: list[Answers]) -> Answers:
    """Answers to single questions as one."""
    return Answers(*(np.stack([np.asarray(own) for own in column]) for column in zip(*found, strict=True)))


class Oracle(ABC):
    """Answers questions about one factor."""

    @abstractmethod
    def is_noisy(self, family: Family) -> bool:
        """Whether its answers are sampled."""

    @abstractmethod
    def answer(
        self, family: Family, cavities: np.ndarray, data: Any, known: tuple[int, ...], key: jax.Array
    ) -> Answers:
        """What factor × cavity looks like, for rows of cavities and of data.

        known: places of arguments that are numbers; `data` is then as `Conditioned` takes it.
        """


class Integrated(Oracle):
    """A factor integrated by a `Moments` strategy, compiled for batches of one length."""

    def __init__(self, factor: Factor, moments: Moments, least_ess: float, batch: int = 16) -> None:
        self.factor, self.moments, self.least_ess, self.batch = factor, moments, least_ess, batch
        self._compiled: dict[Any, Any] = {}

    def is_noisy(self, family: Family) -> bool:
        return self.moments.random

    def answer(
        self, family: Family, cavities: np.ndarray, data: Any, known: tuple[int, ...], key: jax.Array
    ) -> Answers:
        if (family, known) not in self._compiled:
            factor = Conditioned(self.factor, known) if known else self.factor

            def one(cavity: jax.Array, data: Any, key: jax.Array) -> Any:
                return self.moments.tilt(self.moments.init(), factor, family, cavity, data, 1.0, key)

            self._compiled[family, known] = jax.jit(jax.vmap(one))
        found = []
        for start in range(0, len(cavities), self.batch):
            places = np.resize(np.arange(start, min(start + self.batch, len(cavities))), self.batch)
            own, rows = jax.tree.map(lambda leaf, at=places: jnp.asarray(leaf)[at], (cavities, data))
            keys = jax.random.split(jax.random.fold_in(key, start), self.batch)
            tilted, info = self._compiled[family, known](own, rows, keys)
            ess = np.asarray(info.get("ess", np.full(self.batch, np.inf)))
            usable = np.isfinite(tilted.log_z) & (ess >= self.least_ess)
            projected = np.where(usable[:, None], np.asarray(own + tilted.site), np.nan)
            batch = Answers(projected, np.asarray(tilted.log_z), 1.0 / ess)
            found.append(batch.part(slice(min(self.batch, len(cavities) - start))))
        return joined(found)
