"""From statements about variables to a problem: groups of sites, wires, and how each is integrated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64
from cavity.factor_graph.variables import Variable
from cavity.factors import Factor
from cavity.families import Categorical, Family, Product
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.schedule import Parallel, ThereAndBack
from cavity.moments import ClosedForm, Enumeration, Moments, Quadrature
from cavity.moments.quadrature import can_integrate
from cavity.posteriors.factorised import Factorised, GraphPrior, Reach

#: sites up to which they are visited one after another, there and back; more are visited at once
ONE_BY_ONE = 5_000


@dataclass(frozen=True, eq=False)
class Statement:
    """One call of `add`: a factor, the rows of its variables (sites, slots), one site's data a row."""

    factor: Factor
    families: tuple[Family, ...]
    rows: np.ndarray
    data: Any
    moments: Moments

    @classmethod
    @float64
    def of(cls, factor: Factor, variables: tuple[Variable, ...], data: Any, moments: Moments | None) -> Statement:
        """Broadcast, check, and find how the factor is integrated."""
        try:
            shape = np.broadcast_shapes(*(own.shape for own in variables))
        except ValueError:
            shapes = ", ".join(f"{own.name} {own.shape}" for own in variables)
            raise ValueError(f"the variables do not fit together: {shapes}.") from None
        rows = np.stack([np.broadcast_to(own.rows, shape).ravel() for own in variables], axis=-1)
        if rows.size == 0:
            raise ValueError("add was given no variables: an array of them is empty.")
        families = tuple(own.family for own in variables)
        for own in np.unique([[families.index(family)] for family in families]).tolist():
            same = [slot for slot, family in enumerate(families) if families.index(family) == own]
            ordered = np.sort(rows[:, same], axis=1)
            if (ordered[:, 1:] == ordered[:, :-1]).any():
                raise ValueError("a factor sees one variable twice.")
        if isinstance(data, list):
            data = checks.number_array("data", data)
        flat = jax.tree.map(lambda leaf: site_rows(leaf, shape), np.zeros(shape) if data is None else data)
        family = families[0] if len(families) == 1 else Product(families)
        found = moments or factor.default_moments() or integrator(factor, family, flat)
        factor.validate(flat)
        found.validate(factor, family)
        return cls(factor, families, rows.astype(np.int32), flat, found)

    @property
    def size(self) -> int:
        """Number of sites."""
        return len(self.rows)

    @property
    def kind(self) -> Any:
        """Statements of one kind are one group; operators that learn are one only where they are the same object."""
        leaves, structure = jax.tree.flatten(self.factor)
        values = tuple((own.dtype.str, own.shape, own.tobytes()) for own in map(np.asarray, leaves))
        shapes = tuple(leaf.shape[1:] for leaf in jax.tree.leaves(self.data))
        moments = id(self.moments) if self.moments.learns else self.moments
        return structure, values, self.families, moments, jax.tree.structure(self.data), shapes


def site_rows(leaf: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A copy of data with one row per site: leading axes are the sites' shape, or the same data serve all."""
    found = checks.number_array("data", leaf)
    if found.shape[: len(shape)] != shape:
        found = np.broadcast_to(found, (*shape, *found.shape))
    return np.array(found).reshape(math.prod(shape), *found.shape[len(shape) :])


def integrator(factor: Factor, family: Family, data: Any) -> Moments:
    """The rule a factor has for this family, the first that works; a sentence with the options where there is none."""
    leaves, structure = jax.tree.flatten((factor, jax.tree.map(lambda leaf: np.asarray(leaf)[0], data)))
    kinds = tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    if factor.log_z is not None or tilts(structure, kinds, family):
        return ClosedForm()
    dense = factor.has_density(data)
    slots = family.families if isinstance(family, Product) else (family,)
    if dense and all(isinstance(own, Categorical) for own in slots):
        return Enumeration()
    if dense and can_integrate(family):
        return Quadrature()
    names = " × ".join(type(own).__name__ for own in slots)
    known = "; ".join(factor.closed_forms) or "none"
    options = (
        "give moments=cavity.Importance(draws=10_000), or a learned operator made by cavity.learned.just_in_time"
        if dense
        else "give it a log_density, or moments=cavity.learned.JustInTime() where it is a simulator"
    )
    raise TypeError(
        f"no rule for {type(factor).__name__} between {names}. Closed forms that exist: {known}. "
        f"To integrate it numerically, {options}."
    )


@lru_cache(maxsize=512)
def tilts(structure: Any, shapes: tuple[tuple[tuple[int, ...], Any], ...], family: Family) -> bool:
    """Whether `tilted` of a factor is more than NotImplemented, found by tracing it once for all sites of a kind."""

    def look(leaves: list[jax.Array], cavity: jax.Array) -> Any:
        factor, data = jax.tree.unflatten(structure, leaves)
        found = factor.tilted(family, cavity, data, 1.0)
        return None if found is NotImplemented else found

    leaves = [jax.ShapeDtypeStruct(*own) for own in shapes]
    return jax.eval_shape(look, leaves, jax.ShapeDtypeStruct((family.size,), float)) is not None


@float64
def assembled(priors: list[tuple[Family, np.ndarray]], statements: list[Statement]) -> Problem:
    """The problem: statements of one kind together, in the order of the first of them.

    priors: of every family its variables. A dictionary of them is no pytree, since families have no order.
    """
    if not statements:
        raise ValueError("the graph has no factors.")
    families = tuple(family for family, _ in priors)
    kinds: dict[Any, list[Statement]] = {}
    for own in statements:
        kinds.setdefault(own.kind, []).append(own)
    groups, wires = [], []
    for own in kinds.values():
        first = own[0]
        family = first.families[0] if len(first.families) == 1 else Product(first.families)
        data = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(statement.data for statement in own))
        scope = Reach(len(wires), tuple(families.index(slot) for slot in first.families))
        groups.append(SiteGroup(first.factor, data, family, first.moments, scope=scope))
        wires.append(jnp.asarray(np.concatenate([statement.rows for statement in own])))
    # Priors are normalised, so that the evidence is that of the data. Weights of a discrete variable that are all 1 are
    # no prior: they count as they are.
    weights = [(family, jnp.asarray(eta)) for family, eta in priors if isinstance(family, Categorical)]
    masses = [jnp.where(jnp.any(eta != 0, axis=-1), family.log_partition(eta), 0.0) for family, eta in weights]
    constant = -sum(float(jnp.sum(mass)) for mass in masses)
    prior = GraphPrior(tuple(jnp.asarray(eta) for _, eta in priors), tuple(wires), jnp.asarray(constant))
    sites = sum(group.size for group in groups)
    schedule = Parallel() if sites > ONE_BY_ONE else ThereAndBack()
    return Problem(prior, tuple(groups), Factorised(families), schedule=schedule)
