"""Random Fourier features of points and of tuples of messages (Jitkrittum et al., Algorithm 1), and regression on them.

A message counts as the Gaussian of its mean and variance. μ_r is the mean embedding of a tuple r in a Gaussian kernel k
with one width per message, so that ⟨μ_r, μ_s⟩ = E k(x, y), x ~ r, y ~ s.

The regression is Bayesian and linear, with several targets of one covariance, updated as labels arrive ((9)–(17)).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve

from cavity.families.base import Family
from cavity.learned.message_coordinates import variables


class MessageMoments(NamedTuple):
    """Means and variances of tuples of messages, (tuples, messages of a tuple) each."""

    means: Any
    variances: Any


def message_moments(family: Family, etas: jax.Array) -> MessageMoments:
    """The messages of numbers that rows of cavities stand for."""
    rows = variables(family, etas)
    for own, _ in rows:
        if own.event_shape:
            raise TypeError(f"mean embeddings are of numbers; {type(own).__name__} is of vectors.")
    means = jnp.stack([own.mean(piece) for own, piece in rows], axis=-1)
    return MessageMoments(means, jnp.stack([own.covariance(piece) for own, piece in rows], axis=-1))


class Waves(NamedTuple):
    """cos(ω·u + b): frequencies (D, d) and phases (D,)."""

    frequencies: jax.Array
    phases: jax.Array

    def of(self, points: jax.Array) -> jax.Array:
        """√(2/D) cos(ω·u + b), rows of points to rows of features; their inner product is near the kernel."""
        angle = points @ self.frequencies.T + self.phases
        return jnp.sqrt(2.0 / len(self.phases)) * jnp.cos(angle)

    def embed(self, messages: MessageMoments) -> jax.Array:
        """√(2/D) E cos(ω·x + b) = √(2/D) cos(ω·m + b) exp(−½ Σ ω² v), rows of messages to rows of features."""
        return self.of(messages.means) * jnp.exp(-0.5 * messages.variances @ (self.frequencies**2).T)


def waves(key: jax.Array, size: int, widths: jax.Array) -> Waves:
    """Of the Gaussian kernel exp(−½ Σ (Δu/width)²): ω ~ N(0, 1/width²), b uniform."""
    first, second = jax.random.split(key)
    widths = jnp.atleast_1d(jnp.asarray(widths, float))
    frequencies = jax.random.normal(first, (size, len(widths)), dtype=float) / widths
    return Waves(frequencies, jax.random.uniform(second, (size,), maxval=2.0 * jnp.pi, dtype=float))


class TwoStages(NamedTuple):
    """Features of the kernel exp(−‖μ_r − μ_s‖²/2γ²) on mean embeddings of tuples of messages (7).

    inner: frequencies with one column per message. outer: on the inner features.
    """

    inner: Waves
    outer: Waves

    @partial(jax.jit, static_argnums=1)
    def of(self, family: Family, etas: jax.Array) -> jax.Array:
        """Rows of cavities to rows of features."""
        return self.outer.of(self.inner.embed(message_moments(family, etas)))


def two_stages(key: jax.Array, inner: int, outer: int, widths: jax.Array, gamma: float | jax.Array) -> TwoStages:
    """widths: of the Gaussian kernel that embeds, one per message; gamma: of the kernel on embeddings."""
    first, second = jax.random.split(key)
    return TwoStages(waves(first, inner, widths), waves(second, outer, jnp.full(inner, gamma)))


def single_products(one: MessageMoments, other: MessageMoments, squares: tuple[float, ...]) -> np.ndarray:
    """⟨μ_r, μ_s⟩ of single messages, (messages, rows of one, rows of other)."""
    square = np.asarray(squares)[:, None, None]
    total = one.variances.T[:, :, None] + other.variances.T[:, None] + square
    gap = one.means.T[:, :, None] - other.means.T[:, None]
    return np.sqrt(square / total) * np.exp(-0.5 * gap**2 / total)


def embedding_gaps(one: MessageMoments, other: MessageMoments, squares: tuple[float, ...]) -> np.ndarray:
    """‖μ_r − μ_s‖² of joint embeddings."""

    def own(of: MessageMoments) -> np.ndarray:
        return np.prod(np.sqrt(np.asarray(squares) / (2.0 * of.variances + np.asarray(squares))), axis=1)

    across = np.prod(single_products(one, other, squares), axis=0)
    return np.maximum(own(one)[:, None] + own(other)[None] - 2.0 * across, 0.0)


def mean_variances(of: MessageMoments) -> tuple[float, ...]:
    """σ² of the median heuristic: the average variance of each incoming message (supplement A, step 1)."""
    return tuple(of.variances.mean(axis=0).tolist())


def median_gap(of: MessageMoments, squares: tuple[float, ...]) -> float:
    """γ² of the median heuristic (supplement A, step 2), over pairs i ≤ j; the authors count the zero ones i = j."""
    gaps = embedding_gaps(of, of, squares)
    return float(np.median(gaps[np.triu_indices(len(gaps))]))


class Regression(NamedTuple):
    """w ~ N(0, prior I); y = w·x + N(0, noise). covariance: (D, D), of w. products: Σ x y/noise, (D, targets)."""

    covariance: jax.Array
    products: jax.Array

    @property
    def weights(self) -> jax.Array:
        """E[w], one column per target (13)."""
        return self.covariance @ self.products

    def predict(self, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(E[y], variance of w·x) of rows of features, without the labels' noise (14, 15)."""
        spread = jnp.sum((features @ self.covariance) * features, axis=-1)
        return features @ self.weights, jnp.maximum(spread, 0.0)


