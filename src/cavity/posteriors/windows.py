"""Updates of scalar Gaussian sites at matrix-multiply speed: windows of a few sites, one after another or at once.

The sites of a window see the joint Gaussian of their own latents, N(mean, covariance). A site change (Δν, Δτ) at place
i moves it by a rank-one update (thesis 5.80): with a = covariance[:, i] and v = a[i] as they are at that moment,

    covariance −= c a aᵀ,   c = Δτ / (1 + Δτ v),        mean += e a,   e = (Δν − Δτ mean[i]) / (1 + Δτ v).

The same update moves the rest of q, through its covariance with site i at that moment. Before the window that is
`reach[:, i]`; the earlier updates of the window have changed it:

    column_i = reach[:, i] − Σ_{j before i} c_j a_j[i] column_j,

a unit triangular system that gives all columns when the window closes. These are exactly the updates of sequential EP.

All sites of a window at once take two Cholesky factors, in products of blocks. With L the covariance and h the mean of
the window's latents, δ and Δ the changes of their ν and τ, and A the covariance of all of q with them (`reach`), q's
covariance becomes Σ − A M Aᵀ and its mean m + A [(I − M L) δ − M h], M = Δ (I + L Δ)⁻¹. The rising precisions are taken
in first, with R = √Δ on them and 0 elsewhere, then the falling ones, with W = √−Δ, on top of L₁ = L − L X₁ X₁ᵀ L:

    C₁ C₁ᵀ = I + R L R,    X₁ = R C₁⁻ᵀ,        C₂ C₂ᵀ = I − W L₁ W,    X₂ = (I − X₁ X₁ᵀ L) W C₂⁻ᵀ,
    M = X₁ X₁ᵀ − X₂ X₂ᵀ.

A column of X₁ is 0 where a precision falls, one of X₂ where it does not, so X = X₁ + X₂ has one column per site:
M = X diag(±1) Xᵀ. The second factor exists where q stays proper.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cavity._numerics.blocked import cholesky, identity, solve_triangular
from cavity.posteriors.base import Posterior


class Window(NamedTuple):
    """The joint Gaussian of the latents of a few sites, and a record of what was absorbed.

    reach: covariance of the rest of q with these latents when the window was opened, one column per site.
    columns: row i is `covariance[:, i]` when site i was absorbed. gains, moves: its c and e.
    """

    mean: jax.Array
    covariance: jax.Array
    reach: jax.Array
    columns: jax.Array
    gains: jax.Array
    moves: jax.Array
    proper: jax.Array


def open_window(mean: jax.Array, covariance: jax.Array, reach: jax.Array) -> Window:
    """A window in which nothing has been absorbed yet."""
    none = jnp.zeros_like(mean)
    return Window(mean, covariance, reach, jnp.zeros_like(covariance), none, none, jnp.ones((), bool))


class WindowedPosterior(Posterior):
    """A posterior whose sites are visited in windows, `Window`s of their latents."""

    def local(self, window: Window, scope: Any, place: jax.Array | None) -> jax.Array:
        if place is None:
            mean, precision = window.mean, 1.0 / jnp.diagonal(window.covariance)
        else:
            mean, precision = window.mean[place], 1.0 / window.covariance[place, place]
        return jnp.stack([mean * precision, precision], axis=-1)

    def absorb(self, window: Window, scope: Any, place: jax.Array | None, change: jax.Array) -> Any:
        """Sites at places come each once and in the order of the window."""
        if place is None:
            return absorb_all(window, change)
        if place.shape[0] == 1:
            return absorb_one(window, place[0], change[0])
        return jax.lax.scan(lambda held, one: (absorb_one(held, *one), None), window, (place, change))[0]


def absorb_one(window: Window, place: jax.Array, change: jax.Array) -> Window:
    """One rank-one update."""
    column = window.covariance[place]
    growth = 1.0 + change[1] * column[place]
    gain = change[1] / growth
    move = (change[0] - change[1] * window.mean[place]) / growth
    return window._replace(
        mean=window.mean + move * column,
        covariance=window.covariance - gain * column[:, None] * column,
        columns=window.columns.at[place].set(column),
        gains=window.gains.at[place].set(gain),
        moves=window.moves.at[place].set(move),
        proper=window.proper & (growth > 0),
    )


def update_columns(window: Window) -> jax.Array:
    """The columns by which the rest of q was moved: rest −= Σ gainᵢ columnᵢ columnᵢᵀ, its mean += Σ moveᵢ columnᵢ."""
    system = jnp.tril(window.columns.T * window.gains, -1)
    return window.reach @ solve_triangular(system, jnp.eye(window.mean.size), unit_diagonal=True).T


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


def absorbed_columns(absorbed: Absorbed) -> jax.Array:
    """The columns by which q was moved, with their `signs`."""
    return absorbed.reach @ absorbed.factor
