"""Statements about the variables of a graph that are made often: sums, products, comparisons."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from cavity.factor_graph.variables import Variable
from cavity.factors.base import Factor
from cavity.factors.interval import Truncation
from cavity.factors.linear import Equality, InnerProduct, Linear, Map, MatrixProduct, Relation
from cavity.moments.base import Moments


class Relations(ABC):
    """What a graph can be told beside `add`.

    out: the variables a statement is about, or numbers where they were observed; new ones are made where it is None.
    """

    @abstractmethod
    def add(self, factor: Factor, *variables: Any, data: Any = None, moments: Moments | None = None) -> None: ...

    @abstractmethod
    def gaussian(
        self, mean: Any = None, variance: Any = None, *, size: Any = None, name: str | None = None
    ) -> Variable: ...

    @abstractmethod
    def vector(
        self,
        mean: Any = None,
        covariance: Any = None,
        *,
        dimension: int | None = None,
        size: Any = None,
        name: str | None = None,
    ) -> Variable: ...

    def linear(
        self, *parts: Variable, weights: Any = None, offset: Any = 0.0, variance: Any = 0.0, out: Any = None
    ) -> Any:
        """out = Σ weights × parts + offset + noise N(0, variance), of numbers; weights are all 1 if not given.

        weights: one per part, numbers or arrays of the statement's shape.
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
            offset = np.asarray(offset, float) - np.asarray(out, float)
        sides, signs = (parts, weights) if observed else ((*parts, out), (*weights, -1.0))
        data = Relation(
            np.stack([np.broadcast_to(own, shape) for own in signs], axis=-1).astype(float),
            np.broadcast_to(np.asarray(offset, float), shape),
            np.broadcast_to(np.asarray(variance, float), shape),
        )
        spread = [own[(None,) * (len(shape) - len(own.shape))] for own in sides]
        spread[0] = Variable(spread[0].family, np.broadcast_to(spread[0].rows, shape), spread[0].name)
        self.add(Linear(), *spread, data=data)
        return out

    def inner(self, vector: Variable, x: Any, *, offset: Any = 0.0, out: Any = None) -> Any:
        """out = x·vector + offset, one number for each row of x: the product with a known matrix."""
        x = np.asarray(x, float)
        if x.ndim < 1:
            raise ValueError("x must be a vector, or a matrix with one row a number.")
        shape = np.broadcast_shapes(x.shape[:-1], vector.shape, np.shape(offset))
        out = self.gaussian(size=shape) if out is None else out
        data = (np.broadcast_to(x, (*shape, x.shape[-1])), np.broadcast_to(np.asarray(offset, float), shape))
        self.add(InnerProduct(), vector, out, data=data)
        return out

    def product(self, matrix: Any, vector: Variable, *, covariance: Any, offset: Any = 0.0, out: Any = None) -> Any:
        """out = matrix vector + offset + noise N(0, covariance), a vector; numbers in place of `out` are observed.

        Leading axes of matrix, offset and covariance are those of arrays of vectors.
        """
        matrix, covariance = np.asarray(matrix, float), np.asarray(covariance, float)
        if matrix.ndim < 2 or matrix.shape[-1:] != vector.family.event_shape:
            raise ValueError(
                f"matrix must have {vector.family.event_shape or 'a vector of'} columns, as many as {vector.name} has "
                f"components; found shape {matrix.shape}."
            )
        size = matrix.shape[-2]
        if covariance.shape[-2:] != (size, size):
            raise ValueError(f"covariance must be {size} × {size}; found shape {covariance.shape}.")
        observed = out is not None and not isinstance(out, Variable)
        shift = np.asarray(offset, float) - (np.asarray(out, float) if observed else 0.0)
        shift = np.broadcast_to(shift, (*np.shape(shift)[:-1], size))
        leads = (matrix.shape[:-2], covariance.shape[:-2], shift.shape[:-1], vector.shape)
        shape = np.broadcast_shapes(*leads, out.shape if isinstance(out, Variable) else ())
        out = self.vector(dimension=size, size=shape) if out is None else out
        data = Map(
            np.broadcast_to(matrix, (*shape, *matrix.shape[-2:])),
            np.broadcast_to(shift, (*shape, size)),
            np.broadcast_to(covariance, (*shape, size, size)),
        )
        slots = (vector,) if observed else (vector, out)
        first = Variable(vector.family, np.broadcast_to(vector.rows, shape), vector.name)
        self.add(MatrixProduct(), first, *slots[1:], data=data)
        return out

    def within(self, variable: Variable, lower: Any = -np.inf, upper: Any = np.inf) -> None:
        """lower < variable < upper; either bound may be left out."""
        bounds = tuple(np.broadcast_to(np.asarray(own, float), variable.shape) for own in (lower, upper))
        self.add(Truncation(), variable, data=bounds)

    def greater(self, variable: Variable, than: Any = 0.0) -> None:
        """variable > than."""
        self.within(variable, lower=than)

    def equal(self, *variables: Variable) -> None:
        """All of them are one and the same."""
        self.add(Equality(), *variables)
