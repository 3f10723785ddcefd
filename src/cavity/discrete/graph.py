"""A graph of discrete variables and table factors: variables, tables and evidence, and nothing of inference."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from cavity.discrete.tables import FactorTables, LogTable, Tables, log_weights
from cavity.discrete.variables import Variables


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
        """A variable; returns its number.

        Args:
            states: how many, or their names.
            name: by which `add_factor`, `given` and solutions can call it; else it is x and its number.

        Raises:
            ValueError: if it has no state, or the name or names of states are taken.
        """
        return self.variables.add(states, name)

    def add_factor(self, scope: Sequence[Any], values: Any, *, log: bool = False) -> None:
        """A factor.

        Args:
            scope: its variables, by number or name, each once.
            values: weights, not negative: axis j belongs to variable j of the scope. They need not sum to one.
            log: whether the values are logarithms, −inf for zero.

        Raises:
            ValueError: if the values are no weights, or their shape is not that of the scope.
        """
        if isinstance(scope, str) or not isinstance(scope, Iterable):
            raise ValueError(f"scope must be a list of variables; found {scope!r}.")
        numbers = [self.variables.number(variable) for variable in scope]
        self.add_factors(np.array([numbers], np.int64).reshape(1, len(numbers)), np.asarray(values)[None], log=log)

    def add_factors(self, scopes: Any, values: Any, *, log: bool = False) -> None:
        """Factors of one shape, many at once.

        Args:
            scopes: (n, m), variables by number.
            values: (n, K₁, …, K_m), weights as in `add_factor`.
            log: whether the values are logarithms, −inf for zero.

        Raises:
            ValueError: if the values are no weights, or their shape is not that of a scope.
        """
        scopes = np.asarray(scopes)
        log_values = log_weights("values", values, log)
        if scopes.ndim != 2 or (scopes.size and scopes.dtype.kind not in "iu"):
            raise ValueError(f"scopes must be whole numbers, one row per factor; found shape {scopes.shape}.")
        if log_values.ndim != scopes.shape[1] + 1 or len(log_values) != len(scopes):
            raise ValueError(
                f"values must have shape {(len(scopes), *['K'] * scopes.shape[1])}; found {log_values.shape}."
            )
        if scopes.size and (scopes.min() < 0 or scopes.max() >= len(self.variables)):
            wrong = scopes[(scopes < 0) | (scopes >= len(self.variables))][0]
            raise ValueError(
                f"scopes name the variable {wrong}; variables are numbered 0 to {len(self.variables) - 1}."
            )
        ordered = np.sort(scopes, axis=1)
        if (twice := (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)).any():
            raise ValueError(f"a scope names a variable twice: {scopes[twice][0].tolist()}.")
        wanted = self.cardinalities[scopes]
        if (differ := (wanted != log_values.shape[1:]).any(axis=1)).any():
            shape = tuple(wanted[differ][0].tolist())
            raise ValueError(
                f"values over {scopes[differ][0].tolist()} must have shape {shape}; found {log_values.shape[1:]}."
            )
        numbers = np.arange(self._count, self._count + len(scopes))
        self.add_tables([Tables(scopes.astype(np.int64), log_values, numbers)])

    def add_tables(self, parts: Iterable[Tables]) -> None:
        """Factors that are already checked; together with those there are, their numbers leave none out."""
        for part in parts:
            self._parts.append(part)
            self._count += len(part.scopes)
        self._factors = None

    def given(self, evidence: Mapping[Any, Any] | None = None, *, likelihoods: Mapping[Any, Any] | None = None) -> Self:
        """The same graph with this evidence in place of what it had. What is added to one later is not in the other.

        Args:
            evidence: variable → state, by number or name.
            likelihoods: variable → weights of its states (soft evidence).

        Raises:
            ValueError: if a variable or state is not there, or weights are not one per state.
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
            found = log_weights(f"likelihood of {self.variables.name(number)}", weights, log=False)
            if found.shape != (self.cardinalities[number],):
                raise ValueError(
                    f"likelihood of {self.variables.name(number)} must have {self.cardinalities[number]} weights; "
                    f"found shape {found.shape}."
                )
            clamped.likelihoods[number] = found
        return clamped

    def tables(self) -> tuple[Tables, ...]:
        """The factors, one entry per shape."""
        return self.factors.by_shape

    def __iter__(self) -> Iterator[LogTable]:
        """The factors one by one, as they were added."""
        return iter(self.factors)

    def flat_unary(self) -> np.ndarray:
        """Log weights of every variable alone, one variable after another: its own factors, evidence and likelihood."""
        cards = self.cardinalities
        starts = np.concatenate([[0], np.cumsum(cards)])
        flat = np.zeros(starts[-1])
        for own in self.tables():
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

    def __repr__(self) -> str:
        seen = f", {len(self.evidence)} observed" if self.evidence else ""
        return f"{type(self).__name__}({len(self.variables)} variables, {len(self.factors)} factors{seen})"
