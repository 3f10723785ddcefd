"""The regression of a learned operator: on the host it learns answers, compiled programs predict from its arrays.

`Audits` are queries about confident predictions, to see whether the errors they expect are calibrated.
"""

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
    #: how many answers were learned
    labels: int = 0

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


#: audits that are looked at, the latest ones; and how many it takes to judge
WINDOW, ENOUGH = 64, 8
#: by how much at most variances are counted for more than they are
MOST = 100.0


class Audits(NamedTuple):
    """kl: of the projection predicted from the one the oracle found. expected: before it was asked."""

    kl: np.ndarray = np.zeros(0)
    expected: np.ndarray = np.zeros(0)

    @property
    def ratio(self) -> float:
        """Mean of KL over expected KL, 1 if variances are right; nan while there are too few."""
        if len(self.kl) < ENOUGH:
            return float("nan")
        return float(np.mean(self.kl[-WINDOW:] / self.expected[-WINDOW:]))

    @property
    def inflation(self) -> float:
        """What variances are to be multiplied with, 1 at least."""
        return 1.0 if np.isnan(self.ratio) else float(np.clip(self.ratio, 1.0, MOST))
