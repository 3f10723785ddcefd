"""The Gaussian process of a learned operator, in arrays of fixed shapes: nothing is compiled again when it learns.

A regression of how far a factor moves its cavities on where they are (`message_coordinates`), with a squared
exponential kernel, one output per coordinate of the messages and one for log Z. Widths of the kernel and noise of the
labels are those of the largest evidence of the labels so far.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from cavity.families.base import Family
from cavity.learned.message_coordinates import anchor_flat, coordinates, displace_all, variables

#: labels the evidence is computed from, in arrays of two sizes; of more, so many are chosen
FEW, MOST = 64, 256
#: logarithms of widths (of standardised inputs), of noise and of what 1/ESS is multiplied with stay within these
WIDTHS = (-2.0, 5.0)
NOISE = (-23.0, 0.0)
SAMPLING = (-16.0, 10.0)
#: how far beyond what was seen an input may lie, in shares of the range seen, before it counts as new
BEYOND = 0.1
#: how far beyond what was seen a predicted change may lie, in shares of the range seen
STRETCH = 0.5


class Labels(NamedTuple):
    """Inputs and targets of the regression. spread: 1/ESS, 0 where it integrates without sampling."""

    inputs: np.ndarray
    targets: np.ndarray
    spread: np.ndarray


class TunedKernel(NamedTuple):
    """widths: in the units of the inputs. noise: variance of an exact label, in units of a target's scale squared.

    sampling: what 1/ESS is multiplied with to give the rest of a label's variance, one number per target, or one for
    all where nothing is sampled.
    """

    widths: np.ndarray
    noise: float
    sampling: np.ndarray
    scales: np.ndarray


class GPState(NamedTuple):
    """The posterior of a Gaussian process with the kernel exp(−½ Σ (Δu/width)²), given the labels.

    inputs: (capacity, inputs), in units of `width`; rows that are no label yet lie infinitely far away and are 0 in
    the others. inverse_root: L⁻¹ of the labels' covariance L Lᵀ in units of a target's scale, one matrix per target
    where labels are noisy, else one for all. weights: (capacity, targets). seen, reached: the least and the largest
    inputs and targets of the labels. inflation: by which audits found variances too small. reference: stands for flat
    cavities, see `anchor_flat`. floor: variance of a label beyond that of an exact one.
    """

    inputs: Any
    width: Any
    inverse_root: Any
    weights: Any
    scales: Any
    seen: Any
    reached: Any
    inflation: Any
    reference: Any
    floor: Any


class Forecast(NamedTuple):
    """A prediction. inputs: where the site is. variance: in units of the targets' scales.

    expected_kl: of the projection, and half the variance of log Z with it. label_kl: the same of an oracle's
    answer. novel: whether inputs lie beyond all labels.
    """

    site: jax.Array
    log_z: jax.Array
    inputs: jax.Array
    variance: jax.Array
    expected_kl: jax.Array
    label_kl: jax.Array
    novel: jax.Array


def inputs_of(family: Family, cavity: jax.Array, data: Any) -> jax.Array:
    """Where a site is: the coordinates of its (anchored) cavity, and its data."""
    leaves = [jnp.ravel(jnp.asarray(leaf, float)) for leaf in jax.tree.leaves(data)]
    return jnp.concatenate([coordinates(family, cavity), *leaves])


def forecast(state: GPState, family: Family, given: jax.Array, data: Any, outputs: int = 0) -> Forecast:
    """The message of factor × cavity and log Z, with what error is to be expected. outputs: see `log_overlap`."""
    cavity = anchor_flat(family, given, state.reference)
    inputs = inputs_of(family, cavity, data)
    near = jnp.exp(-0.5 * jnp.sum((inputs / state.width - state.inputs) ** 2, axis=-1))
    variance = state.inflation * jnp.maximum(1.0 - jnp.sum((state.inverse_root @ near) ** 2, axis=-1), 0.0)
    (low, high), (least, most) = state.seen, state.reached
    room, edge = STRETCH * (most - least), BEYOND * (high - low) + 1e-9
    targets = jnp.clip((near @ state.weights) * state.scales, least - room, most + room)
    steps, log_z = targets[:-1], targets[-1]
    weight = 0.5 * state.scales**2 * jnp.concatenate([sensitivity(family, cavity, steps), jnp.ones(1)])
    expected_kl, label_kl = jnp.sum(weight * variance), jnp.sum(weight * state.floor)
    novel = jnp.any((inputs < low - edge) | (inputs > high + edge))
    site = displace_all(family, cavity, steps) - cavity
    log_z = log_z + log_overlap(family, given, site, outputs)
    return Forecast(site, log_z, inputs, variance, expected_kl, label_kl, novel)


def log_overlap(family: Family, cavity: jax.Array, site: jax.Array, outputs: int) -> jax.Array:
    """Σ log ∫ cavity(y) message(y) dy over the last variables, of normalised messages; flat cavities count as 1.

    The outputs of a program that draws them have messages near their distribution, and log Z is then near this sum:
    what is learned of log Z is the difference.
    """
    total, rows = jnp.zeros(()), variables(family, cavity, site)
    for own, before, message in rows[len(rows) - outputs :]:
        alone = own.flat() + message
        proper = own.is_proper(alone) & own.is_proper(before + message)
        safe = jnp.where(proper, message, 0.0)
        flat = jnp.where(proper, alone, own.flat() + 1.0)
        overlap = own.log_partition(before + safe) - own.log_partition(before) - own.log_partition(flat)
        total = total + jnp.where(proper, overlap, 0.0)
    return total


def sensitivity(family: Family, cavity: jax.Array, steps: jax.Array) -> jax.Array:
    """Second derivatives of KL(projected ‖ projected with a step changed) in the steps, one by one.

    They are dᵀ F d, with d the change of natural parameters and F their Fisher information.
    """

    def one(direction: jax.Array) -> jax.Array:
        eta, slope = jax.jvp(lambda s: displace_all(family, cavity, s), (steps,), (direction,))
        total = jnp.zeros(())
        for own, piece, way in variables(family, eta, slope):
            _, change = jax.jvp(own.moments, (piece,), (way,))
            # A categorical has counts of zeros behind its log weights, which do not move.
            total = total + jnp.sum(way[: len(change)] * change)
        return total

    return jax.vmap(one)(jnp.eye(len(steps)))


def kernel_between(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """exp(−½ |u − v|²) for all rows of inputs in units of the widths."""
    return np.exp(-0.5 * cdist(one, other, "sqeuclidean"))


def prior_state(inputs: int, targets: int, groups: int, capacity: int, reference: np.ndarray) -> GPState:
    """Before any label: every input is novel."""
    infinite = np.full((capacity, inputs), np.inf)
    return GPState(
        *(infinite, np.ones(inputs), np.zeros((groups, capacity, capacity)), np.zeros((capacity, targets))),
        *(np.ones(targets), np.stack([infinite[0], -infinite[0]]), np.zeros((2, targets))),
        *(np.ones(()), reference, np.zeros(groups)),
    )


def posterior_state(
    labels: Labels, tuned: TunedKernel, capacity: int, inflation: float, reference: np.ndarray
) -> GPState:
    """The posterior given the labels, in NumPy arrays of the given capacity. reference: where cavities may be flat."""
    count, groups, targets = len(labels.inputs), len(tuned.sampling), labels.targets / tuned.scales
    inputs = np.full((capacity, labels.inputs.shape[1]), np.inf)
    inputs[:count] = labels.inputs / tuned.widths
    kernel = kernel_between(inputs[:count], inputs[:count])
    inverse_root, weights = np.zeros((groups, capacity, capacity)), np.zeros((capacity, targets.shape[1]))
    for group, noise in enumerate(label_variances(tuned, labels.spread)):
        root = np.linalg.cholesky(kernel + np.diag(noise))
        inverse_root[group, :count, :count] = solve_triangular(root, np.eye(count), lower=True)
        own = slice(None) if groups == 1 else slice(group, group + 1)
        weights[:count, own] = cho_solve((root, True), targets[:, own])
    seen, reached = (np.stack([own.min(axis=0), own.max(axis=0)]) for own in (labels.inputs, labels.targets))
    floor = tuned.sampling * np.median(labels.spread)
    found = (inputs, tuned.widths, inverse_root, weights, tuned.scales, seen, reached, inflation, reference, floor)
    return GPState(*(np.asarray(own, float) for own in found))


def label_variances(tuned: TunedKernel, spread: Any) -> np.ndarray:
    """Variances of labels, (groups, labels)."""
    return tuned.noise + tuned.sampling[:, None] * np.asarray(spread)[None]


@jax.jit
def negative_evidence(
    parameters: jax.Array, inputs: jax.Array, targets: jax.Array, spread: jax.Array, held: jax.Array
) -> jax.Array:
    """Minus the log evidence per label, with every target's own scale at its best.

    parameters: logarithms of widths, noise, and sampling, the latter one or as many as targets. inputs: standardised.
    spread: 1/ESS of every label. held: which rows are labels and do not fill up.
    """
    size, outputs = inputs.shape[1], targets.shape[1]
    widths, noise, sampling = jnp.exp(parameters[:size]), jnp.exp(parameters[size]), jnp.exp(parameters[size + 1 :])
    u = inputs / widths
    gap = jnp.sum((u[:, None] - u[None]) ** 2, axis=-1)
    kernel = jnp.where(held[:, None] & held[None], jnp.exp(-0.5 * gap), 0.0)
    values = jnp.where(held[:, None], targets, 0.0).T
    count, groups = jnp.sum(held), len(sampling)

    def one(ratio: jax.Array, own: jax.Array) -> jax.Array:
        root = jnp.linalg.cholesky(kernel + jnp.diag(jnp.where(held, noise + ratio * spread, 1.0)))
        white = jax.scipy.linalg.solve_triangular(root, own.T, lower=True)
        fit = 0.5 * count * jnp.sum(jnp.log(jnp.sum(white**2, axis=0) / count + 1e-300))
        return fit + len(own) * jnp.sum(jnp.log(jnp.diagonal(root)))

    total = jnp.sum(jax.lax.map(lambda pair: one(*pair), (sampling, values.reshape(groups, outputs // groups, -1))))
    # A weak preference for widths of a few standard deviations, so that inputs that do not matter do not run away; and
    # for noise of the size that draws have, so that few labels are not taken for exact.
    weak = jnp.sum((parameters[:size] - 1.0) ** 2) / 9.0 + jnp.sum(parameters[size + 1 :] ** 2) / 9.0
    return (total + 0.5 * weak) / count


evidence_and_slope = jax.jit(jax.value_and_grad(negative_evidence))


def tune(labels: Labels, start: TunedKernel | None = None) -> TunedKernel:
    """The best hyperparameters, from the last ones or from common ones."""
    inputs, targets, spread = labels
    chosen = np.random.default_rng(0).permutation(len(inputs))[:MOST]
    size, groups = inputs.shape[1], targets.shape[1] if spread.any() else 1
    deviation = np.where(inputs.std(axis=0) > 1e-12, inputs.std(axis=0), 1.0)
    rows = np.resize(chosen, FEW if len(chosen) <= FEW else MOST)
    x, y, noise = ((inputs - inputs.mean(axis=0)) / deviation)[rows], targets[rows], spread[rows]
    held = np.arange(len(rows)) < len(chosen)
    tried = [np.concatenate([np.full(size, 1.0), [np.log(1e-6)], np.zeros(groups)])]
    if start is not None and len(start.sampling) == groups:
        tried.append(np.concatenate([np.log(start.widths / deviation), [np.log(start.noise)], np.log(start.sampling)]))
    bounds = [WIDTHS] * size + [NOISE] + [SAMPLING] * groups

    def value(p: np.ndarray) -> tuple[float, np.ndarray]:
        found, gradient = evidence_and_slope(jnp.asarray(p), x, y, noise, held)
        good = np.isfinite(found) and np.isfinite(gradient).all()
        return (float(found), np.asarray(gradient)) if good else (1e10, np.zeros_like(p))

    clipped = [np.clip(p, *np.array(bounds).T) for p in tried]
    best = min((minimize(value, p, jac=True, method="L-BFGS-B", bounds=bounds) for p in clipped), key=lambda r: r.fun)
    widths, exact, sampling = np.exp(best.x[:size]), np.exp(best.x[size]), np.exp(best.x[size + 1 :])
    found = TunedKernel(widths * deviation, float(exact), sampling, np.ones(targets.shape[1]))
    kernel, y = kernel_between(x[held] / widths, x[held] / widths), targets[chosen]
    solved = [np.linalg.solve(kernel + np.diag(own), y) for own in label_variances(found, spread[chosen])]
    squares = [np.mean(y[:, t] * solved[t % groups][:, t]) for t in range(y.shape[1])]
    return found._replace(scales=np.maximum(np.sqrt(squares), 1e-12))
