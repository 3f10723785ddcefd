"""Statements that a variable is drawn from a distribution whose parameters are variables."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from cavity.factors.gaussian_precision import GaussianPrecision
from cavity.families.base import Family
from cavity.families.gamma import Gamma
from cavity.graph.handles import Variable
from cavity.graph.relations import Relations


class Distributions(Relations):
    """What a graph can be told of variables that govern others.

    out: what is drawn: variables, or numbers where they were observed; new ones are made where it is None.
    """

    @abstractmethod
    def variables(self, family: Family, prior: Any, *, size: Any = None, name: str | None = None) -> Variable: ...

    def normal(self, mean: Any, precision: Variable, out: Any = None) -> Any:
        """out ~ N(mean, 1/precision).

        mean: numbers or Gaussian variables. precision: Gamma variables; a known precision is `linear` with a variance.
        """
        required("precision", "normal", precision, Gamma, "for a known one use linear(…, variance=1/precision)")
        shape = common_shape(mean=mean, precision=precision, out=out)
        out = self.gaussian(size=shape) if out is None else out
        ends = [own for own in (out, mean) if isinstance(own, Variable)]
        if len(ends) == 2:
            known = np.zeros(())
        elif ends:
            known = numbers("mean" if isinstance(out, Variable) else "out", mean if isinstance(out, Variable) else out)
        else:
            known = numbers("out", out) - numbers("mean", mean)
        slots = widened((*ends, precision), shape)
        self.add(GaussianPrecision(), *slots, data=np.broadcast_to(known, shape))
        return out


def required(argument: str, relation: str, value: Any, family: type[Family], advice: str) -> None:
    """Refuse what is no variable of a family."""
    if isinstance(value, Variable) and isinstance(value.family, family):
        return
    found = type(value.family if isinstance(value, Variable) else value).__name__
    raise TypeError(f"{argument} of {relation} must be a {family.__name__} variable, found {found}; {advice}.")


def common_shape(**arguments: Any) -> tuple[int, ...]:
    """The shape that variables and numbers broadcast to; what is None has none."""
    shapes = {
        name: own.shape if isinstance(own, Variable) else np.shape(own)
        for name, own in arguments.items()
        if own is not None
    }
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"these do not fit together: {found}.") from None


def numbers(name: str, value: Any) -> np.ndarray:
    """Finite numbers."""
    try:
        found = np.asarray(value, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers or a variable; found {type(value).__name__}.") from None
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite; found {found[~np.isfinite(found)].ravel()[0]}.")
    return found


def widened(slots: tuple[Variable, ...], shape: tuple[int, ...]) -> list[Variable]:
    """The variables of a statement, the first repeated to the statement's shape."""
    first = slots[0]
    return [Variable(first.family, np.broadcast_to(first.rows, shape), first.name), *slots[1:]]
