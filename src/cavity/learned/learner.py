"""The regression of a learned operator: on the host it learns answers, compiled programs predict from its arrays."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from cavity.factors.base import Factor
from cavity.families.base import Family
from cavity.learned.oracles import Answers
from cavity.moments.base import Batch, Group


class MessagePrediction(NamedTuple):
    """A prediction for one site. site: the message.

    expected_kl: of the projection from the true one, and half the variance of log Z with it. confident: whether it may
    be used without a query. settled: whether more answers nearby would hardly improve it.
    """

    site: jax.Array
    log_z: jax.Array
    expected_kl: jax.Array
    confident: jax.Array
    settled: jax.Array


class Learner(ABC):
    """Turns an oracle's answers into predictions."""

    #: whether some of its confident predictions are to be audited
    audited: ClassVar[bool] = True

    @abstractmethod
    def state(self, group: Group, noisy: bool) -> Any:
        """What `predict` reads, of the same shapes whatever was learned. noisy: whether answers are sampled."""

    @abstractmethod
    def predict(self, state: Any, factor: Factor, family: Family, cavity: jax.Array, data: Any) -> MessagePrediction:
        """The prediction for one site; traced."""

    @abstractmethod
    def learn(self, batch: Batch, answers: Answers, now: bool = True) -> np.ndarray:
        """Learn answers about a batch, and say which could be used. now: whether predictions change at once."""

    @abstractmethod
    def select(self, batch: Batch, noisy: bool, most: int) -> np.ndarray:
        """Which of the unsure sites to query next, as places."""

    @abstractmethod
    def refit(self) -> None:
        """Let predictions follow from all answers so far."""

    @abstractmethod
    def inflate(self, factor: float) -> None:
        """Multiply computed variances by a factor, after audits found them too small."""

    @property
    @abstractmethod
    def labels(self) -> int:
        """How many answers were learned."""
