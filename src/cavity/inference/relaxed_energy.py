"""The primal (6) and dual (25) energies of relaxed EP, for scalar Gaussian sites.

Sites fᵢ sum to ν, the cavity is λᵢ = ν − fᵢ, and rᵢ = exp(etaᵢ·T) relaxes factor i, etaᵢ = bᵢ (mᵢ, 1) for a strength bᵢ and
the mean mᵢ of the old site. In print the index i of rᵢ stands free in the q-term, (n − 1) log ∫ p exp((ν + etaᵢ)·T).
It is read here as all n relaxed terms less one that is not relaxed, which is (n − 1) log ∫ p exp(ν·T) without relaxation:

    dual   = Σ log ∫ p exp((ν + etaᵢ)·T) − log ∫ p exp(ν·T) − Σ log ∫ tᵢ p exp((λᵢ + etaᵢ)·T) + c Σ |etaᵢ|₁,
    primal = Σ (λᵢ·μ̂ᵢ − log ∫ tᵢ p exp((λᵢ + etaᵢ)·T)) − Σ (ν·μᵢ − log ∫ p exp((ν + etaᵢ)·T))
             + ν·μ − log ∫ p exp(ν·T) + c Σ |etaᵢ|₁,

with μ̂ᵢ, μᵢ, μ the expected statistics of the relaxed tilted distribution, of q rᵢ and of q. The features of print are
(x, x²), so |etaᵢ|₁ = |bᵢ mᵢ| + |bᵢ|/2. Two identities follow, and the code rests on them:

    dual   = E(f, marginals of q + eta) + c Σ |etaᵢ|₁,    E the energy of EP (inference.energy),
    primal = dual − Σ fᵢ · ∂dual/∂fᵢ.

Where (7) holds, μ̂ᵢ = μᵢ, the slopes are ∂dual/∂etaᵢ = 0 + the penalty's, and ∂dual/∂fᵢ = μᵢ − μ (at site i): a fixed point
of relaxed EP is stationary in neither, but for eta = 0.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cavity.families.gaussian import Gaussian
from cavity.inference.energy import energy
from cavity.inference.loop import refresh
from cavity.inference.problem import Problem
from cavity.numerics import checks
from cavity.numerics.precision import float64


class RelaxedEnergy(NamedTuple):
    """value: with the penalty. gradient_sites, gradient_relaxations: its slopes in fᵢ and etaᵢ, the penalty left out.

    One row a site, in the parameters (nu, tau) of exp(nu x − tau x²/2). The penalty adds c (sign, sign/2) to the second,
    and at 0 whatever lies between.
    """

    value: Any
    gradient_sites: Any
    gradient_relaxations: Any


@float64
def relaxed_dual(problem: Problem, sites: Any, strengths: Any, means: Any, c: float) -> RelaxedEnergy:
    """(25) at given sites (n, 2), strengths b (n) and means m of the old sites (n); c weighs the penalty."""
    eta = relaxations(problem, sites, strengths, means, c)
    value, slopes = unpenalised(problem, jnp.asarray(sites, float), eta)
    return RelaxedEnergy(value + penalty(eta, c), *slopes)


@float64
def relaxed_primal(problem: Problem, sites: Any, strengths: Any, means: Any, c: float) -> RelaxedEnergy:
    """(6) at the distributions that sites and relaxations stand for; arguments as in `relaxed_dual`."""
    eta, own = relaxations(problem, sites, strengths, means, c), jnp.asarray(sites, float)

    def primal(sites: jax.Array, eta: jax.Array) -> jax.Array:
        value, slopes = unpenalised(problem, sites, eta)
        return value - jnp.sum(sites * slopes[0])

    return RelaxedEnergy(primal(own, eta) + penalty(eta, c), *jax.jacfwd(primal, argnums=(0, 1))(own, eta))


def unpenalised(
    problem: Problem, sites: jax.Array, eta: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """The dual without its penalty, and its slopes in sites and relaxations: a site moves q's marginals as well."""
    group = problem.groups[0]

    def marginals(sites: jax.Array) -> jax.Array:
        return problem.posterior.marginals(
            problem.prior, refresh(problem, (sites,)), group.scope, jnp.arange(group.size)
        )

    found = energy(problem, (sites,), (marginals(sites) + eta,))
    through_q = jnp.einsum("ia,iakb->kb", found.gradient_marginals, jax.jacfwd(marginals)(sites))
    return found.value, (found.gradient_sites + through_q, found.gradient_marginals)


def relaxations(problem: Problem, sites: Any, strengths: Any, means: Any, c: float) -> jax.Array:
    """etaᵢ = bᵢ (mᵢ, 1), after refusing what has no relaxed energy."""
    if len(problem.groups) != 1 or problem.groups[0].family != Gaussian():
        raise TypeError("The relaxed energies are those of one group of scalar Gaussian sites.")
    if problem.groups[0].multiplicity is not None:
        raise TypeError("The relaxed energies are those of sites of multiplicity 1.")
    checks.positive("c", c)
    size = problem.groups[0].size
    b, m, own = checks.array("strengths", strengths, (1,)), checks.array("means", means, (1,)), jnp.shape(sites)
    if b.shape != (size,) or m.shape != (size,) or own != (size, 2):
        raise ValueError(
            f"sites, strengths and means must have shapes {(size, 2)}, {(size,)}, {(size,)}; "
            f"found {own}, {b.shape}, {m.shape}."
        )
    return jnp.stack([b * m, b], axis=-1)


def penalty(eta: jax.Array, c: float) -> jax.Array:
    """c Σ |etaᵢ|₁ for the features (x, x²)."""
    return c * jnp.sum(jnp.abs(eta) * jnp.array([1.0, 0.5]))
