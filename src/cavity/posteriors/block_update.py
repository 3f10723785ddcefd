"""All sites of a window at once: its change of q from two Cholesky factors, in products of blocks.

With L the covariance and h the mean of the window's latents, δ and Δ the changes of their ν and τ, and A the covariance
of all of q with them (`reach`), q's covariance becomes Σ − A M Aᵀ and its mean m + A [(I − M L) δ − M h],
M = Δ (I + L Δ)⁻¹. The rising precisions are taken in first, with R = √Δ on them and 0 elsewhere, then the falling ones,
with W = √−Δ, on top of L₁ = L − L X₁ X₁ᵀ L:

    C₁ C₁ᵀ = I + R L R,    X₁ = R C₁⁻ᵀ,        C₂ C₂ᵀ = I − W L₁ W,    X₂ = (I − X₁ X₁ᵀ L) W C₂⁻ᵀ,
    M = X₁ X₁ᵀ − X₂ X₂ᵀ.

A column of X₁ is 0 where a precision falls, one of X₂ where it does not, so X = X₁ + X₂ has one column per site:
M = X diag(±1) Xᵀ. The second factor exists where q stays proper.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cavity.numerics.blocked import cholesky, identity, solve_triangular
from cavity.posteriors.delayed_updates import Window


class Absorbed(NamedTuple):
    """A window whose sites have all been changed at once: Σ −= (reach X · signs)(reach X)ᵀ, mean += reach moves."""

    reach: jax.Array
    factor: jax.Array
    signs: jax.Array
    moves: jax.Array
    proper: jax.Array


def absorb_all(window: Window, change: jax.Array) -> Absorbed:
    """The window after the changes (Δν, Δτ) of all its sites."""
    covariance, (nu, tau) = window.covariance, change.T
    rising, falling = jnp.sqrt(jnp.maximum(tau, 0.0)), jnp.sqrt(jnp.maximum(-tau, 0.0))
    first = weighted_inverse(rising, covariance)
    seen = covariance @ first
    second = weighted_inverse(falling, -(covariance - seen @ seen.T))
    factor = first + second - first @ (seen.T @ second)
    signs = jnp.where(tau < 0, -1.0, 1.0)

    def reduced(vector: jax.Array) -> jax.Array:
        return factor @ (signs * (vector @ factor))

    moves = nu - reduced(covariance @ nu + window.mean)
    return Absorbed(window.reach, factor, signs, moves, jnp.all(jnp.isfinite(moves)))


def weighted_inverse(root: jax.Array, matrix: jax.Array) -> jax.Array:
    """R C⁻ᵀ with C Cᵀ = I + R matrix R; not a number where that is not positive definite."""
    square = root[:, None] * matrix * root
    lower = cholesky(jnp.where(identity(root.size), square + 1.0, square))
    return root[:, None] * solve_triangular(lower, jnp.eye(root.size)).T


def columns(absorbed: Absorbed) -> jax.Array:
    """The columns by which q was moved, with their `signs`."""
    return absorbed.reach @ absorbed.factor
