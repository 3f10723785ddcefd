"""The disconnected approximation q = ∏ q_k(x_k): EP on it is loopy belief propagation (thesis 4.1)."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.discrete.approx.parallel_bp import InColumns
from cavity.factors.table import Table
from cavity.families.categorical import Categorical
from cavity.families.product import Product
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.schedule import InOrder, Parallel
from cavity.moments.enumeration import Enumeration
from cavity.posteriors.factorised import Factorised, GraphPrior, Reach

if TYPE_CHECKING:
    from cavity.discrete.graph import DiscreteGraph


#: sites up to which a method that names no schedule visits them one after another; more are visited at once
ONE_BY_ONE = 5_000


class Rows(NamedTuple):
    """Where each variable is stored: the number of its family, and its row there. cardinalities: of the families."""

    family: np.ndarray
    row: np.ndarray
    cardinalities: np.ndarray


def stored_by_cardinality(cardinalities: np.ndarray) -> Rows:
    """Variables of equal cardinality together, in their own order."""
    kinds, family = np.unique(cardinalities, return_inverse=True)
    row = np.zeros(len(cardinalities), np.int64)
    for number in range(len(kinds)):
        own = family == number
        row[own] = np.arange(own.sum())
    return Rows(family, row, kinds)


@float64
def disconnected(graph: "DiscreteGraph") -> Problem:
    """The problem whose EP is loopy BP: factors of one variable are in the prior, exactly; every other is a site."""
    rows = stored_by_cardinality(graph.cardinalities)
    families = tuple(Categorical(int(k)) for k in rows.cardinalities)
    wires, groups, log_constant = [], [], 0.0
    for own in graph.tables():
        if not own.shape:
            log_constant += float(own.log_values.sum())
        if len(own.shape) < 2:
            continue
        slots = tuple(int(np.searchsorted(rows.cardinalities, k)) for k in own.shape)
        family = Product(tuple(families[slot] for slot in slots))
        groups.append(SiteGroup(Table(), own.log_values, family, Enumeration(), scope=Reach(len(wires), slots)))
        wires.append(rows.row[own.scopes].astype(np.int32))
    if not groups:
        # Everything is held exactly; a site that says nothing gives the loop something to visit.
        family, nothing = Product((families[rows.family[0]],)), np.zeros((1, graph.cardinalities[0]))
        groups.append(SiteGroup(Table(), nothing, family, Enumeration(), scope=Reach(0, (int(rows.family[0]),))))
        wires.append(np.zeros((1, 1), np.int32))
    etas = own_weights(graph.flat_unary(), graph.cardinalities, rows)
    prior = GraphPrior(etas, tuple(jnp.asarray(w) for w in wires), jnp.asarray(log_constant))
    sites = sum(group.size for group in groups)
    schedule = Parallel() if sites > ONE_BY_ONE else InOrder()
    return Problem(prior, tuple(groups), Factorised(families), schedule=schedule, shortcut=InColumns())


def own_weights(flat: np.ndarray, cardinalities: np.ndarray, rows: Rows) -> tuple[Any, ...]:
    """Natural parameters of the variables' own log weights, one array a family."""
    starts = np.cumsum(cardinalities) - cardinalities
    etas = []
    for number, k in enumerate(rows.cardinalities):
        weights = flat[starts[rows.family == number][:, None] + np.arange(k)]
        zero = weights == -np.inf
        etas.append(jnp.asarray(np.concatenate([np.where(zero, 0.0, weights), zero], axis=1, dtype=float)))
    return tuple(etas)
