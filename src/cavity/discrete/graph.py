"""A graph of discrete variables and table factors: variables, tables and evidence, and nothing of inference.

Evidence is sliced out of tables, and zeros are passed along, for whoever infers.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from cavity._core import checks
from cavity.discrete.tables import FactorTables, LogTable, Tables, log_weights


class Variables:
    """Variables numbered from 0. Names are kept only where one was given: a graph may have a million of them."""

    def __init__(self, cardinalities: Iterable[int] = ()) -> None:
        checks.refuse_masked("cardinalities", cardinalities)
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
        if len(self._array) < len(self._cardinalities):
            self._array = np.array(self._cardinalities, np.int64)
            self._array.flags.writeable = False
        return self._array

    def copy(self) -> Variables:
        """The same variables; what is added to one is not in the other."""
        found = Variables()
        found._cardinalities, found._names = self._cardinalities.copy(), self._names.copy()
        found._numbers, found._states = self._numbers.copy(), self._states.copy()
        return found

    def add(self, states: int | Sequence[str], name: str | None = None) -> int:
        """A variable, by its number of states or their names; its number."""
        labels, count = None, 0
        if isinstance(states, int | np.integer) and not isinstance(states, bool):
            count = int(states)
        elif isinstance(states, Iterable) and not isinstance(states, str | bytes):
            labels = tuple(map(str, states))
            count = len(labels)
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

    def checksum(self) -> np.uint32:
        """A number for the states of all variables, their names and those of the variables."""
        numbers = zlib.crc32(self.cardinalities.tobytes())
        return np.uint32(zlib.crc32(repr((self._names, self._states)).encode(), numbers))

    def name(self, number: int) -> str:
        """The name it was given, else x and its number."""
        return self._names.get(number, f"x{number}")

    def states(self, number: int) -> tuple[str, ...]:
        """Names of the states, else their numbers."""
        return self._states.get(number) or tuple(map(str, range(self._cardinalities[number])))

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
        if isinstance(variable, bool) or not isinstance(variable, int | np.integer) or not 0 <= variable < len(self):
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


class TableGraph:
    """p(x) ∝ ∏ t(x_scope) over variables with finitely many states: what files, exact and approximate answers share.

    Users meet it as `DiscreteGraph`, which can be read, written and asked.
    """

    def __init__(self, cardinalities: Iterable[int] = ()) -> None:
        self.variables = Variables(cardinalities)
        self.evidence: dict[int, int] = {}
        self.likelihoods: dict[int, np.ndarray] = {}
        self._parts: list[Tables] = []
        self._count = 0
        self._factors: FactorTables | None = None

    @classmethod
    def assemble(
        cls,
        variables: Variables,
        factors: FactorTables,
        evidence: Mapping[int, int] | None = None,
        likelihoods: Mapping[int, np.ndarray] | None = None,
    ) -> Self:
        """A graph of parts that are already checked. likelihoods: log weights."""
        found = cls()
        found.variables, found._factors = variables.copy(), factors
        found._parts, found._count = list(factors.by_shape), len(factors)
        found.evidence, found.likelihoods = dict(evidence or {}), dict(likelihoods or {})
        return found

    def __copy__(self) -> Self:
        """A graph of its own: the tables, which never change, are shared."""
        return self.assemble(self.variables, self.factors, self.evidence, self.likelihoods)

    @property
    def cardinalities(self) -> np.ndarray:
        """Number of states of every variable."""
        return self.variables.cardinalities

    @property
    def factors(self) -> FactorTables:
        """The tables as they are now, and what was worked out from them before."""
        if self._factors is None or len(self._factors.cardinalities) < len(self.variables):
            self._factors = FactorTables.joined(self.cardinalities, self._parts)
            self._parts = list(self._factors.by_shape)
        return self._factors

    def add_variable(self, states: int | Sequence[str] = 2, name: str | None = None) -> int:
        """Add a variable.

        Args:
            states: how many, or their names.
            name: by which `add_factor`, `given` and solutions can call it; by default x and its number.

        Returns:
            The number of the variable.

        Raises:
            ValueError: if it has no state, two states have one name, or the name is taken.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.DiscreteGraph()
            >>> graph.add_variable(3), graph.add_variable(["no", "yes"], "rain")
            (0, 1)
        """
        return self.variables.add(states, name)

    def add_factor(self, scope: Sequence[Any], values: Any, *, log: bool = False) -> None:
        """Add a factor.

        Args:
            scope: its variables, by number or name, each once.
            values: weights, not negative: axis j belongs to variable j of the scope. They need not sum to one.
            log: whether the values are logarithms, −inf for zero.

        Raises:
            ValueError: if the values are no weights, or their shape is not that of the scope.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.DiscreteGraph([2, 3])
            >>> graph.add_factor([0, 1], [[1.0, 2.0, 0.0], [0.5, 1.0, 4.0]])
            >>> graph
            DiscreteGraph(2 variables, 1 factors)
        """
        if isinstance(scope, str) or not isinstance(scope, Iterable):
            raise ValueError(f"scope must be a list of variables; found {scope!r}.")
        numbers = [self.variables.number(variable) for variable in scope]
        self.add_factors(
            np.array([numbers], np.int64).reshape(1, len(numbers)), checks.real_numbers("values", values)[None], log=log
        )

    def add_factors(self, scopes: Any, values: Any, *, log: bool = False) -> None:
        """Add many factors of one shape.

        Args:
            scopes: (n, m), variables by number.
            values: (n, K₁, …, K_m), weights as in `add_factor`.
            log: whether the values are logarithms, −inf for zero.

        Raises:
            ValueError: if the values are no weights, or their shape is not that of a scope.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.DiscreteGraph([2, 2, 2])
            >>> graph.add_factors([[0, 1], [1, 2]], [[[2.0, 1.0], [1.0, 2.0]]] * 2)
            >>> graph
            DiscreteGraph(3 variables, 2 factors)
        """
        checks.refuse_masked("scopes", scopes)
        scopes = np.asarray(scopes)
        log_values = log_weights("values", values, log)
        if scopes.ndim != 2 or (scopes.size and scopes.dtype.kind not in "iu"):
            raise ValueError(f"scopes must be whole numbers, one row per factor; found shape {scopes.shape}.")
        if log_values.ndim != scopes.shape[1] + 1 or len(log_values) != len(scopes):
            shape = (len(scopes), *["K"] * scopes.shape[1])
            raise ValueError(f"values must have shape {shape}; found {log_values.shape}.")
        if (wrong := (scopes < 0) | (scopes >= (count := len(self.variables)))).any():
            raise ValueError(f"scopes name the variable {scopes[wrong][0]}; variables are numbered 0 to {count - 1}.")
        ordered = np.sort(scopes, axis=1)
        if (twice := (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)).any():
            raise ValueError(f"a scope names a variable twice: {scopes[twice][0].tolist()}.")
        wanted = self.cardinalities[scopes]
        if (differ := (wanted != log_values.shape[1:]).any(axis=1)).any():
            scope, shape = scopes[differ][0].tolist(), tuple(wanted[differ][0].tolist())
            raise ValueError(f"values over {scope} must have shape {shape}; found {log_values.shape[1:]}.")
        numbers = np.arange(self._count, self._count + len(scopes))
        self.add_tables(Tables(scopes.astype(np.int64), log_values, numbers))

    def add_tables(self, part: Tables) -> None:
        """Factors of one shape that are already checked; in the end, the numbers of all leave none out."""
        self._parts.append(part)
        self._count += len(part.scopes)
        self._factors = None

    def given(self, evidence: Mapping[Any, Any] | None = None, *, likelihoods: Mapping[Any, Any] | None = None) -> Self:
        """The same graph with this evidence in place of what it had. What is added to one later is not in the other.

        Args:
            evidence: variable → state, by number or name.
            likelihoods: variable → weights of its states (soft evidence).

        Returns:
            The graph with the evidence; this one stays as it is.

        Raises:
            ValueError: if a variable or state does not exist, or weights are not one per state.

        Examples:
            >>> import cavity as cv
            >>> cv.DiscreteGraph([2, 3]).given({1: 2}, likelihoods={0: [0.9, 0.1]})
            DiscreteGraph(2 variables, 0 factors, 1 observed)
        """
        clamped = copy.copy(self)
        clamped.evidence, clamped.likelihoods = {}, {}
        for name, found in (("evidence", evidence), ("likelihoods", likelihoods)):
            if not isinstance(found, Mapping | None):
                raise ValueError(f"{name} must be a dict by variable; found {type(found).__name__}.")
        for variable, state in (evidence or {}).items():
            number = self.variables.number(variable)
            clamped.evidence[number] = self.variables.state(number, state)
        for variable, weights in (likelihoods or {}).items():
            number = self.variables.number(variable)
            name, count = f"likelihood of {self.variables.name(number)}", self.cardinalities[number]
            found = log_weights(name, weights, log=False)
            if found.shape != (count,):
                raise ValueError(f"{name} must have {count} weights; found shape {found.shape}.")
            clamped.likelihoods[number] = found
        return clamped

    def __iter__(self) -> Iterator[LogTable]:
        """The factors one by one, as they were added."""
        return iter(self.factors)

    @property
    def log_constant(self) -> float:
        """Log of the factors without variables, which are of one shape."""
        for own in self.factors.by_shape:
            if not own.shape:
                return float(own.log_values.sum())
        return 0.0

    def flat_unary(self) -> np.ndarray:
        """Log weights of every variable alone, one variable after another: its own factors, evidence and likelihood."""
        cards = self.cardinalities
        starts = np.concatenate([[0], np.cumsum(cards)])
        flat = np.zeros(starts[-1])
        for own in self.factors.by_shape:
            if len(own.shape) == 1:
                index = starts[own.scopes[:, 0]][:, None] + np.arange(own.shape[0])
                np.add.at(flat, index, own.log_values)
        for number, log_likelihood in self.likelihoods.items():
            flat[starts[number] : starts[number + 1]] += log_likelihood
        for number, state in self.evidence.items():
            kept = flat[starts[number] + state]
            flat[starts[number] : starts[number + 1]] = -np.inf
            flat[starts[number] + state] = kept
        return flat

    def unary_weights(self) -> list[np.ndarray]:
        """The same, an array for each variable."""
        return np.split(self.flat_unary(), np.cumsum(self.cardinalities)[:-1]) if len(self.variables) else []

    def __repr__(self) -> str:
        seen = f", {len(self.evidence)} observed" if self.evidence else ""
        return f"{type(self).__name__}({len(self.variables)} variables, {len(self.factors)} factors{seen})"


class Contradiction(ValueError):
    """All states have weight zero."""

    def __init__(self) -> None:
        super().__init__("the evidence has probability zero: no state of the variables has a positive weight.")


def check_possible(graph: TableGraph) -> None:
    """Refuse a graph in which some variable is left without a state.

    A state is struck out when every entry of some table that holds it is zero or needs a struck state; that is repeated
    until nothing changes. These are the zeros belief propagation would find, so what passes here can be run. A graph
    whose tables contradict each other around a loop may pass.
    """
    cards = graph.cardinalities
    starts = np.cumsum(cards) - cards
    alive = graph.flat_unary() > -np.inf
    # Without zeros in tables of several variables nothing is passed on.
    groups = [own for own in graph.factors.by_shape if len(own.shape) > 1 and (own.log_values == -np.inf).any()]
    possible = changed = graph.log_constant > -np.inf
    while changed and possible:
        possible = bool(np.logical_or.reduceat(alive, starts).all()) if len(cards) else True
        changed = False
        for own in groups:
            places = [starts[own.scopes[:, axis]][:, None] + np.arange(k) for axis, k in enumerate(own.shape)]
            entries = own.log_values > -np.inf
            for axis, place in enumerate(places):
                entries = entries & alive[place].reshape(-1, *(k if j == axis else 1 for j, k in enumerate(own.shape)))
            for axis, place in enumerate(places):
                held = entries.any(axis=tuple(j + 1 for j in range(len(own.shape)) if j != axis))
                struck = alive[place] & ~held
                if struck.any():
                    alive[place[struck]] = False
                    changed = True
    if not possible:
        raise Contradiction


def split_variables(graph: TableGraph) -> tuple[dict[int, int], dict[int, int]]:
    """State of each variable that is observed or has one state; number of states of each other one."""
    fixed = {int(v): 0 for v in np.flatnonzero(graph.cardinalities == 1)} | graph.evidence
    return fixed, {v: count for v, count in enumerate(graph.cardinalities.tolist()) if v not in fixed}


def slice_table(
    scope: tuple[int, ...], values: np.ndarray, fixed: dict[int, int]
) -> tuple[tuple[int, ...], np.ndarray]:
    """A table without the variables that are fixed."""
    if fixed.keys().isdisjoint(scope):
        return scope, values
    return tuple(v for v in scope if v not in fixed), values[tuple(fixed.get(v, slice(None)) for v in scope)]
