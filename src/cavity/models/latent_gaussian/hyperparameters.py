"""What an evidence search moves, as one vector: parameters of prior and likelihood, and further numbers; its slopes.

Gradients of the log evidence with the sites held fixed.

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

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import Factor
from cavity.factors.wrappers import SiteWrapper
from cavity.inference.problem import Problem
from cavity.kernels.basis import Spanned
from cavity.posteriors.dense_gaussian import information

#: bounds of positive parameters, searched by their logarithm
BOUNDS = {"label_noise": (1e-4, 0.45), "variance": (1e-8, 1e8), "scale": (1e-5, 1e5), "df": (1.0, 100.0)}
#: thresholds are searched by the first one and the logarithms of the gaps
FIRST, GAPS = (-100.0, 100.0), (np.log(1e-4), np.log(1e3))


@dataclasses.dataclass(frozen=True)
class SearchSpace:
    """The vector of a search is (theta, free parameters of the likelihood, others).

    Attributes:
        theta: logarithms of the prior's parameters, where the search starts.
        theta_bounds: a row (low, high) for each of them.
        factor: the likelihood, with the parameters the search starts from.
        free: names of the likelihood's parameters that the search moves.
        deviations: of a normal prior on theta around its start, one per number; None or infinite: flat.
        others: further numbers, all in [0, 1], with a flat prior.
    """

    theta: np.ndarray
    theta_bounds: np.ndarray
    factor: Factor
    free: tuple[str, ...]
    deviations: Any = None
    others: np.ndarray = dataclasses.field(default_factory=partial(np.zeros, 0))

    @property
    def start(self) -> np.ndarray:
        """The vector of where the search starts."""
        return np.concatenate([self.theta, pack_likelihood(self.factor, self.free), self.others])

    @property
    def limits(self) -> np.ndarray:
        """A row (low, high) for each number of the vector."""
        shares = np.tile([0.0, 1.0], (self.others.size, 1))
        return np.concatenate([self.theta_bounds, likelihood_bounds(self.factor, self.free), shares])

    def split(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(theta, the likelihood's, the others) of a vector."""
        theta, likelihood, others = np.split(vector, [self.theta.size, vector.size - self.others.size])
        return theta, likelihood, others

    def likelihood(self, vector: np.ndarray) -> Factor:
        """The likelihood at a vector, its parameters plain numbers."""
        found = unpack_likelihood(self.factor, self.free, self.split(vector)[1]) if self.free else self.factor
        return as_numbers(found)

    def log_prior(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density of a vector up to a constant, and its gradient."""
        theta, likelihood, others = self.split(vector)
        value, gradient = log_prior(self.factor, self.free, likelihood)
        wide = np.full(theta.size, np.inf) if self.deviations is None else np.asarray(self.deviations, float)
        away = (theta - self.theta) / wide
        return value - 0.5 * float(away @ away), np.concatenate([-away / wide, gradient, np.zeros(others.size)])


def inner(factor: Factor) -> Any:
    """The likelihood itself, without the weights of samples and the residuals of a basis around it."""
    return inner(factor.factor) if isinstance(factor, SiteWrapper) else factor


def with_inner(factor: Factor, likelihood: Factor) -> Factor:
    """The factor with another likelihood inside."""
    if not isinstance(factor, SiteWrapper):
        return likelihood
    return dataclasses.replace(factor, factor=with_inner(factor.factor, likelihood))  # type: ignore[type-var]


def check_free(factor: Factor, free: tuple[str, ...]) -> None:
    """Refuse names the likelihood does not have or the search does not know."""
    for name in free:
        if not hasattr(inner(factor), name) or name not in (*BOUNDS, "thresholds"):
            raise ValueError(f"{type(inner(factor)).__name__} has no parameter {name!r} that can be learned.")


def pack_likelihood(factor: Factor, free: tuple[str, ...]) -> np.ndarray:
    """The free parameters of the likelihood as a vector."""
    parts = [np.zeros(0)]
    for name in free:
        value = np.atleast_1d(np.asarray(getattr(inner(factor), name), float))
        if name == "thresholds":
            parts.append(np.concatenate([value[:1], np.log(np.diff(value))]))
        else:
            parts.append(np.log(np.clip(value, *BOUNDS[name])))
    return np.concatenate(parts)


def likelihood_bounds(factor: Factor, free: tuple[str, ...]) -> np.ndarray:
    """A row (low, high) for each number of `pack_likelihood`."""
    rows: list[tuple[float, float]] = []
    for name in free:
        if name == "thresholds":
            rows += [FIRST] + [GAPS] * (np.size(getattr(inner(factor), name)) - 1)
        else:
            low, high = BOUNDS[name]
            rows += [(float(np.log(low)), float(np.log(high)))]
    return np.asarray(rows, float).reshape(-1, 2)


def unpack_likelihood(factor: Factor, free: tuple[str, ...], vector: Any) -> Factor:
    """The factor with its free parameters read from a vector, which may be traced."""
    changes, start = {}, 0
    for name in free:
        if name == "thresholds":
            size = np.size(getattr(inner(factor), name))
            gaps = jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.exp(vector[start + 1 : start + size]))])
            changes[name], start = vector[start] + gaps, start + size
        else:
            changes[name], start = jnp.exp(vector[start]), start + 1
    return with_inner(factor, dataclasses.replace(inner(factor), **changes))


def log_prior(factor: Factor, free: tuple[str, ...], vector: np.ndarray) -> tuple[float, np.ndarray]:
    """Log density of the free parameters, up to a constant, and its gradient: 1 − 2ε for label noise ε, flat else.

    Few data explain any labels as noise, ε near ½; the prior says that most labels are right.
    """
    value, gradient, start = 0.0, np.zeros(np.size(vector)), 0
    for name in free:
        if name == "label_noise":
            noise = float(np.exp(vector[start]))
            value += float(np.log1p(-2.0 * noise))
            gradient[start] = -2.0 * noise / (1.0 - 2.0 * noise)
        start += np.size(getattr(inner(factor), name))
    return value, gradient


def as_numbers(factor: Factor) -> Factor:
    """The factor with its parameters as plain numbers, or arrays where they are vectors."""
    return jax.tree.map(lambda leaf: float(leaf) if np.ndim(leaf) == 0 else np.asarray(leaf, float), factor)


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
