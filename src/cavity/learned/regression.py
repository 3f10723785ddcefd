"""Bayesian linear regression on features, several targets with one covariance, updated as labels arrive ((9)–(17))."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve


class Regression(NamedTuple):
    """w ~ N(0, prior I); y = w·x + N(0, noise). covariance: (D, D), of w. products: Σ x y/noise, (D, targets)."""

    covariance: jax.Array
    products: jax.Array

    @property
    def weights(self) -> jax.Array:
        """E[w], one column a target (13)."""
        return self.covariance @ self.products

    def predict(self, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(E[y], variance of w·x) of rows of features, without the labels' noise (14, 15)."""
        spread = jnp.sum((features @ self.covariance) * features, axis=-1)
        return features @ self.weights, jnp.maximum(spread, 0.0)


def blank(size: int, targets: int, prior: float | jax.Array = 1.0) -> Regression:
    """Before any label (9)."""
    return Regression(prior * jnp.eye(size), jnp.zeros((size, targets)))


def update(now: Regression, features: jax.Array, targets: jax.Array, noise: jax.Array) -> Regression:
    """After more labels, rows of features and targets, each with its noise variance; infinite noise is no label.

    One label at a time this is (16) and (17). Several at once are one solve with their own k × k matrix.
    """
    labelled = jnp.isfinite(noise)
    x = jnp.where(labelled[:, None], features, 0.0) / jnp.sqrt(jnp.where(labelled, noise, 1.0))[:, None]
    y = jnp.where(labelled[:, None], targets, 0.0) / jnp.sqrt(jnp.where(labelled, noise, 1.0))[:, None]
    across = now.covariance @ x.T
    inside = jnp.eye(len(x)) + x @ across
    covariance = now.covariance - across @ cho_solve((jnp.linalg.cholesky(inside), True), across.T)
    return Regression(0.5 * (covariance + covariance.T), now.products + x.T @ y)


def fit_weights(
    features: jax.Array, targets: jax.Array, noise: jax.Array, prior: float | jax.Array = 1.0
) -> Regression:
    """From all labels at once, by the Cholesky factor of the precision (11)–(13); free of the rounding of updates."""
    labelled = jnp.isfinite(noise)
    root = jnp.sqrt(jnp.where(labelled, 1.0 / jnp.where(labelled, noise, 1.0), 0.0))[:, None]
    x, y = root * jnp.where(labelled[:, None], features, 0.0), root * jnp.where(labelled[:, None], targets, 0.0)
    precision = x.T @ x + jnp.eye(x.shape[1]) / prior
    factor = jnp.linalg.cholesky(precision)
    covariance = cho_solve((factor, True), jnp.eye(x.shape[1]))
    return Regression(0.5 * (covariance + covariance.T), x.T @ y)


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
