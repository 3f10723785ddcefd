"""The paper's operator as a learner of `JustInTime`: it queries the first messages, then those it is unsure of."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import Factor
from cavity.families.base import Family
from cavity.families.gaussian import Gaussian
from cavity.learned.embedding_operator import (
    ONLINE,
    Embedding,
    Settings,
    fit_embedding,
    predict_projection,
    update_embedding,
)
from cavity.learned.learner import Learner, MessagePrediction
from cavity.learned.message_coordinates import parts_of, split_variables
from cavity.learned.oracles import Answers
from cavity.learned.targets import Target
from cavity.moments.base import Batch, Group

#: answers that are kept for the next sweep, and how far apart equal cavities may be by rounding, relatively
KEPT, SAME = 512, 1e-9
#: a site's cavity and data → natural parameters of the tuple of messages that the kernel compares
Incoming = Callable[[jax.Array, Any], jax.Array]


class Recent(NamedTuple):
    """Cavities that were just queried and their projections, one row each; unused rows are nan."""

    cavities: Any
    projected: Any

    def answer(self, cavity: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The projection of a cavity, and whether it is one of these."""
        gap = jnp.abs(self.cavities - cavity)
        same = jnp.all(gap <= SAME * (jnp.abs(cavity) + SAME), axis=-1)
        return self.projected[jnp.argmax(same)], jnp.any(same)


class EmbeddingLearner(Learner):
    """For one variable of a factor. As in the paper, nothing is audited and log Z is not learned: it counts as 0.

    A message that was asked for is the oracle's own. What it asks about is visited again with the same cavity if all
    sites are visited at once.

    target: what is predicted, of which tuple of messages. incoming: that tuple for a site. first: labels of the initial
    batch. threshold: log predictive variance at which it asks.
    """

    audited: ClassVar[bool] = False

    def __init__(
        self,
        target: Target,
        incoming: Incoming,
        first: int,
        threshold: float,
        settings: Settings = ONLINE,
        key: jax.Array | None = None,
    ) -> None:
        self.target, self.incoming, self.first, self.threshold = target, incoming, first, threshold
        self.settings, self.key = settings, jax.random.key(0) if key is None else key
        self.now: Embedding | None = None
        self.waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self.count = 0
        self.recent: Recent | None = None
        self._tuples = jax.jit(jax.vmap(incoming))

    @property
    def labels(self) -> int:
        return self.count

    def state(self, group: Group, noisy: bool) -> tuple[Embedding, Recent, Any]:
        """The arrays, the last answers, and whether the arrays are of any use yet."""
        if self.now is None:
            self.now = self.untrained()
        if self.recent is None:
            self.recent = Recent(*(np.full((KEPT, group.family.size), np.nan) for _ in range(2)))
        return self.now, self.recent, np.asarray(self.count >= self.first)

    def untrained(self) -> Embedding:
        """Arrays of the right shapes, from two labels that say nothing."""
        one = np.concatenate([np.asarray(own.flat()) + 1.0 for own in parts_of(self.target.family)])
        rows = np.stack([one, 2.0 * one])
        pieces = split_variables(self.target.family, jnp.asarray(rows))[self.target.output]
        return fit_embedding(self.key, self.target, rows, np.asarray(pieces), self.settings)

    def predict(
        self, state: tuple[Embedding, Recent, Any], factor: Factor, family: Family, cavity: jax.Array, data: Any
    ) -> MessagePrediction:
        now, recent, trained = state
        found = predict_projection(now, self.target, self.incoming(cavity, data))
        answer, asked = recent.answer(cavity)
        doubt = jnp.max(found.log_variance)
        site = proper_ratio(family, jnp.where(asked, answer, found.projected), cavity)
        confident = asked | (trained & (doubt < self.threshold))
        return MessagePrediction(site, jnp.zeros(()), jnp.exp(doubt), confident, confident)

    def learn(self, batch: Batch, answers: Answers, now: bool = True) -> np.ndarray:
        cavities = jnp.asarray(batch.cavities)
        good = np.asarray(np.isfinite(answers.projected).all(axis=1))
        rows = np.asarray(self._tuples(cavities, batch.data))
        assert self.recent is not None
        pairs = zip(self.recent, (np.asarray(cavities)[good], answers.projected[good]), strict=True)
        self.recent = Recent(*(np.concatenate([new, old])[:KEPT] for old, new in pairs))
        for row, projected in zip(rows[good], answers.projected[good], strict=True):
            self.count += 1
            if self.count <= self.first:
                self.waiting.append((row, projected))
                if self.count == self.first:
                    first, second = (np.stack(column) for column in zip(*self.waiting, strict=True))
                    self.now = fit_embedding(self.key, self.target, first, second, self.settings)
            else:
                assert self.now is not None
                self.now = update_embedding(self.now, self.target, jnp.asarray(row[None]), jnp.asarray(projected[None]))
        return good

    def select(self, batch: Batch, noisy: bool, most: int) -> np.ndarray:
        """The next in the order of the data: each answer may make those after it confident."""
        left = self.first - self.count
        return np.flatnonzero(batch.unsure)[: min(most, left) if left > 0 else 1]

    def refit(self) -> None:
        """Nothing to do: every answer changes the predictions at once."""

    def inflate(self, factor: float) -> None:
        """The paper takes its variances for right."""


def proper_ratio(family: Family, projected: jax.Array, cavity: jax.Array) -> jax.Array:
    """projected/cavity; a Gaussian one of negative precision becomes flat, with the shift that keeps the mean.

    What the program of the paper's authors does with predictions (their "forced proper" ratio).
    """
    site = projected - cavity
    if not isinstance(family, Gaussian):
        return jnp.maximum(site, 0.0)
    shift = cavity[1] * projected[0] / projected[1] - cavity[0]
    return jnp.where(site[1] >= 0, site, jnp.stack([shift, jnp.zeros(())]))
