"""Cholesky factors and triangular systems, as LAPACK does them: no copy is symmetrised or checked on the way."""

import jax


def cholesky(matrix: jax.Array) -> jax.Array:
    """Lower L with L Lᵀ = matrix, of which only the lower triangle is read; NaN where it is not positive definite."""
    return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)


def solve_triangular(lower: jax.Array, right: jax.Array, *, unit: bool = False) -> jax.Array:
    """L⁻¹ right; right may be a vector. unit: the diagonal of L is not read and taken to be 1."""
    columns = right if right.ndim == 2 else right[:, None]
    solved = jax.lax.linalg.triangular_solve(lower, columns, left_side=True, lower=True, unit_diagonal=unit)
    return solved if right.ndim == 2 else solved[:, 0]


def divide_right(matrix: jax.Array, lower: jax.Array) -> jax.Array:
    """matrix L⁻ᵀ."""
    return jax.lax.linalg.triangular_solve(lower, matrix, left_side=False, lower=True, transpose_a=True)
