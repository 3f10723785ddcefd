"""Distributions on a simplex, with eta = a, the shapes themselves.

Dirichlet: T(w) = log w. Beta, the Dirichlet of (x, 1 − x): eta = (a, b), T(x) = (log x, log(1 − x)), flat = (1, 1).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from cavity._core.precision import library_of
from cavity._numerics.gamma_functions import (
    HALF_LOG_2PI,
    binet,
    dirichlet_expected_log,
    log_beta,
    log_minus_digamma,
    stirling_divergence,
    trigamma_difference,
)
from cavity._numerics.inverses import dirichlet_shapes
from cavity._numerics.sums import log_excess, sums_without_each
from cavity.families.base import Family


@dataclass(frozen=True)
class ShapeFamily(Family):
    """Distributions on a simplex with density ∝ Π w_k^(a_k − 1) and eta = a."""

    def flat(self) -> jax.Array:
        return jnp.ones(self.size)

    def log_partition(self, eta: jax.Array) -> jax.Array:
        """Σ lnΓ(a_k) − lnΓ(Σ a)."""
        return log_beta(jnp.asarray(eta))

    def moments(self, eta: jax.Array) -> jax.Array:
        """E[log w_k] = ψ(a_k) − ψ(Σ a) (thesis 3.84)."""
        return dirichlet_expected_log(jnp.asarray(eta))

    def natural(self, mu: jax.Array) -> jax.Array:
        """The shapes with ψ(a_k) − ψ(Σ a) = mu_k (thesis 3.85); NaN where no Dirichlet has these moments."""
        return dirichlet_shapes(jnp.asarray(mu))

    def is_proper(self, eta: jax.Array) -> jax.Array:
        eta = jnp.asarray(eta)
        return jnp.all((eta > 0) & jnp.isfinite(eta), axis=-1)

    def log_density(self, eta: jax.Array, x: jax.Array) -> jax.Array:
        """Σ_k [c(a_k) − a_k (r_k − 1 − log r_k) − log w_k] − c(S), −inf outside the simplex.

        That is Σ (a_k − 1) log w_k − ln B(a) with the terms of order S = Σ a_k cancelled on paper; r_k = w_k S/a_k, and
        c(a) = ½ log(a/2π) − ω(a).
        """
        a, weights = jnp.asarray(eta), self.weights(x)
        total = jnp.sum(a, axis=-1, keepdims=True)
        inside = jnp.where(weights > 0, weights, 1.0)
        ratio = inside * total / a
        terms = -a * log_excess((inside * total - a) / a, ratio) - jnp.log(inside)
        # A shape of 1 leaves the density finite at w_k = 0, where 0 × log 0 would be NaN.
        at_zero = jnp.where(a == 1.0, 1.0 + jnp.log(total), jnp.where(a < 1.0, jnp.inf, -jnp.inf))
        terms = jnp.where(weights > 0, terms, at_zero) + density_constant(a)
        density = jnp.sum(terms, axis=-1) - density_constant(total)[..., 0]
        return jnp.where(jnp.any(weights < 0, axis=-1), -jnp.inf, density)

    def weights(self, x: jax.Array) -> jax.Array:
        """The components of a value, which sum to one."""
        return jnp.asarray(x, float)

    def entropy(self, eta: jax.Array) -> jax.Array:
        """A − (a − 1)·mu with the terms Σ a_k log(a_k/S), of order S, cancelled on paper."""
        a = jnp.asarray(eta)
        total = jnp.sum(a, axis=-1)
        return jnp.sum(dirichlet_expected_log(a) + corrections(a), axis=-1) - corrections(total)

    def kl(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """KL(a ‖ b) = Σ b_k (r_k − 1 − log r_k) + Σ D(a_k, b_k) − D(Σ a, Σ b), with r_k = (a_k/Σa)/(b_k/Σb).

        The first sum is what x log x − x in Stirling's formula leaves; D is the divergence of the rest.
        """
        a, b = jnp.asarray(eta), jnp.asarray(other)
        delta = b - a
        (total, rest), (total_b, _) = sums_without_each(a), sums_without_each(b)
        total, total_b, delta_total = total[..., None], total_b[..., None], jnp.sum(delta, axis=-1, keepdims=True)
        ratio = (a / total) / (b / total_b)
        # For close members r − 1 comes from the steps, those of the largest shape and of its rivals kept apart.
        largest = jnp.arange(self.size) == jnp.argmax(a, axis=-1, keepdims=True)
        rivals = jnp.sum(jnp.where(largest, 0.0, delta), axis=-1, keepdims=True)
        step = (a * jnp.where(largest, rivals, delta_total - delta) - delta * rest) / (b * total)
        close = jnp.all(jnp.abs(delta) <= 0.5 * a, axis=-1, keepdims=True)
        main = b * log_excess(jnp.where(close, step, ratio - 1.0), ratio) + stirling_divergence(a, b, delta)
        return jnp.sum(main, axis=-1) - stirling_divergence(total, total_b, delta_total)[..., 0]

    def distance(self, eta: jax.Array, other: jax.Array) -> jax.Array:
        """Largest |E log w_k − E' log w_k| in units of the standard deviation of log w_k under `eta`."""
        a, b = jnp.asarray(eta), jnp.asarray(other)
        spread = jnp.sqrt(trigamma_difference(a, sums_without_each(a)[1]))
        gap = jnp.max(jnp.abs(dirichlet_expected_log(a) - dirichlet_expected_log(b)) / spread, axis=-1)
        return jnp.where(self.is_proper(a) & self.is_proper(b), gap, jnp.inf)

    def keep_proper(self, cavity: jax.Array, stats: jax.Array, site: jax.Array, floor: float) -> jax.Array:
        """The site s ≥ floor (in every component) that minimises A(cavity + s) − s·stats."""
        shapes = dirichlet_shapes(stats, cavity + floor)
        clipped = jnp.where(shapes <= cavity + floor, floor, shapes - cavity)
        return jnp.where(jnp.all(site >= floor, axis=-1, keepdims=True), site, clipped)


