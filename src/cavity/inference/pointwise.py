"""The exact terms of a problem at given values: log t_i(x), one by one or summed, for stacks of values in pieces."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity._core.tiers import tiered_jit
from cavity.factors.base import MissingDensity, evaluate
from cavity.families.product import Product
from cavity.inference.problem import Problem

#: terms evaluated at once, to bound memory
CHUNK = 2_000_000
#: sizes of stacks are rounded up to this times a power of two, so that few of them are compiled
PIECE = 512


def require_densities(what: str, problem: Problem) -> None:
    """Refuse a problem with a factor that has no density in x."""
    for group in problem.groups:
        if not group.factor.has_density(group.data):
            name = type(group.factor).__name__
            raise MissingDensity(
                f"{what} needs the log density of every factor, log_density(x, data), and that of {name} is "
                "missing: it was made without, or is an exact relation between variables."
            )


def log_terms(problem: Problem, x: Any) -> tuple[jax.Array, ...]:
    """log t_i(x) of every site at one value x, one array per group."""

    def of_group(group: Any) -> jax.Array:
        index = jnp.arange(group.size)
        seen = problem.posterior.factor_arguments(problem.prior, group.scope, index, x)
        if isinstance(seen, tuple) and not isinstance(group.family, Product):
            (seen,) = seen  # a factor of one variable sees its value, one of several a tuple
        return jax.vmap(partial(evaluate, group.factor, "log_density"))(seen, jax.tree.map(jnp.asarray, group.data))

    return tuple(of_group(group) for group in problem.groups)


def sum_log_terms(problem: Problem, x: Any, floor: Any = None) -> jax.Array:
    """Σ_i multiplicity_i log t_i(x) at one value x; with a `floor`, no log t_i counts as less than it."""
    total = jnp.zeros(())
    for group, terms in zip(problem.groups, log_terms(problem, x), strict=True):
        raised = terms if floor is None else jnp.maximum(terms, floor)
        total += jnp.sum(jnp.where(group.multiplicities > 0, group.multiplicities * raised, 0.0))
    return total


_terms = tiered_jit(jax.vmap(log_terms, in_axes=(None, 0)))
_sums = tiered_jit(jax.vmap(sum_log_terms, in_axes=(None, 0, None)))


@float64
def log_likelihood(problem: Problem, x: Any, floor: float | None = None) -> np.ndarray:
    """`sum_log_terms` for a stack of values."""
    return in_pieces(problem, x, lambda piece: _sums(problem, piece, floor))


@float64
def pointwise_log_likelihood(problem: Problem, x: Any) -> tuple[np.ndarray, ...]:
    """log t_i(x) for a stack of values, one array (values, sites) per group."""
    return in_pieces(problem, x, lambda piece: _terms(problem, piece))


def in_pieces(problem: Problem, x: Any, function: Callable[[Any], Any]) -> Any:
    """`function` of a stack of values, a pytree with the values as leading axis, from its pieces."""
    sites = sum(group.size for group in problem.groups)
    count = len(jax.tree.leaves(x)[0])
    step = max(1, CHUNK // sites)
    found = []
    for start in range(0, count, step):
        length = min(step, count - start)
        padded = PIECE
        while padded < length:
            padded *= 2

        def piece(leaf: Any, start: int = start, length: int = length, padded: int = padded) -> np.ndarray:
            own = np.asarray(leaf)[start : start + length]
            return np.concatenate([own, np.broadcast_to(own[:1], (padded - length, *own.shape[1:]))])

        result = function(jax.tree.map(piece, x))
        found.append(jax.tree.map(lambda leaf, length=length: np.asarray(leaf)[:length], result))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *found)
