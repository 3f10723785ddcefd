"""The Gaussian process of a learned operator, in arrays of fixed shapes: nothing is compiled again when it learns.

A regression of how far a factor moves its cavities on where they are (`message_coordinates`), with a squared
exponential kernel, one output per coordinate of the messages and one for log Z.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from cavity.families.base import Family
from cavity.families.categorical import Categorical
from cavity.families.product import Product
from cavity.learned.message_coordinates import (
    anchor_flat,
    coordinates,
    displace_all,
    parts_of,
    split_variables,
    steps_of,
)
from cavity.learned.tuning import TunedKernel, label_variances

#: how far beyond what was seen an input may lie, in shares of the range seen, before it counts as new
BEYOND = 0.1
#: how far beyond what was seen a predicted change may lie, in shares of the range seen
STRETCH = 0.5


class GPState(NamedTuple):
    """The posterior of a Gaussian process with the kernel exp(−½ Σ (Δu/width)²), given the labels.

    inputs: (capacity, inputs), in units of `width`; rows that are no label yet lie infinitely far away and are 0 in
    the others. inverse_root: L⁻¹ of the labels' covariance L Lᵀ in units of a target's scale, one matrix per target
    where labels are noisy, else one for all. weights: (capacity, targets). low, high: the inputs seen; least, most: the
    targets seen. inflation: by which audits found variances too small. reference: stands for flat cavities, see
    `anchor_flat`. floor: variance of a label beyond that of an exact one.
    """

    inputs: Any
    width: Any
    inverse_root: Any
    weights: Any
    scales: Any
    low: Any
    high: Any
    least: Any
    most: Any
    inflation: Any
    reference: Any
    floor: Any


class Forecast(NamedTuple):
    """A prediction. steps: of all variables. variance: in units of the targets' scales.

    expected_kl: of the projection, and half the variance of log Z with it. label_kl: the same of an oracle's
    answer. novel: whether inputs lie beyond all labels.
    """

    site: jax.Array
    log_z: jax.Array
    steps: jax.Array
    variance: jax.Array
    expected_kl: jax.Array
    label_kl: jax.Array
    novel: jax.Array


def prior_state(inputs: int, targets: int, groups: int, capacity: int, reference: np.ndarray) -> GPState:
    """Before any label: every input is novel."""
    return GPState(
        inputs=np.full((capacity, inputs), np.inf),
        width=np.ones(inputs),
        inverse_root=np.zeros((groups, capacity, capacity)),
        weights=np.zeros((capacity, targets)),
        scales=np.ones(targets),
        low=np.full(inputs, np.inf),
        high=np.full(inputs, -np.inf),
        least=np.zeros(targets),
        most=np.zeros(targets),
        inflation=np.ones(()),
        reference=reference,
        floor=np.zeros(groups),
    )


def inputs_of(family: Family, cavity: jax.Array, data: Any) -> jax.Array:
    """Where a site is: the coordinates of its (anchored) cavity, and its data."""
    leaves = [jnp.ravel(jnp.asarray(leaf, float)) for leaf in jax.tree.leaves(data)]
    return jnp.concatenate([coordinates(family, cavity), *leaves])


def nearness(state: GPState, inputs: jax.Array) -> jax.Array:
    """The kernel between a site and all labels."""
    gap = jnp.sum((inputs / state.width - state.inputs) ** 2, axis=-1)
    return jnp.exp(-0.5 * gap)


def forecast(state: GPState, family: Family, given: jax.Array, data: Any, outputs: int = 0) -> Forecast:
    """The message of factor × cavity and log Z, with what error is to be expected. outputs: see `log_overlap`."""
    cavity = anchor_flat(family, given, state.reference)
    inputs = inputs_of(family, cavity, data)
    near = nearness(state, inputs)
    variance = state.inflation * jnp.maximum(1.0 - jnp.sum((state.inverse_root @ near) ** 2, axis=-1), 0.0)
    room = STRETCH * (state.most - state.least)
    targets = jnp.clip((near @ state.weights) * state.scales, state.least - room, state.most + room)
    steps, log_z = targets[:-1], targets[-1]
    weight = 0.5 * state.scales**2 * jnp.concatenate([sensitivity(family, cavity, steps), jnp.ones(1)])
    expected = jnp.sum(weight * variance)
    edge = BEYOND * (state.high - state.low) + 1e-9
    novel = jnp.any((inputs < state.low - edge) | (inputs > state.high + edge))
    site = displace_all(family, cavity, steps) - cavity
    return Forecast(
        site,
        log_z + log_overlap(family, given, site, outputs),
        steps,
        variance,
        expected,
        jnp.sum(weight * state.floor),
        novel,
    )


def log_overlap(family: Family, cavity: jax.Array, site: jax.Array, outputs: int) -> jax.Array:
    """Σ log ∫ cavity(y) message(y) dy over the last variables, of normalised messages; flat cavities count as 1.

    The outputs of a program that draws them have messages near their distribution, and log Z is then near this sum:
    what is learned of log Z is the difference.
    """
    total = jnp.zeros(())
    rows = list(zip(parts_of(family), split_variables(family, cavity), split_variables(family, site), strict=True))
    for own, before, message in rows[len(rows) - outputs :]:
        alone = own.flat() + message
        proper = own.is_proper(alone) & own.is_proper(before + message)
        safe = jnp.where(proper, message, 0.0)
        flat = jnp.where(proper, alone, own.flat() + 1.0)
        overlap = own.log_partition(before + safe) - own.log_partition(before) - own.log_partition(flat)
        total = total + jnp.where(proper, overlap, 0.0)
    return total


def sensitivity(family: Family, cavity: jax.Array, steps: jax.Array) -> jax.Array:
    """Second derivatives of KL(projected ‖ projected with a step changed) in the steps, one by one."""

    def one(direction: jax.Array) -> jax.Array:
        eta, slope = jax.jvp(lambda s: displace_all(family, cavity, s), (steps,), (direction,))
        pieces = zip(parts_of(family), split_variables(family, eta), split_variables(family, slope), strict=True)
        return sum((curvature(own, piece, way) for own, piece, way in pieces), jnp.zeros(()))

    return jax.vmap(one)(jnp.eye(len(steps)))


def curvature(family: Family, eta: jax.Array, direction: jax.Array) -> jax.Array:
    """directionᵀ F direction, with F the Fisher information in the natural parameters."""
    _, change = jax.jvp(family.moments, (eta,), (direction,))
    way = direction[: family.states] if isinstance(family, Categorical) else direction
    return jnp.sum(way * change)


def count_targets(family: Family) -> int:
    """Numbers that are predicted: a change for every variable, and log Z."""
    return sum(steps_of(own) for own in (family.families if isinstance(family, Product) else (family,))) + 1


class Labels(NamedTuple):
    """Inputs and targets of the regression. spread: 1/ESS, 0 where it integrates without sampling."""

    inputs: np.ndarray
    targets: np.ndarray
    spread: np.ndarray

    def append(self, other: "Labels") -> "Labels":
        """These and others after them."""
        return Labels(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


def posterior_state(
    labels: Labels, tuned: TunedKernel, capacity: int, inflation: float = 1.0, reference: np.ndarray | None = None
) -> GPState:
    """The posterior given the labels, in NumPy arrays of the given capacity. reference: where cavities may be flat."""
    count, size = labels.inputs.shape
    inputs = np.full((capacity, size), np.inf)
    inputs[:count] = labels.inputs / tuned.widths
    gap = np.sum((inputs[:count, None] - inputs[None, :count]) ** 2, axis=-1)
    groups, targets = len(tuned.sampling), labels.targets / tuned.scales
    inverse_root, weights = np.zeros((groups, capacity, capacity)), np.zeros((capacity, targets.shape[1]))
    for group, noise in enumerate(label_variances(tuned, labels.spread)):
        root = np.linalg.cholesky(np.exp(-0.5 * gap) + np.diag(noise))
        inverse_root[group, :count, :count] = solve_triangular(root, np.eye(count), lower=True)
        own = slice(None) if groups == 1 else slice(group, group + 1)
        weights[:count, own] = cho_solve((root, True), targets[:, own])
    low, high = labels.inputs.min(axis=0), labels.inputs.max(axis=0)
    least, most = labels.targets.min(axis=0), labels.targets.max(axis=0)
    anchor = np.zeros(0) if reference is None else reference
    floor = tuned.sampling * np.median(labels.spread)
    found = (
        inputs,
        tuned.widths,
        inverse_root,
        weights,
        tuned.scales,
        low,
        high,
        least,
        most,
        inflation,
        anchor,
        floor,
    )
    return GPState(*(np.asarray(own, float) for own in found))