def density_constant(a: jax.Array) -> jax.Array:
    """½ log(a/2π) − ω(a): what Stirling's formula leaves of −lnΓ(a) beside a − a log a."""
    return 0.5 * jnp.log(a) - HALF_LOG_2PI - binet(a)


def corrections(x: jax.Array) -> jax.Array:
    """Per-shape part of the entropy: ½ log(2π/x) + ω(x) + x (log x − ψ(x))."""
    return HALF_LOG_2PI - 0.5 * jnp.log(x) + binet(x) + x * log_minus_digamma(x)


@dataclass(frozen=True)
class Dirichlet(ShapeFamily):
    """Dirichlet(w; a) ∝ Π w_k^(a_k − 1) over weights that sum to one.

    Args:
        components: K, the number of weights.
        match: "log" preserves E[log w], the projection that minimises KL (thesis 3.85). "mean_square" preserves E[w_k]
            and Σ E[w_k²] instead, the closed form of Cowell et al. (thesis 3.113); tilted statistics are then the 2K
            numbers (E[w_k], E[w_k²]).

    Raises:
        ValueError: if there are fewer than two components, or `match` is neither word.

    Examples:
        >>> import cavity as cv
        >>> dirichlet = cv.families.Dirichlet(3)
        >>> dirichlet.mean(dirichlet.from_concentration([1.0, 1.0, 2.0])).tolist()
        [0.25, 0.25, 0.5]
    """

    components: int
    match: str = "log"

    def __post_init__(self) -> None:
        if self.components < 2:
            raise ValueError(f"Dirichlet needs components >= 2, got {self.components}.")
        if self.match not in ("log", "mean_square"):
            raise ValueError(f"match must be 'log' or 'mean_square', got {self.match!r}.")

    @property
    def size(self) -> int:
        return self.components

    @property
    def tilted_size(self) -> int:
        """Length of the tilted statistics."""
        return self.components if self.match == "log" else 2 * self.components

    @property
    def event_shape(self) -> tuple[int, ...]:
        return (self.components,)

    def from_concentration(self, concentration: Any) -> jax.Array:
        """Natural parameters of Dirichlet(a): the shapes themselves; one number stands for all components."""
        a = jnp.asarray(concentration, float)
        return jnp.broadcast_to(a, (*a.shape[:-1], self.components))

    def statistics(self, x: jax.Array) -> jax.Array:
        return jnp.log(jnp.asarray(x, float))

    def mean(self, eta: jax.Array) -> jax.Array:
        a = jnp.asarray(eta)
        return a / jnp.sum(a, axis=-1, keepdims=True)

    def covariance(self, eta: jax.Array) -> jax.Array:
        """(diag p − p pᵀ)/(S + 1) with p = a/S."""
        total, rest = sums_without_each(jnp.asarray(eta))
        p, other = eta / total[..., None], rest / total[..., None]
        outer = -p[..., :, None] * p[..., None, :]
        # p (1 − p) from the other shapes: 1 − p rounds to 0 when one shape dominates.
        matrix = jnp.where(jnp.eye(self.components, dtype=bool), (p * other)[..., None], outer)
        return matrix / (total + 1.0)[..., None, None]

    def sample(self, key: jax.Array, eta: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        eta = jnp.asarray(eta)
        return jax.random.dirichlet(key, eta, (*shape, *eta.shape[:-1]), dtype=float)

    def views(self, eta: jax.Array) -> dict[str, jax.Array]:
        return {"concentration": eta}

    def message(self, cavity: jax.Array, stats: jax.Array) -> jax.Array:
        """a_new − cavity with a_new from (3.85), or (3.113): a_new = m Σ(m − m⁽²⁾)/Σ(m⁽²⁾ − m²)."""
        if self.match == "log":
            return self.natural(stats) - cavity
        mean, square = stats[..., : self.components], stats[..., self.components :]
        total = jnp.sum(mean - square, axis=-1, keepdims=True) / jnp.sum(square - mean**2, axis=-1, keepdims=True)
        return total * mean - cavity

    def keep_proper(self, cavity: jax.Array, stats: jax.Array, site: jax.Array, floor: float) -> jax.Array:
        if self.match == "log":
            return super().keep_proper(cavity, stats, site, floor)
        return Family.keep_proper(self, cavity, stats, site, floor)

    def tilted_stats(self, log_z: Any, cavity: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(log Z, stats); for mean and square from the identity E[w_k] = E_cavity[w_k] Z(a + e_k)/Z(a)."""
        if self.match == "log":
            return super().tilted_stats(log_z, cavity)
        value, total, unit = log_z(cavity), jnp.sum(cavity), jnp.eye(self.components)
        raised = jax.vmap(log_z)(jnp.concatenate([cavity + unit, cavity + 2.0 * unit]))
        mean = cavity / total
        return value, jnp.concatenate([mean, mean * (cavity + 1.0) / (total + 1.0)]) * jnp.exp(raised - value)


@dataclass(frozen=True)
class Beta(ShapeFamily):
    """Beta(x; a, b) on 0 < x < 1, the Dirichlet of (x, 1 − x).

    Examples:
        >>> import cavity as cv
        >>> beta = cv.families.Beta()
        >>> float(beta.mean(beta.from_shapes(2.0, 6.0)))
        0.25
    """

    size: ClassVar[int] = 2  # type: ignore[override]

    def from_shapes(self, a: Any, b: Any) -> jax.Array:
        """Natural parameters of Beta(a, b)."""
        library = library_of(a, b)
        return library.stack(library.broadcast_arrays(library.asarray(a, float), library.asarray(b, float)), axis=-1)

    def coordinates(self, eta: jax.Array) -> tuple[jax.Array, ...]:
        """(a, b)."""
        return eta[..., 0], eta[..., 1]

    def statistics(self, x: jax.Array) -> jax.Array:
        x = jnp.asarray(x, float)
        return jnp.stack([jnp.log(x), jnp.log1p(-x)], axis=-1)

    def weights(self, x: jax.Array) -> jax.Array:
        """(x, 1 − x)."""
        x = jnp.asarray(x, float)
        return jnp.stack([x, 1.0 - x], axis=-1)

    def mean(self, eta: jax.Array) -> jax.Array:
        """a/(a + b)."""
        a, b = self.coordinates(jnp.asarray(eta))
        return a / (a + b)

    def covariance(self, eta: jax.Array) -> jax.Array:
        """ab/((a + b)² (a + b + 1))."""
        a, b = self.coordinates(jnp.asarray(eta))
        total = a + b
        return (a / total) * (b / total) / (total + 1.0)

    def sample(self, key: jax.Array, eta: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        a, b = self.coordinates(jnp.asarray(eta))
        return jax.random.beta(key, a, b, shape + a.shape, dtype=float)
