"""The contract of a sweep kernel: a faster way to do what the loop does, for problems that know one.

A kernel changes no result but for rounding. It says of every method whether it applies; the loop goes its own way where
it does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from cavity.inference._state import Report, State
    from cavity.inference.problem import Problem
    from cavity.inference.update_rule import UpdateRule


class SweepKernel(ABC):
    """Strategies are frozen dataclasses: hashable, static under `jit`."""

    @abstractmethod
    def applies(self, problem: Problem, method: UpdateRule) -> bool:
        """Whether the kernel is for this problem and method: then it sweeps and measures."""

    @abstractmethod
    def sweep_while(
        self, problem: Problem, method: UpdateRule, state: State, moving: Callable[[Any], jax.Array]
    ) -> State:
        """Sweeps while `moving`, which looks at `mismatch` and `sweep` of what it is given."""

    @abstractmethod
    def measure(self, problem: Problem, method: UpdateRule, state: State) -> Report:
        """Mismatch and scale of every site at the given state."""
