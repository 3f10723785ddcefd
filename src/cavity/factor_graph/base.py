"""Variables of mixed families with their priors, and the factors that connect them."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import numpy as np

from cavity._core import checks
from cavity._core.precision import float64
from cavity.factor_graph.compile import Statement, assembled
from cavity.factor_graph.variables import (
    GraphSolution,
    Variable,
    common_shape,
    filled,
    finite_numbers,
    is_among,
    repeat_first,
)
from cavity.factors import Factor
from cavity.factors.wrappers import Conditioned, ObservedArguments
from cavity.families import Beta, Categorical, Dirichlet, Family
from cavity.families.full_gaussian import FullGaussianWithUniform
from cavity.families.gamma import GammaWithUniform
from cavity.families.gaussian import GaussianWithUniform
from cavity.inference.problem import Problem
from cavity.inference.solution import Solution
from cavity.moments import Moments

Size = int | tuple[int, ...] | None


class VariableGraph:
    """What a graph is made of: arrays of variables, each of one family, and factors between them."""

    def __init__(self) -> None:
        self.priors: dict[Family, list[np.ndarray]] = {}
        self.named: dict[str, Variable] = {}
        self.statements: list[Statement] = []

    @float64
    def gaussian(
        self, mean: Any = None, variance: Any = None, *, size: Size = None, name: str | None = None
    ) -> Variable:
        """Real variables with prior N(mean, variance).

        Args:
            mean, variance: of the prior, numbers or arrays. Without both the prior is flat: nothing is known of the
                variables but what factors say.
            size: how many, an int or a shape; by default the shape of the parameters.
            name: by which the solution calls them; by default x and a number.

        Returns:
            The array of variables.

        Raises:
            ValueError: if only one of mean and variance is given, a variance is not positive, or the name is taken.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.gaussian(0.0, [1.0, 4.0], name="skill")
            skill: GaussianWithUniform, shape (2,)
        """
        family = GaussianWithUniform()
        if (mean is None) != (variance is None):
            raise ValueError("mean and variance are given both or neither.")
        if mean is None:
            return self.variables(family, np.zeros(2), size=size, name=name)
        mean, variance = finite_numbers("mean", mean), above_zero("variance", variance)
        return self.variables(family, family.from_mean(mean, variance), size=size, name=name)

    @float64
    def vector(
        self,
        mean: Any = None,
        covariance: Any = None,
        *,
        dimension: int | None = None,
        size: Size = None,
        name: str | None = None,
    ) -> Variable:
        """Vectors with prior N(mean, covariance); q holds a full covariance matrix for each.

        Args:
            mean, covariance: of the prior, of shapes (…, d) and (…, d, d).
            dimension: d, in place of mean and covariance; the prior is flat then.
            size: how many vectors, an int or a shape; by default the leading axes of the parameters.
            name: by which the solution calls them; by default x and a number.

        Returns:
            The array of vectors.

        Raises:
            ValueError: if neither mean and covariance nor the dimension alone are given, the shapes do not fit, the
                covariance is not symmetric and positive definite, or the name is taken.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.vector([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]], size=3)
            x0: FullGaussianWithUniform, shape (3,)
        """
        if mean is None and covariance is None and dimension is not None:
            if not isinstance(dimension, int) or dimension < 1:
                raise ValueError(f"dimension must be an integer of at least 1; found {dimension!r}.")
            family = FullGaussianWithUniform(dimension)
            return self.variables(family, np.zeros(family.size), size=size, name=name)
        if mean is None or covariance is None or dimension is not None:
            raise ValueError("vector takes mean and covariance, or a dimension alone.")
        mean, covariance = finite_numbers("mean", mean), finite_numbers("covariance", covariance)
        if mean.ndim < 1 or covariance.shape[-2:] != (mean.shape[-1],) * 2:
            raise ValueError(
                f"mean and covariance must have shapes (…, d) and (…, d, d); found {mean.shape}, {covariance.shape}."
            )
        checks.symmetric("covariance", covariance)
        if not (np.linalg.eigvalsh(covariance) > 0).all():
            raise ValueError("covariance must be positive definite.")
        family = FullGaussianWithUniform(mean.shape[-1])
        return self.variables(family, family.from_mean(mean, covariance), size=size, name=name)

    @float64
    def gamma(self, shape: Any = None, rate: Any = None, *, size: Size = None, name: str | None = None) -> Variable:
        """Positive variables with prior Gamma(shape, rate), of mean shape/rate.

        Args:
            shape, rate: of the prior, numbers or arrays. Without both the prior is flat.
            size: how many, an int or a shape; by default the shape of the parameters.
            name: by which the solution calls them; by default x and a number.

        Returns:
            The array of variables.

        Raises:
            ValueError: if only one of shape and rate is given, one is not positive, or the name is taken.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.gamma(2.0, 1.0)
            x0: GammaWithUniform, shape ()
        """
        family = GammaWithUniform()
        if (shape is None) != (rate is None):
            raise ValueError("shape and rate are given both or neither.")
        if shape is None:
            return self.variables(family, family.flat(), size=size, name=name)
        eta = family.from_shape_rate(above_zero("shape", shape), above_zero("rate", rate))
        return self.variables(family, eta, size=size, name=name)

    @float64
    def beta(self, a: Any = 1.0, b: Any = 1.0, *, size: Size = None, name: str | None = None) -> Variable:
        """Probabilities with prior Beta(a, b).

        Args:
            a, b: of the prior, numbers or arrays.
            size: how many, an int or a shape; by default the shape of the parameters.
            name: by which the solution calls them; by default x and a number.

        Returns:
            The array of variables.

        Raises:
            ValueError: if a or b is not positive, or the name is taken.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.beta(2.0, 1.0, size=4)
            x0: Beta, shape (4,)
        """
        family = Beta()
        return self.variables(family, family.from_shapes(above_zero("a", a), above_zero("b", b)), size=size, name=name)

    @float64
    def dirichlet(self, concentration: Any, *, size: Size = None, name: str | None = None) -> Variable:
        """Vectors of weights that sum to one, with prior Dirichlet(concentration).

        Args:
            concentration: of the prior, positive, with the components on the last axis.
            size: how many vectors, an int or a shape; by default the leading axes of the concentration.
            name: by which the solution calls them; by default x and a number.

        Returns:
            The array of vectors.

        Raises:
            ValueError: if there are fewer than two components, one is not positive, or the name is taken.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.dirichlet([1.0, 1.0, 1.0], name="weights")
            weights: Dirichlet, shape ()
        """
        concentration = above_zero("concentration", concentration)
        if concentration.ndim < 1 or concentration.shape[-1] < 2:
            raise ValueError(f"concentration needs two components at least; found shape {concentration.shape}.")
        return self.variables(Dirichlet(concentration.shape[-1]), concentration, size=size, name=name)

    @float64
    def categorical(self, probabilities: Any, *, size: Size = None, name: str | None = None) -> Variable:
        """Discrete variables with given prior probabilities of their states.

        Args:
            probabilities: of the states, on the last axis; they need not sum to one. An int is a number of states that
                are equally probable.
            size: how many variables, an int or a shape; by default the leading axes of the probabilities.
            name: by which the solution calls them; by default x and a number.

        Returns:
            The array of variables.

        Raises:
            ValueError: if a weight is negative, all of a variable are 0, or the name is taken.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.categorical([0.2, 0.8], size=3)
            x0: Categorical, shape (3,)
        """
        if isinstance(probabilities, int):
            probabilities = np.ones(probabilities)
        weights = finite_numbers("probabilities", probabilities)
        if weights.ndim < 1 or not (weights >= 0).all() or not (weights.sum(axis=-1) > 0).all():
            raise ValueError("probabilities must be weights of at least 0, not all of them 0, on the last axis.")
        family = Categorical(weights.shape[-1])
        return self.variables(family, family.from_probabilities(weights), size=size, name=name)

    def variables(self, family: Family, prior: Any, *, size: Size = None, name: str | None = None) -> Variable:
        """Variables of any family.

        Args:
            family: of `cavity.families`, or your own.
            prior: natural parameters of the prior, on the last axis.
            size: how many variables, an int or a shape; by default the leading axes of the prior.
            name: by which the solution calls them; by default x and a number.

        Returns:
            The array of variables.

        Raises:
            ValueError: if the size does not fit the prior, or the name is taken.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.variables(cv.families.Beta(), [2.0, 1.0], size=2)
            x0: Beta, shape (2,)
        """
        eta = checks.real_numbers("prior", prior)
        if np.isnan(eta).any():
            raise ValueError("prior must hold natural parameters; found nan.")
        shape = eta.shape[:-1] if size is None else (size,) if isinstance(size, int) else tuple(size)
        try:
            rows = np.broadcast_to(eta, (*shape, family.size)).reshape(-1, family.size)
        except ValueError:
            raise ValueError(f"size {shape} does not fit parameters of shape {eta.shape[:-1]}.") from None
        held = self.priors.setdefault(family, [])
        start = sum(len(own) for own in held)
        held.append(rows)
        name = f"x{len(self.named)}" if name is None else name
        if name in self.named:
            raise ValueError(f"there is already a variable named {name!r}.")
        self.named[name] = Variable(family, np.arange(start, start + len(rows)).reshape(shape), name)
        return self.named[name]

    def deviations(self, variable: Variable) -> np.ndarray:
        """Standard deviations of the priors of real variables of this graph; 0 for all others."""
        if not isinstance(variable.family, GaussianWithUniform) or not is_among(variable, self.named):
            return np.zeros(variable.shape)
        precision = np.concatenate(self.priors[variable.family])[variable.rows, 1]
        return np.where(precision > 0, 1.0, 0.0) / np.sqrt(np.where(precision > 0, precision, 1.0))

    def add(self, factor: Factor, *variables: Any, data: Any = None, moments: Moments | None = None) -> None:
        """Connect variables by a factor, one site for each entry of their common shape.

        Args:
            factor: sees one value of each variable, a tuple where there are several, and the data of its site.
            variables: arrays that broadcast to one shape. Arguments that are numbers, or arrays of them, are known: the
                factor's log density sees them in their places, and only the variables are integrated.
            data: arrays whose leading axes are that shape, or that broadcast to it.
            moments: how the factor is integrated; by default in closed form where it has one, else by enumeration or
                quadrature where they work.

        Raises:
            TypeError: if the factor is no factor, no variable is given, or nothing is known to integrate the factor.
            ValueError: if the shapes do not fit, a variable is of another graph, or a factor sees a variable twice.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> z = graph.gaussian(0.0, 1.0, size=3)
            >>> graph.add(cv.factors.Probit(), z, data=[1, 1, -1])
            >>> graph
            FactorGraph(3 variables, 3 factors)
        """
        if not isinstance(factor, Factor):
            raise TypeError(f"factor must be one of cavity.factors or your own; found {type(factor).__name__}.")
        places = tuple(place for place, own in enumerate(variables) if not isinstance(own, Variable))
        slots = tuple(own for own in variables if isinstance(own, Variable))
        if not slots or not all(is_numeric(variables[place]) for place in places):
            raise TypeError("add takes a factor and the variables it sees, made by this graph; some may be numbers.")
        for own in slots:
            if not is_among(own, self.named):
                raise ValueError(f"{own.name} is a variable of another graph than this one.")
        if places:
            shape = common_shape(**{f"argument {place}": own for place, own in enumerate(variables)})
            known = tuple(filled(shape, f"argument {place}", variables[place]) for place in places)
            own = np.zeros(shape) if data is None else data
            factor, slots, data = Conditioned(factor, places), repeat_first(slots, shape), ObservedArguments(known, own)
        self.statements.append(Statement.of(factor, tuple(slots), data, moments))

    def problem(self) -> Problem:
        """The sites and what q is made of."""
        if not self.named:
            raise ValueError("the graph has no variables.")
        priors = [(family, np.concatenate(own)) for family, own in self.priors.items()]
        return dataclasses.replace(assembled(priors, self.statements), names=self.checksum())

    def checksum(self) -> np.uint32:
        """A number for the names of the variables, their families and shapes, in the order they were made."""
        layout = [(name, type(own.family).__qualname__, own.shape) for name, own in self.named.items()]
        return np.uint32(zlib.crc32(repr(layout).encode()))

    def interpret(self, solution: Solution) -> GraphSolution:
        """The solution of this graph's problem, with marginals by variable or name; `infer(graph)` returns it."""
        families = getattr(solution.problem.posterior, "families", None)
        sizes = [sum(map(len, own)) for own in self.priors.values()]
        if families != tuple(self.priors) or [np.shape(eta)[-2] for eta in solution.q.etas] != sizes:
            raise ValueError("this solution is of another graph, or of this one before variables were added.")
        return GraphSolution.of_graph(solution, self.checksum(), named=dict(self.named))

    def __repr__(self) -> str:
        count = sum(own.rows.size for own in self.named.values())
        return f"{type(self).__name__}({count} variables, {sum(own.size for own in self.statements)} factors)"


def is_numeric(value: Any) -> bool:
    """Whether an argument is a number or an array of numbers."""
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except ValueError:
        return False


def above_zero(name: str, value: Any) -> np.ndarray:
    """An array of positive numbers."""
    found = finite_numbers(name, value)
    if not (found > 0).all():
        raise ValueError(f"{name} must be positive; found {found[~(found > 0)].ravel()[0]}.")
    return found
