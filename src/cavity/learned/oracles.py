"""Oracles of active learning: they compute messages on the host, many questions at a time."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.factors.base import Factor
from cavity.families.base import Family
from cavity.learned.simulation import simulator_of
from cavity.moments.base import Moments

#: questions that are integrated at a time
BATCH = 16
#: a tuple of arrays with one row for each of something
Rows = TypeVar("Rows")


class Answers(NamedTuple):
    """What an oracle found for several questions, one row per question.

    Attributes:
        projected: natural parameters of the projection of factor × cavity; not finite where the question was refused.
        log_z: log of the integral of factor × cavity.
        spread: 1/ESS of the draws behind an answer, 0 where nothing was sampled.

    Examples:
        >>> import numpy as np
        >>> import cavity
        >>> found = cavity.learned.Answers(np.array([[0.0, 2.0], [1.0, 3.0]]), np.zeros(2), np.zeros(2))
        >>> found.part([1]).projected
        array([[1., 3.]])
    """

    projected: np.ndarray
    log_z: np.ndarray
    spread: np.ndarray

    def part(self, places: Any) -> "Answers":
        """Those at some places.

        Args:
            places: an index of rows.

        Returns:
            The `Answers` in these rows.
        """
        return Answers(*(own[places] for own in self))


class StoredKey(NamedTuple):
    """A random key as numbers of NumPy, which can be pickled and used while a program is traced, and its generator."""

    numbers: np.ndarray
    generator: str

    @classmethod
    @float64
    def of(cls, key: jax.Array | None) -> "StoredKey":
        """A key, or a fixed one."""
        key = jax.random.key(0) if key is None else key
        return cls(np.asarray(jax.random.key_data(key)), str(jax.random.key_impl(key)))

    def restored(self) -> jax.Array:
        """The key."""
        return jax.random.wrap_key_data(jnp.asarray(self.numbers), impl=self.generator)


def join_rows(found: Sequence[Rows]) -> Rows:
    """Tuples of arrays as one, their rows one after another."""
    return jax.tree.map(lambda *rows: np.concatenate(rows), *found)


def stack_answers(found: list[Answers]) -> Answers:
    """Answers to single questions as one."""
    return jax.tree.map(lambda *rows: np.stack(rows), *found)


class Oracle(ABC):
    """Answers questions about factors: base class of your own oracles.

    Examples:
        The factor exp(−x²/2) of a Gaussian variable with natural parameters (ν, τ), in closed form:

        >>> import numpy as np
        >>> import cavity
        >>> class Exact(cavity.learned.Oracle):
        ...     def is_noisy(self, factor, family):
        ...         return False
        ...
        ...     def answer(self, factor, family, cavities, data, key):
        ...         nu, tau = np.asarray(cavities).T
        ...         log_z = 0.5 * np.log(tau / (tau + 1)) - 0.5 * nu**2 / (tau * (tau + 1))
        ...         return cavity.learned.Answers(cavities + np.array([0.0, 1.0]), log_z, np.zeros(len(nu)))
        >>> Exact().answer(None, None, np.array([[0.0, 1.0]]), None, None).projected
        array([[0., 2.]])
        >>> learned = cavity.learned.JustInTime(oracle=Exact())
    """

    def validate(self, factor: Factor) -> None:  # noqa: B027
        """Refuse a factor that it cannot answer for; by default none is refused.

        Args:
            factor: as given to `JustInTime` or `EveryTime`.

        Raises:
            TypeError: with one sentence that says why.
        """

    @abstractmethod
    def is_noisy(self, factor: Factor, family: Family) -> bool:
        """Whether answers about a factor are sampled, so that more of them about one site tell more.

        Args:
            factor: asked about.
            family: of its variables.

        Returns:
            True if they are sampled.
        """

    @abstractmethod
    def answer(self, factor: Factor, family: Family, cavities: np.ndarray, data: Any, key: jax.Array) -> Answers:
        """What factor × cavity looks like. Called on the host, with all questions at once.

        Args:
            factor: asked about.
            family: of its variables.
            cavities: natural parameters, one row per question.
            data: of the sites, arrays with one row per question.
            key: random key of the draws, another one in every call.

        Returns:
            `Answers` to all questions, in order.
        """


class Integrated(Oracle):
    """Integration by a `Moments` strategy, compiled for batches of one length."""

    def __init__(self, moments: Moments, least_ess: float) -> None:
        self.moments, self.least_ess = moments, least_ess

    def validate(self, factor: Factor) -> None:
        if simulator_of(factor)[0] is not None:
            raise TypeError("a sampler has no density that could be integrated: leave oracle out.")

    def is_noisy(self, factor: Factor, family: Family) -> bool:
        return self.moments.random

    def answer(self, factor: Factor, family: Family, cavities: np.ndarray, data: Any, key: jax.Array) -> Answers:
        found = []
        for start in range(0, len(cavities), BATCH):
            places = np.resize(np.arange(start, min(start + BATCH, len(cavities))), BATCH)
            own, rows = jax.tree.map(lambda leaf, at=places: jnp.asarray(leaf)[at], (cavities, data))
            keys = jax.random.split(jax.random.fold_in(key, start), BATCH)
            tilted, info = tilt_batch(self.moments, factor, family, own, rows, keys)
            ess = np.asarray(info.get("ess", np.full(BATCH, np.inf)))
            usable = np.isfinite(tilted.log_z) & (ess >= self.least_ess)
            projected = np.where(usable[:, None], np.asarray(own + tilted.site), np.nan)
            batch = Answers(projected, np.asarray(tilted.log_z), 1.0 / ess)
            found.append(batch.part(slice(min(BATCH, len(cavities) - start))))
        return join_rows(found)


@partial(jax.jit, static_argnames=("moments", "family"))
def tilt_batch(moments: Moments, factor: Factor, family: Family, *rows: Any) -> Any:
    """The moments of rows of (cavities, data, keys), compiled."""
    return jax.vmap(lambda cavity, data, key: moments.tilt((), factor, family, cavity, data, 1.0, key))(*rows)
