"""Importance sampling: for any family that can be sampled and any factor with a log density."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from cavity.factors.base import Factor, evaluate
from cavity.families.base import Family, Tilted
from cavity.families.product import Product
from cavity.families.standardised import cavity_statistics, dimension, is_gaussian, matched_statistics, tilted, whiten
from cavity.moments.base import Info, Moments


class Proposal(Protocol):
    """A distribution of a user's own: hashable, with one value x of the family's event shape per draw."""

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> Any:
        """Draws, leading axes `shape`."""
        ...

    def log_density(self, x: Any) -> jax.Array:
        """Normalised log density of one value."""
        ...


@dataclass(frozen=True)
class Importance(Moments):
    """Weighted draws: w ∝ t(x)**power cavity(x) / proposal(x), in log space.

    log Z is the log of the mean weight. Reported: `ess` = 1/Σw², the effective sample size of the normalised weights,
    and `error` = √(1/ess − 1/draws), the standard error of log Z; 0 and inf where every weight vanished.

    A site gets the same key in every sweep (common random numbers), so the draws are a function of the cavity alone, EP
    has a fixed point and the run can converge to it (for Gaussian sites a smooth function; Beta, Gamma and Dirichlet
    draws come from rejection and may jump a little). The answer then depends on the key: repeat with another one to see
    the Monte Carlo error. Draws from a Gaussian cavity are shifted and scaled to have exactly the cavity's mean and
    covariance, so that a flat factor gives a flat site and weak sites are not drowned in sampling noise.

    Args:
        draws: how many.
        proposal: "cavity", or an object with `sample(key, shape)` and `log_density(x)`, needed where the factor is
            sharp compared with the cavity or far from it.

    Raises:
        ValueError: if there are fewer than two draws.
        TypeError: if the proposal lacks one of the two methods.

    Examples:
        >>> import cavity as cv
        >>> laplace = cv.factors.from_log_density(lambda x, data: -abs(x - data))
        >>> problem = cv.models.posterior(laplace, [0.3, -1.2], prior_variance=1.0)
        >>> problem = problem.with_moments(cv.Importance(draws=2000))
        >>> solution = cv.infer(problem, cv.EP(max_sweeps=5))
        >>> solution.info[0]["ess"].shape
        (2,)
    """

    draws: int = 10_000
    proposal: Any = "cavity"

    random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.draws, int) or self.draws < 2:
            raise ValueError(f"draws must be an integer of at least 2; found {self.draws!r}.")
        usable = all(callable(getattr(self.proposal, name, None)) for name in ("sample", "log_density"))
        if self.proposal != "cavity" and not usable:
            raise TypeError(
                'proposal must be "cavity" or an object with sample(key, shape) and log_density(x); '
                f"found {self.proposal!r}."
            )

    def evaluations(self, family: Family) -> int:
        return self.draws

    def tilt(
        self, state: Any, factor: Factor, family: Family, cavity: jax.Array, data: Any, power: float, key: jax.Array
    ) -> tuple[Tilted, Info]:
        proper = family.is_proper(cavity)
        cavity = jnp.where(proper, cavity, 1.0)
        own = self.proposal == "cavity"
        x = draw_from_cavity(family, key, cavity, self.draws) if own else self.proposal.sample(key, (self.draws,))
        log_w = power * jax.vmap(lambda one: evaluate(factor, "log_density", one, data))(x)
        if not own:
            log_w += jax.vmap(lambda one: family.log_density(cavity, one) - self.proposal.log_density(one))(x)
        # Of a density that is NaN or +∞ somewhere nothing can be said.
        unknown = jnp.any(jnp.isnan(log_w) | (log_w == jnp.inf))
        total = jnp.where(unknown, -jnp.inf, jax.nn.logsumexp(log_w))
        found = proper & (total > -jnp.inf)
        weights = jnp.where(found, jnp.exp(log_w - jnp.where(found, total, 0.0)), 0.0)
        ess = jnp.where(found, 1.0 / jnp.where(found, jnp.sum(weights**2), 1.0), 0.0)
        error = jnp.where(found, jnp.sqrt(jnp.maximum(1.0 / ess - 1.0 / self.draws, 0.0)), jnp.inf)
        log_z = jnp.where(found, total - jnp.log(self.draws), -jnp.inf)
        stats, site = match(family, cavity, x, weights)
        return Tilted(log_z, stats, site), {"ess": ess, "error": error}


def draw_from_cavity(family: Any, key: jax.Array, cavity: jax.Array, draws: int) -> Any:
    """Draws from the cavity, those of Gaussian parts with exact mean and covariance."""
    if isinstance(family, Product):
        keys = jax.random.split(key, len(family.families))
        rows = zip(family.families, keys, family.parts(cavity), strict=True)
        return tuple(draw_from_cavity(own, own_key, part, draws) for own, own_key, part in rows)
    if not is_gaussian(family):
        return family.sample(key, cavity, (draws,))
    frame = whiten(family, cavity)
    z = exact_moments(jax.random.normal(key, (draws, dimension(family)), dtype=float))
    x = jax.vmap(frame.value)(z)
    return x if family.event_shape else x[:, 0]


def match(family: Any, cavity: jax.Array, x: Any, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(stats, site) of weighted draws; weights that are all zero stand for a constant factor."""
    if isinstance(family, Product):
        rows = zip(family.families, family.parts(cavity), x, strict=True)
        stats, sites = zip(*(match(own, part, values, weights) for own, part, values in rows), strict=True)
        return jnp.concatenate(stats), jnp.concatenate(sites)
    found = jnp.any(weights > 0)
    if is_gaussian(family):
        frame = whiten(family, cavity)
        gap = (x if family.event_shape else x[:, None]) - frame.mean
        z = jax.scipy.linalg.solve_triangular(frame.root, gap.T, lower=True).T
        mean = weights @ z
        eye = jnp.eye(mean.size)
        spread = jnp.where(found, (weights[:, None] * (z - mean)).T @ (z - mean), eye)
        return tilted(family, frame, jnp.zeros(()), mean, spread, spread - eye)[1:]
    # A draw of weight zero may lie where the statistics are infinite.
    values = jnp.where(weights[:, None] > 0, jax.vmap(lambda one: matched_statistics(family, one))(x), 0.0)
    stats = jnp.where(found, weights @ values, cavity_statistics(family, cavity))
    return stats, jnp.where(found, family.message(cavity, stats), family.uniform())


def exact_moments(z: jax.Array) -> jax.Array:
    """Standard normal draws (n, d) moved so that their mean is 0 and, if n > d, their covariance I."""
    draws, size = z.shape
    z = z - jnp.mean(z, axis=0)
    if draws <= size:
        return z
    root = jnp.linalg.cholesky(z.T @ z / draws)
    return jax.scipy.linalg.solve_triangular(root, z.T, lower=True).T
