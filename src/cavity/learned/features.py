"""Random Fourier features: of points, and of tuples of distributions in two stages (Algorithm 1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.families.base import Family
from cavity.families.dirichlet import Beta
from cavity.families.gamma import Gamma
from cavity.learned.message_coordinates import parts_of, split_variables

#: nodes of the rule that gives E[exp(iwx)] of a Beta variable
NODES = 192


class Waves(NamedTuple):
    """cos(ω·u + b): frequencies (D, d) and phases (D,)."""

    frequencies: jax.Array
    phases: jax.Array

    def of(self, points: jax.Array) -> jax.Array:
        """√(2/D) cos(ω·u + b), rows of points to rows of features; their inner product is near the kernel."""
        angle = points @ self.frequencies.T + self.phases
        return jnp.sqrt(2.0 / len(self.phases)) * jnp.cos(angle)


def waves(key: jax.Array, size: int, widths: jax.Array) -> Waves:
    """Of the Gaussian kernel exp(−½ Σ (Δu/width)²): ω ~ N(0, 1/width²), b uniform."""
    first, second = jax.random.split(key)
    widths = jnp.atleast_1d(jnp.asarray(widths, float))
    frequencies = jax.random.normal(first, (size, len(widths)), dtype=float) / widths
    return Waves(frequencies, jax.random.uniform(second, (size,), maxval=2.0 * jnp.pi, dtype=float))


class TwoStages(NamedTuple):
    """Features of the kernel exp(−‖μ_r − μ_s‖²/2γ²) on mean embeddings of tuples of messages (7).

    inner: frequencies with one column a message. outer: on the inner features.
    """

    inner: Waves
    outer: Waves

    def of(self, family: Family, etas: jax.Array, exact: bool = False) -> jax.Array:
        """Rows of cavities to rows of features. exact: see `embed`."""
        return self.outer.of(embed(self.inner, family, etas, exact))


def two_stages(key: jax.Array, inner: int, outer: int, widths: jax.Array, gamma: float | jax.Array) -> TwoStages:
    """widths: of the Gaussian kernel that embeds, one per message; gamma: of the kernel on embeddings."""
    first, second = jax.random.split(key)
    return TwoStages(waves(first, inner, widths), waves(second, outer, jnp.full(inner, gamma)))


def embed(inner: Waves, family: Family, etas: jax.Array, exact: bool = False) -> jax.Array:
    """√(2/D) E cos(ω·x + b) under a tuple of independent messages, rows of cavities to rows of features.

    exact: by the characteristic functions of Beta and Gamma messages. Otherwise these are taken for Gaussians of their
    mean and variance, as the authors of the method did.
    """

    def one(eta: jax.Array) -> jax.Array:
        product = jnp.exp(1j * inner.phases)
        for number, (own, piece) in enumerate(zip(parts_of(family), split_variables(family, eta), strict=True)):
            product = product * characteristic(own, piece, inner.frequencies[:, number], exact)
        return jnp.real(product)

    return jnp.sqrt(2.0 / len(inner.phases)) * jax.vmap(one)(etas)


def characteristic(family: Family, eta: jax.Array, frequency: jax.Array, exact: bool) -> jax.Array:
    """E[exp(iωx)] of one message of a number, for many ω."""
    if family.event_shape:
        raise TypeError(f"mean embeddings are of numbers; {type(family).__name__} is of vectors.")
    if exact and isinstance(family, Gamma):
        shape, rate = family.coordinates(eta)
        return (1.0 - 1j * frequency / rate) ** -shape
    if exact and isinstance(family, Beta):
        return beta_characteristic(eta, frequency)
    mean, variance = jnp.asarray(family.mean(eta)), jnp.asarray(family.covariance(eta))
    return jnp.exp(1j * frequency * mean - 0.5 * frequency**2 * variance)


def beta_characteristic(eta: jax.Array, frequency: jax.Array) -> jax.Array:
    """By a rule in t = log x/(1 − x), where the density x^a (1 − x)^b/B(a, b) is smooth for all shapes."""
    a, b = eta
    u = np.linspace(-1.0, 1.0, NODES + 1)
    # Nodes follow the mass: around the mode, and a hundred of its own deviations into the tails.
    nodes, weights = np.sinh(5.5 * u), np.cosh(5.5 * u)
    t = jnp.log(a / b) + jnp.sqrt(1.0 / a + 1.0 / b) * nodes
    x = jax.nn.sigmoid(t)
    log_density = -a * jax.nn.softplus(-t) - b * jax.nn.softplus(t)
    density = weights * jnp.exp(log_density - jnp.max(log_density))
    return jnp.exp(1j * frequency[:, None] * x) @ density / jnp.sum(density)


def mean_and_variance(family: Family, etas: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Means and variances of messages of numbers, (cavities, messages) each."""
    rows = list(zip(parts_of(family), split_variables(family, etas), strict=True))
    means = jnp.stack([own.mean(piece) for own, piece in rows], axis=-1)
    return means, jnp.stack([own.covariance(piece) for own, piece in rows], axis=-1)
