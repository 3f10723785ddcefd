"""Derivatives of the log evidence in kernel and likelihood parameters: forward mode, by the energy, and by differences.

The differences are of the evidence that the referee of `recompute.py` makes of the sites of runs at shifted parameters,
so that they share nothing with what is differentiated.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hard_cases import drawn, inputs, rbf
from hard_likelihoods import clutter, gaussian, log_uniform, logistic, ordinal, poisson, probit, step, student_t
from recompute import Latents, judge, kernel_latents, term_of

import cavity as cv
from cavity.inference.energy import energy

METHOD = cv.EP(tol=1e-11, max_sweeps=400)
#: steps of the differences, in units of a parameter
STEP = 2e-3
ROWS = 12


class Derivatives(NamedTuple):
    """Of one problem in all its parameters, three times; None where EP found no fixed point nearby."""

    forward: np.ndarray
    energy: np.ndarray
    differences: np.ndarray

    @property
    def error(self) -> float:
        """Largest gap to the differences, relative to the largest derivative or 1."""
        scale = max(1.0, float(np.abs(self.differences).max()))
        gaps = [np.abs(own - self.differences).max() for own in (self.forward, self.energy)]
        return float(np.max(gaps) / scale)


class Form(NamedTuple):
    """What a model of (log amplitude, log length) and a likelihood is, and what the referee makes of it."""

    model: Callable[[Any, Any, Any], Any]
    latents: Callable[[np.ndarray], Latents]


def kernel_form(x: np.ndarray) -> Form:
    square = (x - x.T) ** 2

    def model(theta: Any, factor: Any, data: Any) -> Any:
        K = jnp.exp(2 * theta[0] - 0.5 * square * jnp.exp(-2 * theta[1])) + 1e-6 * jnp.eye(len(x))
        return cv.models.latent_gaussian(data, factor, kernel_matrix=K)

    def latents(theta: np.ndarray) -> Latents:
        K = rbf(x, x, float(np.exp(theta[0])), float(np.exp(theta[1]))) + 1e-6 * np.eye(len(x))
        return kernel_latents(K, np.ones(len(x)))

    return Form(model, latents)


def weight_form(x: np.ndarray) -> Form:
    """f = w₀ + w₁ x with the two parameters as standard deviations of the weights."""
    X = np.concatenate([np.ones_like(x), x], axis=1)

    def model(theta: Any, factor: Any, data: Any) -> Any:
        return cv.models.latent_gaussian(data, factor, X=X, prior_variance=jnp.exp(2 * theta))

    def latents(theta: np.ndarray) -> Latents:
        return Latents(X * np.exp(theta), 0.0, np.zeros(len(x)), np.ones(len(x)))

    return Form(model, latents)


def inducing_form(x: np.ndarray) -> Form:
    Z = np.array([[-1.5], [0.0], [1.5]])

    def model(theta: Any, factor: Any, data: Any) -> Any:
        kernel = jnp.exp(2 * theta[0]) * cv.kernels.RBF(jnp.exp(theta[1]))
        return cv.models.latent_gaussian(data, factor, X=x, kernel=kernel, basis=cv.kernels.InducingInputs(Z))

    def latents(theta: np.ndarray) -> Latents:
        amplitude, length = map(float, np.exp(theta))
        inner = rbf(Z, Z, amplitude, length)
        lower = np.linalg.cholesky(inner + 1e-10 * np.mean(np.diagonal(inner)) * np.eye(len(Z)))
        rows = np.linalg.solve(lower, rbf(Z, x, amplitude, length)).T
        residual = np.maximum(amplitude**2 - np.sum(rows**2, axis=1), 0.0)
        return Latents(rows, 0.0, residual, np.ones(len(x)))

    return Form(model, latents)


@jax.enable_x64(True)
def derivatives(form: Callable[..., Form], make: Callable[..., Any], rng: np.random.Generator) -> Derivatives | None:
    """All of one random problem; None where a run needed does not converge."""
    own = form(inputs(rng, ROWS))
    theta = np.log([log_uniform(rng, 0.3, 5.0), log_uniform(rng, 0.3, 3.0)])
    likelihood = make(rng, drawn(rng, own.latents(theta)))
    leaves, structure = jax.tree.flatten(likelihood.factor)
    free = np.concatenate([np.ravel(leaf) for leaf in leaves]) if leaves else np.zeros(0)
    start = np.concatenate([theta, np.where(free == 0, 0.05, free)])
    shapes = [np.shape(leaf) for leaf in leaves]

    def factor(phi: Any) -> Any:
        found, place = [], 2
        for shape in shapes:
            size = int(np.prod(shape))
            found.append(phi[place : place + size].reshape(shape))
            place += size
        return jax.tree.unflatten(structure, found)

    def solved(phi: np.ndarray) -> tuple[cv.Solution, float]:
        solution = cv.infer(own.model(phi[:2], factor(phi), likelihood.data).problem(), METHOD)
        term = term_of(factor(phi), likelihood.data)
        return solution, judge(own.latents(phi[:2]), term, solution.sites[0]).log_evidence

    def by_energy(phi: Any, sites: Any) -> Any:
        return -energy(own.model(phi[:2], factor(phi), likelihood.data).problem(), sites).value

    at = solved(start)[0]
    if not at.converged:
        return None
    slopes = []
    for place, value in enumerate(start):
        values = []
        for shift in (-2, -1, 1, 2):
            phi = start.copy()
            phi[place] += shift * STEP * max(abs(value), 0.05)
            solution, evidence = solved(phi)
            if not solution.converged:
                return None
            values.append(evidence)
        width = STEP * max(abs(value), 0.05)
        slopes.append((values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * width))

    def evidence_at(phi: Any) -> Any:
        return cv.infer(own.model(phi[:2], factor(phi), likelihood.data).problem(), METHOD).log_evidence

    forward = jax.jit(jax.jacfwd(evidence_at))(jnp.asarray(start))
    reverse = jax.grad(by_energy)(jnp.asarray(start), tuple(map(jnp.asarray, at.sites)))
    return Derivatives(np.asarray(forward), np.asarray(reverse), np.asarray(slopes))


#: (form, likelihood) by name
DERIVATIVES: dict[str, tuple[Callable[..., Form], Callable[..., Any]]] = {
    **{
        f"kernel, {make.__name__}": (kernel_form, make)
        for make in (step, probit, logistic, gaussian, student_t, poisson, ordinal, clutter)
    },
    **{f"weights, {make.__name__}": (weight_form, make) for make in (probit, student_t)},
    **{f"inducing, {make.__name__}": (inducing_form, make) for make in (logistic, poisson)},
}
