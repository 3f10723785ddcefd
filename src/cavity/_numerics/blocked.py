"""B = I + R K R for a positive diagonal R: its Cholesky factor and its inverse, by blocks of columns.

Everything is products of blocks; LAPACK sees the diagonal blocks only. Symmetric and triangular matrices are stored as
the columns of every block from its diagonal block on: half of the square.

R may be as small as 1e-60 beside K: the off-diagonal parts of L and of B⁻¹ carry the factors R of their row and
column, so that R⁻¹ (I − B⁻¹) R⁻¹ keeps its digits. On the diagonal the identity is kept apart, in `complement`. For
block j, with D = L_jj⁻¹, H = L_·j D (the rows below it) and C = B⁻¹ in the blocks after it:

    [B⁻¹]_·j = −C H,    [B⁻¹]_jj = DᵀD + HᵀC H,
    diag(I − [B⁻¹]_jj)ᵢ = δᵢ / (1 + δᵢ) − Σ_{k>i} Dₖᵢ² − [HᵀC H]ᵢᵢ,    δᵢ = Lᵢᵢ² − 1 = rᵢ² Kᵢᵢ − Σ_{k<i} Lᵢₖ².

Before that, Cholesky factors and triangular systems as LAPACK does them, no copy symmetrised or checked on the way; at
the end, what dense Gaussians are asked.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Blocks = tuple[jax.Array, ...]

#: where the diagonal is: a choice of entries, so that no identity matrix is kept in memory through a loop
identity = partial(jnp.eye, dtype=bool)
#: lower L with L Lᵀ = matrix, of which only the lower triangle is read; NaN where it is not positive definite
cholesky = partial(jax.lax.linalg.cholesky, symmetrize_input=False)
#: L⁻¹ matrix, of (L, matrix). unit_diagonal: the diagonal of L is not read and taken to be 1
solve_triangular = partial(jax.lax.linalg.triangular_solve, left_side=True, lower=True)
#: matrix L⁻ᵀ, of (L, matrix)
divide_right = partial(jax.lax.linalg.triangular_solve, left_side=False, lower=True, transpose_a=True)


class BlockedCholesky(NamedTuple):
    """B = L Lᵀ: inverses of its diagonal blocks, what is below them, and diag(L)² − 1, so log |B| = Σ log1p(excess)."""

    inverses: Blocks
    below: Blocks
    excess: jax.Array


class Inverse(NamedTuple):
    """B⁻¹ in blocks of columns, its diagonal, and diag(I − B⁻¹), both to full relative accuracy."""

    columns: Blocks
    diagonal: jax.Array
    complement: jax.Array


def blocked_cholesky(k: jax.Array, root: jax.Array, width: int) -> BlockedCholesky:
    """L for B = I + R K R, with R = diag root; not a number where B is not positive definite to rounding."""
    inverses: list[jax.Array] = []
    below: list[jax.Array] = []
    excess: list[jax.Array] = []
    for start in range(0, k.shape[0], width):
        own = root[start : start + width]
        column = root[start:, None] * k[start:, start : start + width] * own
        if start:
            known = jnp.concatenate([block[start - k.shape[0] :] for block in below], axis=1)
            column = column - known @ known[: own.size].T
        square = column[: own.size]
        # Symmetric: read by columns, as LAPACK wants it, it needs no copy.
        lower = cholesky(jnp.where(identity(own.size), square + 1.0, square).T)
        excess.append(jnp.diagonal(square) - jnp.sum(jnp.tril(lower, -1) ** 2, axis=1))
        inverses.append(solve_triangular(lower, jnp.eye(own.size)))
        below.append(column[own.size :] @ inverses[-1].T)
    return BlockedCholesky(tuple(inverses), tuple(below), jnp.concatenate(excess))


def blocked_inverse(found: BlockedCholesky, width: int) -> Inverse:
    """B⁻¹ from L, from the last block of columns to the first."""
    known = jnp.zeros((0, 0))  # B⁻¹ in the blocks behind
    columns: list[jax.Array] = []
    complement: list[jax.Array] = []
    for start, own, below in reversed(list(zip(range(0, found.excess.size, width), *found[:2], strict=True))):
        excess = found.excess[start : start + width]
        left = excess / (1.0 + excess) - jnp.sum(jnp.tril(own, -1) ** 2, axis=0)
        square = own.T @ own
        column = square
        if known.size:
            across = below @ own
            reach = -(known @ across)
            moved = across.T @ reach
            square = square - moved
            left = left + jnp.diagonal(moved)
            column = jnp.concatenate([square, reach])
            if start:
                upper = jnp.concatenate([square, reach.T], axis=1)
                known = jnp.concatenate([upper, jnp.concatenate([reach, known], axis=1)])
        else:
            known = square
        columns.append(column)
        complement.append(left)
    columns.reverse()
    diagonal = jnp.concatenate(list(map(jnp.diagonal, columns)))
    return Inverse(tuple(columns), diagonal, jnp.concatenate(complement[::-1]))


def blocked_solve(found: BlockedCholesky, right: jax.Array) -> jax.Array:
    """B⁻¹ right by substitution: where B is ill-conditioned far more accurate than a product with B⁻¹."""
    forward = []
    for own, below in zip(found.inverses, found.below, strict=True):
        forward.append(own @ right[: own.shape[0]])
        right = right[own.shape[0] :] - below @ forward[-1]
    solved = right  # nothing is left of it
    for own, below, part in reversed(list(zip(found.inverses, found.below, forward, strict=True))):
        solved = jnp.concatenate([(part - solved @ below) @ own, solved])
    return solved


def cut_columns(columns: Blocks, width: int) -> Blocks:
    """Blocks of columns cut into blocks of `width`, each from its own diagonal on."""
    cut = []
    for block in columns:
        for start in range(0, block.shape[1], width):
            cut.append(block[start:, start : start + width])
    return tuple(cut)


def lower_part(columns: Blocks) -> jax.Array:
    """The columns side by side, with zeros above their diagonal blocks."""
    padded = []
    for block in columns:
        padded.append(jnp.pad(block, ((len(columns[0]) - len(block), 0), (0, 0))))
    return jnp.concatenate(padded, axis=1)


def symmetric_from_columns(columns: Blocks) -> jax.Array:
    """The symmetric matrix of which these are the columns from the diagonal block on."""
    size, width = columns[0].shape
    lower, block = lower_part(columns), jnp.arange(size) // width
    return jnp.where(block[:, None] >= block, lower, lower.T)


def some_columns(columns: Blocks, index: jax.Array) -> jax.Array:
    """The columns `index` of the symmetric matrix."""
    size, width = columns[0].shape
    lower = lower_part(columns)
    return jnp.where(jnp.arange(size)[:, None] // width >= index // width, lower[:, index], lower[index].T)


def off_diagonal_product(columns: Blocks, vector: jax.Array) -> jax.Array:
    """The symmetric matrix without its diagonal, times a vector."""
    strict = jnp.tril(lower_part(columns), -1)
    return strict @ vector + vector @ strict


def sample_gaussian(key: jax.Array, mean: Any, covariance: jax.Array, draws: int) -> jax.Array:
    """Draws of N(mean, covariance) through the eigenvectors of the covariance, which may be singular to rounding."""
    values, vectors = jnp.linalg.eigh(covariance)
    noise = jax.random.normal(key, (draws, len(covariance)), dtype=float)
    return mean + (noise * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T


def gaussian_log_density(mean: jax.Array, covariance: jax.Array, x: Any) -> jax.Array:
    """log N(x; mean, covariance) for x of any batch."""
    lower = cholesky(covariance)
    scaled = solve_triangular(lower, jnp.atleast_2d(x - mean).T)
    constant = jnp.sum(jnp.log(jnp.diagonal(lower))) + 0.5 * mean.size * jnp.log(2 * jnp.pi)
    return jnp.reshape(-0.5 * jnp.sum(scaled**2, axis=0) - constant, jnp.shape(x)[:-1])
