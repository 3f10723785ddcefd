"""Gradients of the log evidence with the sites held fixed.

At a fixed point the evidence is stationary in the sites, so only the explicit dependence counts (numerics 4.2):

    ∂ log Z / ∂θ  =  ½ tr[(α αᵀ − (K + S⁻¹)⁻¹) ∂K/∂θ],
    ∂ log Z / ∂φ  =  Σᵢ multiplicityᵢ ∂ log Zᵢ(cavityᵢ; φ) / ∂φ      for a parameter φ of the likelihood,

where under Power EP log Zᵢ is that of the factor's power with the powered cavity, divided by the power.

Where a basis carries the process, f = aᵀv + e with q(v) = N(m, V), the sites are about g = aᵀv and the factors know
the variance r of e. With c copies of a site,

    ∂ log Z / ∂aᵢ  =  cᵢ E_q[(νᵢ − τᵢ aᵢᵀv) v]  =  cᵢ (νᵢ m − τᵢ (V aᵢ + (aᵢᵀm) m)),
    ∂ log Z / ∂rᵢ  =  cᵢ (d₁² + d₂) / (2 · power),    for r widens the cavity that the factor sees.

Away from a fixed point they are not the gradient of anything; the search refuses such runs.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from cavity.factors.base import Factor
from cavity.inference.problem import Problem
from cavity.kernels.basis import Spanned
from cavity.models.latent_gaussian.hyperparameters import unpack_likelihood
from cavity.posteriors.dense_algebra import information


@jax.jit
def covariance_gradient(problem: Problem, q: Any, sites: jax.Array) -> jax.Array:
    """½ (α αᵀ − (K + S⁻¹)⁻¹): what a change of the prior covariance, entry by entry, does to the log evidence."""
    (group,) = problem.groups
    return 0.5 * (jnp.outer(q.weights, q.weights) - information(q, group.copies * sites[:, 1]))


@jax.jit
def precision_gradient(problem: Problem, q: Any) -> jax.Array:
    """½ diag(Λ₀⁻¹ − covariance − mean meanᵀ): the same for the prior precisions of the weights of a linear model."""
    prior = problem.posterior.flat(problem.prior)
    change = jnp.diagonal(prior.covariance) - jnp.diagonal(q.covariance) + prior.mean**2 - q.mean**2
    return 0.5 * change


@partial(jax.jit, static_argnames=("free", "power"))
def likelihood_gradient(
    problem: Problem, q: Any, sites: jax.Array, free: tuple[str, ...], vector: jax.Array, power: float = 1.0
) -> Any:
    """∂ Σ multiplicity log Zᵢ / power in the vector of the likelihood's free parameters, cavities fixed."""
    (group,) = problem.groups
    local = problem.posterior.marginals(problem.prior, q, group.scope, jnp.arange(group.size))
    held = group.copies > 0
    cavity = jnp.where(held[:, None], local - power * sites, local)

    def total(vector: jax.Array) -> jax.Array:
        factor: Factor = unpack_likelihood(group.factor, free, vector)

        def log_z(cavity: jax.Array, data: Any) -> jax.Array:
            key = jax.random.key(0)
            tilted, _ = group.moments.tilt(group.moments.init(group), factor, group.family, cavity, data, power, key)
            return tilted.log_z / power

        found = jax.vmap(log_z)(cavity, jax.tree.map(jnp.asarray, group.data))
        return jnp.sum(jnp.where(held, group.copies * found, 0.0))

    return jax.jacfwd(total)(vector)


@partial(jax.jit, static_argnames="power")
def spanned_gradient(problem: Problem, q: Any, sites: jax.Array, power: float = 1.0) -> Spanned:
    """What a change of the basis, a and r of every row, does to the log evidence."""
    (group,) = problem.groups
    rows, (nu, tau) = problem.prior.rows, sites.T
    spread, seen = rows @ q.covariance, rows @ q.mean
    towards = nu[:, None] * q.mean - tau[:, None] * (spread + seen[:, None] * q.mean)
    precision = 1.0 / jnp.sum(spread * rows, axis=1)
    held = group.copies > 0
    local = jnp.stack([seen * precision, precision], axis=-1)
    cavity = jnp.where(held[:, None], local - power * sites, local)

    def bend(cavity: jax.Array, data: Any) -> jax.Array:
        d1, d2 = group.factor.tilted(group.family, cavity, data, power).stats
        return (d1**2 + d2) / (2.0 * power)

    bends = jax.vmap(bend)(cavity, jax.tree.map(jnp.asarray, group.data))
    return Spanned(group.copies[:, None] * towards, jnp.where(held, group.copies * bends, 0.0))
