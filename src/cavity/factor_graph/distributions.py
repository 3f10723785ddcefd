"""Statements that a variable is drawn from a distribution whose parameters are variables."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from cavity.factor_graph.relations import Relations
from cavity.factor_graph.variables import Variable
from cavity.factors.base import Factor
from cavity.factors.gamma_variables import Draw, GammaRate, GaussianPrecision
from cavity.factors.probabilities import Bernoulli, CategoricalDraw, LogisticLink
from cavity.families.base import Family
from cavity.families.categorical import Categorical
from cavity.families.dirichlet import Beta, Dirichlet
from cavity.families.gamma import Gamma, GammaWithUniform
from cavity.families.gaussian import Gaussian


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
            known = finite_numbers(
                "mean" if isinstance(out, Variable) else "out", mean if isinstance(out, Variable) else out
            )
        else:
            known = finite_numbers("out", out) - finite_numbers("mean", mean)
        slots = repeat_first((*ends, precision), shape)
        self.add(GaussianPrecision(), *slots, data=np.broadcast_to(known, shape))
        return out

    def logistic(self, z: Variable, out: Variable | None = None) -> Variable:
        """out = σ(z) = 1/(1 + e^−z): the probability whose log odds are z. New ones are Beta(1, 1) variables."""
        required("z", "logistic", z, Gaussian, "numbers need no relation")
        shape = common_shape(z=z, out=out)
        out = self.variables(Beta(), np.ones(2), size=shape) if out is None else out
        required("out", "logistic", out, Beta, "it is the probability itself, what is drawn with it is bernoulli(out)")
        self.add(LogisticLink(), *repeat_first((out, z), shape))
        return out

    def bernoulli(self, p: Variable, out: Any = None) -> Any:
        """out = 1 with probability p, else 0. Observed: numbers 0 and 1, or truth values."""
        required("p", "bernoulli", p, Beta, "a known probability is graph.categorical([1 - p, p])")
        return self.draw(Bernoulli(), Categorical(2), p, "p", out)

    def choice(self, weights: Variable, out: Any = None) -> Any:
        """out = k with probability weights[k]. Observed: the states, 0, 1, 2, …"""
        required("weights", "choice", weights, Dirichlet, "known weights are graph.categorical(weights)")
        states = weights.family.size
        if out is not None and not isinstance(out, Variable) and not (finite_numbers("out", out) < states).all():
            raise ValueError(f"out of choice must be states below {states}; found {np.max(out)}.")
        return self.draw(CategoricalDraw(), Categorical(states), weights, "weights", out)

    def draw(self, factor: Factor, family: Categorical, source: Variable, name: str, out: Any) -> Any:
        """A state drawn with unknown probabilities."""
        shape = common_shape(**{name: source, "out": out})
        if out is None:
            out = self.variables(family, np.zeros(family.size), size=shape)
        if isinstance(out, Variable):
            self.add(factor, *repeat_first((out, source), shape))
        else:
            self.add(factor, *repeat_first((source,), shape), data=np.broadcast_to(finite_numbers("out", out), shape))
        return out

    def gamma_from(self, shape: Any, rate: Variable, out: Any = None) -> Any:
        """out ~ Gamma(shape, rate), of mean shape/rate; shape: numbers above 0."""
        required("rate", "gamma_from", rate, Gamma, "a known rate is graph.gamma(shape, rate)")
        size = common_shape(shape=shape, rate=rate, out=out)
        out = self.variables(GammaWithUniform(), GammaWithUniform().flat(), size=size) if out is None else out
        drawn = isinstance(out, Variable)
        slots = repeat_first((out, rate) if drawn else (rate,), size)
        value = np.ones(()) if drawn else finite_numbers("out", out)
        data = Draw(np.broadcast_to(finite_numbers("shape", shape), size), np.broadcast_to(value, size))
        self.add(GammaRate(), *slots, data=data)
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


def finite_numbers(name: str, value: Any) -> np.ndarray:
    """Finite numbers."""
    try:
        found = np.asarray(value, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers or a variable; found {type(value).__name__}.") from None
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite; found {found[~np.isfinite(found)].ravel()[0]}.")
    return found


def repeat_first(slots: tuple[Variable, ...], shape: tuple[int, ...]) -> list[Variable]:
    """The variables of a statement, the first repeated to the statement's shape."""
    first = slots[0]
    return [Variable(first.family, np.broadcast_to(first.rows, shape), first.name), *slots[1:]]
