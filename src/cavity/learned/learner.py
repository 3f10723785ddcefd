"""What learns inside a just-in-time factor: on the host from answers, in compiled programs arrays of fixed shapes."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from cavity.families.base import Family
from cavity.learned.oracles import Answers


class Guess(NamedTuple):
    """A prediction for one site. site: the message.

    expected_kl: of the projection from the true one, and half the variance of log Z with it. sure: whether it may be
    used without asking. settled: whether more answers nearby would hardly make it better.
    """

    site: jax.Array
    log_z: jax.Array
    expected_kl: jax.Array
    sure: jax.Array
    settled: jax.Array


class Learner(ABC):
    """Turns an oracle's answers into predictions."""

    #: whether some of its sure predictions are to be checked
    audited: ClassVar[bool] = True

    @abstractmethod
    def knowledge(self, family: Family, data: Any) -> Any:
        """What `guess` needs, of the same shapes whatever was learned; `data` are of one site."""

    @abstractmethod
    def guess(self, known: Any, family: Family, cavity: jax.Array, data: Any) -> Guess:
        """The prediction for one site; traced."""

    @abstractmethod
    def learn(self, family: Family, cavities: jax.Array, data: Any, answers: Answers, now: bool = True) -> np.ndarray:
        """Take answers in, and say which could be used. now: whether predictions are to change at once."""

    @abstractmethod
    def chosen(self, family: Family, cavities: jax.Array, data: Any, unsure: np.ndarray, most: int) -> np.ndarray:
        """Which of the unsure sites to ask about next, as places."""

    @abstractmethod
    def renew(self) -> None:
        """Let predictions follow from all answers so far."""

    @abstractmethod
    def inflate(self, factor: float) -> None:
        """Count variances as so many times what was computed, after audits found them too small."""

    @property
    @abstractmethod
    def labels(self) -> int:
        """How many answers were learned."""
