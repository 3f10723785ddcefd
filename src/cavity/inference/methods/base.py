"""What every method is: a way to solve a problem."""

import dataclasses
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import numpy as np

from cavity.inference._loop import Start
from cavity.inference.problem import Problem
from cavity.inference.solution import Solution


@dataclasses.dataclass(frozen=True)
class Limits:
    """What ends a run besides its method.

    deadline: on the clock of `time.perf_counter`, ∞ for none. callback: called with every state that is not the last.
    impatient: given the residuals so far, whether more sweeps are not worth making. turns: candidates that all inner
    problems of the double loop may look at together.
    """

    deadline: float = math.inf
    callback: Callable[[Solution], Any] | None = None
    impatient: Callable[[np.ndarray], bool] | None = None
    turns: float = math.inf

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() >= self.deadline

    def portion(self, whole: int) -> int:
        """How much of something is done between two looks at the clock: all of it where there is no deadline."""
        return whole if self.deadline == math.inf else 1


class Method(ABC):
    """What `infer` takes: made by `EP`, `ADF`, `PowerEP`, `RelaxedEP`, `RestrictedEP`, `ConvergentEP` or `Auto`.

    Methods are frozen dataclasses. `str(method)` is the method in words.

    Examples:
        >>> import cavity as cv
        >>> method = cv.PowerEP(0.5)
        >>> isinstance(method, cv.Method), str(method), method.tol
        (True, 'PowerEP(0.5)', 1e-08)
    """

    #: bound on the moment mismatch of every site at a fixed point
    tol: float

    #: whether a run that fails is begun again from flat sites by the method itself
    restarts: ClassVar[bool] = False

    @property
    def sweeps(self) -> Any:
        """The `Sweeps` that stand for the method where nothing drives it, as in a stream; None where there are none."""
        return None

    @property
    def names_sites(self) -> bool:
        """Whether its schedule refers to sites by their numbers."""
        schedule = None if self.sweeps is None else self.sweeps.schedule
        return schedule is not None and schedule.names_sites

    def validate(self, problem: Problem) -> None:  # noqa: B027
        """Refuse, in one sentence, a problem the method is not defined for; most are for all there are.

        Args:
            problem: one that has passed its own `validate`.

        Raises:
            TypeError, ValueError: the method is not defined for it.
        """

    @abstractmethod
    def solve(self, problem: Problem, init: Start | None, key: jax.Array, limits: Limits) -> Solution:
        """The solution from flat sites, or from those of `init`, driven from the host.

        Args:
            problem: a valid one.
            init: sites to begin with, None for flat ones.
            key: of all random numbers.
            limits: what ends the run early.

        Returns:
            The solution, with the status in which the run ended.
        """

    def solve_traced(self, problem: Problem, init: Start | None, key: jax.Array) -> Solution:
        """The solution inside a caller's `vmap` or `jit`: one compiled run.

        Args:
            problem: a valid one, traced.
            init: sites to begin with, None for flat ones.
            key: of all random numbers.

        Returns:
            The solution.

        Raises:
            TypeError: the method is driven from the host.
        """
        raise TypeError(f"{self} is driven from the host and cannot run inside jax.vmap or jax.jit; use EP there.")

    def loosen(self, tol: float) -> Self:
        """The method as a search over hyperparameters uses it: a tolerance of at least `tol`, and EP's energy only.

        Args:
            tol: the tolerance that is enough.

        Returns:
            The method with the larger of the two tolerances.
        """
        return dataclasses.replace(self, tol=max(self.tol, tol))  # type: ignore[type-var]
