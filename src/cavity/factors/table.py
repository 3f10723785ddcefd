"""A factor of discrete variables given by its table of log weights."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp

from cavity._core.precision import is_traced
from cavity.factors.base import AnyArray, Factor, Value, factor
from cavity.families.base import Family, Tilted
from cavity.families.subtree import Passes, Path, Subtree


class OnTree(NamedTuple):
    """Data of a table whose variables are nodes of a tree: log weights (K₁, …, K_m) and the numbers of the m nodes.

    held: whether each edge of the subtree is one, or fills it up.
    """

    log_values: AnyArray
    nodes: AnyArray
    held: AnyArray


class OnPath(NamedTuple):
    """Data of a table over the two ends of a path: log weights (K, K), and whether each edge of the path is one."""

    log_values: AnyArray
    held: AnyArray


@factor
class Table(Factor):
    """A table of weights, t(x₁, …, x_m) = exp(log weights[x₁, …, x_m]); −inf is a weight of zero.

    The data of a site are the log weights; on independent variables they are summed by `Enumeration`. On a tree they
    come with the nodes of the variables, and the sum over the other nodes is made by messages: for each joint state of
    the m variables one pass up and one down the tree that they span. For two variables that is the path between them,
    and products of its tables from both ends tell all.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> table = np.log([[0.9, 0.1], [0.2, 0.8]])
        >>> round(float(np.exp(cv.factors.Table().log_density((1, 0), table))), 4)
        0.2
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Subtree, any power", "Path, any power")

    def validate(self, data: OnTree | OnPath | jax.Array) -> None:
        """Refuse log weights of +inf or NaN; −inf is a weight of zero."""
        log_values = data.log_values if isinstance(data, OnTree | OnPath) else data
        if not is_traced(log_values) and not np.all(np.asarray(log_values) < np.inf):
            raise ValueError("data of Table must be log weights: numbers or −inf.")

    def log_density(self, x: Value, data: OnTree | OnPath | jax.Array) -> jax.Array:
        log_values = data.log_values if isinstance(data, OnTree | OnPath) else data
        return jnp.asarray(log_values)[x if isinstance(x, tuple) else (x,)]

    def tilted(self, family: Family, cavity: jax.Array, data: OnTree | OnPath | jax.Array, power: float) -> Tilted:
        if isinstance(family, Path) and isinstance(data, OnPath):
            return tilted_path(family, cavity, data, power)
        if not isinstance(family, Subtree) or not isinstance(data, OnTree):
            return NotImplemented
        log_t = power * jnp.ravel(data.log_values)
        joint = np.indices(data.log_values.shape).reshape(data.log_values.ndim, -1).T

        def clamped(states: jax.Array) -> Passes:
            """The passes with the variables held at these states."""
            held = jnp.zeros((family.edges + 1, family.states))
            other = jnp.arange(family.states) != states[:, None]
            return family.passes(cavity, held.at[data.nodes].add(jnp.where(other, -jnp.inf, 0.0)))

        cases, free = jax.vmap(clamped)(jnp.asarray(joint)), family.passes(cavity)
        log_mass = jnp.where(log_t == -jnp.inf, -jnp.inf, log_t + cases.log_partition)
        total = logsumexp(log_mass)
        log_z = total - free.log_partition
        scale = jnp.where(total == -jnp.inf, 0.0, total)
        log_pairs = logsumexp((log_mass - scale)[:, None, None, None] + cases.pairs, axis=0)
        stats = jnp.concatenate([jnp.exp(log_pairs).ravel(), cavity[-family.edges :]])
        site = family.message_of_logs(cavity, free, log_pairs)
        entries = jnp.repeat(data.held, family.states**2)
        return Tilted(log_z, stats, jnp.where(jnp.concatenate([entries, entries, data.held]), site, 0.0))


def tilted_path(family: Path, cavity: jax.Array, data: OnPath, power: float) -> Tilted:
    """Of exp(log weights[first, last]) × a path."""
    tables = family.tables(cavity)
    products = family.products(tables)
    log_t = jnp.where(data.log_values == -jnp.inf, -jnp.inf, power * data.log_values)
    # Without and with the factor.
    (log_free, log_total), (free, log_pairs) = family.pairs(tables, products, jnp.stack([jnp.zeros_like(log_t), log_t]))
    entries = jnp.repeat(data.held, family.states**2)
    site = family.changes(cavity, free, log_pairs)
    site = jnp.where(jnp.concatenate([entries, entries]), site, 0.0)
    return Tilted(log_total - log_free, jnp.exp(log_pairs).ravel(), site)
