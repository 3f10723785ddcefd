"""The primal (6) and dual (25) energies of relaxed EP, for scalar Gaussian sites.

Sites fᵢ sum to ν, the cavity is λᵢ = ν − fᵢ, and rᵢ = exp(etaᵢ·T) relaxes factor i, etaᵢ = bᵢ (mᵢ, 1) for a strength bᵢ
and the mean mᵢ of the old site. In print the index i stands free in the q-term, (n − 1) log ∫ p exp((ν + etaᵢ)·T). It
is read here as all n relaxed terms less one that is not relaxed; the two are one where nothing is relaxed:

    dual   = Σ log ∫ p exp((ν + etaᵢ)·T) − log ∫ p exp(ν·T) − Σ log ∫ tᵢ p exp((λᵢ + etaᵢ)·T) + c Σ |etaᵢ|₁,
    primal = Σ (λᵢ·μ̂ᵢ − log ∫ tᵢ p exp((λᵢ + etaᵢ)·T)) − Σ (ν·μᵢ − log ∫ p exp((ν + etaᵢ)·T))
             + ν·μ − log ∫ p exp(ν·T) + c Σ |etaᵢ|₁,

with μ̂ᵢ, μᵢ, μ the expected statistics of the relaxed tilted distribution, of q rᵢ and of q. The features of print are
(x, x²), so |etaᵢ|₁ = |bᵢ mᵢ| + |bᵢ|/2. Two identities follow, and the code rests on them:

    dual   = E(f, marginals of q + eta) + c Σ |etaᵢ|₁,    E the energy of EP (inference.energy),
    primal = dual − Σ fᵢ · ∂dual/∂fᵢ.

Where (7) holds, μ̂ᵢ = μᵢ, the slopes are ∂dual/∂etaᵢ = 0 + the penalty's, and ∂dual/∂fᵢ = μᵢ − μ (at site i): a fixed
point of relaxed EP is stationary in neither, but for eta = 0.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cavity._core import checks
from cavity._core.precision import float64
from cavity._core.tiers import tiered_jit
from cavity.families.gaussian import Gaussian
from cavity.inference.energy import group_slopes
from cavity.inference.methods import EP
from cavity.inference.problem import Problem, SiteGroup


class RelaxedEnergy(NamedTuple):
    """value: with the penalty. gradient_sites, gradient_relaxations: its slopes in fᵢ and etaᵢ, the penalty left out.

    One row per site, in the parameters (nu, tau) of exp(nu x − tau x²/2). The penalty adds c (sign, sign/2) to the
    second, and at 0 whatever lies between.
    """

    value: Any
    gradient_sites: Any
    gradient_relaxations: Any


@float64
def relaxed_dual(problem: Problem, sites: Any, strengths: Any, means: Any, c: float) -> RelaxedEnergy:
    """The dual energy (25) of relaxed EP at given sites and relaxations.

    Args:
        problem: one group of scalar Gaussian sites, each of multiplicity 1, on one latent or on one each.
        sites: natural parameters fᵢ of the sites, (n, 2).
        strengths: bᵢ of the relaxations, (n,).
        means: mᵢ of the old sites, (n,).
        c: weight of the penalty.

    Returns:
        The value, with the penalty, and its slopes, without.

    Raises:
        TypeError: the problem is another one.
        ValueError: c is not positive, or the arrays do not have these shapes.

    Examples:
        Where nothing is relaxed a fixed point of EP is stationary, and the dual −log evidence:

        >>> import cavity as cv
        >>> from cavity.inference import relaxed_dual
        >>> problem = cv.models.truncation(0.0, 1.0, lower=0.0)
        >>> solution = cv.infer(problem, cv.EP())
        >>> found = relaxed_dual(problem, solution.sites[0], [0.0], [0.0], c=1.0)
        >>> print(found.value.round(4), solution.log_evidence.round(4), abs(found.gradient_sites).max() < 1e-6)
        0.6931 -0.6931 True
    """
    eta = relaxations(problem, sites, strengths, means, c)
    value, slopes = dual(prior_of_latents(problem), problem.groups[0], jnp.asarray(sites, float), eta)
    return RelaxedEnergy(value + penalty(eta, c), *slopes)


@float64
def relaxed_primal(problem: Problem, sites: Any, strengths: Any, means: Any, c: float) -> RelaxedEnergy:
    """The primal energy (6) of relaxed EP at the distributions that sites and relaxations stand for.

    Args:
        problem: as for `relaxed_dual`.
        sites: natural parameters fᵢ of the sites, (n, 2).
        strengths: bᵢ of the relaxations, (n,).
        means: mᵢ of the old sites, (n,).
        c: weight of the penalty.

    Returns:
        The value, with the penalty, and its slopes, without.

    Raises:
        TypeError, ValueError: as for `relaxed_dual`.

    Examples:
        At a fixed point of EP both energies are one:

        >>> import cavity as cv
        >>> from cavity.inference import relaxed_dual, relaxed_primal
        >>> problem = cv.models.truncation(0.0, 1.0, lower=0.0)
        >>> sites = cv.infer(problem, cv.EP()).sites[0]
        >>> found = [energy(problem, sites, [0.0], [0.0], c=1.0) for energy in (relaxed_primal, relaxed_dual)]
        >>> [energy.value.round(4).item() for energy in found]
        [0.6931, 0.6931]
    """
    eta = relaxations(problem, sites, strengths, means, c)
    value, slopes = primal(prior_of_latents(problem), problem.groups[0], jnp.asarray(sites, float), eta)
    return RelaxedEnergy(value + penalty(eta, c), *slopes)


class Latents(NamedTuple):
    """The Gaussian prior of the sites' latents, with q written out so that it can be differentiated at any sites.

    For a few latents only: posteriors store q for many, and have no derivative where a precision is not positive.
    """

    mean: jax.Array
    covariance: jax.Array

    def marginals(self, sites: jax.Array) -> jax.Array:
        """(nu, tau) of q's marginals. With T = diag tau: covariance (I + K T)⁻¹ K, mean (I + K T)⁻¹ (mean + K nu)."""
        solved = jnp.linalg.inv(jnp.eye(sites.shape[0]) + self.covariance * sites[:, 1])
        variance = jnp.diagonal(solved @ self.covariance)
        mean = solved @ (self.mean + self.covariance @ sites[:, 0])
        return jnp.stack([mean, jnp.ones_like(mean)], axis=-1) / variance[:, None]

    def log_partition(self, sites: jax.Array) -> jax.Array:
        """log ∫ p exp(Σ nuᵢ fᵢ − tauᵢ fᵢ²/2)."""
        nu, tau = sites.T
        system = jnp.eye(nu.size) + self.covariance * tau
        gap = nu - tau * self.mean
        square = gap @ jnp.linalg.solve(system, self.covariance @ gap)
        return self.mean @ (nu - 0.5 * tau * self.mean) + 0.5 * square - 0.5 * jnp.linalg.slogdet(system)[1]


