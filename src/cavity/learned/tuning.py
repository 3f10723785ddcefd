"""Widths of the kernel and noise of the labels by the evidence of a Gaussian process on the labels so far."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from scipy.optimize import minimize

#: labels the evidence is computed from; of more, so many are chosen
MOST = 256
#: logarithms of widths (in deviations of the inputs) and of noise (in units of the targets' scales) stay within these
WIDTHS = (-2.0, 5.0)
NOISE = (-23.0, 0.0)


class Tuned(NamedTuple):
    """widths: in the units of the inputs. noise: variance of an exact label; sampling: what 1/ESS is multiplied by."""

    widths: np.ndarray
    noise: float
    sampling: float
    scales: np.ndarray


@jax.jit
def cost(parameters: jax.Array, inputs: jax.Array, targets: jax.Array, spread: jax.Array, held: jax.Array) -> jax.Array:
    """Minus the log evidence a label, with every target's own scale at its best.

    inputs: in deviations. spread: 1/ESS of every label. held: which rows are labels and do not fill up.
    """
    widths, noise, sampling = jnp.exp(parameters[:-2]), jnp.exp(parameters[-2]), jnp.exp(parameters[-1])
    u = inputs / widths
    gap = jnp.sum((u[:, None] - u[None]) ** 2, axis=-1)
    kernel = jnp.where(held[:, None] & held[None], jnp.exp(-0.5 * gap), 0.0)
    kernel = kernel + jnp.diag(jnp.where(held, noise + sampling * spread, 1.0))
    root = jnp.linalg.cholesky(kernel)
    white = solve_triangular(root, jnp.where(held[:, None], targets, 0.0), lower=True)
    count = jnp.sum(held)
    fit = 0.5 * count * jnp.sum(jnp.log(jnp.sum(white**2, axis=0) / count + 1e-300))
    volume = targets.shape[1] * jnp.sum(jnp.log(jnp.diagonal(root)))
    # A weak preference for widths of a few deviations, so that inputs that do not matter do not run away.
    return (fit + volume) / count + 0.5 * jnp.sum((parameters[:-2] - 1.0) ** 2) / 9.0 / count


slope = jax.jit(jax.value_and_grad(cost))


def tune(
    inputs: np.ndarray, targets: np.ndarray, spread: np.ndarray, seed: int = 0, start: Tuned | None = None
) -> Tuned:
    """The best hyperparameters, from the last ones or from common ones."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(inputs))[:MOST]
    deviation = np.where(inputs.std(axis=0) > 1e-12, inputs.std(axis=0), 1.0)
    x = np.zeros((MOST, inputs.shape[1]))
    y, noise, held = np.zeros((MOST, targets.shape[1])), np.zeros(MOST), np.zeros(MOST, bool)
    x[: len(chosen)] = ((inputs - inputs.mean(axis=0)) / deviation)[chosen]
    y[: len(chosen)], noise[: len(chosen)], held[: len(chosen)] = targets[chosen], spread[chosen], True
    tried = [np.concatenate([np.full(inputs.shape[1], 1.0), [np.log(1e-6), 0.0]])]
    if start is not None:
        tried.append(np.concatenate([np.log(start.widths / deviation), np.log([start.noise, start.sampling])]))
    bounds = [WIDTHS] * inputs.shape[1] + [NOISE, (-10.0, 10.0)]

    def value(p: np.ndarray) -> tuple[float, np.ndarray]:
        found, gradient = slope(jnp.asarray(p), x, y, noise, held)
        good = np.isfinite(found) and np.isfinite(gradient).all()
        return (float(found), np.asarray(gradient)) if good else (1e10, np.zeros_like(p))

    clipped = [np.clip(p, *np.array(bounds).T) for p in tried]
    best = min((minimize(value, p, jac=True, method="L-BFGS-B", bounds=bounds) for p in clipped), key=lambda r: r.fun)
    widths, (exact, sampling) = np.exp(best.x[:-2]), np.exp(best.x[-2:])
    u = x[: len(chosen)] / widths
    kernel = np.exp(-0.5 * ((u[:, None] - u[None]) ** 2).sum(axis=-1)) + np.diag(exact + sampling * spread[chosen])
    scales = np.sqrt(np.mean(targets[chosen] * np.linalg.solve(kernel, targets[chosen]), axis=0))
    return Tuned(widths * deviation, float(exact), float(sampling), np.maximum(scales, 1e-12))
