"""A graph of mixed variables and any factors, with the relations between variables that are stated often."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity import factors
from cavity._core import checks
from cavity.factor_graph.base import VariableGraph
from cavity.factor_graph.variables import Variable, common_shape, filled, finite_numbers, repeat_first
from cavity.factors.gamma_variables import Draw
from cavity.factors.linear import Map, Relation
from cavity.families import Beta, Categorical, Dirichlet, Family, Gamma, Gaussian
from cavity.families.gamma import GammaWithUniform

#: width of an interval in standard deviations of the prior, below which nothing is left of the cavity's digits
NARROWEST = 1e-6


class FactorGraph(VariableGraph):
    """p(x) ∝ ∏ t(x_scope) over arrays of variables, each of one family; q is a product over all of them.

    Variables are made with their priors by `gaussian`, `vector`, `gamma`, `beta`, `dirichlet`, `categorical`, and by
    relations such as `linear` and `normal`; `add` connects any factor. An array of variables connected by one call
    is compiled as one group. `infer(graph)` returns a solution with the marginals of the variables.

    Examples:
        >>> import cavity as cv
        >>> graph = cv.FactorGraph()
        >>> skill = graph.gaussian(25.0, 69.0, size=2, name="skill")
        >>> graph.greater(graph.linear(skill[0], skill[1], weights=[1.0, -1.0], variance=17.0))
        >>> graph
        FactorGraph(3 variables, 2 factors)
    """

    def linear(
        self, *parts: Variable, weights: Any = None, offset: Any = 0.0, variance: Any = 0.0, out: Any = None
    ) -> Any:
        """out = Σ weights × parts + offset + noise N(0, variance).

        Args:
            parts: arrays of real variables that broadcast to one shape.
            weights: one per part, numbers or arrays of that shape; all 1 by default.
            offset, variance: numbers or arrays of that shape.
            out: the variables a statement is about, or the numbers that were observed; by default new variables.

        Returns:
            `out`.

        Raises:
            ValueError: if there is not one weight per part, or the shapes do not fit.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> skill = graph.gaussian(25.0, 69.0, size=2)
            >>> graph.linear(skill[0], skill[1], weights=[1.0, -1.0], variance=17.0)
            x1: GaussianWithUniform, shape ()
        """
        weights = [1.0] * len(parts) if weights is None else list(weights)
        if not parts or len(weights) != len(parts):
            raise ValueError(f"linear takes one weight per part; found {len(weights)} for {len(parts)}.")
        shapes = [own.shape for own in parts] + [np.shape(own) for own in (*weights, offset, variance)]
        try:
            shape = np.broadcast_shapes(*shapes, () if out is None else np.shape(getattr(out, "rows", out)))
        except ValueError:
            raise ValueError(f"parts, weights, offset, variance and out do not fit together: {shapes}.") from None
        if out is None:
            out = self.gaussian(size=shape)
        observed = not isinstance(out, Variable)
        if observed:
            offset = finite_numbers("offset", offset) - finite_numbers("out", out)
        sides, signs = (parts, weights) if observed else ((*parts, out), (*weights, -1.0))
        data = Relation(
            np.stack([filled(shape, "weights", own) for own in signs], axis=-1),
            filled(shape, "offset", offset),
            filled(shape, "variance", variance),
        )
        self.add(factors.Linear(), *repeat_first(sides, shape), data=data)
        return out

    def inner(self, vector: Variable, x: Any, *, offset: Any = 0.0, out: Any = None) -> Any:
        """out = x·vector + offset, one number per row of x: the product with a known matrix.

        Args:
            vector: made by `graph.vector`.
            x: a vector, or a matrix with one row per number.
            offset: numbers that broadcast to the rows.
            out: real variables; by default new ones.

        Returns:
            `out`.

        Raises:
            ValueError: if x has no axis, or the shapes do not fit.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> weights = graph.vector([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]])
            >>> graph.inner(weights, [[1.0, 0.5], [1.0, 2.0], [1.0, -1.0]])
            x1: GaussianWithUniform, shape (3,)
        """
        x = finite_numbers("x", x)
        if x.ndim < 1:
            raise ValueError("x must be a vector, or a matrix with one row per number.")
        shape = np.broadcast_shapes(x.shape[:-1], vector.shape, np.shape(offset))
        out = self.gaussian(size=shape) if out is None else out
        data = (np.broadcast_to(x, (*shape, x.shape[-1])), filled(shape, "offset", offset))
        self.add(factors.InnerProduct(), vector, out, data=data)
        return out

    def product(self, matrix: Any, vector: Variable, *, covariance: Any, offset: Any = 0.0, out: Any = None) -> Any:
        """out = matrix vector + offset + noise N(0, covariance), a vector.

        Args:
            matrix: (…, k, d), d being the dimension of the vector; leading axes are those of arrays of vectors.
            vector: made by `graph.vector`.
            covariance: (…, k, k), of the noise.
            offset: (…, k).
            out: vectors of dimension k, or the numbers that were observed; by default new variables.

        Returns:
            `out`.

        Raises:
            ValueError: if the shapes do not fit, or a covariance is not symmetric.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> state = graph.vector([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]])
            >>> graph.product([[1.0, 1.0], [0.0, 1.0]], state, covariance=[[0.1, 0.0], [0.0, 0.1]])
            x1: FullGaussianWithUniform, shape ()
        """
        matrix, covariance = finite_numbers("matrix", matrix), finite_numbers("covariance", covariance)
        if matrix.ndim < 2 or matrix.shape[-1:] != vector.family.event_shape:
            wanted = f"{vector.family.event_shape or 'a vector of'} columns, as many as {vector.name} has components"
            raise ValueError(f"matrix must have {wanted}; found shape {matrix.shape}.")
        size = matrix.shape[-2]
        if covariance.shape[-2:] != (size, size):
            raise ValueError(f"covariance must be {size} × {size}; found shape {covariance.shape}.")
        checks.symmetric("covariance", covariance)
        observed = out is not None and not isinstance(out, Variable)
        shift = finite_numbers("offset", offset) - (finite_numbers("out", out) if observed else 0.0)
        shift = np.broadcast_to(shift, (*np.shape(shift)[:-1], size))
        leads = (matrix.shape[:-2], covariance.shape[:-2], shift.shape[:-1], vector.shape)
        shape = np.broadcast_shapes(*leads, out.shape if isinstance(out, Variable) else ())
        out = self.vector(dimension=size, size=shape) if out is None else out
        sizes = (matrix.shape[-2:], (size,), (size, size))
        parts = zip((matrix, shift, covariance), sizes, strict=True)
        data = Map(*(np.broadcast_to(own, (*shape, *axes)) for own, axes in parts))
        self.add(factors.MatrixProduct(), *repeat_first((vector,) if observed else (vector, out), shape), data=data)
        return out

    def within(self, variable: Variable, lower: Any = -np.inf, upper: Any = np.inf) -> None:
        """lower < variable < upper.

        Args:
            variable: real variables.
            lower, upper: numbers or arrays; either may be left out.

        Raises:
            ValueError: if they are no bounds, or so near to each other that beside them the prior has no digits.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.within(graph.gaussian(0.0, 1.0, size=2), upper=[1.0, 2.0])
            >>> graph
            FactorGraph(2 variables, 2 factors)
        """
        bounds = (checks.real_numbers("lower", lower), checks.real_numbers("upper", upper))
        low, high = (np.broadcast_to(own, variable.shape) for own in bounds)
        narrow = (low < high) & (low + NARROWEST * self.deviations(variable) > high)
        if narrow.any():
            raise ValueError(
                f"lower and upper must be further apart than {NARROWEST:g} standard deviations of the prior, which has "
                f"no digits beside them; found {(high - low)[narrow].min():g}. Observe {variable.name} by linear "
                "with a small variance, or give it a narrower prior."
            )
        self.add(factors.Truncation(), variable, data=(low, high))

    def greater(self, variable: Variable, than: Any = 0.0) -> None:
        """variable > than.

        Args:
            variable: real variables.
            than: numbers or an array.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.greater(graph.gaussian(0.0, 1.0))
            >>> graph
            FactorGraph(1 variables, 1 factors)
        """
        self.within(variable, lower=than)

    def equal(self, *variables: Variable) -> None:
        """All variables have the same value.

        Args:
            variables: two or more, of one family.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.equal(graph.gaussian(0.0, 1.0), graph.gaussian(1.0, 1.0))
            >>> graph
            FactorGraph(2 variables, 1 factors)
        """
        self.add(factors.Equality(), *variables)

    def normal(self, mean: Any, precision: Variable, out: Any = None) -> Any:
        """out ~ N(mean, 1/precision) with an unknown precision.

        Args:
            mean: numbers or real variables.
            precision: made by `graph.gamma`; with a known one use `linear(…, variance=1/precision)`.
            out: the variables a statement is about, or the numbers that were observed; by default new variables.

        Returns:
            `out`.

        Raises:
            TypeError: if the precision is no Gamma variable.
            ValueError: if the shapes do not fit, or a number is not finite.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.normal(0.0, graph.gamma(2.0, 1.0), out=[0.3, -1.2])
            [0.3, -1.2]
        """
        required("precision", "normal", precision, Gamma, "for a known one use linear(…, variance=1/precision)")
        shape = common_shape(mean=mean, precision=precision, out=out)
        out = self.gaussian(size=shape) if out is None else out
        ends = {"out": out, "mean": mean}
        slots = [own for own in ends.values() if isinstance(own, Variable)]
        known = [finite_numbers(name, own) for name, own in ends.items() if not isinstance(own, Variable)]
        value = np.broadcast_to(known[0] - known[1] if len(known) == 2 else sum(known, np.zeros(())), shape)
        self.add(factors.GaussianPrecision(), *repeat_first((*slots, precision), shape), data=value)
        return out

    def logistic(self, z: Variable, out: Variable | None = None) -> Variable:
        """out = σ(z) = 1/(1 + e^−z), the probability whose log odds are z.

        Args:
            z: real variables.
            out: made by `graph.beta`; by default new variables with prior Beta(1, 1).

        Returns:
            `out`.

        Raises:
            TypeError: if z is not real, or out is no Beta variable.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.logistic(graph.gaussian(0.0, 1.0, size=2))
            x1: Beta, shape (2,)
        """
        required("z", "logistic", z, Gaussian, "numbers need no relation")
        shape = common_shape(z=z, out=out)
        out = self.variables(Beta(), np.ones(2), size=shape) if out is None else out
        required("out", "logistic", out, Beta, "it is the probability itself, what is drawn with it is bernoulli(out)")
        self.add(factors.LogisticLink(), *repeat_first((out, z), shape))
        return out

    def bernoulli(self, p: Variable, out: Any = None) -> Any:
        """out = 1 with probability p, else 0.

        Args:
            p: made by `graph.beta`.
            out: discrete variables of two states, or what was observed: 0 and 1, or truth values; by default new
                variables.

        Returns:
            `out`.

        Raises:
            TypeError: if p is no Beta variable.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.bernoulli(graph.beta(1.0, 1.0), out=[1, 0, 1])
            [1, 0, 1]
        """
        required("p", "bernoulli", p, Beta, "a known probability is graph.categorical([1 - p, p])")
        return self.draw(factors.Bernoulli(), Categorical(2), p, "p", out)

    def choice(self, weights: Variable, out: Any = None) -> Any:
        """out = k with probability weights[k].

        Args:
            weights: made by `graph.dirichlet`.
            out: discrete variables, or the states that were observed: 0, 1, 2, …; by default new variables.

        Returns:
            `out`.

        Raises:
            TypeError: if the weights are no Dirichlet variables.
            ValueError: if an observed state does not exist.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.choice(graph.dirichlet([1.0, 1.0, 1.0]))
            x1: Categorical, shape ()
        """
        required("weights", "choice", weights, Dirichlet, "known weights are graph.categorical(weights)")
        states = weights.family.size
        if out is not None and not isinstance(out, Variable) and not (finite_numbers("out", out) < states).all():
            raise ValueError(f"out of choice must be states below {states}; found {np.max(out)}.")
        return self.draw(factors.CategoricalDraw(), Categorical(states), weights, "weights", out)

    def draw(self, factor: factors.Factor, family: Categorical, source: Variable, name: str, out: Any) -> Any:
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
        """out ~ Gamma(shape, rate) with an unknown rate; the mean is shape/rate.

        Args:
            shape: positive numbers.
            rate: made by `graph.gamma`.
            out: the variables a statement is about, or the numbers that were observed; by default new variables.

        Returns:
            `out`.

        Raises:
            TypeError: if the rate is no Gamma variable.
            ValueError: if the shapes do not fit, or a number is not positive.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.FactorGraph()
            >>> graph.gamma_from(3.0, graph.gamma(2.0, 1.0))
            x1: GammaWithUniform, shape ()
        """
        required("rate", "gamma_from", rate, Gamma, "a known rate is graph.gamma(shape, rate)")
        size = common_shape(shape=shape, rate=rate, out=out)
        out = self.variables(GammaWithUniform(), GammaWithUniform().flat(), size=size) if out is None else out
        drawn = isinstance(out, Variable)
        data = Draw(filled(size, "shape", shape), filled(size, "out", 1.0 if drawn else out))
        self.add(factors.GammaRate(), *repeat_first((out, rate) if drawn else (rate,), size), data=data)
        return out


def required(argument: str, relation: str, value: Any, family: type[Family], advice: str) -> None:
    """Refuse what is no variable of a family."""
    if isinstance(value, Variable) and isinstance(value.family, family):
        return
    found = type(value.family if isinstance(value, Variable) else value).__name__
    raise TypeError(f"{argument} of {relation} must be a {family.__name__} variable, found {found}; {advice}.")