#: a value and its slopes in sites and relaxations
Slopes = tuple[jax.Array, tuple[jax.Array, jax.Array]]


@tiered_jit
def dual(prior: Latents, group: SiteGroup, sites: jax.Array, eta: jax.Array) -> Slopes:
    """The dual without its penalty; a site moves q's marginals as well."""
    seen = prior.marginals(sites)
    found = group_slopes(EP(), group, (), sites, seen, seen + eta, jax.random.key(0))
    through_q = jnp.einsum("ia,iakb->kb", found.marginals, jax.jacfwd(prior.marginals)(sites))
    return jnp.sum(found.value + found.exponents) - prior.log_partition(sites), (
        found.sites + through_q,
        found.marginals,
    )


@tiered_jit
def primal(prior: Latents, group: SiteGroup, sites: jax.Array, eta: jax.Array) -> Slopes:
    """The primal without its penalty."""

    def value(sites: jax.Array, eta: jax.Array) -> jax.Array:
        found, slopes = dual(prior, group, sites, eta)
        return found - jnp.sum(sites * slopes[0])

    return value(sites, eta), jax.jacfwd(value, argnums=(0, 1))(sites, eta)


def prior_of_latents(problem: Problem) -> Latents:
    """Mean and covariance of the sites' latents under the prior: n latents, or one for all sites."""
    size, flat = problem.groups[0].size, problem.posterior.flat(problem.prior)
    views = problem.posterior.views(problem.prior, flat)
    mean = jnp.broadcast_to(views["mean"](), (size,)) if jnp.ndim(views["mean"]()) == 0 else views["mean"]()
    covariance = views["covariance"]()
    if jnp.ndim(covariance) == 0:
        covariance = jnp.full((size, size), covariance)
    own = problem.posterior.marginals(problem.prior, flat, problem.groups[0].scope, jnp.arange(size))
    # A model of weights has views of its weights, not of the latents.
    if covariance.shape != (size, size) or not jnp.allclose(jnp.diagonal(covariance) * own[:, 1], 1.0):
        raise TypeError("The relaxed energies need the latents' own covariance: a kernel matrix, or one latent.")
    return Latents(mean, covariance)


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
