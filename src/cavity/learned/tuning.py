"""Widths of the kernel and noise of the labels by the evidence of a Gaussian process on the labels so far."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from scipy.optimize import minimize

#: labels the evidence is computed from, in arrays of two sizes; of more, so many are chosen
FEW, MOST = 64, 256
#: logarithms of widths (in deviations of the inputs), of noise and of what 1/ESS is multiplied with stay within these
WIDTHS = (-2.0, 5.0)
NOISE = (-23.0, 0.0)
SAMPLING = (-16.0, 10.0)


class TunedKernel(NamedTuple):
    """widths: in the units of the inputs. noise: variance of an exact label, in units of a target's scale squared.

    sampling: what 1/ESS is multiplied with to give the rest of a label's variance, one number per target, or one for
    all where nothing is sampled.
    """

    widths: np.ndarray
    noise: float
    sampling: np.ndarray
    scales: np.ndarray


def label_variances(tuned: TunedKernel, spread: Any) -> np.ndarray:
    """Variances of labels, (groups, labels)."""
    return tuned.noise + tuned.sampling[:, None] * np.asarray(spread)[None]


@jax.jit
def negative_evidence(
    parameters: jax.Array, inputs: jax.Array, targets: jax.Array, spread: jax.Array, held: jax.Array
) -> jax.Array:
    """Minus the log evidence per label, with every target's own scale at its best.

    parameters: logarithms of widths, noise, and sampling, the latter one or as many as targets. inputs: in deviations.
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
        white = solve_triangular(root, own.T, lower=True)
        fit = 0.5 * count * jnp.sum(jnp.log(jnp.sum(white**2, axis=0) / count + 1e-300))
        return fit + len(own) * jnp.sum(jnp.log(jnp.diagonal(root)))

    total = jnp.sum(jax.lax.map(lambda pair: one(*pair), (sampling, values.reshape(groups, outputs // groups, -1))))
    # A weak preference for widths of a few deviations, so that inputs that do not matter do not run away; and for noise
    # of the size that draws have, so that few labels are not taken for exact.
    weak = jnp.sum((parameters[:size] - 1.0) ** 2) / 9.0 + jnp.sum(parameters[size + 1 :] ** 2) / 9.0
    return (total + 0.5 * weak) / count


evidence_and_slope = jax.jit(jax.value_and_grad(negative_evidence))


def tune(
    inputs: np.ndarray, targets: np.ndarray, spread: np.ndarray, seed: int = 0, start: TunedKernel | None = None
) -> TunedKernel:
    """The best hyperparameters, from the last ones or from common ones."""
    chosen = np.random.default_rng(seed).permutation(len(inputs))[:MOST]
    size, rows = inputs.shape[1], FEW if len(chosen) <= FEW else MOST
    deviation = np.where(inputs.std(axis=0) > 1e-12, inputs.std(axis=0), 1.0)
    x, y = np.zeros((rows, size)), np.zeros((rows, targets.shape[1]))
    noise, held = np.zeros(rows), np.arange(rows) < len(chosen)
    x[held], y[held], noise[held] = (
        ((inputs - inputs.mean(axis=0)) / deviation)[chosen],
        targets[chosen],
        spread[chosen],
    )
    groups = targets.shape[1] if spread.any() else 1
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
    u = x[held] / widths
    kernel = np.exp(-0.5 * ((u[:, None] - u[None]) ** 2).sum(axis=-1))
    solved = [np.linalg.solve(kernel + np.diag(own), targets[chosen]) for own in label_variances(found, spread[chosen])]
    pairs = enumerate(np.resize(np.arange(groups), targets.shape[1]))
    scales = [np.sqrt(np.mean(targets[chosen, t] * solved[group][:, t])) for t, group in pairs]
    return found._replace(scales=np.maximum(scales, 1e-12))
