"""The variables of a discrete graph: numbers of states, names, names of the states."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np


class Variables:
    """Variables numbered from 0. Names are kept only where somebody gave one: a graph may have a million of them."""

    def __init__(self, cardinalities: Iterable[int] = ()) -> None:
        found = np.asarray(cardinalities if isinstance(cardinalities, np.ndarray) else list(cardinalities))
        if found.size and (found.ndim != 1 or found.dtype.kind not in "iu" or (found < 1).any()):
            raise ValueError(f"cardinalities must be whole numbers of at least 1; found {found.ravel()[:5].tolist()}.")
        self._cardinalities: list[int] = found.tolist()
        self._array = np.zeros(0, np.int64)
        self._names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._states: dict[int, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._cardinalities)

    @property
    def cardinalities(self) -> np.ndarray:
        """Number of states of every variable, not to be written to."""
        if len(self._array) < len(self):
            self._array = np.array(self._cardinalities, np.int64)
            self._array.flags.writeable = False
        return self._array

    def copy(self) -> Self:
        """The same variables; what is added to one is not in the other."""
        found = type(self)()
        found._cardinalities, found._names = self._cardinalities.copy(), self._names.copy()
        found._numbers, found._states = self._numbers.copy(), self._states.copy()
        return found

    def add(self, states: int | Sequence[str], name: str | None = None) -> int:
        """A variable, by its number of states or their names; its number."""
        labels = None if isinstance(states, int | np.integer) else tuple(str(state) for state in states)
        count = int(states) if isinstance(states, int | np.integer) else len(states)
        if count < 1:
            raise ValueError(f"a variable needs at least one state; found {states!r}.")
        if labels is not None and len(set(labels)) != count:
            raise ValueError(f"names of states must differ; found {list(labels)}.")
        if name is not None and name in self._numbers:
            raise ValueError(f"there is already a variable named {name!r}.")
        number = len(self._cardinalities)
        self._cardinalities.append(count)
        if name is not None:
            self._names[number], self._numbers[name] = name, number
        if labels is not None:
            self._states[number] = labels
        return number

    def name(self, number: int) -> str:
        """The name it was given, else x and its number."""
        return self._names.get(number, f"x{number}")

    def states(self, number: int) -> tuple[str, ...]:
        """Names of the states, else their numbers."""
        return self._states.get(number) or tuple(str(state) for state in range(self._cardinalities[number]))

    def number(self, variable: Any) -> int:
        """The number of a variable given by number or name."""
        if isinstance(variable, str):
            if variable in self._numbers:
                return self._numbers[variable]
            digits = variable[1:]
            number = int(digits) if variable[:1] == "x" and digits.isdecimal() and len(digits) < 19 else len(self)
            if number < len(self) and number not in self._names:  # labels of a file have gaps: x7 need not be number 7
                return number
            raise ValueError(f"there is no variable named {variable!r}.")
        if not len(self):
            raise ValueError("the graph has no variables.")
        if not isinstance(variable, int | np.integer) or not 0 <= variable < len(self):
            raise ValueError(f"variables are numbered 0 to {len(self) - 1}; found {variable!r}.")
        return int(variable)

    def state(self, number: int, state: Any) -> int:
        """The number of a state given by number or name."""
        if isinstance(state, str):
            labels = self.states(number)
            if state not in labels:
                raise ValueError(f"{self.name(number)} has the states {', '.join(labels)}; found {state!r}.")
            return labels.index(state)
        count = self._cardinalities[number]
        if isinstance(state, bool) or not isinstance(state, int | np.integer) or not 0 <= state < count:
            raise ValueError(f"states of {self.name(number)} are numbered 0 to {count - 1}; found {state!r}.")
        return int(state)
