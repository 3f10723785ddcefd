"""Handles of variables, which users index like arrays, and what a solution can be asked with them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, host_state, to_numpy
from cavity.families import Family
from cavity.inference.solution import ModelSolution


@dataclass(frozen=True, eq=False)
class Variable:
    """An array of variables of one family, made by a graph; a single one has the shape ().

    Indexing selects some of them, also repeatedly.

    Attributes:
        family: of the variables.
        rows: their places among all variables of the family.
        name: by which the solution calls the whole array.
        key: tells the array from all others, those of other graphs included; a copy of a graph keeps it.

    Examples:
        >>> import cavity as cv
        >>> skill = cv.FactorGraph().gaussian(25.0, 69.0, size=4, name="skill")
        >>> skill[[0, 2, 2]].shape
        (3,)
    """

    family: Family
    rows: np.ndarray
    name: str
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array of variables."""
        return self.rows.shape

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Variable:
        return replace(self, rows=np.asarray(self.rows[index]))

    def __repr__(self) -> str:
        return f"{self.name}: {type(self.family).__name__}, shape {self.shape}"


@dataclass(frozen=True, eq=False)
class Marginal:
    """The marginal posterior of an array of variables.

    Attributes:
        family: of the variables.
        eta: natural parameters, on one more axis than the array has.

    Examples:
        >>> import cavity as cv
        >>> from cavity.factor_graph.variables import Marginal
        >>> own = Marginal(cv.families.Beta(), cv.families.Beta().from_shapes(2.0, 6.0))
        >>> float(own.mean)
        0.25
    """

    family: Family
    eta: Any

    __getstate__ = host_state

    @property
    @float64
    def mean(self) -> Any:
        """E[x]."""
        return to_numpy(self.family.mean(self.eta))

    @property
    @float64
    def variance(self) -> Any:
        """Variances; of vectors, covariance matrices."""
        return to_numpy(self.family.covariance(self.eta))

    @property
    @float64
    def moments(self) -> Any:
        """Expected statistics: of categorical variables their probabilities."""
        return to_numpy(self.family.moments(self.eta))

    @property
    @float64
    def parameters(self) -> tuple[Any, ...]:
        """The usual parameters: mean and variance, shape and rate, a and b."""
        return to_numpy(self.family.coordinates(self.eta))

    def __repr__(self) -> str:
        return f"Marginal({type(self.family).__name__}, shape {self.eta.shape[:-1]})"


class Marginals(Mapping[Any, Marginal]):
    """Marginals of a graph's variables, by handle or by name."""

    def __init__(self, named: dict[str, Variable], etas: dict[Family, Any]) -> None:
        self._named, self._etas = named, etas

    def __getitem__(self, variable: Any) -> Marginal:
        own = self._named.get(variable) if isinstance(variable, str) else variable
        if not isinstance(own, Variable) or not is_among(own, self._named):
            known = ", ".join(self._named)
            raise KeyError(f"marginals takes a variable of the graph or its name, one of {known}; found {variable!r}.")
        return Marginal(own.family, self._etas[own.family][..., own.rows, :])

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphSolution(ModelSolution):
    """The solution of a `FactorGraph`, which knows its variables.

    Attributes:
        named: the variables of the graph by name.
    """

    named: dict[str, Variable]

    @property
    def marginals(self) -> Marginals:
        """q of every array of variables, by the variable or its name; of a stack of solutions stacks."""
        families = self.problem.posterior.families  # type: ignore[attr-defined]
        return Marginals(self.named, dict(zip(families, to_numpy(self.q.etas), strict=True)))

    def by_name(self, x: Any) -> dict[str, Any]:
        """Draws of every array of variables, by its name."""
        families = self.problem.posterior.families  # type: ignore[attr-defined]
        return {name: x[families.index(own.family)][:, own.rows] for name, own in self.named.items()}


def is_among(variable: Variable, named: dict[str, Variable]) -> bool:
    """Whether a handle is of the graph that holds these variables, and not one of another graph by the same name."""
    return variable.name in named and named[variable.name].key == variable.key


def common_shape(**arguments: Any) -> tuple[int, ...]:
    """The shape that variables and numbers broadcast to; what is None has none."""
    given = {name: own for name, own in arguments.items() if own is not None}
    shapes = {name: own.shape if isinstance(own, Variable) else np.shape(own) for name, own in given.items()}
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"these do not fit together: {found}.") from None


def finite_numbers(name: str, value: Any) -> np.ndarray:
    """An array of finite numbers, of any shape."""
    found = checks.real_numbers(name, value)
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite; found {found[~np.isfinite(found)].ravel()[0]}.")
    return found


def filled(shape: tuple[int, ...], name: str, value: Any) -> np.ndarray:
    """Finite numbers repeated to a shape."""
    return np.broadcast_to(finite_numbers(name, value), shape)


def repeat_first(slots: tuple[Variable, ...], shape: tuple[int, ...]) -> list[Variable]:
    """The variables of a statement, the first repeated to the statement's shape."""
    first = slots[0]
    return [replace(first, rows=np.broadcast_to(first.rows, shape)), *slots[1:]]
