"""The paper's operator behind a just-in-time factor: it asks about the first messages, then where it is unsure."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from cavity.families.base import Family
from cavity.families.gaussian import Gaussian
from cavity.learned.coordinates import cut, parts_of
from cavity.learned.embedding_operator import ONLINE, Embedding, Settings, fit, predict, with_more
from cavity.learned.learner import Guess, Learner
from cavity.learned.oracles import Answers
from cavity.learned.targets import Target

#: a site's cavity and data → natural parameters of the tuple of messages that the kernel compares
Incoming = Callable[[jax.Array, Any], jax.Array]


class EmbeddingLearner(Learner):
    """For one variable of a factor. As in the paper, nothing is audited and log Z is not learned: it counts as 0.

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
        self._tuples = jax.jit(jax.vmap(incoming))

    @property
    def labels(self) -> int:
        return self.count

    def knowledge(self, family: Family, data: Any) -> tuple[Embedding, Any]:
        """The arrays, and whether they are of any use yet."""
        if self.now is None:
            self.now = self.untrained()
        return self.now, np.asarray(self.count >= self.first)

    def untrained(self) -> Embedding:
        """Arrays of the right shapes, from two labels that say nothing."""
        with jax.ensure_compile_time_eval():
            one = np.concatenate([np.asarray(own.flat()) + 1.0 for own in parts_of(self.target.family)])
            rows = np.stack([one, 2.0 * one])
            pieces = cut(self.target.family, jnp.asarray(rows))[self.target.output]
            return fit(self.key, self.target, rows, np.asarray(pieces), self.settings)

    def guess(self, known: tuple[Embedding, Any], family: Family, cavity: jax.Array, data: Any) -> Guess:
        now, trained = known
        found = predict(now, self.target, self.incoming(cavity, data))
        doubt = jnp.max(found.log_variance)
        site = proper_ratio(family, found.projected, cavity)
        return Guess(site, jnp.zeros(()), jnp.exp(doubt), trained & (doubt < self.threshold))

    def learn(self, family: Family, cavities: jax.Array, data: Any, answers: Answers, now: bool = True) -> np.ndarray:
        good = np.asarray(np.isfinite(answers.projected).all(axis=1))
        rows = np.asarray(self._tuples(jnp.asarray(cavities), data))
        for row, projected in zip(rows[good], answers.projected[good], strict=True):
            self.count += 1
            if self.count <= self.first:
                self.waiting.append((row, projected))
                if self.count == self.first:
                    first, second = (np.stack(column) for column in zip(*self.waiting, strict=True))
                    self.now = fit(self.key, self.target, first, second, self.settings)
            else:
                assert self.now is not None
                self.now = with_more(self.now, self.target, jnp.asarray(row[None]), jnp.asarray(projected[None]))
        return good

    def chosen(self, family: Family, cavities: jax.Array, data: Any, unsure: np.ndarray, most: int) -> np.ndarray:
        """The next in the order of the data: each may make those after it sure."""
        left = self.first - self.count
        return np.flatnonzero(unsure)[: min(most, left) if left > 0 else 1]

    def renew(self) -> None:
        """Nothing waits."""

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