def whitened(features: jax.Array, targets: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Features and targets in standard deviations of the noise; rows of infinite noise are no labels, and 0."""
    labelled = jnp.isfinite(noise)[:, None]
    scale = jnp.sqrt(jnp.where(labelled, noise[:, None], 1.0))
    return jnp.where(labelled, features, 0.0) / scale, jnp.where(labelled, targets, 0.0) / scale


def update(now: Regression, features: jax.Array, targets: jax.Array, noise: jax.Array) -> Regression:
    """After more labels, rows of features and targets, each with its noise variance; infinite noise is no label.

    One label at a time this is (16) and (17). Several at once are one solve with their own k × k matrix.
    """
    x, y = whitened(features, targets, noise)
    across = now.covariance @ x.T
    inside = jnp.eye(len(x)) + x @ across
    covariance = now.covariance - across @ cho_solve((jnp.linalg.cholesky(inside), True), across.T)
    return Regression(0.5 * (covariance + covariance.T), now.products + x.T @ y)


def fit_weights(features: jax.Array, targets: jax.Array, noise: jax.Array, prior: float = 1.0) -> Regression:
    """From all labels at once, by the Cholesky factor of the precision (11)–(13); free of the rounding of updates."""
    x, y = whitened(features, targets, noise)
    identity = jnp.eye(x.shape[1])
    covariance = cho_solve((jnp.linalg.cholesky(x.T @ x + identity / prior), True), identity)
    return Regression(0.5 * (covariance + covariance.T), x.T @ y)


@jax.jit
def leave_one_out_errors(features: jax.Array, targets: jax.Array, ridge: jax.Array) -> jax.Array:
    """Mean squared error of leaving each label out, for every ridge parameter: residual / (1 − h).

    From one decomposition V S² Vᵀ of XᵀX: h = Σ (x·v)²/(s² + ridge), which is safe while the ridge is large against the
    rounding of S². Rows: ridge parameters; columns: targets.
    """
    squares, vectors = jnp.linalg.eigh(features.T @ features)
    turned = features @ vectors
    inside = turned.T @ targets

    def one(value: jax.Array) -> jax.Array:
        shrink = 1.0 / (jnp.maximum(squares, 0.0) + value)
        residual = targets - turned @ (shrink[:, None] * inside)
        leverage = jnp.sum(turned**2 * shrink, axis=1)
        return jnp.mean((residual / (1.0 - leverage)[:, None]) ** 2, axis=0)

    return jax.lax.map(one, jnp.atleast_1d(ridge))
